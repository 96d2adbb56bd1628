/* Emulation of a device on the host, for tests without a GPU. */
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "indices.h"

inline int last_error() { return fails("launch") ? 719 : 0; } /* the codes are CUDA's */
inline int wait_for_all() { return 0; }
inline int follow(cudaStream_t, cudaStream_t) { return 0; }
inline bool is_captured(cudaStream_t) { return fails("capture"); }
inline const char *text_of(int code) { return code == 2 ? "out of memory" : "an error of the host"; }

inline int count_devices(int *n) {
    *n = 1;
    return 0;
}

inline int find_versions(int *driver, int *runtime) {
    *driver = *runtime = 0;
    return 0;
}

inline int find_device(const void *, int *device) {
    *device = 0;
    return 0;
}

struct OnDevice {
    explicit OnDevice(int) {}
};

inline int take(void **at, std::size_t bytes, cudaStream_t) {
    *at = fails("take") ? nullptr : std::malloc(bytes);
    return *at ? 0 : 2;
}
inline int give(void *at, cudaStream_t) {
    std::free(at);
    return 0;
}
inline int fill(void *at, int byte, std::size_t bytes, cudaStream_t) {
    if (bytes)
        std::memset(at, byte, bytes);
    return 0;
}
inline int fetch(void *into, const void *from, std::size_t bytes, cudaStream_t) {
    std::memcpy(into, from, bytes);
    return 0;
}

/* The rows listed in the indices, to be sorted. */
struct SortedRows {
    int error = 0;
    std::uint32_t *row, *order, *hot;
    Found *found;

    SortedRows(std::int64_t n, std::int64_t, cudaStream_t) : rows(n), orders(n), hots(n / HOT) {
        error = fails("take") ? 2 : 0;
        row = rows.data();
        order = orders.data();
        hot = hots.data();
        found = &check;
    }
    void sort() {
        std::vector<std::uint32_t> places(rows.size()), before(rows);
        std::iota(places.begin(), places.end(), 0u);
        std::stable_sort(places.begin(), places.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return before[a] < before[b]; });
        std::vector<std::uint32_t> orders_before(orders);
        for (std::size_t i = 0; i < places.size(); i++) {
            rows[i] = before[places[i]];
            orders[i] = orders_before[places[i]];
        }
    }
    void send_found() {}
    void free() {}
    int receive_found(Found *into) {
        *into = check;
        return 0;
    }

  private:
    std::vector<std::uint32_t> rows, orders, hots;
    Found check = {NOTHING, NOTHING, 0};
};
