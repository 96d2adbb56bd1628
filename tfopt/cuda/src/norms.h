/* Norms on the device: the same computation, in the same order, as kernels/reduce/norms.pyx. They
 * stay on the device.
 *
 * A norm is root * 2^exponent. The exponent is 0 except for doubles whose squares overflow or
 * underflow: for these the largest magnitude is determined, and the elements are scaled by a power
 * of two and summed again. Only the device knows whether that is needed, so the additional passes
 * are always launched and skip what does not need them.
 */
#pragma once

#include "lane_sums.h"
#include "thread_work.h"
#include "gradient_reader.h"

enum Pass { SQUARES, PEAKS, SCALED };

struct Norm {
    double root;
    std::int64_t exponent;
    double scale; /* multiplies elements before they are squared again, */
    bool again;   /* if they have to be */
};

/* ---- from norms to factors: the arithmetic of kernels/reduce/clip.pyx */

BOTH Factor factor_of(double root, int exponent, double limit, bool single) {
    const int smallest = single ? -126 : -1022;
    Factor it = {1, 1};
    if (limit == INFINITY || root <= ldexp(limit, -exponent))
        return it;
    int power = 0;
    const bool finite = root - root == 0;
    const double quotient = limit / (finite ? frexp(root, &power) : root);
    power = -power - exponent;
    it.first = ldexp(quotient, power);
    if ((0 < it.first && it.first < ldexp(1.0, smallest)) || (it.first == 0 && quotient > 0)) {
        it.first = ldexp(quotient, power - smallest);
        it.second = ldexp(1.0, smallest);
    }
    if (single)
        it.first = float(it.first);
    if (it.first == 1) { /* rounded up to 1: then the second is the whole factor, if there is one */
        it.first = it.second;
        it.second = 1;
    }
    return it;
}

constexpr unsigned long long NONE_BAD = ~0ull;

/* The treatment of a non-finite norm: as of one slice, as the norm of all tensors, skip. */
enum Policy { OWN, SHARED_BY_ALL, SKIPPED };

/* How norms are turned into factors. */
struct Settling {
    Factors *factors;
    const Norm *norms;
    unsigned long long *bad; /* the first norm that is not finite */
    std::int64_t n;
    double limit;
    const void *limits; /* a limit for each norm instead; of some type */
    int type;
    int policy;
    double scale; /* multiplies the factors */
};

BOTH Factor times(Factor it, double scale) {
    (it.second == 1 ? it.first : it.second) *= scale; /* a second one keeps the first normal */
    return it;
}

/* Compute the factors of norms. */
KERNEL settle(IN_PARAMETERS Settling s) {
    const std::int64_t k = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (k >= s.n)
        return;
    const Norm &norm = s.norms[k];
    double limit = s.limits ? load_one(s.limits, s.type, k) : s.limit;
    limit = limit < 0 ? 0 : limit;
    if (norm.root - norm.root != 0) {
        atomicMin(s.bad, static_cast<unsigned long long>(k));
        if (s.policy == SKIPPED)
            limit = INFINITY;
        else if (s.policy == SHARED_BY_ALL && limit != INFINITY)
            limit = NAN;
    }
    s.factors[k].single = times(factor_of(norm.root, int(norm.exponent), limit, true), s.scale);
    s.factors[k].wide = times(factor_of(norm.root, int(norm.exponent), limit, false), s.scale);
}

/* ---- from sums to norms */

constexpr int FARTHEST = 1021; /* largest exponent with 2^n and 2^-n normal */

/* What to compute from a sum of squares. */
enum Wanted { SUM, ROOT, ROOT_OF_DOUBLES };

/* Turn the result of a pass into a norm, or into the scale for the next pass. */
template <int PASS> DEVICE void take_total(Norm &norm, double total, int wanted) {
    norm.again = false;
    if (PASS == SQUARES) {
        norm.exponent = 0;
        norm.root = wanted == SUM ? total : sqrt(total);
        /* squares lost to underflow are at most 2^-122 of the smallest such sum */
        norm.again = wanted == ROOT_OF_DOUBLES && (total == INFINITY || total < 0x1p-900);
    } else if (PASS == SCALED) {
        norm.root = sqrt(total);
    } else {
        norm.root = total;
        if (total == 0 || total == INFINITY)
            return;
        int exponent;
        frexp(total, &exponent);
        exponent = exponent > FARTHEST ? FARTHEST : exponent < -FARTHEST ? -FARTHEST : exponent;
        norm.exponent = exponent;
        norm.scale = ldexp(1.0, -exponent);
        norm.again = true;
    }
}

/* ---- spans */

/* The number of elements that a thread loads at a time: 16 bytes. */
template <class G> constexpr int AHEAD = 16 / sizeof(G);

template <int PASS> struct Joined {
    static DEVICE double join(double a, double b) {
        return PASS == PEAKS ? (b > a ? b : a) : a + b;
    }
};

