/* One source for two compilers: nvcc, and a C++ compiler that runs the same kernels thread by
 * thread.
 *
 * The latter is for tests on machines without a GPU. It verifies arithmetic, indexing and
 * signatures, also under a sanitizer and with the threads in reverse order (TFOPT_REVERSED), but
 * nothing about streams, devices or speed. So kernels only use what both support: no communication
 * between threads except in phases, by tiles, in warps and in pairs (see below), and no atomics on floats.
 */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define BOTH __host__ __device__ __forceinline__
#define DEVICE __device__ __forceinline__
#define APART inline __device__ __noinline__
#define KERNEL __global__ void __launch_bounds__(256)
#define IN_PARAMETERS const __grid_constant__
#define LAUNCH(stream, blocks, threads, kernel, ...) \
    kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)

/* Work in phases: threads see what other threads of their block did in earlier phases. */
template <class Work> KERNEL in_phases(IN_PARAMETERS Work work) {
    __shared__ typename Work::Shared shared;
    for (int phase = 0; phase < Work::phases; phase++) {
        work.run(phase, shared);
        __syncthreads();
    }
}
#define LAUNCH_IN_PHASES(stream, blocks, threads, work) \
    in_phases<<<blocks, threads, 0, stream>>>(work)

/* The same for as long as a thread of the block asks for more; threads keep their own values. */
template <class Work> KERNEL in_rounds(IN_PARAMETERS Work work) {
    __shared__ typename Work::Shared shared;
    typename Work::Own own;
    work.begin(own);
    while (__syncthreads_or(work.run(shared, own))) {
    }
}
#define LAUNCH_IN_ROUNDS(stream, blocks, threads, work) \
    in_rounds<<<blocks, threads, 0, stream>>>(work)

/* Process items tile by tile: threads see what other threads of their block filled a tile with, and
 * keep their own values from tile to tile. Two tiles are alternately filled and used; those before the
 * first one, of which nothing is shared, are used, too, to begin what takes time. */
template <class Work> KERNEL by_tiles(IN_PARAMETERS Work work) {
    __shared__ typename Work::Shared shared;
    for (std::int64_t item = blockIdx.x; item < work.items(); item += gridDim.x) {
        typename Work::Own own;
        const std::int64_t tiles = work.begin(item, own);
#pragma unroll 1
        for (std::int64_t tile = -Work::ahead; tile < tiles; tile++) {
            if (tile >= 0) {
                work.fill(tile, shared, own);
                __syncthreads();
            }
            work.use(tile, shared, own);
        }
        work.end(own);
        __syncthreads();
    }
}
#define LAUNCH_BY_TILES(stream, blocks, threads, work) \
    by_tiles<<<blocks, threads, 0, stream>>>(work)

/* Join the shares of threads of a warp by halves. */
template <class Work> KERNEL in_warps(IN_PARAMETERS Work work) {
    auto own = work.begin();
    for (int distance = work.threads / 2; distance > 0; distance /= 2) {
        auto other = own;
#pragma unroll
        for (auto &share : other.of)
            share = __shfl_down_sync(~0u, share, distance);
        work.join(own, other);
    }
    work.end(own);
}
#define LAUNCH_IN_WARPS(stream, blocks, threads, work) \
    in_warps<<<blocks, threads, 0, stream>>>(work)

/* Process items one after another, in three parts. Between them threads share numbers: each gets the
 * largest of all threads of its warp, and that of the warp beside it; then those of the thread 16
 * places on. */
template <class Work> KERNEL in_pairs(IN_PARAMETERS Work work) {
    __shared__ int shared[2][8][Work::shared + 1];
    const int warp = threadIdx.x / 32, items = work.items();
#pragma unroll 1
    for (int item = 0; item < items; item++) {
        typename Work::Own own;
        work.begin(item, own);
        if constexpr (Work::shared > 0) {
#pragma unroll
            for (int i = 0; i < Work::shared; i++)
                if (work.is_shared(i)) {
                    own.largest[i] = __reduce_max_sync(~0u, own.largest[i]);
                    shared[item % 2][warp][i] = own.largest[i];
                }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < Work::shared; i++)
                own.beside[i] = shared[item % 2][warp ^ 1][i];
            work.encode_all(own);
#pragma unroll
            for (int i = 0; i < Work::shared; i++)
                if (work.is_passed(i))
                    own.other[i] = __shfl_down_sync(~0u, own.word[i], 16);
        }
        work.end(own);
    }
}
#define LAUNCH_IN_PAIRS(stream, blocks, threads, work) \
    in_pairs<<<blocks, threads, 0, stream>>>(work)

