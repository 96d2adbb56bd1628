/* The C functions of clipping, for tfopt/cuda/norms.py. Norms stay on the device; only
 * tfopt_cuda_bad_norm, which waits, reads them.
 */
#include "api.h"
#include "norms.h"
#include "scaling.h"

namespace {

/* ---- types by number */

template <class... T> struct OneOf {};

using Floats = OneOf<float, double, float16, bfloat16>; /* in the order of enum Types */
using Numbers = OneOf<float, double, float16, bfloat16, std::int8_t, std::uint8_t, std::int16_t,
                      std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;

/* Call a function with a value of the type with a given number. */
template <class... T, class Function>
void with_type(OneOf<T...>, int type, const Function &function) {
    int k = 0;
    ((k++ == type ? function(T()) : void()), ...);
}

/* ---- norms in memory */

/* Norms, their factors and temporaries, in one allocation. */
struct Norms {
    Factors *factors;
    Norm *norms;
    unsigned long long *bad;
    double *sums;

    Norms(void *at, std::int64_t n) {
        factors = static_cast<Factors *>(at);
        norms = reinterpret_cast<Norm *>(factors + n);
        bad = reinterpret_cast<unsigned long long *>(norms + n);
        sums = reinterpret_cast<double *>(bad + 1);
    }
    static std::size_t bytes(std::int64_t n, std::int64_t spans) {
        return n * (sizeof(Factors) + sizeof(Norm)) + sizeof(unsigned long long) + spans * sizeof(double);
    }
};

std::int64_t spans_of(std::int64_t size) { return (size + SPAN - 1) / SPAN; }

/* Compute factors from norms. */
void settle_norms(const Norms &to, std::int64_t n, double limit, const void *limits, int type,
                  int policy, cudaStream_t stream, double scale = 1) {
    const Settling settling = {to.factors, to.norms, to.bad, n, limit, limits, type, policy, scale};
    if (n)
        LAUNCH(stream, unsigned((n + THREADS - 1) / THREADS), THREADS, settle, settling);
}

/* Run a function for each necessary pass. */
template <class Function> void in_passes(int wanted, const Function &function) {
    function(std::integral_constant<int, SQUARES>());
    if (wanted != ROOT_OF_DOUBLES)
        return;
    function(std::integral_constant<int, PEAKS>());
    function(std::integral_constant<int, SCALED>());
}

/* ---- norms of lists */

constexpr int MOST = 1500; /* tensors described by the parameters of a launch */

struct List {
    std::int64_t n;
    const int *type;
    const void *const *data;
    const std::int64_t *size;
    const double *bound; /* for each type */
};

/* Sum the spans of tensors of one type, as many as fit, from the t-th on; return their number. */
template <class G, int PASS>
std::int64_t launch_spans(const List &list, std::int64_t t, bool own, const Norms &to,
                          std::int64_t span, cudaStream_t stream) {
    ListSpans<G, PASS, MOST> w;
    const std::int64_t begin = t;
    std::int64_t spans = 0;
    for (w.n = 0; t < list.n && w.n < MOST && list.type[t] == list.type[begin] && spans < (1 << 30); t++) {
        w.data[w.n] = static_cast<const G *>(list.data[t]);
        w.size[w.n] = list.size[t];
        w.first[w.n] = std::uint32_t(spans);
        spans += spans_of(list.size[t]);
        w.n++;
    }
    w.own = own;
    w.bound = typename Computed<G>::type(list.bound[list.type[begin]]);
    w.sums = to.sums + span;
    w.norms = to.norms + (own ? begin : 0);
    reduce_spans(w, spans, SPAN, true, stream);
    return t - begin;
}

template <int PASS>
void spans_of_list(const List &list, bool own, const Norms &to, cudaStream_t stream) {
    std::int64_t t = 0, span = 0;
    while (t < list.n) {
        std::int64_t taken = 0;
        with_type(Floats(), list.type[t], [&](auto g) {
            taken = launch_spans<decltype(g), PASS>(list, t, own, to, span, stream);
        });
        for (; taken > 0; taken--)
            span += spans_of(list.size[t++]);
    }
}

/* One norm for each tensor. */
template <int PASS>
void totals_of_list(const List &list, const Norms &to, int wanted, cudaStream_t stream) {
    Totals<Listed<MOST>, PASS> w;
    w.sums = to.sums;
    w.wanted = wanted;
    std::int64_t span = 0, most = 0;
    for (std::int64_t t = 0; t < list.n;) {
        int n = 0;
        w.norms = to.norms + t;
        for (w.begins.first[0] = span; t < list.n && n < MOST; t++) {
            span += spans_of(list.size[t]);
            w.begins.first[++n] = span;
            most = spans_of(list.size[t]) > most ? spans_of(list.size[t]) : most;
        }
        reduce(w, n, width_for(most), stream);
    }
}

/* Norms of parts with equal numbers of spans. */
template <int PASS>
void totals(std::int64_t n, std::int64_t per, const Norms &to, int wanted, cudaStream_t stream) {
    reduce(Totals<Equal, PASS>{{}, {per}, to.sums, to.norms, wanted}, n, width_for(per), stream);
}

} // namespace

