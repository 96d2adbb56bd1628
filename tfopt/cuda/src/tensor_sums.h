/* Steps by rules that sum over whole tensors, in the order of kernels/update/whole_tensors.pyx.
 *
 * One launch sums the spans of some tensors, one makes scalars of each tensor's sums, and one steps
 * all elements.
 */
#pragma once

#include "drivers.h"
#include "lane_sums.h"

constexpr int SUMMED = 64; /* tensors of a launch */

/* Add up the shares of lanes by halves; the first of them gets the sums. */
template <int SUMS> DEVICE void join_lanes(double (&shares)[SUMS][LANES], int half) {
    if (int(threadIdx.x) < half)
        for (int k = 0; k < SUMS; k++)
            shares[k][threadIdx.x] += shares[k][threadIdx.x + half];
}

template <class R, class V, class G>
struct Summed : Tensors<V, G, R::arrays, SUMMED> {
    double *sums;                              /* of the spans of these tensors */
    typename Computed<V>::type *further;       /* the scalars of each tensor that follow from them */
};

/* The sums of spans, of which `first` counts those of tensors. */
template <class R, class V, class G> struct SpanSums {
    using real = typename Computed<V>::type;
    using Shared = double[R::sums][LANES];
    static constexpr int phases = 10;

    Summed<R, V, G> w;

    DEVICE void run(int phase, Shared &shares) const {
        const int half = LANES >> phase, lane = int(threadIdx.x);
        if (phase == 0)
            take(lane, shares);
        else if (half > 0)
            join_lanes(shares, half);
        else if (lane < R::sums)
            w.sums[std::int64_t(blockIdx.x) * R::sums + lane] = shares[lane][0];
    }

  private:
    DEVICE void take(int lane, Shared &shares) const {
        const int t = last_up_to(w.first, w.n, blockIdx.x);
        const auto read = reading_of(w.with, w.before + t);
        std::int64_t i = std::int64_t(blockIdx.x - w.first[t]) * SPAN;
        const std::int64_t stop = w.size[t] - i < SPAN ? w.size[t] : i + SPAN;
        double own[R::sums] = {};
#pragma unroll 2
        for (i += lane; i < stop; i += LANES) {
            real x[R::arrays];
            for (int k = 0; k < R::arrays; k++)
                x[k] = load(w.data[t][k][i]);
            x[0] = x[0] * w.with.keep;
            R::first(x, read(load(w.grad[t][i])), w.with.s, own);
        }
        for (int k = 0; k < R::sums; k++)
            shares[k][lane] = own[k];
    }
};

/* The scalars of tensors, a block for each, from the sums of their spans. */
template <class R, class real> struct TensorSums {
    using Shared = double[R::sums][LANES];
    static constexpr int phases = 10;

    const double *sums;
    real *further;
    real s[MAX_SCALARS];
    int constants;
    std::int64_t size[SUMMED];
    std::uint32_t first[SUMMED]; /* the tensor's first span */

    DEVICE void run(int phase, Shared &shares) const {
        const int half = LANES >> phase, lane = int(threadIdx.x);
        const std::int64_t spans = (size[blockIdx.x] + SPAN - 1) / SPAN;
        if (phase == 0) {
            double own[R::sums] = {};
            for (std::int64_t i = lane; i < spans; i += LANES)
                for (int k = 0; k < R::sums; k++)
                    own[k] += sums[(first[blockIdx.x] + i) * R::sums + k];
            for (int k = 0; k < R::sums; k++)
                shares[k][lane] = own[k];
        } else if (half > 0) {
            join_lanes(shares, half);
        } else if (lane == 0) {
            double totals[R::sums];
            for (int k = 0; k < R::sums; k++)
                totals[k] = shares[k][0];
            R::template reduce<real>(nullptr, s, constants, totals, double(size[blockIdx.x]),
                                     further + blockIdx.x * R::further);
        }
    }
};

/* Step elements, by chunks, of which `first` counts those of tensors. */
template <class R, class V, class G> KERNEL step_summed(IN_PARAMETERS Summed<R, V, G> w) {
    constexpr int WIDE = 16 / sizeof(V);
    const int t = last_up_to(w.first, w.n, blockIdx.x);
    bool aligned = on_packs(sizeof(Pack<G, WIDE>), w.grad[t]);
    for (int k = 0; k < R::arrays; k++)
        aligned = aligned && on_packs(16, w.data[t][k]);
    auto with = w.with;
    for (int k = 0; k < R::further; k++)
        with.s[R::scalars + k] = w.further[t * R::further + k];
    const auto read = reading_of(with, w.before + t);
    walk<WIDE>(blockIdx.x - w.first[t], w.size[t], aligned, [&](auto wide, std::int64_t i) {
        step_pack<R, V, G, decltype(wide)::value>(w.data[t], w.grad[t], i, with, read);
    });
}
