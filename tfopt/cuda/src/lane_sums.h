/* Sums in the order of kernels/reduce/lane_sums.pxd: 256 lanes in double precision, added by
 * halves.
 */
#pragma once

#include "storage.h"
#include "thread_work.h"

constexpr int LANES = 256;      /* also the number of threads in a block that sums them */
constexpr int SPAN = 65536;     /* elements that are summed first */

/* Units, each of which `width` threads (a power of two) reduce to one number. With fewer than 256
 * threads a unit has at most `width` elements: the other lanes would hold zeros.
 *
 * A source computes a lane's share of a unit, combines two shares and stores the result; it may
 * skip units.
 */
template <class Source> struct InLanes {
    using Shared = double[LANES];
    static constexpr int phases = 10;

    Source source;
    std::int64_t units;
    int width;

    DEVICE void run(int phase, double *shares) const {
        const int thread = int(threadIdx.x), lane = thread % width;
        const std::int64_t unit = std::int64_t(blockIdx.x) * (LANES / width) + thread / width;
        const int half = LANES >> phase; /* half of the remaining lanes; 0 in the last phase */
        const bool joins = half < width && lane < half;
        if (unit >= units || (phase > 0 && half > 0 && !joins) || (half == 0 && lane > 0))
            return;
        if (!source.wants(unit))
            return;
        if (phase == 0)
            shares[thread] = source.take(unit, lane);
        else if (half > 0)
            shares[thread] = Source::join(shares[thread], shares[thread + half]);
        else
            source.give(unit, shares[thread]);
    }
};

/* The smallest number of threads that can reduce that many elements. */
BOTH int width_for(std::int64_t elements) {
    int width = 1;
    while (width < LANES && width < elements)
        width *= 2;
    return width;
}

template <class Source>
void reduce(const Source &source, std::int64_t units, int width, cudaStream_t stream) {
    const InLanes<Source> work = {source, units, width};
    const std::int64_t at_a_time = LANES / width;
    if (units)
        LAUNCH_IN_PHASES(stream, unsigned((units + at_a_time - 1) / at_a_time), LANES, work);
}

/* ---- adjacent elements */

/* Adjacent elements, and what they are multiplied by. */
template <class G> struct Adjacent {
    const G *at;
    std::int64_t n;
    double scale;
};

/* Units of adjacent elements, each of which up to 32 threads of a warp reduce to one number. A
 * thread has eight adjacent lanes, whose elements it loads 16 bytes at a time if they are aligned.
 * Halves are joined between threads, and the last three times within a thread.
 */
template <class Source> struct InWarps {
    using G = typename Source::Element;
    static constexpr int EACH = 8;
    struct Shares {
        double of[EACH];
    };

    Source source;
    std::int64_t units;
    int threads; /* of a unit, a power of two; with fewer than 32 it has at most 8 elements each */

    DEVICE Shares begin() const {
        Shares shares = {};
        if (wanted())
            take(source.adjacent(unit()), shares);
        return shares;
    }
    DEVICE void join(Shares &shares, const Shares &others) const {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            shares.of[j] = Source::join(shares.of[j], others.of[j]);
    }
    DEVICE void end(Shares &shares) const {
        if (place() > 0 || !wanted())
            return;
#pragma unroll
        for (int half = EACH / 2; half > 0; half /= 2)
#pragma unroll
            for (int j = 0; j < half; j++)
                shares.of[j] = Source::join(shares.of[j], shares.of[j + half]);
        source.give(unit(), shares.of[0]);
    }

  private:
    DEVICE std::int64_t unit() const {
        return (std::int64_t(blockIdx.x) * THREADS + threadIdx.x) / threads;
    }
    DEVICE int place() const { return int(threadIdx.x) % threads; }
    DEVICE bool wanted() const { return unit() < units && source.wants(unit()); }

    DEVICE void take(const Adjacent<G> &all, Shares &shares) const {
        constexpr int WIDE = 16 / sizeof(G);
        const G *at = all.at + place() * EACH;
        const std::int64_t n = all.n - place() * EACH;
        std::int64_t i = 0;
        if (on_packs(16, at)) {
#pragma unroll 4
            for (; i + EACH <= n; i += LANES) {
#pragma unroll
                for (int w = 0; w < EACH; w += WIDE) {
                    const auto pack = *reinterpret_cast<const Pack<G, WIDE> *>(at + i + w);
#pragma unroll
                    for (int j = 0; j < WIDE; j++)
                        add(shares.of[w + j], pack.e[j], all.scale);
                }
            }
        }
        for (; i < n; i += LANES) {
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (i + j < n)
                    add(shares.of[j], at[i + j], all.scale);
        }
    }
    DEVICE void add(double &share, G x, double scale) const {
        share = Source::join(share, source.part(x, scale));
    }
};

constexpr std::int64_t MANY = 1024; /* units that occupy a GPU with a warp for each */

/* Reduce units of at most so many elements, which are adjacent or not. */
template <class Source>
void reduce_spans(const Source &source, std::int64_t units, std::int64_t elements, bool adjacent,
                  cudaStream_t stream) {
    if (units < MANY || !adjacent)
        return reduce(source, units, width_for(elements), stream);
    InWarps<Source> work = {source, units, 1};
    while (work.threads < 32 && work.threads * work.EACH < elements)
        work.threads *= 2;
    const std::int64_t at_a_time = THREADS / work.threads;
    LAUNCH_IN_WARPS(stream, unsigned((units + at_a_time - 1) / at_a_time), THREADS, work);
}