/* The contribution of an element in a pass. */
template <int PASS, class real> DEVICE double part_of(real x, double scale) {
    const double y = PASS == SCALED ? double(x) * scale : double(x);
    return PASS == PEAKS ? fabs(y) : y * y;
}

/* The spans of some tensors, one after another. */
template <class G, int PASS, int N> struct ListSpans : Joined<PASS> {
    using Element = G;
    int n;
    bool own; /* whether each tensor has its own norm, or all have one */
    typename Computed<G>::type bound;
    double *sums; /* from the launch's first span on */
    const Norm *norms; /* from the launch's first tensor on, or the common one */
    const G *data[N];
    std::int64_t size[N];
    std::uint32_t first[N];

    DEVICE const Norm &norm_of(int t) const { return norms[own ? t : 0]; }

    DEVICE bool wants(std::int64_t unit) const {
        return PASS == SQUARES || norm_of(last_up_to(first, n, unit)).again;
    }
    DEVICE Adjacent<G> adjacent(std::int64_t unit) const {
        const int t = last_up_to(first, n, unit);
        const std::int64_t start = (unit - first[t]) * SPAN, left = size[t] - start;
        return {data[t] + start, left < SPAN ? left : SPAN, PASS == SCALED ? norm_of(t).scale : 1};
    }
    DEVICE double part(G x, double scale) const {
        return part_of<PASS>(clamped(load(x), bound), scale);
    }
    DEVICE double take(std::int64_t unit, int lane) const {
        const Adjacent<G> all = adjacent(unit);
        double share = 0;
#pragma unroll AHEAD<G>
        for (std::int64_t i = lane; i < all.n; i += LANES)
            share = this->join(share, part(all.at[i], all.scale));
        return share;
    }
    DEVICE void give(std::int64_t unit, double sum) const { sums[unit] = sum; }
};

/* The spans of slices of one contiguous array, slice after slice. */
template <class G, int PASS> struct SliceSpans : Joined<PASS> {
    using Element = G;
    const G *data;
    Axes outer, inner;
    std::int64_t size; /* of a slice */
    std::int64_t per;  /* spans of a slice */
    double *sums;
    const Norm *norms;

    DEVICE bool wants(std::int64_t unit) const {
        return PASS == SQUARES || norms[unit / per].again;
    }
    /* A span of a slice whose elements are adjacent. */
    DEVICE Adjacent<G> adjacent(std::int64_t unit) const {
        const std::int64_t slice = unit / per, start = unit % per * SPAN;
        const std::int64_t left = size - start;
        return {data + offset_of(outer, slice) + start, left < SPAN ? left : SPAN,
                PASS == SCALED ? norms[slice].scale : 1};
    }
    DEVICE double part(G x, double scale) const { return part_of<PASS>(load(x), scale); }
    DEVICE double take(std::int64_t unit, int lane) const {
        const std::int64_t slice = unit / per, start = unit % per * SPAN;
        const G *at = data + offset_of(outer, slice);
        const double scale = PASS == SCALED ? norms[slice].scale : 1;
        const std::int64_t stop = size - start < SPAN ? size : start + SPAN;
        double share = 0;
        if (inner.n > 1) { /* finding each position takes divisions */
#pragma unroll 1
            for (std::int64_t i = start + lane; i < stop; i += LANES)
                share = this->join(share, part(at[offset_of(inner, i)], scale));
            return share;
        }
        const std::int64_t step = inner.n ? inner.stride[0] : 0;
#pragma unroll AHEAD<G>
        for (std::int64_t i = start + lane; i < stop; i += LANES)
            share = this->join(share, part(at[i * step], scale));
        return share;
    }
    DEVICE void give(std::int64_t unit, double sum) const { sums[unit] = sum; }
};

/* ---- sums of spans, summed in the same way */

/* Norms with equal numbers of spans. */
struct Equal {
    std::int64_t per;
    DEVICE std::int64_t begin(std::int64_t k) const { return k * per; }
};

/* Norms with different numbers of spans. */
template <int N> struct Listed {
    std::int64_t first[N + 1];
    DEVICE std::int64_t begin(std::int64_t k) const { return first[k]; }
};

template <class Begins, int PASS> struct Totals : Joined<PASS> {
    Begins begins;
    const double *sums;
    Norm *norms;
    int wanted;

    DEVICE bool wants(std::int64_t unit) const { return PASS == SQUARES || norms[unit].again; }
    DEVICE double take(std::int64_t unit, int lane) const {
        const std::int64_t stop = begins.begin(unit + 1);
        double share = 0;
        for (std::int64_t i = begins.begin(unit) + lane; i < stop; i += LANES)
            share = this->join(share, sums[i]);
        return share;
    }
    DEVICE void give(std::int64_t unit, double total) const {
        take_total<PASS>(norms[unit], total, wanted);
    }
};