/* ---- memory */

API int tfopt_cuda_take_norms(int device, void *stream, std::int64_t n, std::int64_t spans, void **at) {
    const OnDevice on(device);
    if (const int error = take(at, Norms::bytes(n, spans), static_cast<cudaStream_t>(stream)))
        return error;
    return fill(Norms(*at, n).bad, 0xff, sizeof(NONE_BAD), static_cast<cudaStream_t>(stream));
}

/* Wait until n norms are computed; *root becomes the first one that is not finite, or 0. */
API int tfopt_cuda_bad_norm(int device, void *stream_, void *at, std::int64_t n, double *root) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const Norms norms(at, n);
    unsigned long long bad = NONE_BAD;
    Norm norm = {};
    if (is_captured(stream))
        return CAPTURED;
    int error = fetch(&bad, norms.bad, sizeof bad, stream);
    if (!error && bad != NONE_BAD)
        error = fetch(&norm, norms.norms + bad, sizeof norm, stream);
    *root = norm.root;
    return error;
}

/* ---- norms */

/* The norm of n tensors, or of each of them, clamped as they are read; the factors are multiplied by
 * a scale. */
API int tfopt_cuda_norms_of_list(int device, void *stream_, void *at, int own, std::int64_t n,
                                 const int *type, const void *const *data, const std::int64_t *size,
                                 const double *bound, double limit, int policy, double scale) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const List list = {n, type, data, size, bound};
    const Norms to(at, own ? n : 1);
    std::int64_t spans = 0;
    int wanted = ROOT;
    for (std::int64_t t = 0; t < n; t++) {
        spans += spans_of(size[t]);
        wanted = type[t] == F64 ? ROOT_OF_DOUBLES : wanted;
    }
    in_passes(wanted, [&](auto pass) {
        constexpr int PASS = decltype(pass)::value;
        spans_of_list<PASS>(list, own, to, stream);
        if (own)
            totals_of_list<PASS>(list, to, wanted, stream);
        else
            totals<PASS>(1, spans, to, wanted, stream);
    });
    settle_norms(to, own ? n : 1, limit, nullptr, F64, policy, stream, scale);
    return last_error();
}

/* The norms of n slices of a contiguous array, or their sums of squares. `outer` has the sizes and
 * strides of the axes that enumerate slices, `inner` of the reduced axes, both innermost first.
 */
API int tfopt_cuda_norms_of_slices(int device, void *stream_, void *at, std::int64_t n, int type,
                                   const void *data, std::int64_t size, const Axes *outer,
                                   const Axes *inner, int rooted, double limit, const void *limits,
                                   int policy) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const Norms to(at, n);
    const int wanted = !rooted ? SUM : type == F64 ? ROOT_OF_DOUBLES : ROOT;
    const std::int64_t per = spans_of(size);
    const bool adjacent = !inner->n || (inner->n == 1 && inner->stride[0] == 1);
    in_passes(wanted, [&](auto pass) {
        constexpr int PASS = decltype(pass)::value;
        with_type(Floats(), type, [&](auto g) {
            using G = decltype(g);
            if constexpr (PASS == SQUARES || std::is_same<G, double>::value)
                reduce_spans(SliceSpans<G, PASS>{{}, static_cast<const G *>(data), *outer, *inner,
                                                 size, per, to.sums, to.norms},
                             n * per, size, adjacent, stream);
        });
        totals<PASS>(n, per, to, wanted, stream);
    });
    settle_norms(to, n, limit, limits, type, policy, stream);
    return last_error();
}

namespace {

KERNEL set_norm(Norm *to, const void *norm, int type, double given) {
    const double root = norm ? load_one(norm, type, 0) : given;
    to->root = root < 0 ? NAN : root;
    to->exponent = 0;
}

KERNEL set_factors(Factors *to, const void *scale, int type) {
    const double x = load_one(scale, type, 0);
    *to = {{double(float(x)), 1}, {x, 1}};
}

KERNEL round_norm(const Norm *norm, int power, void *out, int type) {
    store_one(out, type, ldexp(norm->root, int(norm->exponent) + power));
}

} // namespace

