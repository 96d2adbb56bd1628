/* Checking and sorting indices, on the stream of their update. */
#pragma once

#include "portability.h"

constexpr unsigned long long NOTHING = ~0ull;

/* What was found in indices: the offsets of the first invalid ones, or NOTHING. */
struct Found {
    unsigned long long outside;  /* out of range */
    unsigned long long repeated; /* equal to another index */
    std::uint32_t hot;           /* number of rows with many occurrences */
};

constexpr int HOT = 64; /* a row with more occurrences is stepped by a block of its own */

/* Set the row of each occurrence, and the row of its gradient: of its own number, unless `sources` has
 * others. */
template <class Index>
KERNEL read_indices(const Index *indices, const Index *sources, std::int64_t n, std::int64_t n_rows,
                    bool refuse, std::uint32_t *row, std::uint32_t *order, Found *found) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (i == 0)
        found->hot = 0;
    const std::int64_t index = indices[i];
    const bool inside = index >= 0 && index < n_rows;
    if (!inside && refuse)
        atomicMin(&found->outside, static_cast<unsigned long long>(i));
    row[i] = std::uint32_t(inside ? index : n_rows); /* out of range: sorted last */
    order[i] = std::uint32_t(sources ? sources[i] : i);
}

/* Check sorted rows for duplicates. */
template <class Row>
KERNEL find_repeated(const Row *row, const std::uint32_t *order, std::int64_t n,
                     std::int64_t n_rows, Found *found) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i > 0 && i < n && row[i] == row[i - 1] && row[i] != n_rows)
        atomicMin(&found->repeated, static_cast<unsigned long long>(order[i]));
}
