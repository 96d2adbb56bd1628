# cython: language_level=3
"""What drivers get of a checked call: addresses, sizes and steps."""

from libc.stdint cimport uint32_t, uint64_t

from tfopt.kernels.arrays.layout cimport layout
from tfopt.kernels.platform.step_types cimport (
    MAX_OPERANDS, MAX_SCALARS, N_SCALES, block_steps, first_t, half_step_t, reduce_t, scatter_t,
    step_t,
)

cdef struct tensor:
    char *data[MAX_OPERANDS + 1]    # one more than operands: see layout.rounds
    layout *axes        # NULL where every operand is one run
    uint64_t walk       # the layout's, whether there is one or not
    double scale        # of the gradient, if tensors have separate ones
    Py_ssize_t inner, size      # elements of a row and of all, where steps are of whole rows

cdef struct summing:
    # for summing the gradients of equal indices, clamped and scaled
    char *own           # the memory of each thread
    Py_ssize_t own_bytes
    Py_ssize_t most     # maximum number of distinct rows
    const Py_ssize_t *at        # the gradient's row for each index; NULL: the one of its position
    Py_ssize_t n_terms          # the gradient's rows
    bint exact          # sums are stepped as they are, not added to zero in the step's arithmetic
    int team
    double bound
    double scale

cdef struct buckets:
    # for stepping rows of one element by neighbourhoods
    uint32_t *named     # the rows, in the order of their indices, or 0xFFFFFFFF
    uint32_t *rows      # the same, by neighbourhood
    char *values        # the gradients of those
    uint32_t *starts    # of each part's buckets among them
    int shift           # the logarithm of the number of adjacent rows in a bucket
    Py_ssize_t claimed  # parts or buckets that threads have taken

cdef struct work:
    # everything that a driver needs
    step_t step
    const half_step_t *half     # the same for 16-bit numbers, by type; or NULL
    const block_steps *blocks   # the same for slots in blocks of codes, or NULL
    scatter_t scatter           # NULL unless rows are single elements in computation type
    int n_operands
    Py_ssize_t itemsize
    int flush
    bint own_scales
    bint looks          # the step writes nothing, and nothing is stored after it
    Py_ssize_t grain    # a tensor's elements are shared at multiples of it
    # steps of whole rows, which operands from n_whole on, but the gradient, have one number for;
    # and memory for each thread, if there are rows that are not runs
    bint by_rows
    # steps of whole variables: the terms that are summed, and the sums of all spans
    first_t first
    reduce_t reduce
    double *span_sums
    int n_sums, n_given
    int n_whole
    char *scratch
    Py_ssize_t room     # of an operand
    int team            # the most threads; 0: any number
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
    buckets *buckets        # NULL: rows are stepped in the order of their indices


cdef inline Py_ssize_t tensor_at(const work *w, Py_ssize_t at) noexcept nogil:
    """The last tensor that begins at or before an element."""
    cdef Py_ssize_t low = 0, high = w.n_tensors, t
    while high - low > 1:
        t = (low + high) // 2
        if w.starts[t] <= at:
            low = t
        else:
            high = t
    return low


cdef inline void set_scale(double *h, double scale, Py_ssize_t itemsize) noexcept nogil:
    """Set the gradient's scale among the scalars of a call for real numbers."""
    if itemsize == 4:
        (<float *>h)[0] = <float>scale
    else:
        h[0] = scale
