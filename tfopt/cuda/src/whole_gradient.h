/* The dense gradient that rows stand for: of each row the sum, and of other rows zeros. */
#pragma once

#include "storage.h"
#include "thread_work.h"

template <class G> struct WholeGradient {
    G *into;
    const G *grad;
    std::int64_t n, n_rows, inner;
    const std::uint32_t *row, *order; /* of each sorted occurrence */
};

/* Fill chunks of the gradient. */
template <class G> KERNEL fill_whole(IN_PARAMETERS WholeGradient<G> w) {
    walk<1>(blockIdx.x, w.n_rows * w.inner, false, [&](auto, std::int64_t at) {
        const std::int64_t row = at / w.inner, c = at % w.inner;
        std::int64_t first = 0, after = w.n;
        while (first < after) { /* the first occurrence of this row or a later one */
            const std::int64_t middle = (first + after) / 2;
            if (w.row[middle] < row)
                first = middle + 1;
            else
                after = middle;
        }
        typename Computed<G>::type sum = 0;
        for (; first < w.n && w.row[first] == row; first++)
            sum = sum + load(w.grad[w.order[first] * w.inner + c]);
        store(&w.into[at], sum);
    });
}

template <class G>
void launch_fill(void *into, const void *grad, std::int64_t n, std::int64_t n_rows,
                 std::int64_t inner, const std::uint32_t *row, const std::uint32_t *order,
                 cudaStream_t stream) {
    const WholeGradient<G> w = {static_cast<G *>(into), static_cast<const G *>(grad), n, n_rows,
                                inner, row, order};
    LAUNCH(stream, unsigned((n_rows * inner + CHUNK - 1) / CHUNK), THREADS, fill_whole<G>, w);
}

/* Bytes of an element of a gradient, and what fills one, by the types of variable and gradient. */
inline std::size_t gradient_size(int types) { return types == F64 ? 8 : types == F32 ? 4 : 2; }
constexpr decltype(&launch_fill<float>) FILLING[TYPES] = {
    launch_fill<float>,    launch_fill<double>,  launch_fill<float16>,
    launch_fill<bfloat16>, launch_fill<float16>, launch_fill<bfloat16>};