#else

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline thread_local dim3 blockIdx(0, 0, 0), threadIdx(0, 0, 0), blockDim(1), gridDim(1);
typedef void *cudaStream_t;

#define BOTH inline
#define DEVICE inline
#define APART inline
#define KERNEL inline void
#define IN_PARAMETERS const
#define LAUNCH(stream, blocks, threads, kernel, ...) \
    ((void)(stream), run_on_host(blocks, threads, [&] { kernel(__VA_ARGS__); }))

#define LAUNCH_IN_PHASES(stream, blocks, threads, work) \
    ((void)(stream), run_phases_on_host(blocks, threads, work))
#define LAUNCH_IN_ROUNDS(stream, blocks, threads, work) \
    ((void)(stream), run_rounds_on_host(blocks, threads, work))
#define LAUNCH_BY_TILES(stream, blocks, threads, work) \
    ((void)(stream), run_tiles_on_host(blocks, threads, work))
#define LAUNCH_IN_WARPS(stream, blocks, threads, work) \
    ((void)(stream), run_warps_on_host(blocks, threads, work))
#define LAUNCH_IN_PAIRS(stream, blocks, threads, work) \
    ((void)(stream), run_pairs_on_host(blocks, threads, work))

/* Without launches only the host's own part of the work is done, to be timed. */
#ifdef TFOPT_WITHOUT_LAUNCHES
constexpr int RUNS = 0;
#else
constexpr int RUNS = 1;
#endif

/* Whether a test wants memory ("take") or launches to fail, or streams to be captured. */
inline bool fails(const char *what) {
    const char *wanted = std::getenv("TFOPT_HOST_FAILS");
    return wanted && !std::strcmp(wanted, what);
}

/* The k-th of n items in execution order. */
inline std::int64_t in_turn(std::int64_t k, std::int64_t n) {
#ifdef TFOPT_REVERSED
    return n - 1 - k;
#else
    return (void)n, k;
#endif
}

template <class Kernel> void run_block_on_host(std::int64_t block, unsigned threads, Kernel kernel) {
    blockIdx.x = unsigned(block % gridDim.x);
    blockIdx.y = unsigned(block / gridDim.x);
    for (unsigned k = 0; k < threads; k++) {
        threadIdx.x = unsigned(in_turn(k, threads));
        kernel();
    }
}

template <class Kernel> void run_on_host(dim3 blocks, unsigned threads, Kernel kernel) {
    if (fails("launch"))
        return;
    gridDim = blocks;
    blockDim = dim3(threads);
    const std::int64_t n = std::int64_t(blocks.x) * blocks.y * RUNS;
    for (std::int64_t k = 0; k < n; k++)
        run_block_on_host(in_turn(k, n), threads, kernel);
}

template <class Work> void run_phases_on_host(dim3 blocks, unsigned threads, const Work &work) {
    if (fails("launch"))
        return;
    gridDim = blocks;
    blockDim = dim3(threads);
    const std::int64_t n = std::int64_t(blocks.x) * blocks.y * RUNS;
    for (std::int64_t k = 0; k < n; k++) {
        typename Work::Shared shared;
        for (int phase = 0; phase < Work::phases; phase++)
            run_block_on_host(in_turn(k, n), threads, [&] { work.run(phase, shared); });
    }
}

template <class Work> void run_rounds_on_host(unsigned blocks, unsigned threads, const Work &work) {
    if (fails("launch"))
        return;
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    for (std::int64_t k = 0; k < blocks * RUNS; k++) {
        const std::int64_t block = in_turn(k, blocks);
        typename Work::Shared shared;
        std::vector<typename Work::Own> owns(threads);
        run_block_on_host(block, threads, [&] { work.begin(owns[threadIdx.x]); });
        for (bool more = true; more;) {
            more = false;
            run_block_on_host(block, threads,
                              [&] { more = work.run(shared, owns[threadIdx.x]) || more; });
        }
    }
}

