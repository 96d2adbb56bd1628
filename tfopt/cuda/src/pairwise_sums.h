/* Sums in the order in which NumPy adds up adjacent elements: in pairs of halves. */
#pragma once

#include "portability.h"

constexpr std::int64_t PAIRED = 128; /* elements that are summed in eight lanes, without halving */

/* The sum of elements first .. first + n - 1, at most PAIRED of them. */
template <class real, class Element>
DEVICE real sum_of_few(std::int64_t first, std::int64_t n, const Element &element) {
    std::int64_t i = 0;
    real sum = 0;
    if (n >= 8) {
        real lanes[8];
        for (int k = 0; k < 8; k++)
            lanes[k] = element(first + k);
#pragma unroll 1
        for (i = 8; i < n - n % 8; i += 8)
#pragma unroll
            for (int k = 0; k < 8; k++)
                lanes[k] = lanes[k] + element(first + i + k);
        sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
              ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    }
#pragma unroll 1
    for (; i < n; i++)
        sum = sum + element(first + i);
    return sum;
}

/* The sum of n elements: of two halves, the first of which has a multiple of eight elements. */
template <class real, class Element> DEVICE real pairwise_sum(std::int64_t n, const Element &element) {
    /* halves that are being summed: what is left of each, and the sum of its first part */
    std::int64_t left[48];
    real sums[48];
    bool begun[48];
    int depth = 0;
    for (std::int64_t first = 0;;) {
        for (; n > PAIRED; depth++) {
            const std::int64_t half = n / 2 - n / 2 % 8;
            left[depth] = n - half;
            begun[depth] = false;
            n = half;
        }
        real sum = sum_of_few<real>(first, n, element);
        first += n;
        for (; depth > 0 && begun[depth - 1]; depth--)
            sum = sums[depth - 1] + sum;
        if (depth == 0)
            return sum;
        n = left[depth - 1];
        sums[depth - 1] = sum;
        begun[depth - 1] = true;
    }
}
