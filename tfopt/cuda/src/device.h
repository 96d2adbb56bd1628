/* What the C functions need from a device besides launches: memory and synchronization. */
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <mutex>

inline int last_error() { return cudaGetLastError(); }
inline int wait_for_all() { return cudaDeviceSynchronize(); }
inline const char *text_of(int code) { return cudaGetErrorString(cudaError_t(code)); }
inline int count_devices(int *n) { return cudaGetDeviceCount(n); }

inline int find_versions(int *driver, int *runtime) {
    const int error = cudaDriverGetVersion(driver);
    return error ? error : int(cudaRuntimeGetVersion(runtime));
}

inline int find_device(const void *address, int *device) {
    cudaPointerAttributes found;
    if (const int error = cudaPointerGetAttributes(&found, address))
        return error;
    const bool there = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
    *device = there ? found.device : -1;
    return 0;
}

inline bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

inline int follow(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t event;
    if (const int error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
        return error;
    cudaEventRecord(event, earlier);
    cudaStreamWaitEvent(later, event, 0);
    cudaEventDestroy(event); /* takes effect once the event has completed */
    return last_error();
}

/* Makes a device current until the end of the scope. */
struct OnDevice {
    int before = 0;
    explicit OnDevice(int device) {
        cudaGetDevice(&before);
        if (device != before)
            cudaSetDevice(device);
        else
            before = -1;
    }
    ~OnDevice() {
        if (before >= 0)
            cudaSetDevice(before);
    }
};

/* A memory pool of the current device that keeps freed memory. The default pool would release it
 * whenever the host synchronizes, and its settings are shared by the whole program. */
inline int find_pool(cudaMemPool_t *pool) {
    constexpr int MOST_DEVICES = 64;
    static std::mutex lock;
    static cudaMemPool_t pools[MOST_DEVICES];
    int device = 0;
    if (const int error = cudaGetDevice(&device))
        return error;
    if (device >= MOST_DEVICES)
        return cudaErrorInvalidDevice;
    const std::lock_guard<std::mutex> held(lock);
    if (!pools[device]) {
        cudaMemPoolProps wanted = {};
        wanted.allocType = cudaMemAllocationTypePinned;
        wanted.location.type = cudaMemLocationTypeDevice;
        wanted.location.id = device;
        if (const int error = cudaMemPoolCreate(&pools[device], &wanted))
            return error;
        std::uint64_t keep = ~std::uint64_t(0);
        cudaMemPoolSetAttribute(pools[device], cudaMemPoolAttrReleaseThreshold, &keep);
    }
    *pool = pools[device];
    return 0;
}

/* Memory that is allocated and freed in stream order. */
inline int take(void **at, std::size_t bytes, cudaStream_t stream) {
    cudaMemPool_t pool;
    const int error = find_pool(&pool);
    return error ? error : int(cudaMallocFromPoolAsync(at, bytes, pool, stream));
}
inline int give(void *at, cudaStream_t stream) { return cudaFreeAsync(at, stream); }

inline int fill(void *at, int byte, std::size_t bytes, cudaStream_t stream) {
    return cudaMemsetAsync(at, byte, bytes, stream);
}

/* Copy memory to the host in stream order, and wait for it. */
inline int fetch(void *into, const void *from, std::size_t bytes, cudaStream_t stream) {
    const int error = cudaMemcpyAsync(into, from, bytes, cudaMemcpyDeviceToHost, stream);
    return error ? error : int(cudaStreamSynchronize(stream));
}
