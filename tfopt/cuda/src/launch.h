/* From untyped arguments to a launch, for every type that a rule is compiled for. */
#pragma once

#include "hot_rows.h"
#include "stored_rows.h"

/* How gradients are read in a call. */
struct Clipping {
    double bound;           /* INFINITY if there is none */
    const Factors *factors; /* on the device; they replace the scale, unless NULL */
    bool own;               /* whether each tensor has its own factor, or all share the first */
};

/* The tensors of a dense call; data[t * arrays + k] is the k-th array of the t-th. */
struct DenseCall {
    void *const *data;
    const void *const *grad;
    const std::int64_t *size, *inner; /* the elements of a tensor, and of its rows */
    void *room;                       /* as much as the rule wants */
    std::int64_t n;
    const double *scalars; /* the gradient's scale, the variable's, then the rule's; rounded */
    int constants;
    Clipping clipping;
    double decay;                       /* cautious, 0 if there is none */
    const tfopt_device_storage *stored; /* NULL: as the types say */
};

struct RowsCall {
    void *const *data;
    const void *grad;
    std::int64_t n, n_rows, inner;
    const std::uint32_t *row, *order;
    std::uint32_t *hot;
    Found *found;
    bool summed, clips_each;
    bool lazy; /* whether rows without a gradient stay, whatever the rule */
    const double *scalars;
    int constants;
    Clipping clipping;
    double decay;
    const tfopt_device_storage *stored;
};

/* What a rule sums over. */
enum class Reduction { NONE, ROW, TENSOR };

/* A rule as seen by the C functions. */
struct Rule {
    const char *name;
    int arrays, scalars;
    std::size_t (*room)(const DenseCall &); /* the bytes that a dense call needs, or NULL */
    void (*dense[TYPES])(const DenseCall &, cudaStream_t);
    void (*rows[TYPES])(const RowsCall &, cudaStream_t);
    /* of variables that are stored in any way, unless the rule sums */
    void (*stored_dense)(const DenseCall &, cudaStream_t) = nullptr;
    void (*stored_rows)(const RowsCall &, cudaStream_t) = nullptr;
};

template <class R, class real, class Call> Scalars<real> scalars_of(const Call &call) {
    Scalars<real> with = {};
    with.scale = real(call.scalars[0]);
    with.keep = real(call.scalars[1]);
    for (int k = 0; k < R::scalars; k++)
        with.s[k] = real(call.scalars[k + 2]);
    with.constants = call.constants;
    with.bound = real(call.clipping.bound);
    with.factors = call.clipping.factors;
    with.own = call.clipping.own;
    with.decay = real(call.decay);
    return with;
}

/* Launch repeatedly, each time with as many tensors as fit: launch(number of blocks, tensors). */
template <class R, class V, class G, int N, class Launch>
void in_launches(const DenseCall &call, const Launch &launch) {
    Tensors<V, G, R::arrays, N> w;
    w.with = scalars_of<R, typename Computed<V>::type>(call);
    std::int64_t t = 0;
    while (t < call.n) {
        std::int64_t blocks = 0;
        w.before = t;
        for (w.n = 0; t < call.n && w.n < N && blocks < (1 << 30); t++) {
            for (int k = 0; k < R::arrays; k++)
                w.data[w.n][k] = static_cast<V *>(call.data[t * R::arrays + k]);
            w.grad[w.n] = static_cast<const G *>(call.grad[t]);
            w.size[w.n] = call.size[t];
            w.first[w.n] = std::uint32_t(blocks);
            blocks += (call.size[t] + CHUNK - 1) / CHUNK;
            w.n++;
        }
        if (blocks)
            launch(unsigned(blocks), w);
    }
}

template <class R, class V, class G, int N>
void launch_dense(const DenseCall &call, cudaStream_t stream) {
    in_launches<R, V, G, N>(call, [&](unsigned blocks, const auto &w) {
        LAUNCH(stream, blocks, THREADS, (dense<R, V, G, N>), w);
    });
}

