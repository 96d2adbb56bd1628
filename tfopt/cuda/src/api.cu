/* The C functions that tfopt/cuda/library.py calls. A positive return value is a CUDA error. */
#include "api.h"
#include "table.h"
#include "pooling.h" /* which needs the launches that the table includes */
#include "whole_gradient.h"

#ifdef __CUDACC__
#include "sorting.h"
#endif

enum { SEQUENTIAL, SUM, ERROR };

/* Incremented whenever the arguments or the meaning of a function change. */
API int tfopt_cuda_abi() { return 9; }

API int tfopt_cuda_rules() { return N_RULES; }

API const char *tfopt_cuda_rule(int i, int *arrays, int *scalars) {
    const Rule &rule = rule_at(i);
    *arrays = rule.arrays;
    *scalars = rule.scalars;
    return rule.name;
}

API int tfopt_cuda_devices(int *n) { return count_devices(n); }

API int tfopt_cuda_versions(int *driver, int *runtime) { return find_versions(driver, runtime); }

/* Check that the library has code for the available device by launching an empty kernel. */
API int tfopt_cuda_try() {
    LAUNCH(nullptr, 1, 1, (find_repeated<std::uint32_t>), nullptr, nullptr, 0, 0, nullptr);
    return last_error();
}

API const char *tfopt_cuda_error(int code) { return text_of(code); }

/* The device whose memory contains an address, -1 for host memory. */
API int tfopt_cuda_device_of(const void *address, int *device) {
    return find_device(address, device);
}

API int tfopt_cuda_synchronize(int device) {
    const OnDevice on(device);
    return wait_for_all();
}

/* Make subsequent work on one stream wait for work already queued on another. */
API int tfopt_cuda_follow(int device, void *later, void *earlier) {
    const OnDevice on(device);
    return follow(static_cast<cudaStream_t>(later), static_cast<cudaStream_t>(earlier));
}

/* Step n tensors, of which `inner` has the elements of a row. Gradients are clamped to a bound and
 * multiplied by the scale, or by factors on the device: all by the first, or each by its own. Weights
 * decay cautiously. Tensors that no kernel of their types steps come with how they are stored. */
API int tfopt_cuda_dense(int device, void *stream_, int rule, int types, std::int64_t n,
                         void *const *data, const void *const *grad, const std::int64_t *size,
                         const std::int64_t *inner, const double *scalars, int constants,
                         double bound, const void *factors, int own, double decay,
                         const tfopt_device_storage *stored) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const Clipping clipping = {bound, static_cast<const Factors *>(factors), bool(own)};
    DenseCall call = {data, grad, size, inner, nullptr, n, scalars, constants, clipping, decay, stored};
    const Rule &it = rule_at(rule);
    if (it.room)
        if (const int error = take(&call.room, it.room(call), stream))
            return error;
    const auto launch = stored ? it.stored_dense : it.dense[types];
    launch(call, stream);
    const int failed = call.room ? give(call.room, stream) : 0;
    const int error = last_error();
    return error ? error : failed;
}

template <class Index>
static void launch_read_indices(const void *indices, const void *sources, std::int64_t n,
                                std::int64_t n_rows, bool refuse, SortedRows &sorted,
                                cudaStream_t stream) {
    LAUNCH(stream, unsigned((n + THREADS - 1) / THREADS), THREADS, (read_indices<Index>),
           static_cast<const Index *>(indices), static_cast<const Index *>(sources), n, n_rows,
           refuse, sorted.row, sorted.order, sorted.found);
}

/* By the bytes of an index, and of a source. */
static auto reading_indices(int index_size) {
    return index_size == 4 ? launch_read_indices<std::int32_t> : launch_read_indices<std::int64_t>;
}

/* Wait until n indices have been checked; *at becomes the offset of the first one out of range. So
 * several sparse updates can be rejected before any of them is queued. */
API int tfopt_cuda_outside(int device, void *stream_, const void *indices, int index_size,
                           std::int64_t n, std::int64_t n_rows, std::int64_t *at) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    if (!n)
        return 0;
    if (is_captured(stream))
        return CAPTURED;
    SortedRows sorted(n, n_rows, stream);
    if (sorted.error)
        return sorted.error;
    reading_indices(index_size)(indices, nullptr, n, n_rows, true, sorted, stream);
    sorted.send_found();
    sorted.free();
    if (const int error = last_error())
        return error;
    Found found;
    if (const int failed = sorted.receive_found(&found))
        return failed;
    *at = std::int64_t(found.outside);
    return found.outside != NOTHING ? OUTSIDE : 0;
}

