# cython: language_level=3
cimport numpy as cnp
from tfopt.kernels.arrays.layout cimport layout
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.update.step_table cimport (
    Kernel, MAX_HYPERS, MAX_OPERANDS, MAX_SCALARS, N_SCALES, half_step_t, scatter_t, step_t,
    steps,
)

cdef struct tensor:
    char *data[MAX_OPERANDS]
    layout *axes        # NULL where every operand is one run
    double scale        # of the gradient, if tensors have separate ones

cdef struct summing:
    # for summing the gradients of equal indices, clamped and scaled
    char *own           # the memory of each thread
    Py_ssize_t own_bytes
    Py_ssize_t most     # maximum number of distinct rows
    int team
    double bound
    double scale

cdef struct work:
    # everything that a driver needs
    step_t step
    const half_step_t *half     # the same for 16-bit numbers, by type; or NULL
    scatter_t scatter           # NULL unless rows are single elements in computation type
    int n_operands
    Py_ssize_t itemsize
    int flush
    bint own_scales
    Py_ssize_t grain    # a tensor's elements are shared at multiples of it
    double[2 * (MAX_SCALARS + N_SCALES)] h  # in the call's type, at most complex128
    # dense: concatenated tensors; starts[t] is where the t-th begins, starts[n] the end
    Py_ssize_t n_tensors
    tensor *tensors
    Py_ssize_t *starts
    # sparse: row indices[i] of the variable and its slots takes row i of the gradient;
    # tensors[0] has the addresses of the first rows, and the axes of a row
    const char *indices
    Py_ssize_t n_indices
    Py_ssize_t index_stride
    Py_ssize_t index_size       # 0: a dense call
    Py_ssize_t inner            # elements of a row
    Py_ssize_t[MAX_OPERANDS] row_stride
    # indices may have been changed since they were checked: they must be within
    Py_ssize_t n_rows
    int *outside        # set if one is not
    # if rows without a gradient take a step, too: that step, and a gradient row of zeros; the
    # indices are then distinct and ascend
    step_t absent
    char *zeros
    summing *summing        # NULL: equal indices are stepped one after another

cdef struct numbers:
    # the numbers of a call, as they were read
    double[MAX_HYPERS] hypers
    double[N_SCALES] scales     # of the gradient, of the variable

cdef class Call:
    cdef object arrays          # keeps the memory alive
    cdef work w
    cdef tensor one
    cdef Py_ssize_t[2] one_start
    cdef summing summed
    cdef int outside
    cdef bint complex_numbers

cdef int check_shape(cnp.ndarray a, str name, cnp.ndarray var) except -1
cdef object read_scalars(Kernel kernel, tuple hypers, object grad_scale, object var_scale,
                         numbers *into)
cdef int check_hypers(Kernel kernel, int flags, const numbers *read, object faults) except -1
cdef int check_scales(object faults) except -1
cdef list as_arrays(Kernel kernel, tuple arguments)
cdef cnp.ndarray check_operands(Kernel kernel, list arrays)
cdef Py_ssize_t row_size(cnp.ndarray var) noexcept
cdef int check_in_order(Kernel kernel, list variables, cnp.ndarray grad, cnp.ndarray ids,
                        int flags, const numbers *read, object faults) except -1
cdef bint is_safe(cnp.ndarray a, int k, cnp.ndarray grad, const numbers *read) noexcept
cdef cnp.ndarray contiguous_with_blocks(Kernel kernel, list variables, cnp.ndarray grad)
cdef cnp.ndarray separate(Kernel kernel, list variables, cnp.ndarray grad, bint sparse,
                          const numbers *read)
cdef int check_flags(Kernel kernel, int flags) except -1
cdef const steps *set_scalars(Kernel kernel, Call call, const numbers *read, int flags,
                              int typenum, bint dense) except NULL
cdef int set_tensor(tensor *into, list variables, cnp.ndarray grad, int skip_axes) except -1


cdef inline void set_grain(Call call, const tensor *it) noexcept:
    """Share the elements of a tensor in whole blocks, if it has any."""
    if it.axes != NULL and it.axes.blocked:
        call.w.grain = CODES


cdef inline void set_scale(double *h, double scale, Py_ssize_t itemsize) noexcept nogil:
    """Set the gradient's scale among the scalars of a call for real numbers."""
    if itemsize == 4:
        (<float *>h)[0] = <float>scale
    else:
        h[0] = scale