/* A known norm: a number on the host, or of some type on the device. */
API int tfopt_cuda_known_norm(int device, void *stream_, void *at, int type, const void *norm,
                              double given, double limit, int policy) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const Norms to(at, 1);
    LAUNCH(stream, 1, 1, set_norm, to.norms, norm, type, given);
    settle_norms(to, 1, limit, nullptr, F64, policy, stream);
    return last_error();
}

/* A number on the device as a factor. */
API int tfopt_cuda_factor_of(int device, void *stream, void *at, int type, const void *scale) {
    const OnDevice on(device);
    LAUNCH(static_cast<cudaStream_t>(stream), 1, 1, set_factors, Norms(at, 1).factors, scale, type);
    return last_error();
}

/* ---- using norms */

/* Write a norm, times a power of two, rounded to a type. */
API int tfopt_cuda_write_norm(int device, void *stream, void *at, int type, void *out, int power) {
    const OnDevice on(device);
    LAUNCH(static_cast<cudaStream_t>(stream), 1, 1, round_norm, Norms(at, 1).norms, power, out, type);
    return last_error();
}

namespace {

template <class V>
void launch_scale(const Factors *factors, std::int64_t n, void *const *out, const void *const *data,
                  const std::int64_t *size, cudaStream_t stream) {
    constexpr int most = 1100;
    Scaling<V, most> w;
    w.factors = factors;
    for (std::int64_t t = 0; t < n;) {
        std::int64_t blocks = 0;
        for (w.n = 0; t < n && w.n < most && blocks < (1 << 30); t++) {
            w.out[w.n] = static_cast<V *>(out[t]);
            w.data[w.n] = static_cast<const V *>(data[t]);
            w.size[w.n] = size[t];
            w.first[w.n] = std::uint32_t(blocks);
            blocks += (size[t] + CHUNK - 1) / CHUNK;
            w.n++;
        }
        if (blocks)
            LAUNCH(stream, unsigned(blocks), THREADS, (scale<V, most>), w);
    }
}

unsigned blocks_for(std::int64_t size) { return unsigned((size + CHUNK - 1) / CHUNK); }

} // namespace

/* Multiply n tensors of one type by the first norm's factor. */
API int tfopt_cuda_scale(int device, void *stream, void *at, int type, std::int64_t n,
                         void *const *out, const void *const *data, const std::int64_t *size) {
    const OnDevice on(device);
    with_type(Floats(), type, [&](auto v) {
        launch_scale<decltype(v)>(static_cast<Factors *>(at), n, out, data, size,
                                  static_cast<cudaStream_t>(stream));
    });
    return last_error();
}

/* Multiply each slice of an array by its norm's factor; `slices` has the strides of the slice
 * number along the array's axes. */
API int tfopt_cuda_scale_slices(int device, void *stream, void *at, int type, void *out,
                                const void *data, std::int64_t size, const Axes *slices) {
    const OnDevice on(device);
    with_type(Floats(), type, [&](auto v) {
        using V = decltype(v);
        const SliceScaling<V> w = {static_cast<Factors *>(at), static_cast<V *>(out),
                                   static_cast<const V *>(data), size, *slices,
                                   slices->n && !slices->stride[0] &&
                                       slices->size[0] % (16 / sizeof(V)) == 0};
        if (size)
            LAUNCH(static_cast<cudaStream_t>(stream), blocks_for(size), THREADS, (scale_slices<V>), w);
    });
    return last_error();
}

/* Clamp an array between numbers in host memory, or arrays of its size on the device. */
API int tfopt_cuda_clamp(int device, void *stream, int type, void *out, const void *data,
                         std::int64_t size, const void *lowest, const void *low, const void *highest,
                         const void *high) {
    const OnDevice on(device);
    with_type(Numbers(), type, [&](auto t) {
        using T = decltype(t);
        Clamping<T> w = {static_cast<T *>(out), static_cast<const T *>(data), size,
                         static_cast<const T *>(low), static_cast<const T *>(high), {}, {}};
        if (lowest) /* then low is NULL, which it also is for an array without elements */
            w.lowest = *static_cast<const T *>(lowest);
        if (highest)
            w.highest = *static_cast<const T *>(highest);
        if (size)
            LAUNCH(static_cast<cudaStream_t>(stream), blocks_for(size), THREADS, (clamp<T>), w);
    });
    return last_error();
}
