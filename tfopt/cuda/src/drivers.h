/* The kernels: which element of which tensor a thread steps. They are independent of the rules. */
#pragma once

#include "indices.h"
#include "thread_work.h"
#include "gradient_reader.h"
#include "rules.h"

constexpr int MAX_SCALARS = 12;
constexpr int COLUMNS = 2048;    /* elements of a row that a group of threads processes */
constexpr int GROUP = 32;        /* the maximum number of threads in a group */

/* What the steps of a call need besides arrays, in their computation type. */
template <class real> struct Scalars {
    real scale, keep, s[MAX_SCALARS];
    int constants; /* bit k is the row's k-th flag or choice */
    real bound;
    const Factors *factors; /* replace the scale, unless NULL */
    bool own;
    real decay; /* cautious, 0 if there is none */
};

/* A weight after a step and after cautious decay: less what it decays by, if the step moved it towards
 * zero, or not at all. */
template <class real> DEVICE real decayed(real x, real before, const Scalars<real> &with) {
    if (with.decay == 0)
        return x;
    const real zero = with.decay - with.decay;
    const bool agrees = (before > 0 && x <= before) || (before < 0 && x >= before);
    return x - (agrees ? with.decay * before : zero);
}

/* How the gradient of a tensor is read. */
template <class real>
DEVICE Reading<real> reading_of(const Scalars<real> &with, std::int64_t tensor) {
    if (!with.factors)
        return {with.bound, with.scale, 1};
    const Factor factor = factor_for(with.factors[with.own ? tensor : 0], real());
    return {with.bound, real(factor.first), real(factor.second)};
}

/* ---- dense: tensors laid end to end, each cut into separate chunks */

template <class V, class G, int ARRAYS, int N> struct Tensors {
    Scalars<typename Computed<V>::type> with;
    std::int64_t before; /* number of tensors in previous launches */
    int n;
    V *data[N][ARRAYS];
    const G *grad[N];
    std::int64_t size[N];
    std::uint32_t first[N]; /* the tensor's first block */
};

/* The number of tensors that fit into the parameters of a launch. */
template <int ARRAYS> constexpr int many() { return 31800 / (8 * (ARRAYS + 2) + 4); }

template <class Rule, class V, class G, int N, int ARRAYS>
DEVICE void step_pack(V *const (&data)[ARRAYS], const G *grad, std::int64_t i,
                      const Scalars<typename Computed<V>::type> &with,
                      const Reading<typename Computed<V>::type> &read) {
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
        x[0] = x[0] * with.keep;
        Rule::dense(x, read(load(g.e[j])), with.s, with.constants);
        x[0] = decayed(x[0], real(load(packs[0].e[j])), with);
        for (int k = 0; k < ARRAYS; k++)
            store(&packs[k].e[j], x[k]);
    }
    for (int k = 0; k < ARRAYS; k++)
        *reinterpret_cast<Pack<V, N> *>(data[k] + i) = packs[k];
}

template <class Rule, class V, class G, int N>
KERNEL dense(IN_PARAMETERS Tensors<V, G, Rule::arrays, N> w) {
    constexpr int WIDE = 16 / sizeof(V); /* elements of a 16-byte pack */
    const int t = last_up_to(w.first, w.n, blockIdx.x);
    bool aligned = on_packs(sizeof(Pack<G, WIDE>), w.grad[t]);
    for (int k = 0; k < Rule::arrays; k++)
        aligned = aligned && on_packs(16, w.data[t][k]);
    const auto read = reading_of(w.with, w.before + t);
    walk<WIDE>(blockIdx.x - w.first[t], w.size[t], aligned, [&](auto wide, std::int64_t i) {
        step_pack<Rule, V, G, decltype(wide)::value>(w.data[t], w.grad[t], i, w.with, read);
    });
}

/* ---- rows: occurrences sorted by row, in order within a row */

template <class V, class G, int ARRAYS> struct Rows {
    Scalars<typename Computed<V>::type> with;
    V *data[ARRAYS];
    const G *grad;
    std::int64_t n, n_rows, inner;
    const std::uint32_t *row, *order;  /* of each sorted occurrence; n_rows: out of range */
    std::uint32_t *hot;                /* the first occurrences of rows with many, and how many */
    Found *found;                      /* there are; if an error was found, nothing is written */
    bool summed;                       /* whether a row takes one step, by its summed gradient */
    bool clips_each;                   /* and whether each gradient is clipped, or the sum */
    int group;                         /* threads that share a row */
};

