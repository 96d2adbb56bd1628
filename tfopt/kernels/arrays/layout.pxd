# cython: language_level=3
cimport tfopt.kernels.platform.numpy_api as cnp
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from tfopt.kernels.platform.halves cimport halves
from tfopt.kernels.platform.step_types cimport (
    MAX_DIMS, MAX_OPERANDS, MAX_SCALARS, N_SCALES, block_steps, half_step_t, step_t,
)

cdef enum:
    # storage types of operands; steps compute in float32 or float64
    NATIVE = 0      # the same as the computation type
    FLOAT16 = 1
    BFLOAT16 = 2
    SIGNED8 = 3     # blocks of codes: see storage.py
    POSITIVE8 = 4
    SIGNED4 = 5
    POSITIVE4 = 6
    DYNAMIC8 = 7
    POSITIVE_DYNAMIC8 = 8

cdef struct layout:
    # the axes of all operands, innermost first, adjacent axes merged where every operand allows
    int ndim
    Py_ssize_t shape[MAX_DIMS]
    Py_ssize_t stride[MAX_OPERANDS + 1][MAX_DIMS]   # in bytes
    int storage[MAX_OPERANDS]
    int n_written       # the number of leading operands that are written
    bint overwrites     # the first operand is not read
    uint64_t walk       # names the order in which elements are visited: see merge_axes
    bint blocked        # some operands are blocks of codes, and all are contiguous
    # Written bfloat16 operands are rounded stochastically: each by its own key and the indices of
    # the elements, in the order of C. So that these are known where the axes are in another order,
    # there is one more operand, of bytes: the address of an element is its index.
    bint rounds
    uint64_t key
    uint32_t own_key[MAX_OPERANDS]
    bint clamps         # the last operand is clamped to these bounds as it is read
    double bounds[2]

cdef struct half_run:
    # what steps of runs and rows of numbers of one 16-bit type have in common
    const layout *axes
    half_step_t step
    int n_operands
    Py_ssize_t chunk
    uint16_t bound, infinity    # of the gradient, if it is clamped
    float[MAX_SCALARS + N_SCALES] h

cdef enum:
    ANY_WALK = 15       # of more axes than are named: no other walk is known to be the same

cdef const halves *halves_in_use() noexcept nogil
cdef void merge_axes(layout *into, int n_operands, int ndim, const cnp.npy_intp *shape,
                     const cnp.npy_intp **strides, bint as_in_c) noexcept nogil
cdef void extent(const layout *axes, int k, const char *data, Py_ssize_t n, Py_ssize_t itemsize,
                 size_t *low, size_t *high) noexcept nogil
cdef bint same_elements(const layout *a, int j, const layout *b, int k, Py_ssize_t n,
                        Py_ssize_t itemsize) noexcept nogil
cdef void gather(char *to, const char *source, Py_ssize_t stride, Py_ssize_t n,
                 Py_ssize_t itemsize, int storage) noexcept nogil
cdef void scatter(char *to, Py_ssize_t stride, const char *source, Py_ssize_t n,
                  Py_ssize_t itemsize, int storage) noexcept nogil
cdef void clamp(void *run, Py_ssize_t n, bint is_double, const double *bounds) noexcept nogil
cdef bint is_run(const layout *axes, int n_operands, Py_ssize_t itemsize) noexcept nogil
cdef void decode_block(int storage, const char *blocks, Py_ssize_t start, Py_ssize_t n,
                       float *to) noexcept nogil
cdef void encode_block(int storage, const float *numbers, Py_ssize_t n, char *blocks,
                       Py_ssize_t start) noexcept nogil
cdef void run_blocks(const layout *axes, step_t step, const block_steps *blocks, int n_operands,
                     bint writes, char **data, Py_ssize_t start, Py_ssize_t stop,
                     const void *h) noexcept nogil
cdef bint begin_halves(half_run *run, const layout *axes, const half_step_t *half, int n_operands,
                       const float *h) noexcept nogil
cdef void run_half_rows(const half_run *run, char **data, const Py_ssize_t *stride,
                        const Py_ssize_t *rows, const Py_ssize_t *places, Py_ssize_t n,
                        Py_ssize_t inner, Py_ssize_t fetched) noexcept nogil
cdef void run_layout(const layout *axes, step_t step, const half_step_t *half, int n_operands,
                     bint writes, char **data, Py_ssize_t itemsize, Py_ssize_t start,
                     Py_ssize_t count, const void *h) noexcept nogil
