# cython: language_level=3
# A step of variables on a device, as its library takes it.
from libc.stdint cimport int64_t, uint64_t

cdef extern from "device_step.h" nogil:
    enum tfopt_clipping:
        UNCLIPPED, CLIPPED_EACH, CLIPPED_TOGETHER

    struct tfopt_device_storage:
        int[5] storage
        int rounds
        uint64_t seed, step
        const Py_ssize_t *numbers
        const void *dynamic

    struct tfopt_device_part:
        int64_t first, n
        void **data
        const double *scalars
        int rule, types, constants, index_size, summed, lazy
        double decay
        const tfopt_device_storage *stored
        const void *indices
        const void *sources
        int64_t n_indices, n_rows, inner

    struct tfopt_device_step:
        int device
        void *stream
        int n_others
        void **others
        int64_t n
        const void **grad
        const int64_t *size
        const int64_t *inner
        const int *grad_type
        int n_parts
        const tfopt_device_part *parts
        tfopt_clipping clipping
        double limit, scale
        double[4] bounds
        tfopt_device_step *before
        int only_checks, outside_part
        int64_t outside