/* Step the rows listed in n indices of 4 or 8 bytes, each by the row of the gradient of its number, or
 * by that which `sources`, of as many bytes, has for it. If `refuse` is set, the call waits for the
 * check and *at becomes the offset of the first index out of range; otherwise such indices are
 * skipped. If `lazy` is set, no other rows take a step. The gradient is clipped as in a dense call;
 * with `clips_each`, rows are clipped before duplicates are summed.
 */
API int tfopt_cuda_rows(int device, void *stream_, int rule, int types, void *const *data,
                        const void *grad, const void *indices, const void *sources,
                        int index_size, std::int64_t n, std::int64_t n_rows, std::int64_t inner,
                        const double *scalars, int constants, double bound, const void *factors,
                        int clips_each, double decay, const tfopt_device_storage *stored,
                        int duplicates, int lazy, int refuse, std::int64_t *at) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const bool waits = refuse || duplicates == ERROR;
    if (waits && is_captured(stream))
        return CAPTURED;
    SortedRows sorted(n, n_rows, stream);
    if (sorted.error)
        return sorted.error;
    if (n) { /* n may be 0 if the other rows also take a step */
        const unsigned blocks = unsigned((n + THREADS - 1) / THREADS);
        reading_indices(index_size)(indices, sources, n, n_rows, refuse, sorted, stream);
        if (waits && duplicates != ERROR)
            sorted.send_found();
        sorted.sort();
        if (duplicates == ERROR)
            LAUNCH(stream, blocks, THREADS, (find_repeated<std::uint32_t>), sorted.row,
                   sorted.order, n, n_rows, sorted.found);
    }
    if (waits && (duplicates == ERROR || !n))
        sorted.send_found();
    const Rule &it = rule_at(rule);
    const auto launch = stored ? it.stored_rows : it.rows[types];
    const Clipping clipping = {bound, static_cast<const Factors *>(factors), false};
    launch({data, grad, n, n_rows, inner, sorted.row, sorted.order, sorted.hot, sorted.found,
            duplicates == SUM, bool(clips_each), bool(lazy), scalars, constants, clipping, decay,
            stored},
           stream);
    sorted.free();
    const int error = last_error();
    if (error || !waits)
        return error;
    Found found; /* the update is already queued and does nothing if any was found */
    if (const int failed = sorted.receive_found(&found))
        return failed;
    const bool outside = found.outside != NOTHING;
    *at = std::int64_t(outside ? found.outside : found.repeated);
    return outside ? OUTSIDE : found.repeated != NOTHING ? REPEATED : 0;
}

/* Make the dense gradient that n rows stand for, in memory that tfopt_cuda_give frees. Indices out
 * of range are skipped. */
API int tfopt_cuda_take_whole(int device, void *stream_, int types, const void *grad,
                              const void *indices, int index_size, std::int64_t n,
                              std::int64_t n_rows, std::int64_t inner, void **at) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    SortedRows sorted(n, n_rows, stream);
    if (sorted.error)
        return sorted.error;
    if (n) {
        reading_indices(index_size)(indices, nullptr, n, n_rows, false, sorted, stream);
        sorted.sort();
    }
    int error = take(at, std::size_t(n_rows * inner) * gradient_size(types), stream);
    if (!error)
        FILLING[types](*at, grad, n, n_rows, inner, sorted.row, sorted.order, stream);
    sorted.free();
    const int failed = last_error();
    if (error || !failed)
        return error;
    give(*at, stream);
    return failed;
}

/* Sum n rows by their place: the occurrences of a place in their order, each times its weight, in the
 * computation type, and then divided by the place's divisor, or 0 if that is 0. Places without an
 * occurrence get zeros. The occurrences of each place follow each other, unless they are to be sorted.
 */
API int tfopt_cuda_pool(int device, void *stream_, int type, void *sums, const void *terms,
                        const void *places, const void *sources, const void *weights,
                        const void *divisors, std::int64_t n, std::int64_t n_places,
                        std::int64_t inner, int sort) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    int error = fill(sums, 0, std::size_t(n_places * inner) * gradient_size(type), stream);
    if (error || !n || !inner)
        return error;
    PoolCall call = {sums, terms, static_cast<const std::int32_t *>(places),
                     static_cast<const std::int32_t *>(sources), weights, divisors, n, inner,
                     nullptr, nullptr};
    if (!sort) {
        POOLING[type](call, stream);
        return last_error();
    }
    SortedRows sorted(n, n_places, stream);
    if (sorted.error)
        return sorted.error;
    launch_read_indices<std::int32_t>(places, nullptr, n, n_places, false, sorted, stream);
    sorted.sort();
    call.row = sorted.row;
    call.order = sorted.order;
    POOLING[type](call, stream);
    sorted.free();
    return last_error();
}

/* Free what a function has taken, once the work that is queued on the stream is done. */
API int tfopt_cuda_give(int device, void *stream, void *at) {
    const OnDevice on(device);
    return give(at, static_cast<cudaStream_t>(stream));
}
