/* Indices checked and sorted, on the stream of the update that needs them. */
#pragma once

#include "shim.h"

constexpr unsigned long long NOTHING = ~0ull;

/* Offsets of the first indices that a check refuses, or NOTHING. */
struct Found {
    unsigned long long outside;  /* names no row */
    unsigned long long repeated; /* names the same row as another */
};

template <class Index>
KERNEL read_indices(const Index *indices, std::int64_t n, std::int64_t n_rows, bool refuse,
                    std::uint32_t *row, std::uint32_t *order, Found *found) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const std::int64_t index = indices[i];
    const bool inside = index >= 0 && index < n_rows;
    if (!inside && refuse)
        atomicMin(&found->outside, static_cast<unsigned long long>(i));
    row[i] = std::uint32_t(inside ? index : n_rows); /* n_rows: no row, and last */
    order[i] = std::uint32_t(i);
}

/* Of sorted rows. */
template <class Row>
KERNEL find_repeated(const Row *row, const std::uint32_t *order, std::int64_t n,
                     std::int64_t n_rows, Found *found) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i > 0 && i < n && row[i] == row[i - 1] && row[i] != n_rows)
        atomicMin(&found->repeated, static_cast<unsigned long long>(order[i]));
}
