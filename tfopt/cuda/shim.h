/* One source, two compilers: nvcc, and a C++ compiler that runs the same kernels thread by thread.
 *
 * The second one is for tests on machines without a GPU. It shows that arithmetic, indexing and
 * signatures are right, also under a sanitizer and with the threads in reverse order
 * (TFOPT_REVERSED), but nothing about streams, devices or speed. So kernels keep to what both can
 * do: no shared memory, no exchange between threads, no atomics on floats.
 */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define BOTH __host__ __device__ __forceinline__
#define KERNEL __global__ void __launch_bounds__(256)
#define IN_PARAMETERS const __grid_constant__
#define LAUNCH(stream, blocks, threads, kernel, ...) \
    kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)

#else

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline thread_local dim3 blockIdx(0, 0, 0), threadIdx(0, 0, 0), blockDim(1), gridDim(1);
typedef void *cudaStream_t;

#define BOTH inline
#define KERNEL inline void
#define IN_PARAMETERS const
#define LAUNCH(stream, blocks, threads, kernel, ...) \
    ((void)(stream), run_on_host(blocks, threads, [&] { kernel(__VA_ARGS__); }))

template <class Kernel> void run_on_host(dim3 blocks, unsigned threads, Kernel kernel) {
    gridDim = blocks;
    blockDim = dim3(threads);
    const std::int64_t n = std::int64_t(blocks.x) * blocks.y * threads;
    for (std::int64_t k = 0; k < n; k++) {
#ifdef TFOPT_REVERSED
        const std::int64_t i = n - 1 - k;
#else
        const std::int64_t i = k;
#endif
        threadIdx.x = unsigned(i % threads);
        blockIdx.x = unsigned(i / threads % blocks.x);
        blockIdx.y = unsigned(i / threads / blocks.x);
        kernel();
    }
}

inline unsigned long long atomicMin(unsigned long long *at, unsigned long long value) {
    const unsigned long long before = *at;
    if (value < before)
        *at = value;
    return before;
}

#endif
