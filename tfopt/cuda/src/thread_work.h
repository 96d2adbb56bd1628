/* The tensor, slice and elements that a thread works on. */
#pragma once

#include <type_traits>

#include "portability.h"

constexpr int THREADS = 256; /* per block */
constexpr int CHUNK = 4096;  /* elements per dense block */

/* The index of the last of n ascending numbers that is not above a value. */
BOTH int last_up_to(const std::uint32_t *numbers, int n, std::int64_t value) {
    int found = 0, after = n;
    while (after - found > 1) {
        const int middle = (found + after) / 2;
        if (numbers[middle] <= value)
            found = middle;
        else
            after = middle;
    }
    return found;
}

template <class... Pointer> BOTH bool on_packs(int bytes, Pointer... pointers) {
    return ((reinterpret_cast<std::uintptr_t>(pointers) % bytes == 0) && ...);
}

/* Process a thread's elements of a chunk: step(number of elements, first element). They are
 * processed `WIDE` at a time if alignment permits, and one by one otherwise and at the end.
 */
template <int WIDE, class Step>
DEVICE void walk(std::int64_t chunk, std::int64_t size, bool aligned, const Step &step) {
    std::int64_t i = chunk * CHUNK;
    const std::int64_t stop = size - i < CHUNK ? size : i + CHUNK;
    i += std::int64_t(threadIdx.x) * (aligned ? WIDE : 1);
    for (; aligned && i + WIDE <= stop; i += THREADS * WIDE)
        step(std::integral_constant<int, WIDE>(), i);
    /* all elements, or the remainder, which is less than a pack and goes to one thread */
    for (; i < stop; i += aligned ? 1 : THREADS)
        step(std::integral_constant<int, 1>(), i);
}

/* Axes of an array, innermost first; adjacent axes are merged where possible. */
constexpr int MOST_AXES = 16;
struct Axes {
    int n;
    std::int64_t size[MOST_AXES], stride[MOST_AXES]; /* in elements */
};

/* The offset of the i-th element along some axes, in C order; 32 bits divide faster than 64. */
template <class Index> BOTH std::int64_t offset_of(const Axes &axes, Index i) {
    std::int64_t offset = 0;
#pragma unroll 1
    for (int k = 0; k < axes.n - 1; k++) {
        offset += std::int64_t(i % Index(axes.size[k])) * axes.stride[k];
        i /= Index(axes.size[k]);
    }
    return axes.n ? offset + std::int64_t(i) * axes.stride[axes.n - 1] : 0;
}