/* Every thread goes from one __syncthreads() to the next, before the next thread does. */
template <class Work> void run_tiles_on_host(unsigned blocks, unsigned threads, const Work &work) {
    if (fails("launch"))
        return;
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    for (std::int64_t k = 0; k < blocks * RUNS; k++) {
        const std::int64_t block = in_turn(k, blocks);
        typename Work::Shared shared;
        for (std::int64_t item = block; item < work.items(); item += blocks) {
            std::vector<typename Work::Own> owns(threads);
            std::int64_t tiles = 0;
            run_block_on_host(block, threads, [&] {
                tiles = work.begin(item, owns[threadIdx.x]);
                for (std::int64_t tile = -Work::ahead; tile < 0; tile++)
                    work.use(tile, shared, owns[threadIdx.x]);
                work.fill(0, shared, owns[threadIdx.x]);
            });
            for (std::int64_t tile = 0; tile < tiles; tile++)
                run_block_on_host(block, threads, [&] {
                    work.use(tile, shared, owns[threadIdx.x]);
                    if (tile + 1 < tiles)
                        work.fill(tile + 1, shared, owns[threadIdx.x]);
                    else
                        work.end(owns[threadIdx.x]);
                });
        }
    }
}

/* A thread without a partner in its warp receives its own shares, as on a GPU. */
template <class Work> void run_warps_on_host(unsigned blocks, unsigned threads, const Work &work) {
    if (fails("launch"))
        return;
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    for (std::int64_t k = 0; k < blocks * RUNS; k++) {
        const std::int64_t block = in_turn(k, blocks);
        std::vector<decltype(work.begin())> owns(threads);
        run_block_on_host(block, threads, [&] { owns[threadIdx.x] = work.begin(); });
        for (int distance = work.threads / 2; distance > 0; distance /= 2) {
            const auto before = owns;
            run_block_on_host(block, threads, [&] {
                const bool paired = threadIdx.x % 32 + distance < 32;
                work.join(owns[threadIdx.x], before[threadIdx.x + (paired ? distance : 0)]);
            });
        }
        run_block_on_host(block, threads, [&] { work.end(owns[threadIdx.x]); });
    }
}

/* All threads do each part of an item, before they do the next. */
template <class Work> void run_pairs_on_host(unsigned blocks, unsigned threads, const Work &work) {
    if (fails("launch"))
        return;
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    for (std::int64_t k = 0; k < blocks * RUNS; k++) {
        std::vector<typename Work::Own> owns(threads);
        const auto in_threads = [&](auto part) {
            run_block_on_host(in_turn(k, blocks), threads, [&] { part(owns[threadIdx.x]); });
        };
        int items = 1;
        for (int item = 0; item < items; item++) {
            in_threads([&](auto &own) { items = work.items(), work.begin(item, own); });
            if constexpr (Work::shared > 0) {
                for (int i = 0; i < Work::shared; i++) {
                    std::vector<int> largest(threads / 32);
                    for (unsigned j = 0; j < threads; j++)
                        largest[j / 32] = std::max(largest[j / 32], owns[j].largest[i]);
                    for (unsigned j = 0; j < threads && work.is_shared(i); j++) {
                        owns[j].largest[i] = largest[j / 32];
                        owns[j].beside[i] = largest[j / 32 ^ 1];
                    }
                }
                in_threads([&](auto &own) { work.encode_all(own); });
                for (int i = 0; i < Work::shared; i++)
                    for (unsigned j = 0; j < threads && work.is_passed(i); j++)
                        owns[j].other[i] = owns[j % 32 < 16 ? j + 16 : j].word[i];
            }
            in_threads([&](auto &own) { work.end(own); });
        }
    }
}

inline std::uint32_t atomicAdd(std::uint32_t *at, std::uint32_t value) {
    const std::uint32_t before = *at;
    *at = before + value;
    return before;
}

inline unsigned long long atomicMin(unsigned long long *at, unsigned long long value) {
    const unsigned long long before = *at;
    if (value < before)
        *at = value;
    return before;
}

#endif
