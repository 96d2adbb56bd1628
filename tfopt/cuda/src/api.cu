/* The C functions that tfopt/cuda/library.py calls. A positive return value is a CUDA error. */
#include "api.h"
#include "table.h"
#include "whole_gradient.h"

#ifdef __CUDACC__
#include "sorting.h"
#endif

enum { SEQUENTIAL, SUM, ERROR };

/* Incremented whenever the arguments or the meaning of a function change. */
API int tfopt_cuda_abi() { return 8; }

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

static void launch_read_indices(const void *indices, int index_size, std::int64_t n,
                                std::int64_t n_rows, bool refuse, SortedRows &sorted,
                                cudaStream_t stream) {
    const unsigned blocks = unsigned((n + THREADS - 1) / THREADS);
    if (index_size == 4)
        LAUNCH(stream, blocks, THREADS, (read_indices<std::int32_t>),
               static_cast<const std::int32_t *>(indices), n, n_rows, refuse, sorted.row,
               sorted.order, sorted.found);
    else
        LAUNCH(stream, blocks, THREADS, (read_indices<std::int64_t>),
               static_cast<const std::int64_t *>(indices), n, n_rows, refuse, sorted.row,
               sorted.order, sorted.found);
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
    launch_read_indices(indices, index_size, n, n_rows, true, sorted, stream);
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

/* Step the rows listed in n indices of 4 or 8 bytes. If `refuse` is set, the call waits for the
 * check and *at becomes the offset of the first index out of range; otherwise such indices are
 * skipped. If `lazy` is set, no other rows take a step. The gradient is clipped as in a dense call;
 * with `clips_each`, rows are clipped before duplicates are summed.
 */
API int tfopt_cuda_rows(int device, void *stream_, int rule, int types, void *const *data,
                        const void *grad, const void *indices, int index_size, std::int64_t n,
                        std::int64_t n_rows, std::int64_t inner, const double *scalars,
                        int constants, double bound, const void *factors, int clips_each,
                        double decay, const tfopt_device_storage *stored, int duplicates, int lazy,
                        int refuse, std::int64_t *at) {
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
        launch_read_indices(indices, index_size, n, n_rows, refuse, sorted, stream);
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
        launch_read_indices(indices, index_size, n, n_rows, false, sorted, stream);
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

/* Free what a function has taken, once the work that is queued on the stream is done. */
API int tfopt_cuda_give(int device, void *stream, void *at) {
    const OnDevice on(device);
    return give(at, static_cast<cudaStream_t>(stream));
}
