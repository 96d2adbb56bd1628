/* The kernels of Adafactor, whose passes and sums are those of optimizers/algorithms/adafactor.py:
 * means as NumPy computes them, and sums of squares in lanes.
 */
#pragma once

#include "lane_sums.h"
#include "machine.h"
#include "pairwise_sums.h"

constexpr int FEW = 32; /* threads of a block where each has a long sum of its own */

/* A step of a variable, in the type that is computed in. A factored one has outer * rows means of
 * rows and outer * columns means of columns; others have `columns` elements, and a mean for each. */
template <class real> struct Adafactor {
    real *var;
    const real *grad;
    real *r, *c;      /* means of squares; not factored, r has those of elements */
    real *r_mean;     /* the means of r */
    double *totals;   /* the sums of squares of the variable, and of the step */
    std::int64_t outer, rows, columns;
    bool factored;
    real keep, taken, epsilon;
    double shortest, rate, limit; /* of the variable's length; of its step; of the step's length */

    BOTH std::int64_t size() const { return outer * rows * columns; }

    DEVICE real square(std::int64_t i) const { return grad[i] * grad[i] + epsilon; }

    DEVICE void decay(real &slot, real mean) const {
        slot = (real(1) - taken) * slot + taken * mean;
    }

    DEVICE real step(std::int64_t i) const {
        if (!factored)
            return grad[i] / rules::root(r[i]);
        const std::int64_t row = i / columns, block = row / rows;
        const real mean = r[row] / r_mean[block] * c[block * columns + i % columns];
        const real smallest = sizeof(real) == 4 ? real(0x1p-126) : real(0x1p-1022);
        return grad[i] / rules::root(mean < smallest ? smallest : mean);
    }
};

DEVICE std::int64_t thread_of(int threads) {
    return std::int64_t(blockIdx.x) * threads + threadIdx.x;
}

template <class real> DEVICE real mean_of(real sum, std::int64_t n) {
    return real(double(sum) / double(n));
}

/* Update the means of rows, or those of elements. */
template <class real> KERNEL take_row_means(IN_PARAMETERS Adafactor<real> w) {
    const std::int64_t row = thread_of(FEW);
    if (row >= (w.factored ? w.outer * w.rows : w.columns))
        return;
    const std::int64_t n = w.factored ? w.columns : 1;
    const real sum = pairwise_sum<real>(n, [&](std::int64_t i) { return w.square(row * n + i); });
    w.decay(w.r[row], mean_of(sum, n));
}

/* Update the means of columns. NumPy adds rows, one after another, unless they have one element. */
template <class real> KERNEL take_column_means(IN_PARAMETERS Adafactor<real> w) {
    const std::int64_t column = thread_of(FEW);
    if (column >= w.outer * w.columns)
        return;
    const std::int64_t block = column / w.columns;
    const std::int64_t first = block * w.rows * w.columns + column % w.columns;
    const auto square = [&](std::int64_t i) { return w.square(first + i * w.columns); };
    real sum = 0;
    if (w.columns == 1)
        sum = pairwise_sum<real>(w.rows, square);
    else
        for (std::int64_t i = 0; i < w.rows; i++)
            sum = sum + square(i);
    w.decay(w.c[column], mean_of(sum, w.rows));
}

/* The mean of the means of rows. */
template <class real> KERNEL take_means_of_rows(IN_PARAMETERS Adafactor<real> w) {
    const std::int64_t block = thread_of(FEW);
    if (block >= w.outer)
        return;
    const auto mean = [&](std::int64_t i) { return w.r[block * w.rows + i]; };
    w.r_mean[block] = mean_of(pairwise_sum<real>(w.rows, mean), w.rows);
}

/* Spans of the variable, which decays before the step, or of the step. */
template <class real> struct SquaresOf {
    Adafactor<real> w;
    bool of_step;
    double *sums;

    static DEVICE double join(double a, double b) { return a + b; }
    DEVICE bool wants(std::int64_t) const { return true; }
    DEVICE double take(std::int64_t unit, int lane) const {
        const std::int64_t begin = unit * SPAN, left = w.size() - begin;
        const std::int64_t stop = begin + (left < SPAN ? left : SPAN);
        double share = 0;
#pragma unroll 2
        for (std::int64_t i = begin + lane; i < stop; i += LANES) {
            const double x = of_step ? w.step(i) : w.var[i] * w.keep;
            share = share + x * x;
        }
        return share;
    }
    DEVICE void give(std::int64_t unit, double sum) const { sums[unit] = sum; }
};

/* The sum of the sums of spans. */
struct SumOfSpans {
    const double *sums;
    std::int64_t spans;
    double *total;

    static DEVICE double join(double a, double b) { return a + b; }
    DEVICE bool wants(std::int64_t) const { return true; }
    DEVICE double take(std::int64_t, int lane) const {
        double share = 0;
        for (std::int64_t i = lane; i < spans; i += LANES)
            share = share + sums[i];
        return share;
    }
    DEVICE void give(std::int64_t, double sum) const { *total = sum; }
};

template <class real> KERNEL step_by_means(IN_PARAMETERS Adafactor<real> w) {
    const std::int64_t i = thread_of(THREADS);
    if (i >= w.size())
        return;
    const double length = sqrt(w.totals[0] / double(w.size()));
    const double longest = sqrt(w.totals[1] / double(w.size())) / w.limit;
    const real divisor = real(longest > 1 ? longest : 1);
    const real factor = real((length > w.shortest ? length : w.shortest) * w.rate);
    w.var[i] = w.var[i] * w.keep - w.step(i) / divisor * factor;
}

/* ---- numbers that are stored in 16 bits */

template <class V> KERNEL widen(float *into, const V *from, std::int64_t n) {
    const std::int64_t i = thread_of(THREADS);
    if (i < n)
        into[i] = load(from[i]);
}

template <class V> KERNEL narrow(V *into, const float *from, std::int64_t n) {
    const std::int64_t i = thread_of(THREADS);
    if (i < n)
        store(&into[i], from[i]);
}
