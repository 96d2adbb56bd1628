/* What the C face needs of a device beside launches: memory, sorting, waiting. */
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include <cuda_runtime.h>
#include <mutex>

#include "indices.h"

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
    cudaEventDestroy(event); /* when it has happened */
    return last_error();
}

/* Makes a device the current one, until the end of the scope. */
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

/* A pool of the current device that keeps what is freed: the default one would give it back
 * whenever the host waits, and its settings are the whole program's. */
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

/* Memory of the host that a device writes to while the host goes on. */
struct Mailbox {
    Found *found = nullptr;
    Mailbox() { cudaHostAlloc(reinterpret_cast<void **>(&found), sizeof(Found), cudaHostAllocPortable); }
    ~Mailbox() { cudaFreeHost(found); }
};

/* The rows that indices name, to be sorted; in memory that is taken and freed on the stream. */
struct SortedRows {
    int error = 0;
    std::uint32_t *row = nullptr, *order = nullptr;
    Found *found = nullptr;

    SortedRows(std::int64_t n, std::int64_t n_rows, cudaStream_t stream) : n(n), stream(stream) {
        for (bits = 1; bits < 32 && n_rows >> bits; bits++) {
        }
        cub::DeviceRadixSort::SortPairs(nullptr, temporary, row, row, order, order, n, 0, bits, stream);
        const std::size_t list = (n * sizeof(std::uint32_t) + 255) / 256 * 256;
        cudaMemPool_t pool;
        if ((error = find_pool(&pool)))
            return;
        if ((error = cudaMallocFromPoolAsync(&memory, 256 + 4 * list + temporary, pool, stream)))
            return;
        char *at = static_cast<char *>(memory);
        found = reinterpret_cast<Found *>(at);
        row = reinterpret_cast<std::uint32_t *>(at + 256);
        order = reinterpret_cast<std::uint32_t *>(at + 256 + list);
        sorted_row = reinterpret_cast<std::uint32_t *>(at + 256 + 2 * list);
        sorted_order = reinterpret_cast<std::uint32_t *>(at + 256 + 3 * list);
        workspace = at + 256 + 4 * list;
        error = cudaMemsetAsync(found, 0xff, sizeof(Found), stream); /* NOTHING, twice */
    }
    void sort() {
        cub::DeviceRadixSort::SortPairs(workspace, temporary, row, sorted_row, order, sorted_order, n,
                                        0, bits, stream);
        row = sorted_row;
        order = sorted_order;
    }
    /* Begin to tell the host what was found so far. */
    void send_found() {
        cudaEventCreateWithFlags(&sent, cudaEventDisableTiming);
        cudaMemcpyAsync(mailbox().found, found, sizeof(Found), cudaMemcpyDeviceToHost, stream);
        cudaEventRecord(sent, stream);
    }
    int receive_found(Found *into) {
        const int failed = cudaEventSynchronize(sent);
        *into = *mailbox().found;
        return failed;
    }
    void free() { cudaFreeAsync(memory, stream); }
    ~SortedRows() {
        if (sent)
            cudaEventDestroy(sent);
    }

  private:
    std::int64_t n;
    cudaStream_t stream;
    int bits;
    std::size_t temporary = 0;
    void *memory = nullptr, *workspace = nullptr;
    std::uint32_t *sorted_row = nullptr, *sorted_order = nullptr;
    cudaEvent_t sent = nullptr;

    static Mailbox &mailbox() {
        static thread_local Mailbox box;
        return box;
    }
};
