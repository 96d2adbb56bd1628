/* The steps of rows with many occurrences: a block for some columns of a row. */
#pragma once

#include "drivers.h"

constexpr int TILE = 2048;       /* gradients in shared memory */
constexpr int WIDTH = 64;        /* the maximum number of columns of a block */
constexpr int MOST_BLOCKS = 528; /* four for each multiprocessor of an H100 */

/* Tiles of a row's gradients pass through shared memory. All threads bring them: while a tile is
 * added, the gradients of the next one are on their way, and the places of those of the one after.
 * A thread for each column takes them from there, in order.
 */
template <class Rule, class V, class G> struct HotRows {
    static constexpr int EACH = TILE / THREADS; /* of a tile, brought by a thread */
    static constexpr int ahead = 2;
    using Shared = G[2][TILE];

    /* What a thread keeps between tiles. */
    struct Own {
        RowElement<Rule, V, G> element;
        std::int64_t first, end; /* the row's occurrences */
        std::int64_t column;     /* the block's first */
        int width;               /* the number of its columns */
        std::int64_t at;         /* the thread's element, if it has one */
        G gradient[EACH];
        std::uint32_t place[EACH];
    };

    Rows<V, G, Rule::arrays> w;
    std::int64_t parts; /* of a row's columns */
    int shift;          /* a tile has 2^shift columns */

    DEVICE std::int64_t items() const { return w.found->hot * parts; }

    /* Return the number of tiles of an item. */
    DEVICE std::int64_t begin(std::int64_t item, Own &own) const {
        own.first = w.hot[item / parts];
        own.column = item % parts << shift;
        own.width = int(w.inner - own.column < 1 << shift ? w.inner - own.column : 1 << shift);
        const std::uint32_t row = w.row[own.first];
        own.end = own.first + HOT;
        std::int64_t after = w.n;
        while (own.end < after) { /* the first occurrence of a later row */
            const std::int64_t middle = (own.end + after) / 2;
            if (w.row[middle] == row)
                own.end = middle + 1;
            else
                after = middle;
        }
        own.at = row * w.inner + own.column + threadIdx.x;
        if (int(threadIdx.x) < own.width)
            own.element.get(w, own.at);
        return (own.end - own.first + (TILE >> shift) - 1) / (TILE >> shift);
    }
    DEVICE void fill(std::int64_t tile, Shared &shared, const Own &own) const {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            shared[tile % 2][threadIdx.x + k * THREADS] = own.gradient[k];
    }
    DEVICE void use(std::int64_t tile, const Shared &shared, Own &own) const {
        if (tile + 1 >= 0)
            bring(own, tile + 1);
        find(own, tile + 2);
        if (tile < 0 || int(threadIdx.x) >= own.width)
            return;
        const auto read = reading_of(w.with, 0);
        const std::int64_t left = own.end - start_of(own, tile);
        const int n = int(left < TILE >> shift ? left : TILE >> shift);
        const G *gradients = shared[tile % 2] + threadIdx.x;
        int steps = n;
        if (w.summed) {
            steps = left <= TILE >> shift; /* after the last tile */
#pragma unroll 8
            for (int i = 0; i < n; i++)
                own.element.add(w, read, gradients[i << shift]);
        }
#pragma unroll 1
        for (int i = 0; i < steps; i++)
            own.element.step(w, w.summed ? own.element.total(w, read)
                                         : read(load(gradients[i << shift])));
    }
    DEVICE void end(Own &own) const {
        if (int(threadIdx.x) < own.width)
            own.element.put(w, own.at);
    }

  private:
    DEVICE std::int64_t start_of(const Own &own, std::int64_t tile) const {
        return own.first + tile * (TILE >> shift);
    }
    /* Find the places of a tile's gradients. */
    DEVICE void find(Own &own, std::int64_t tile) const {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const std::int64_t i = start_of(own, tile) + ((threadIdx.x + k * THREADS) >> shift);
            own.place[k] = i < own.end ? w.order[i] : 0;
        }
    }
    DEVICE void bring(Own &own, std::int64_t tile) const {
        const int column = int(threadIdx.x) & ((1 << shift) - 1);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const std::int64_t i = start_of(own, tile) + ((threadIdx.x + k * THREADS) >> shift);
            if (i < own.end && column < own.width)
                own.gradient[k] = w.grad[own.place[k] * w.inner + own.column + column];
        }
    }
};

template <class Rule, class V, class G>
void launch_hot_rows(const Rows<V, G, Rule::arrays> &w, cudaStream_t stream) {
    HotRows<Rule, V, G> work;
    work.w = w;
    work.shift = 0;
    while (1 << work.shift < WIDTH && 1 << work.shift < w.inner)
        work.shift++;
    work.parts = (w.inner + (1 << work.shift) - 1) >> work.shift;
    const std::int64_t most = w.n / (HOT + 1) * work.parts;
    if (most)
        LAUNCH_BY_TILES(stream, unsigned(most < MOST_BLOCKS ? most : MOST_BLOCKS), THREADS, work);
}