template <class R, class V, class G> void any_dense(const DenseCall &call, cudaStream_t stream) {
    if (call.n == 1)
        launch_dense<R, V, G, 1>(call, stream);
    else
        launch_dense<R, V, G, many<R::arrays>()>(call, stream);
}

/* The same of tensors that are stored in any way. */
template <class R> void stored_dense(const DenseCall &call, cudaStream_t stream) {
    StoredTensors<R> w;
    w.with = scalars_of<R, float>(call);
    w.how = *call.stored;
    std::int64_t t = 0;
    while (t < call.n) {
        std::int64_t blocks = 0;
        w.before = t;
        for (w.n = 0; t < call.n && w.n < STORED && blocks < (1 << 30); t++, w.n++) {
            for (int k = 0; k < R::arrays; k++)
                w.data[w.n][k] = call.data[t * R::arrays + k];
            w.grad[w.n] = call.grad[t];
            w.size[w.n] = call.size[t];
            w.number[w.n] = call.stored->numbers[t];
            w.first[w.n] = std::uint32_t(blocks);
            blocks += (call.size[t] + CHUNK - 1) / CHUNK;
        }
        if (blocks)
            LAUNCH_IN_PAIRS(stream, unsigned(blocks), THREADS, w);
    }
}

template <class R, class V, class G> Rows<V, G, R::arrays> rows_of(const RowsCall &call) {
    Rows<V, G, R::arrays> w;
    w.with = scalars_of<R, typename Computed<V>::type>(call);
    for (int k = 0; k < R::arrays; k++)
        w.data[k] = static_cast<V *>(call.data[k]);
    w.grad = static_cast<const G *>(call.grad);
    w.n = call.n;
    w.n_rows = call.n_rows;
    w.inner = call.inner;
    w.row = call.row;
    w.order = call.order;
    w.hot = call.hot;
    w.found = call.found;
    w.summed = call.summed;
    w.clips_each = call.clips_each;
    w.group = 1;
    while (w.group < GROUP && w.group < call.inner)
        w.group *= 2;
    return w;
}

/* The blocks for n rows. */
template <class Call> dim3 blocks_for(const Call &w, std::int64_t n) {
    const std::int64_t threads = n * w.group, parts = (w.inner + COLUMNS - 1) / COLUMNS;
    return dim3(unsigned((threads + THREADS - 1) / THREADS), unsigned(parts));
}

template <class R, class V, class G> void any_rows(const RowsCall &call, cudaStream_t stream) {
    const auto w = rows_of<R, V, G>(call);
    if constexpr (R::steps_absent_rows)
        if (!call.lazy)
            LAUNCH(stream, blocks_for(w, call.n_rows), THREADS, (absent_rows<R, V, G>), w);
    if (call.n)
        LAUNCH(stream, blocks_for(w, call.n), THREADS, (rows<R, V, G>), w);
    if (call.n > HOT)
        launch_hot_rows<R, V, G>(w, stream);
}

/* The same of a variable that is stored in any way. */
template <class R> void any_stored_rows(const RowsCall &call, cudaStream_t stream) {
    const auto w = rows_of<R, void, void>(call);
    const StoredRows<R> work = {w, *call.stored, call.stored->numbers[0]};
    if constexpr (R::steps_absent_rows)
        if (!call.lazy)
            LAUNCH(stream, blocks_for(w, call.n_rows), THREADS, (stored_absent_rows<R>), work);
    if (call.n)
        LAUNCH(stream, blocks_for(w, call.n), THREADS, (stored_rows<R>), work);
}

template <class R> Rule elementwise_rule_of() {
    return {R::name(),
            R::arrays,
            R::scalars,
            nullptr,
            {any_dense<R, float, float>, any_dense<R, double, double>,
             any_dense<R, float16, float16>, any_dense<R, bfloat16, bfloat16>,
             any_dense<R, float, float16>, any_dense<R, float, bfloat16>},
            {any_rows<R, float, float>, any_rows<R, double, double>, any_rows<R, float16, float16>,
             any_rows<R, bfloat16, bfloat16>, any_rows<R, float, float16>,
             any_rows<R, float, bfloat16>},
            stored_dense<R>, any_stored_rows<R>};
}
