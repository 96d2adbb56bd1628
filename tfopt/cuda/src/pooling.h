/* Sums of rows by place: of the table's rows in each bag, or of the bags' gradients for each row. */
#pragma once

#include "drivers.h"

/* The occurrences of a place follow each other: in the arrays' order, or in that of `row` and `order`,
 * which a sort has made. */
template <class T> struct Pooled {
    using real = typename Computed<T>::type;
    T *sums;
    const T *terms;
    const std::int32_t *places, *sources; /* of each occurrence; NULL: its number */
    const real *weights;                  /* of each occurrence; NULL: all are 1 */
    const real *divisors;                 /* of each place; NULL: all are 1; of 0 the result is 0 */
    std::int64_t n, inner;
    const std::uint32_t *row, *order;
    int group; /* threads that share a place */

    DEVICE std::int64_t place(std::int64_t i) const {
        return row ? std::int64_t(row[i]) : places ? places[i] : i;
    }
    DEVICE std::int64_t occurrence(std::int64_t i) const {
        return order ? std::int64_t(order[i]) : i;
    }
    /* The end of the occurrences of a place; few places have many. */
    DEVICE std::int64_t end_of(std::int64_t first) const {
        const std::int64_t own = place(first);
        std::int64_t last = first, by = 1;
        while (last + by < n && place(last + by) == own) {
            last += by;
            by *= 2;
        }
        while (by /= 2)
            if (last + by < n && place(last + by) == own)
                last += by;
        return last + 1;
    }
};

/* Sum N columns of a place at a time. */
template <class T, int N> KERNEL pool(IN_PARAMETERS Pooled<T> w) {
    using real = typename Computed<T>::type;
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t first = thread / w.group;
    if (first >= w.n || (first > 0 && w.place(first - 1) == w.place(first)))
        return; /* another group sums the place */
    const std::int64_t place = w.place(first), after = w.end_of(first);
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group * N; c < end; c += w.group * N) {
        real sums[N] = {};
#pragma unroll 8
        for (std::int64_t i = first; i < after; i++) {
            const std::int64_t k = w.occurrence(i), source = w.sources ? w.sources[k] : k;
            const auto pack = *reinterpret_cast<const Pack<T, N> *>(w.terms + source * w.inner + c);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const real term = load(pack.e[j]);
                sums[j] = sums[j] + (w.weights ? term * w.weights[k] : term);
            }
        }
        const real divisor = w.divisors ? w.divisors[place] : real(1);
        Pack<T, N> pooled;
#pragma unroll
        for (int j = 0; j < N; j++)
            store(&pooled.e[j], divisor == 0 ? real(0) : sums[j] / divisor);
        *reinterpret_cast<Pack<T, N> *>(w.sums + place * w.inner + c) = pooled;
    }
}

template <class T, int N> void launch_pool(Pooled<T> w, cudaStream_t stream) {
    w.group = 1;
    while (w.group < GROUP && w.group * N < w.inner)
        w.group *= 2;
    LAUNCH(stream, blocks_for(w, w.n), THREADS, (pool<T, N>), w);
}

/* The arguments of tfopt_cuda_pool, as it gets them, and sorted occurrences. */
struct PoolCall {
    void *sums;
    const void *terms;
    const std::int32_t *places, *sources;
    const void *weights, *divisors;
    std::int64_t n, inner;
    const std::uint32_t *row, *order;
};

template <class T> void any_pool(const PoolCall &call, cudaStream_t stream) {
    constexpr int WIDE = 16 / sizeof(T);
    using real = typename Computed<T>::type;
    const Pooled<T> w = {static_cast<T *>(call.sums),
                         static_cast<const T *>(call.terms),
                         call.places,
                         call.sources,
                         static_cast<const real *>(call.weights),
                         static_cast<const real *>(call.divisors),
                         call.n,
                         call.inner,
                         call.row,
                         call.order,
                         1};
    if (call.inner % WIDE == 0 && on_packs(16, w.sums, w.terms))
        launch_pool<T, WIDE>(w, stream);
    else
        launch_pool<T, 1>(w, stream);
}

/* By the type of the rows. */
constexpr decltype(&any_pool<float>) POOLING[] = {any_pool<float>, any_pool<double>,
                                                  any_pool<float16>, any_pool<bfloat16>};
