# cython: language_level=3
cimport numpy as cnp
from tfopt.kernels.layout cimport layout
from tfopt.kernels.step cimport (
    MAX_HYPERS, MAX_OPERANDS, MAX_SCALARS, N_SCALES, scatter_t, step_t, steps,
)

cdef struct tensor:
    char *data[MAX_OPERANDS]
    layout *axes        # NULL where every operand is one run
    double scale        # of the gradient, if the work's tensors have their own

cdef struct summing:
    # what it takes to sum the gradients of equal indices on the way, clamped and scaled
    char *own           # each thread's memory
    Py_ssize_t own_bytes
    Py_ssize_t most     # distinct rows there can be
    int team
    double bound
    double scale

cdef struct work:
    # what a driver needs, and all it needs
    step_t step
    scatter_t scatter           # NULL unless rows are single elements as the step computes
    int n_operands
    Py_ssize_t itemsize
    int flush
    bint own_scales
    double[2 * (MAX_SCALARS + N_SCALES)] h  # of the call's type, the widest of which is complex128
    # dense: tensors laid end to end; starts[t] is where the t-th begins, starts[n] the end
    Py_ssize_t n_tensors
    tensor *tensors
    Py_ssize_t *starts
    # sparse: row indices[i] of the variable and its slots takes row i of the gradient;
    # tensors[0] has the first rows' addresses, and axes that describe one row
    const char *indices
    Py_ssize_t n_indices
    Py_ssize_t index_stride
    Py_ssize_t index_size       # 0: a dense call
    Py_ssize_t inner            # elements of a row
    Py_ssize_t[MAX_OPERANDS] row_stride
    # indices may have been changed since they were looked at: what they name must be one of
    Py_ssize_t n_rows
    int *outside        # is raised if it is not
    # where the rows that are not named take a step, too: theirs, and a gradient row of zeros; the
    # indices are then distinct and ascend
    step_t absent
    char *zeros
    summing *summing        # NULL: equal indices are stepped one after another

cdef struct numbers:
    # of a call, as they were read
    double[MAX_HYPERS] hypers
    double[N_SCALES] scales     # the gradient's, the variable's

cdef class Kernel:
    cdef readonly object rule
    cdef readonly str name
    cdef tuple operands, hypers
    cdef int n_operands, n_hypers, n_flags, first
    cdef int[MAX_HYPERS] limits     # 1 + the place in tfopt.rules.LIMITS, 0: none
    cdef bint limits_dense, takes_complex
    cdef int n_checks, n_row_checks
    cdef int[MAX_HYPERS + MAX_OPERANDS + 8] checks, row_checks
    cdef int _code(self, str check) except -1

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
cdef cnp.ndarray separate(Kernel kernel, list variables, cnp.ndarray grad, bint sparse,
                          const numbers *read)
cdef int check_flags(Kernel kernel, int flags) except -1
cdef const steps *steps_of(Kernel kernel, int flags, int type_) noexcept
cdef const steps *set_scalars(Kernel kernel, Call call, const numbers *read, int flags,
                              int typenum, bint dense) except NULL
cdef int set_tensor(tensor *into, list variables, cnp.ndarray grad, int skip_axes) except -1


cdef inline void set_scale(double *h, double scale, Py_ssize_t itemsize) noexcept nogil:
    """Set the gradient's scale among the scalars of a call for real numbers."""
    if itemsize == 4:
        (<float *>h)[0] = <float>scale
    else:
        h[0] = scale