/* Whether a row takes a step without a gradient. */
template <class Call> DEVICE bool is_absent(const Call &w, std::int64_t row) {
    if (row >= w.n_rows || (w.found->outside & w.found->repeated) != NOTHING)
        return false;
    std::int64_t first = 0, after = w.n;
    while (first < after) { /* the first occurrence of this row or a later one */
        const std::int64_t middle = (first + after) / 2;
        if (w.row[middle] < row)
            first = middle + 1;
        else
            after = middle;
    }
    return first == w.n || w.row[first] != row;
}

template <class Rule, class real> DEVICE void step_absent(real *x, const Scalars<real> &with) {
    const real before = x[0];
    if (with.keep != 1) /* some steps do not change the variable */
        x[0] = x[0] * with.keep;
    Rule::absent(x, with.s, with.constants);
    x[0] = decayed(x[0], before, with);
}

/* The rows without a gradient, for rules that step them, too. */
template <class Rule, class V, class G> KERNEL absent_rows(IN_PARAMETERS Rows<V, G, Rule::arrays> w) {
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t row = thread / w.group;
    if (!is_absent(w, row))
        return;
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        typename Computed<V>::type x[Rule::arrays];
        for (int k = 0; k < Rule::arrays; k++)
            x[k] = load(w.data[k][row * w.inner + c]);
        step_absent<Rule>(x, w.with);
        for (int k = 0; k < Rule::arrays; k++)
            store(&w.data[k][row * w.inner + c], x[k]);
    }
}

template <class Rule, class real>
DEVICE void step_row(real *x, real g, const Scalars<real> &with, std::int64_t inner) {
    const real before = x[0];
    x[0] = x[0] * with.keep;
    if (inner == 1)
        Rule::width1(x, g, with.s, with.constants);
    else
        Rule::rows(x, g, with.s, with.constants);
    x[0] = decayed(x[0], before, with);
}

/* An element of a row during its steps. */
template <class Rule, class V, class G> struct RowElement {
    using real = typename Computed<V>::type;
    using Call = Rows<V, G, Rule::arrays>;
    using Read = Reading<real>;

    V stored[Rule::arrays];
    real sum = 0;

    DEVICE void get(const Call &w, std::int64_t at) {
        for (int k = 0; k < Rule::arrays; k++)
            stored[k] = w.data[k][at];
    }
    DEVICE void put(const Call &w, std::int64_t at) const {
        for (int k = 0; k < Rule::arrays; k++)
            w.data[k][at] = stored[k];
    }
    /* Add the gradient of the next occurrence. */
    DEVICE void add(const Call &w, const Read &read, G gradient) {
        const real g = load(gradient);
        sum = sum + (w.clips_each ? read(g) : g);
    }
    /* The gradient of a row's only step: the sum. */
    DEVICE real total(const Call &w, const Read &read) const {
        G rounded;
        store(&rounded, sum);
        const real g = load(rounded);
        return w.clips_each ? g : read(g);
    }
    DEVICE void step(const Call &w, real g) {
        real x[Rule::arrays];
        for (int k = 0; k < Rule::arrays; k++)
            x[k] = load(stored[k]);
        step_row<Rule>(x, g, w.with, w.inner);
        for (int k = 0; k < Rule::arrays; k++) /* 16-bit values are rounded after every step */
            store(&stored[k], x[k]);
    }
};

/* Step the rows with few occurrences, and list those with many. */
template <class Rule, class V, class G> KERNEL rows(IN_PARAMETERS Rows<V, G, Rule::arrays> w) {
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t first = thread / w.group;
    if (first >= w.n || (w.found->outside & w.found->repeated) != NOTHING)
        return;
    const std::uint32_t row = w.row[first];
    if (row == w.n_rows || (first > 0 && w.row[first - 1] == row))
        return; /* another group processes the row */
    if (first + HOT < w.n && w.row[first + HOT] == row) {
        if (thread % w.group == 0 && blockIdx.y == 0)
            w.hot[atomicAdd(&w.found->hot, 1u)] = std::uint32_t(first);
        return;
    }
    const auto read = reading_of(w.with, 0);
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        RowElement<Rule, V, G> element;
        element.get(w, row * w.inner + c);
        std::int64_t i = first;
        do { /* one text of a step, which is long, for both ways */
            typename Computed<V>::type g;
            if (w.summed) {
                for (; i < w.n && w.row[i] == row; i++)
                    element.add(w, read, w.grad[w.order[i] * w.inner + c]);
                g = element.total(w, read);
            } else {
                g = read(load(w.grad[w.order[i++] * w.inner + c]));
            }
            element.step(w, g);
        } while (i < w.n && w.row[i] == row);
        element.put(w, row * w.inner + c);
    }
}
