/* Norms on the device: what kernels/norms.pyx computes, in the same order, and left there.
 *
 * A norm is root * 2^exponent. The exponent is 0 but for doubles whose squares over- or underflow;
 * of those the largest is looked for, and they are scaled by a power of two and summed anew. Whether
 * that is needed is known on the device alone, so the passes it takes are launched in any case and
 * leave alone what does not need them.
 */
#pragma once

#include "lanes.h"
#include "places.h"
#include "reading.h"

enum Pass { SQUARES, PEAKS, SCALED };

struct Norm {
    double root;
    std::int64_t exponent;
    double scale; /* what elements are multiplied by before they are squared again, */
    bool again;   /* if they are */
};

/* ---- from a norm to factors: the arithmetic of kernels/clip.pyx */

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
    if (it.first == 1) { /* rounded up to it: the second, if there is one, is the whole factor */
        it.first = it.second;
        it.second = 1;
    }
    return it;
}

constexpr unsigned long long NONE_BAD = ~0ull;

/* What a norm that is not finite does: as one of its own, as the one of many, nothing. */
enum Policy { OWN, SHARED_BY_ALL, SKIPPED };

/* What becomes of norms. */
struct Settling {
    Factors *factors;
    const Norm *norms;
    unsigned long long *bad; /* the first norm that is not finite */
    std::int64_t n;
    double limit;
    const void *limits; /* one for each norm, instead; of some type */
    int type;
    int policy;
};

/* Set the factors of norms. */
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
    s.factors[k].single = factor_of(norm.root, int(norm.exponent), limit, true);
    s.factors[k].wide = factor_of(norm.root, int(norm.exponent), limit, false);
}

/* ---- from sums to norms */

constexpr int FARTHEST = 1021; /* the exponents up to which a power of two and its inverse are normal */

/* What is wanted of a sum of squares. */
enum Wanted { SUM, ROOT, ROOT_OF_DOUBLES };

/* Make of the result of a pass a norm, or what the next pass needs. */
template <int PASS> DEVICE void take_total(Norm &norm, double total, int wanted) {
    norm.again = false;
    if (PASS == SQUARES) {
        norm.exponent = 0;
        norm.root = wanted == SUM ? total : sqrt(total);
        /* squares that are too small to count in the least such sum are 2^-122 of it */
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

/* Elements that a thread asks for at a time: 16 bytes of them. */
template <class G> constexpr int AHEAD = 16 / sizeof(G);

template <int PASS> struct Joined {
    static DEVICE double join(double a, double b) {
        return PASS == PEAKS ? (b > a ? b : a) : a + b;
    }
};

/* What an element adds in a pass. */
template <int PASS, class real> DEVICE double part_of(real x, double scale) {
    const double y = PASS == SCALED ? double(x) * scale : double(x);
    return PASS == PEAKS ? fabs(y) : y * y;
}

/* The spans of some tensors, block after block. */
template <class G, int PASS, int N> struct ListSpans : Joined<PASS> {
    int n;
    bool own; /* whether each tensor has a norm, or all have one */
    typename Computed<G>::type bound;
    double *sums; /* of the launch's first span */
    const Norm *norms; /* of the launch's first tensor, or of all */
    const G *data[N];
    std::int64_t size[N];
    std::uint32_t first[N];

    DEVICE const Norm &norm_of(int t) const { return norms[own ? t : 0]; }

    DEVICE bool wants(std::int64_t unit) const {
        return PASS == SQUARES || norm_of(last_up_to(first, n, unit)).again;
    }
    DEVICE double take(std::int64_t unit, int lane) const {
        const int t = last_up_to(first, n, unit);
        const double scale = PASS == SCALED ? norm_of(t).scale : 1;
        const std::int64_t start = (unit - first[t]) * SPAN;
        const std::int64_t stop = size[t] - start < SPAN ? size[t] : start + SPAN;
        double share = 0;
#pragma unroll AHEAD<G>
        for (std::int64_t i = start + lane; i < stop; i += LANES)
            share = this->join(share, part_of<PASS>(clamped(load(data[t][i]), bound), scale));
        return share;
    }
    DEVICE void give(std::int64_t unit, double sum) const { sums[unit] = sum; }
};

/* The spans of slices of one contiguous array, slice after slice. */
template <class G, int PASS> struct SliceSpans : Joined<PASS> {
    const G *data;
    Axes outer, inner;
    std::int64_t size; /* of a slice */
    std::int64_t per;  /* spans of a slice */
    double *sums;
    const Norm *norms;

    DEVICE bool wants(std::int64_t unit) const {
        return PASS == SQUARES || norms[unit / per].again;
    }
    DEVICE double take(std::int64_t unit, int lane) const {
        const std::int64_t slice = unit / per, start = unit % per * SPAN;
        const G *at = data + offset_of(outer, slice);
        const double scale = PASS == SCALED ? norms[slice].scale : 1;
        const std::int64_t stop = size - start < SPAN ? size : start + SPAN;
        double share = 0;
        if (inner.n > 1) { /* every place takes divisions */
#pragma unroll 1
            for (std::int64_t i = start + lane; i < stop; i += LANES)
                share = this->join(share, part_of<PASS>(load(at[offset_of(inner, i)]), scale));
            return share;
        }
        const std::int64_t step = inner.n ? inner.stride[0] : 0;
#pragma unroll AHEAD<G>
        for (std::int64_t i = start + lane; i < stop; i += LANES)
            share = this->join(share, part_of<PASS>(load(at[i * step]), scale));
        return share;
    }
    DEVICE void give(std::int64_t unit, double sum) const { sums[unit] = sum; }
};

/* ---- spans' sums, added up in the same way */

/* Norms that have equally many spans. */
struct Equal {
    std::int64_t per;
    DEVICE std::int64_t begin(std::int64_t k) const { return k * per; }
};

/* Norms that have spans as they come. */
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
