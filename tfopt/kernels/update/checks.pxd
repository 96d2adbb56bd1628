# cython: language_level=3
cimport tfopt.kernels.platform.numpy_api as cnp
from libc.stdint cimport uint64_t
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.step_types cimport MAX_HYPERS, N_SCALES, steps
from tfopt.kernels.update.step_table cimport Kernel
from tfopt.kernels.update.work cimport buckets, summing, tensor, work

cdef struct numbers:
    # the numbers of a call, as they were read
    double[MAX_HYPERS] hypers
    double[N_SCALES] scales     # of the gradient, of the variable

cdef class Call:
    cdef object arrays          # keeps the memory alive
    cdef list held              # and where it is
    cdef work w
    cdef tensor one
    cdef Py_ssize_t[2] one_start
    cdef Py_ssize_t n_laid_out  # tensors whose axes belong to the call
    cdef summing summed
    cdef buckets divided
    cdef int outside
    cdef bint complex_numbers
    cdef uint64_t together      # names what was found to take turns with this call: see pipeline

cdef int check_shape(cnp.ndarray a, str name, cnp.ndarray var) except -1
cdef int check_its_shape(Kernel kernel, int k, cnp.ndarray a, cnp.ndarray var) except -1
cdef object read_scalars(Kernel kernel, tuple hypers, object grad_scale, object var_scale,
                         numbers *into)
cdef int check_hypers(Kernel kernel, int flags, const numbers *read, object faults) except -1
cdef int check_scales(object faults) except -1
cdef int checked_numbers(Kernel kernel, dict hypers, dict flags, grad_scale, var_scale,
                         numbers *read) except -1
cdef int scalars_into(Kernel kernel, const numbers *read, int flags, bint double_precision,
                      bint dense, double *into) except -1
cdef list as_arrays(Kernel kernel, tuple arguments)
cdef cnp.ndarray check_operands(Kernel kernel, list arrays)
cdef Py_ssize_t row_size(cnp.ndarray var) noexcept
cdef int check_in_order(Kernel kernel, list variables, cnp.ndarray grad, cnp.ndarray ids,
                        int flags, const numbers *read, object faults) except -1
cdef bint is_safe(Kernel kernel, cnp.ndarray a, int k, cnp.ndarray grad,
                  const numbers *read) noexcept
cdef cnp.ndarray contiguous_with_blocks(Kernel kernel, list variables, cnp.ndarray grad)
cdef cnp.ndarray separate(Kernel kernel, list variables, cnp.ndarray grad, bint sparse,
                          const numbers *read)
cdef int check_flags(Kernel kernel, int flags) except -1
cdef const steps *set_scalars(Kernel kernel, Call call, const numbers *read, int flags,
                              int typenum, bint dense) except NULL
cdef int set_tensor(tensor *into, list variables, cnp.ndarray grad, int skip_axes, int n_whole,
                    bint as_in_c) except -1
cdef void set_sizes(Kernel kernel, tensor *into, cnp.ndarray var) noexcept
cdef int lay_out(Kernel kernel, Call call, tensor *into, list variables, cnp.ndarray grad,
                 int skip_axes) except -1


cdef inline void set_grain(Call call, const tensor *it) noexcept:
    """Share the elements of a tensor in whole blocks, if it has any."""
    if it.axes != NULL and it.axes.blocked:
        call.w.grain = CODES
