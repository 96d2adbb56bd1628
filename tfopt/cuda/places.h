/* Which tensor, slice and elements a thread has. */
#pragma once

#include <type_traits>

#include "shim.h"

constexpr int THREADS = 256; /* of a block */
constexpr int CHUNK = 4096;  /* elements of a dense block */

/* The last of n numbers, which grow, that is not above a value. */
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

/* Have a thread take its elements of a chunk: step(number of elements, the first one). They are
 * `WIDE` at a time if that suits how everything lies, and one by one otherwise or at the end.
 */
template <int WIDE, class Step>
DEVICE void walk(std::int64_t chunk, std::int64_t size, bool aligned, const Step &step) {
    std::int64_t i = chunk * CHUNK;
    const std::int64_t stop = size - i < CHUNK ? size : i + CHUNK;
    i += std::int64_t(threadIdx.x) * (aligned ? WIDE : 1);
    for (; aligned && i + WIDE <= stop; i += THREADS * WIDE)
        step(std::integral_constant<int, WIDE>(), i);
    /* all elements, or those left over, which are less than a pack and one thread's */
    for (; i < stop; i += aligned ? 1 : THREADS)
        step(std::integral_constant<int, 1>(), i);
}

/* Some axes of an array, the innermost first; neighbours are merged where they are one. */
constexpr int MOST_AXES = 16;
struct Axes {
    int n;
    std::int64_t size[MOST_AXES], stride[MOST_AXES]; /* in elements */
};

/* Where the i-th element along some axes lies, counted in C order. */
BOTH std::int64_t offset_of(const Axes &axes, std::int64_t i) {
    std::int64_t offset = 0;
#pragma unroll 1
    for (int k = 0; k < axes.n - 1; k++) {
        offset += i % axes.size[k] * axes.stride[k];
        i /= axes.size[k];
    }
    return axes.n ? offset + i * axes.stride[axes.n - 1] : 0;
}
