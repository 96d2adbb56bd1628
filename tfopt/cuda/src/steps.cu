/* A whole step in one call: updates of variables and of rows, and the norms that clip gradients; and
 * a look at the gradients of one. */
#include "../../kernels/platform/device_step.h"
#include "api.h"
#include "gradient_reader.h"
#include "lane_sums.h"

extern "C" {
int tfopt_cuda_step(tfopt_device_step *step);
int tfopt_cuda_follow(int device, void *later, void *earlier);
int tfopt_cuda_dense(int device, void *stream, int rule, int types, std::int64_t n,
                     void *const *data, const void *const *grad, const std::int64_t *size,
                     const std::int64_t *inner, const double *scalars, int constants, double bound,
                     const void *factors, int own, double decay,
                     const tfopt_device_storage *stored);
int tfopt_cuda_outside(int device, void *stream, const void *indices, int index_size,
                       std::int64_t n, std::int64_t n_rows, std::int64_t *at);
int tfopt_cuda_rows(int device, void *stream, int rule, int types, void *const *data,
                    const void *grad, const void *indices, const void *sources, int index_size,
                    std::int64_t n, std::int64_t n_rows, std::int64_t inner, const double *scalars,
                    int constants, double bound, const void *factors, int clips_each, double decay,
                    const tfopt_device_storage *stored, int duplicates, int lazy, int refuse,
                    std::int64_t *at);
int tfopt_cuda_take_norms(int device, void *stream, std::int64_t n, std::int64_t spans, void **at);
int tfopt_cuda_give(int device, void *stream, void *at);
int tfopt_cuda_norms_of_list(int device, void *stream, void *at, int own, std::int64_t n,
                             const int *types, const void *const *data, const std::int64_t *size,
                             const double *bounds, double limit, int policy, double scale);
int tfopt_cuda_bad_norm(int device, void *stream, void *at, std::int64_t n, double *root);
}

namespace {

enum { OWN, SHARED_BY_ALL, SKIPPED }; /* as in norms.h, whose kernels are compiled once */
using Step = tfopt_device_step;
using Part = tfopt_device_part;

/* Step some rows, whose indices have been checked. */
int step_rows(const Step &step, const Part &part, const void *factors) {
    if (part.inner == 0 || (part.n_indices == 0 && (part.lazy || part.n_rows == 0)))
        return 0;
    const double bound = step.bounds[step.grad_type[part.first]];
    /* each row; otherwise the sum is scaled */
    const bool clips = !part.sources && (factors || bound != INFINITY);
    return tfopt_cuda_rows(step.device, step.stream, part.rule, part.types, part.data,
                           step.grad[part.first], part.indices, part.sources, part.index_size,
                           part.n_indices, part.n_rows, part.inner, part.scalars, part.constants,
                           bound, factors, clips, part.decay, part.stored,
                           part.summed || part.sources, part.lazy, false, nullptr);
}

int step_part(const Step &step, const Part &part, const void *factors, bool own) {
    if (part.index_size)
        return step_rows(step, part, factors);
    return tfopt_cuda_dense(step.device, step.stream, part.rule, part.types, part.n, part.data,
                            step.grad + part.first, step.size + part.first,
                            step.inner + part.first, part.scalars, part.constants,
                            step.bounds[step.grad_type[part.first]], factors, own, part.decay,
                            part.stored);
}

std::int64_t spans_of(const Step &step) {
    std::int64_t spans = 0;
    for (std::int64_t t = 0; t < step.n; t++)
        spans += (step.size[t] + SPAN - 1) / SPAN;
    return spans;
}

/* Memory is taken first: if there is none, nothing has been written. */
int step_all(const Step &step) {
    const bool clips = step.clipping != UNCLIPPED, own = step.clipping == CLIPPED_EACH;
    void *norms = nullptr;
    int error = clips ? tfopt_cuda_take_norms(step.device, step.stream, own ? step.n : 1,
                                              spans_of(step), &norms)
                      : 0;
    if (error)
        return error;
    if (step.before)
        error = tfopt_cuda_step(step.before);
    if (clips && !error)
        error = tfopt_cuda_norms_of_list(step.device, step.stream, norms, own, step.n,
                                         step.grad_type, step.grad, step.size, step.bounds,
                                         step.limit, own ? OWN : SHARED_BY_ALL, step.scale);
    for (int k = 0; k < step.n_parts && !error; k++) {
        const Factors *factors = static_cast<const Factors *>(norms);
        error = step_part(step, step.parts[k], own ? factors + step.parts[k].first : factors, own);
    }
    const int failed = clips ? tfopt_cuda_give(step.device, step.stream, norms) : 0;
    return error ? error : failed;
}

/* Wait until the indices of all rows have been checked. */
int check_rows(Step &step) {
    int error = 0;
    for (int k = 0; k < step.n_parts && !error; k++) {
        const Part &part = step.parts[k];
        step.outside_part = k;
        if (part.index_size && !part.sources)
            error = tfopt_cuda_outside(step.device, step.stream, part.indices, part.index_size,
                                       part.n_indices, part.n_rows, &step.outside);
    }
    return error;
}

/* Look whether all gradients are finite, before any clipping. */
int look_at_all(const Step &step, int *finite) {
    const double unbounded[] = {INFINITY, INFINITY, INFINITY, INFINITY};
    void *norms = nullptr;
    double root = 0;
    int error = tfopt_cuda_take_norms(step.device, step.stream, 1, spans_of(step), &norms);
    if (error)
        return error;
    error = tfopt_cuda_norms_of_list(step.device, step.stream, norms, 0, step.n, step.grad_type,
                                     step.grad, step.size, unbounded, INFINITY, SKIPPED, 1);
    if (!error)
        error = tfopt_cuda_bad_norm(step.device, step.stream, norms, 1, &root);
    *finite = root == 0;
    const int failed = tfopt_cuda_give(step.device, step.stream, norms);
    return error ? error : failed;
}

/* Do some work behind that of the other streams, and before what follows there. */
template <class Work> int in_order(const Step &step, const Work &work) {
    for (int k = 0; k < step.n_others; k++)
        if (const int error = tfopt_cuda_follow(step.device, step.stream, step.others[k]))
            return error;
    int error = work();
    for (int k = 0; k < step.n_others; k++) { /* also after an error: some work may be queued */
        const int failed = tfopt_cuda_follow(step.device, step.others[k], step.stream);
        error = error ? error : failed;
    }
    return error;
}

} // namespace

API int tfopt_cuda_step(Step *step) {
    return in_order(*step, [&] { return step->only_checks ? check_rows(*step) : step_all(*step); });
}

/* Wait until the gradients have been looked at; *finite becomes whether all of them are finite. */
API int tfopt_cuda_finite(const Step *step, int *finite) {
    return in_order(*step, [&] { return look_at_all(*step, finite); });
}
