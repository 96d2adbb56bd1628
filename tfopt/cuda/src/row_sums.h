/* Steps by rules that sum over rows, in the order of sums of the host's steps of rows.
 *
 * A block has a whole row at a time, or several short ones, and steps it in rounds: its threads sum
 * a span in lanes, join the lanes by halves, and so on with other spans; then each of them makes
 * scalars of the sums, and steps the elements that it has summed.
 */
#pragma once

#include "tensor_sums.h"

/* Rows of tensors, all of them or those with a gradient. */
template <class V, class G, int ARRAYS> struct SummedRows {
    Scalars<typename Computed<V>::type> with;
    std::int64_t before; /* number of tensors in previous launches */
    int n;
    V *data[SUMMED][ARRAYS];
    const G *grad[SUMMED];
    std::int64_t n_rows[SUMMED], inner[SUMMED];
    std::uint32_t first[SUMMED]; /* the tensor's first block */
    /* of one tensor: occurrences sorted by row, as of drivers.h; without them, all rows step */
    std::int64_t n_sorted;
    const std::uint32_t *row, *order;
    const Found *found;
    bool summed, clips_each;
};

template <class R, class V, class G> struct RowSums {
    using real = typename Computed<V>::type;
    using Call = SummedRows<V, G, R::arrays>;
    using Shared = double[R::sums][LANES];

    /* What a thread keeps between rounds. */
    struct Own {
        Reading<real> read;
        int tensor, width;       /* the number of the row's threads, a power of two */
        std::int64_t row;        /* below 0: there is none */
        std::int64_t at, end;    /* the occurrences that are left, or whose sum is the gradient */
        std::int64_t span;       /* the next one */
        int half;                /* of the lanes that are left; the width: none are filled */
        bool joins;              /* whether sums of spans are joined */
        double of_spans[R::sums];
        V numbers[R::arrays - R::whole]; /* of the row */
        real gradient; /* of the thread's only element, if a row has few */
    };

    Call w;

    DEVICE void begin(Own &own) const {
        const int t = own.tensor = last_up_to(w.first, w.n, blockIdx.x);
        own.width = width_for(w.inner[t]);
        own.read = reading_of(w.with, w.before + t);
        const std::int64_t unit = std::int64_t(blockIdx.x - w.first[t]) * (LANES / own.width) +
                                  threadIdx.x / own.width;
        find(own, unit);
        if (own.row < 0)
            return;
        for (int k = R::whole; k < R::arrays; k++)
            own.numbers[k - R::whole] = w.data[t][k][own.row];
        start(own);
    }

    /* Go on to the next barrier; return whether there is more to do. */
    DEVICE bool run(Shared &shares, Own &own) const {
        if (own.row < 0)
            return false;
        if (own.half == own.width) {
            fill(shares[0] + threadIdx.x, own);
            own.half /= 2;
        } else if (own.half > 0) {
            if (lane(own) < own.half)
                for (int k = 0; k < R::sums; k++)
                    shares[k][threadIdx.x] += shares[k][threadIdx.x + own.half];
            own.half /= 2;
        } else {
            double totals[R::sums];
            for (int k = 0; k < R::sums; k++)
                totals[k] = shares[k][threadIdx.x - lane(own)];
            return use(totals, own);
        }
        return true;
    }

  private:
    DEVICE static int lane(const Own &own) { return int(threadIdx.x) % own.width; }
    DEVICE std::int64_t inner(const Own &own) const { return w.inner[own.tensor]; }

    /* Find the row of a unit, and its occurrences. */
    DEVICE void find(Own &own, std::int64_t unit) const {
        own.row = -1;
        own.at = own.end = unit;
        if (!w.row) {
            if (unit < w.n_rows[own.tensor])
                own.row = unit;
            return;
        }
        if (unit >= w.n_sorted || (w.found->outside & w.found->repeated) != NOTHING)
            return;
        const std::uint32_t row = w.row[unit];
        if (row == w.n_rows[0] || (unit > 0 && w.row[unit - 1] == row))
            return; /* other threads step the row */
        own.row = row;
        std::int64_t by = 1; /* few rows have many occurrences */
        while (own.end + by < w.n_sorted && w.row[own.end + by] == row) {
            own.end += by;
            by *= 2;
        }
        while (by /= 2)
            if (own.end + by < w.n_sorted && w.row[own.end + by] == row)
                own.end += by;
        own.end++;
    }

    /* Begin a step of the row. */
    DEVICE void start(Own &own) const {
        own.span = 0;
        own.half = own.width;
        own.joins = false;
        for (int k = 0; k < R::sums; k++)
            own.of_spans[k] = 0;
    }

    DEVICE real gradient(const Own &own, std::int64_t c) const {
        const G *grad = w.grad[own.tensor];
        if (!w.row)
            return own.read(load(grad[own.row * inner(own) + c]));
        if (!w.summed)
            return own.read(load(grad[w.order[own.at] * inner(own) + c]));
        real sum = 0;
#pragma unroll 2
        for (std::int64_t i = own.at; i < own.end; i++) {
            const real g = load(grad[w.order[i] * inner(own) + c]);
            sum = sum + (w.clips_each ? own.read(g) : g);
        }
        G rounded;
        store(&rounded, sum);
        return w.clips_each ? real(load(rounded)) : own.read(load(rounded));
    }

    /* Get an element of the row. */
    DEVICE void get(const Own &own, std::int64_t c, real (&x)[R::whole]) const {
        for (int k = 0; k < R::whole; k++)
            x[k] = load(w.data[own.tensor][k][own.row * inner(own) + c]);
        x[0] = x[0] * w.with.keep;
    }

    /* Fill the thread's lane with a span, or with those sums of spans that belong there. */
    DEVICE void fill(double *share, Own &own) const {
        double sums[R::sums] = {};
        if (own.joins)
            for (int k = 0; k < R::sums; k++)
                sums[k] = own.of_spans[k];
        const std::int64_t begin = own.span * SPAN, left = inner(own) - begin;
        const std::int64_t stop = begin + (own.joins ? 0 : left < SPAN ? left : SPAN);
#pragma unroll 1
        for (std::int64_t c = begin + lane(own); c < stop; c += LANES) {
            real x[R::whole];
            get(own, c, x);
            own.gradient = gradient(own, c);
            R::first(x, own.gradient, w.with.s, sums);
        }
        for (int k = 0; k < R::sums; k++)
            share[k * LANES] = sums[k];
    }

    /* Use the sums of a span, or of the row; return whether there is more to sum. */
    DEVICE bool use(const double (&totals)[R::sums], Own &own) const {
        const bool is_long = inner(own) > SPAN;
        if (is_long && !own.joins) {
            if (lane(own) == own.span % LANES)
                for (int k = 0; k < R::sums; k++)
                    own.of_spans[k] += totals[k];
            own.span++;
            own.half = own.width;
            own.joins = own.span * SPAN >= inner(own);
            return true;
        }
        step(totals, own);
        own.at = w.summed || !w.row ? own.end : own.at + 1;
        if (own.at < own.end) {
            start(own);
            return true;
        }
        if (lane(own) == 0)
            for (int k = R::whole; k < R::arrays; k++)
                w.data[own.tensor][k][own.row] = own.numbers[k - R::whole];
        own.row = -1;
        return false;
    }

    DEVICE void step(const double (&totals)[R::sums], Own &own) const {
        real numbers[R::arrays - R::whole], s[MAX_SCALARS];
        for (int k = 0; k < R::arrays - R::whole; k++)
            numbers[k] = load(own.numbers[k]);
        for (int k = 0; k < R::scalars; k++)
            s[k] = w.with.s[k];
        R::template reduce<real>(numbers, s, w.with.constants, totals, double(inner(own)),
                                 s + R::scalars);
        for (int k = 0; k < R::arrays - R::whole; k++)
            store(&own.numbers[k], numbers[k]);
#pragma unroll 1
        for (std::int64_t c = lane(own); c < inner(own); c += LANES) {
            real x[R::whole];
            get(own, c, x);
            R::dense(x, inner(own) > LANES ? gradient(own, c) : own.gradient, s, w.with.constants);
            for (int k = 0; k < R::whole; k++)
                store(&w.data[own.tensor][k][own.row * inner(own) + c], x[k]);
        }
    }
};
