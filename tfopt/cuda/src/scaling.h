/* Scaling and clamping of arrays, in place or into others. */
#pragma once

#include "thread_work.h"
#include "gradient_reader.h"

/* An element times a factor; elements that are not scaled keep their bits, NaNs included. */
template <class V> DEVICE V scaled(V x, const Factor &factor) {
    using real = typename Computed<V>::type;
    if (factor.first == 1)
        return x;
    V result;
    store(&result, load(x) * real(factor.first) * real(factor.second));
    return result;
}

/* ---- many tensors, one factor */

template <class V, int N> struct Scaling {
    Factors const *factors;
    int n;
    V *out[N];
    const V *data[N];
    std::int64_t size[N];
    std::uint32_t first[N]; /* the tensor's first block */
};

template <class V, int N> KERNEL scale(IN_PARAMETERS Scaling<V, N> w) {
    constexpr int WIDE = 16 / sizeof(V);
    const int t = last_up_to(w.first, w.n, blockIdx.x);
    V *out = w.out[t];
    const V *data = w.data[t];
    const Factor factor = factor_for(*w.factors, typename Computed<V>::type());
    if (factor.first == 1 && out == data)
        return; /* nothing is read, nothing written */
    const bool aligned = on_packs(16, out, data);
    walk<WIDE>(blockIdx.x - w.first[t], w.size[t], aligned, [&](auto wide, std::int64_t i) {
        using Some = Pack<V, decltype(wide)::value>;
        Some pack = *reinterpret_cast<const Some *>(data + i);
#pragma unroll
        for (V &x : pack.e)
            x = scaled(x, factor);
        *reinterpret_cast<Some *>(out + i) = pack;
    });
}

/* ---- slices of an array, each with its own factor */

template <class V> struct SliceScaling {
    const Factors *factors;
    V *out;
    const V *data;
    std::int64_t size;
    Axes slices;   /* strides of the slice number along the array's axes */
    bool in_packs; /* whether the 16 bytes of a pack belong to one slice */
};

template <class V> KERNEL scale_slices(IN_PARAMETERS SliceScaling<V> w) {
    constexpr int WIDE = 16 / sizeof(V);
    const bool aligned = w.in_packs && on_packs(16, w.out, w.data);
    walk<WIDE>(blockIdx.x, w.size, aligned, [&](auto wide, std::int64_t i) {
        using Some = Pack<V, decltype(wide)::value>;
        const std::int64_t slice = w.size >> 32 ? offset_of(w.slices, i)
                                                : offset_of(w.slices, std::uint32_t(i));
        const Factor factor = factor_for(w.factors[slice], typename Computed<V>::type());
        if (factor.first == 1 && w.out == w.data)
            return; /* nothing is read, nothing written */
        Some pack = *reinterpret_cast<const Some *>(w.data + i);
#pragma unroll
        for (V &x : pack.e)
            x = scaled(x, factor);
        *reinterpret_cast<Some *>(w.out + i) = pack;
    });
}

/* ---- clamping */

template <class Integer> BOTH Integer load(Integer x) { return x; }

/* Between equal numbers t's bits are kept; NaNs of t and of bounds propagate. */
template <class T> BOTH T clamped_between(T t, T low, T high) {
    const auto at_most = load(high), at_least = load(low);
    const T u = at_most < load(t) || at_most != at_most ? high : t;
    return at_least > load(u) || at_least != at_least ? low : u;
}

template <class T> struct Clamping {
    T *out;
    const T *data;
    std::int64_t size;
    const T *low, *high; /* arrays of the same size, or NULL: one number for all */
    T lowest, highest;
};

template <class T> KERNEL clamp(IN_PARAMETERS Clamping<T> w) {
    constexpr int WIDE = std::is_integral<T>::value ? 1 : 16 / sizeof(T); /* only floats need speed */
    const bool aligned = on_packs(16, w.out, w.data, w.low, w.high);
    walk<WIDE>(blockIdx.x, w.size, aligned, [&](auto wide, std::int64_t i) {
        constexpr int n = decltype(wide)::value;
        using Some = Pack<T, n>;
        Some t = *reinterpret_cast<const Some *>(w.data + i), low, high;
        for (int j = 0; j < n; j++)
            low.e[j] = w.lowest, high.e[j] = w.highest;
        if (w.low)
            low = *reinterpret_cast<const Some *>(w.low + i);
        if (w.high)
            high = *reinterpret_cast<const Some *>(w.high + i);
#pragma unroll
        for (int j = 0; j < n; j++)
            t.e[j] = clamped_between(t.e[j], low.e[j], high.e[j]);
        *reinterpret_cast<Some *>(w.out + i) = t;
    });
}
