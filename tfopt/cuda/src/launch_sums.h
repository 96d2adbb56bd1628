/* From untyped arguments to the launches of rules that sum over tensors or rows. */
#pragma once

#include "launch.h"
#include "row_sums.h"

template <class R> std::size_t room_of_sums(const DenseCall &call) {
    std::int64_t spans = 0;
    for (std::int64_t t = 0; t < call.n; t++)
        spans += (call.size[t] + SPAN - 1) / SPAN;
    return std::size_t(spans * R::sums + call.n * R::further) * sizeof(double);
}

/* Give tensors blocks, one for so many elements of each; return their number. */
template <class W> unsigned give_blocks(W &w, std::int64_t elements) {
    std::int64_t blocks = 0;
    for (int t = 0; t < w.n; t++) {
        w.first[t] = std::uint32_t(blocks);
        blocks += (w.size[t] + elements - 1) / elements;
    }
    return unsigned(blocks);
}

template <class R, class V, class G> void sum_tensors(const DenseCall &call, cudaStream_t stream) {
    using real = typename Computed<V>::type;
    SpanSums<R, V, G> work;
    TensorSums<R, real> between;
    auto &w = work.w;
    w.with = scalars_of<R, real>(call);
    w.further = static_cast<real *>(call.room); /* each launch uses the same room after the other */
    between.further = w.further;
    between.constants = w.with.constants;
    for (int k = 0; k < MAX_SCALARS; k++)
        between.s[k] = w.with.s[k];
    for (std::int64_t t = 0; t < call.n;) {
        std::int64_t chunks = 0;
        w.before = t;
        for (w.n = 0; t < call.n && w.n < SUMMED && chunks < (1 << 30); t++) {
            for (int k = 0; k < R::arrays; k++)
                w.data[w.n][k] = static_cast<V *>(call.data[t * R::arrays + k]);
            w.grad[w.n] = static_cast<const G *>(call.grad[t]);
            w.size[w.n] = between.size[w.n] = call.size[t];
            chunks += (call.size[t] + CHUNK - 1) / CHUNK;
            w.n++;
        }
        if (!chunks)
            continue;
        w.sums = reinterpret_cast<double *>(w.further) + w.n * R::further;
        between.sums = w.sums;
        const unsigned spans = give_blocks(w, SPAN);
        for (int k = 0; k < w.n; k++)
            between.first[k] = w.first[k];
        LAUNCH_IN_PHASES(stream, spans, LANES, work);
        LAUNCH_IN_PHASES(stream, unsigned(w.n), LANES, between);
        LAUNCH(stream, give_blocks(w, CHUNK), THREADS, (step_summed<R, V, G>), w);
    }
}

/* The number of blocks for so many rows. */
inline std::int64_t blocks_of_rows(std::int64_t rows, std::int64_t inner) {
    const int at_a_time = LANES / width_for(inner);
    return (rows + at_a_time - 1) / at_a_time;
}

template <class R, class V, class G>
void step_all_rows(const DenseCall &call, cudaStream_t stream) {
    RowSums<R, V, G> work = {};
    auto &w = work.w;
    w.with = scalars_of<R, typename Computed<V>::type>(call);
    for (std::int64_t t = 0; t < call.n;) {
        std::int64_t blocks = 0;
        w.before = t;
        for (w.n = 0; t < call.n && w.n < SUMMED && blocks < (1 << 30); t++) {
            for (int k = 0; k < R::arrays; k++)
                w.data[w.n][k] = static_cast<V *>(call.data[t * R::arrays + k]);
            w.grad[w.n] = static_cast<const G *>(call.grad[t]);
            w.inner[w.n] = call.inner[t];
            w.n_rows[w.n] = call.inner[t] ? call.size[t] / call.inner[t] : 0;
            w.first[w.n] = std::uint32_t(blocks);
            blocks += blocks_of_rows(w.n_rows[w.n], w.inner[w.n]);
            w.n++;
        }
        if (blocks)
            LAUNCH_IN_ROUNDS(stream, unsigned(blocks), LANES, work);
    }
}

template <class R, class V, class G> void step_rows(const RowsCall &call, cudaStream_t stream) {
    RowSums<R, V, G> work = {};
    auto &w = work.w;
    w.with = scalars_of<R, typename Computed<V>::type>(call);
    w.n = 1;
    for (int k = 0; k < R::arrays; k++)
        w.data[0][k] = static_cast<V *>(call.data[k]);
    w.grad[0] = static_cast<const G *>(call.grad);
    w.n_rows[0] = call.n_rows;
    w.inner[0] = call.inner;
    w.n_sorted = call.n;
    w.row = call.row;
    w.order = call.order;
    w.found = call.found;
    w.summed = call.summed;
    w.clips_each = call.clips_each;
    if (call.n)
        LAUNCH_IN_ROUNDS(stream, unsigned(blocks_of_rows(call.n, call.inner)), LANES, work);
}

template <class R> Rule rule_of() {
    if constexpr (R::reduction == Reduction::TENSOR)
        return {R::name(),
                R::arrays,
                R::scalars,
                room_of_sums<R>,
                {sum_tensors<R, float, float>, sum_tensors<R, double, double>,
                 sum_tensors<R, float16, float16>, sum_tensors<R, bfloat16, bfloat16>,
                 sum_tensors<R, float, float16>, sum_tensors<R, float, bfloat16>},
                {}};
    else if constexpr (R::reduction == Reduction::ROW)
        return {R::name(),
                R::arrays,
                R::scalars,
                nullptr,
                {step_all_rows<R, float, float>, step_all_rows<R, double, double>,
                 step_all_rows<R, float16, float16>, step_all_rows<R, bfloat16, bfloat16>,
                 step_all_rows<R, float, float16>, step_all_rows<R, float, bfloat16>},
                {step_rows<R, float, float>, step_rows<R, double, double>,
                 step_rows<R, float16, float16>, step_rows<R, bfloat16, bfloat16>,
                 step_rows<R, float, float16>, step_rows<R, float, bfloat16>}};
    else
        return elementwise_rule_of<R>();
}
