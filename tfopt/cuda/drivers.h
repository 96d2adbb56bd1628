/* The kernels: which element of which tensor a thread steps. Nothing here knows a rule. */
#pragma once

#include "indices.h"
#include "rules.h"
#include "storage.h"

constexpr int MAX_SCALARS = 12;
constexpr int THREADS = 256;     /* of a block */
constexpr int CHUNK = 4096;      /* elements of a dense block */
constexpr int COLUMNS = 2048;    /* elements of a row that one group of threads takes */
constexpr int GROUP = 32;        /* the most threads of a group */

/* What a call's steps need beside arrays, in the type they compute in. */
template <class real> struct Scalars {
    real scale, s[MAX_SCALARS];
    int constants; /* bit k is the row's k-th flag or choice */
};

/* ---- dense: some tensors laid end to end, each cut into chunks of its own */

template <class V, class G, int ARRAYS, int N> struct Tensors {
    Scalars<typename Computed<V>::type> with;
    int n;
    V *data[N][ARRAYS];
    const G *grad[N];
    std::int64_t size[N];
    std::uint32_t first[N]; /* the tensor's first block */
};

/* As many tensors as the parameters of one launch hold. */
template <int ARRAYS> constexpr int many() { return 31900 / (8 * (ARRAYS + 2) + 4); }

template <class Rule, class V, class G, int N, int ARRAYS>
BOTH void step_pack(V *const (&data)[ARRAYS], const G *grad, std::int64_t i,
                    const Scalars<typename Computed<V>::type> &with) {
    using real = typename Computed<V>::type;
    Pack<V, N> packs[ARRAYS];
    const Pack<G, N> g = *reinterpret_cast<const Pack<G, N> *>(grad + i);
    for (int k = 0; k < ARRAYS; k++)
        packs[k] = *reinterpret_cast<const Pack<V, N> *>(data[k] + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        real x[ARRAYS];
        for (int k = 0; k < ARRAYS; k++)
            x[k] = load(packs[k].e[j]);
        Rule::dense(x, real(load(g.e[j])) * with.scale, with.s, with.constants);
        for (int k = 0; k < ARRAYS; k++)
            store(&packs[k].e[j], x[k]);
    }
    for (int k = 0; k < ARRAYS; k++)
        *reinterpret_cast<Pack<V, N> *>(data[k] + i) = packs[k];
}

template <class Rule, class V, class G, int N>
KERNEL dense(IN_PARAMETERS Tensors<V, G, Rule::arrays, N> w) {
    constexpr int WIDE = 16 / sizeof(V); /* elements of a 16-byte pack */
    int t = 0, after = w.n;
    while (after - t > 1) { /* the last tensor that begins at or before this block */
        const int middle = (t + after) / 2;
        if (w.first[middle] <= blockIdx.x)
            t = middle;
        else
            after = middle;
    }
    std::int64_t i = std::int64_t(blockIdx.x - w.first[t]) * CHUNK;
    const std::int64_t stop = w.size[t] - i < CHUNK ? w.size[t] : i + CHUNK;
    bool aligned = reinterpret_cast<std::uintptr_t>(w.grad[t]) % sizeof(Pack<G, WIDE>) == 0;
    for (int k = 0; k < Rule::arrays; k++)
        aligned = aligned && reinterpret_cast<std::uintptr_t>(w.data[t][k]) % 16 == 0;
    i += threadIdx.x * (aligned ? WIDE : 1);
    for (; aligned && i + WIDE <= stop; i += THREADS * WIDE)
        step_pack<Rule, V, G, WIDE>(w.data[t], w.grad[t], i, w.with);
    /* all elements, or those left over, which are less than a pack and one thread's */
    for (; i < stop; i += aligned ? 1 : THREADS)
        step_pack<Rule, V, G, 1>(w.data[t], w.grad[t], i, w.with);
}

/* ---- rows: occurrences sorted by row, those of one row in their order */

template <class V, class G, int ARRAYS> struct Rows {
    Scalars<typename Computed<V>::type> with;
    V *data[ARRAYS];
    const G *grad;
    std::int64_t n, n_rows, inner;
    const std::uint32_t *row, *order;  /* of each sorted occurrence; a row of n_rows is no row */
    const Found *found;                /* if anything was, nothing may be written */
    bool summed;                       /* whether a row takes one step, by its gradients' sum */
    int group;                         /* threads that share a row */
};

/* The rows that are not named, of rules that step them, too. */
template <class Rule, class V, class G> KERNEL absent_rows(IN_PARAMETERS Rows<V, G, Rule::arrays> w) {
    using real = typename Computed<V>::type;
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t row = thread / w.group;
    if (row >= w.n_rows || (w.found->outside & w.found->repeated) != NOTHING)
        return;
    std::int64_t first = 0, after = w.n;
    while (first < after) { /* the first occurrence of this row or a later one */
        const std::int64_t middle = (first + after) / 2;
        if (w.row[middle] < row)
            first = middle + 1;
        else
            after = middle;
    }
    if (first < w.n && w.row[first] == row)
        return;
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        real x[Rule::arrays];
        for (int k = 0; k < Rule::arrays; k++)
            x[k] = load(w.data[k][row * w.inner + c]);
        Rule::absent(x, w.with.s, w.with.constants);
        for (int k = 0; k < Rule::arrays; k++)
            store(&w.data[k][row * w.inner + c], x[k]);
    }
}

template <class Rule, class real>
BOTH void step_row(real *x, real g, const Scalars<real> &with, std::int64_t inner) {
    if (inner == 1)
        Rule::width1(x, g * with.scale, with.s, with.constants);
    else
        Rule::rows(x, g * with.scale, with.s, with.constants);
}

template <class Rule, class V, class G> KERNEL rows(IN_PARAMETERS Rows<V, G, Rule::arrays> w) {
    using real = typename Computed<V>::type;
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t first = thread / w.group;
    if (first >= w.n || (w.found->outside & w.found->repeated) != NOTHING)
        return;
    const std::uint32_t row = w.row[first];
    if (row == w.n_rows || (first > 0 && w.row[first - 1] == row))
        return; /* another group has the row */
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        const std::int64_t at = row * w.inner + c;
        V stored[Rule::arrays];
        real x[Rule::arrays], sum = 0;
        for (int k = 0; k < Rule::arrays; k++)
            stored[k] = w.data[k][at];
        for (std::int64_t i = first; i < w.n && w.row[i] == row; i++) {
            const real g = load(w.grad[w.order[i] * w.inner + c]);
            sum = sum + g;
            if (w.summed)
                continue;
            for (int k = 0; k < Rule::arrays; k++)
                x[k] = load(stored[k]);
            step_row<Rule>(x, g, w.with, w.inner);
            for (int k = 0; k < Rule::arrays; k++) /* 16 bits are rounded after every step */
                store(&stored[k], x[k]);
        }
        if (w.summed) {
            G rounded;
            store(&rounded, sum);
            for (int k = 0; k < Rule::arrays; k++)
                x[k] = load(stored[k]);
            step_row<Rule>(x, real(load(rounded)), w.with, w.inner);
            for (int k = 0; k < Rule::arrays; k++)
                store(&stored[k], x[k]);
        }
        for (int k = 0; k < Rule::arrays; k++)
            w.data[k][at] = stored[k];
    }
}
