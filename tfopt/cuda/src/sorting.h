/* Sorting of indices on a device. Separate from device.h because it is slow to compile. */
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include "device.h"
#include "indices.h"

/* Host memory to which a device writes while the host continues. */
struct Mailbox {
    Found *found = nullptr;
    Mailbox() { cudaHostAlloc(reinterpret_cast<void **>(&found), sizeof(Found), cudaHostAllocPortable); }
    ~Mailbox() { cudaFreeHost(found); }
};

/* The rows listed in the indices, to be sorted; in memory allocated and freed in stream order. */
struct SortedRows {
    int error = 0;
    std::uint32_t *row = nullptr, *order = nullptr;
    std::uint32_t *hot = nullptr; /* room for a list, once they are sorted */
    Found *found = nullptr;

    SortedRows(std::int64_t n, std::int64_t n_rows, cudaStream_t stream) : n(n), stream(stream) {
        for (bits = 1; bits < 32 && n_rows >> bits; bits++) {
        }
        cub::DeviceRadixSort::SortPairs(nullptr, temporary, row, row, order, order, n, 0, bits, stream);
        const std::size_t list = (n * sizeof(std::uint32_t) + 255) / 256 * 256;
        if ((error = take(&memory, 256 + 4 * list + temporary, stream)))
            return;
        char *at = static_cast<char *>(memory);
        found = reinterpret_cast<Found *>(at);
        row = reinterpret_cast<std::uint32_t *>(at + 256);
        order = reinterpret_cast<std::uint32_t *>(at + 256 + list);
        sorted_row = reinterpret_cast<std::uint32_t *>(at + 256 + 2 * list);
        sorted_order = reinterpret_cast<std::uint32_t *>(at + 256 + 3 * list);
        workspace = at + 256 + 4 * list;
        error = fill(found, 0xff, sizeof(Found), stream); /* NOTHING, twice */
    }
    void sort() {
        cub::DeviceRadixSort::SortPairs(workspace, temporary, row, sorted_row, order, sorted_order, n,
                                        0, bits, stream);
        hot = row;
        row = sorted_row;
        order = sorted_order;
    }
    /* Start copying what was found so far to the host. */
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
    void free() { give(memory, stream); }
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
