# cython: language_level=3
"""The compiled loops of a rule, as drivers see them: their C types, sizes and limits."""

from libc.stdint cimport int32_t, uint16_t

cdef enum:
    AHEAD = 16          # rows prefetched ahead
    MAX_OPERANDS = 5    # the variable, up to three slots, the gradient
    MAX_HYPERS = 12
    MAX_SCALARS = 12    # with those that follow from sums
    MAX_SUMS = 2
    N_SCALES = 2        # before the scalars: of the gradient, of the variable
    MAX_DIMS = 64       # as in NumPy
    FLOAT16_CHUNK = 16  # multiples of how many numbers are widened and stepped at a time
    BFLOAT16_CHUNK = 32
    HALVES = 2          # the 16-bit types

# Update a contiguous run: p = [var, slots..., grad], n elements,
# h = [gradient scale, variable scale, scalars...]
ctypedef void (*step_t)(void **p, Py_ssize_t n, const void *h) noexcept nogil
# Update a contiguous run of numbers of a 16-bit type; n is a multiple of its chunk. With noise,
# which is as layout.pyx makes it, bfloat16 is rounded stochastically
ctypedef void (*half_step_t)(uint16_t **p, Py_ssize_t n, const float *h,
                             const uint16_t *noise) noexcept nogil
# Update a block of CODES numbers: p = [var, slots..., grad], of which the slots are only written;
# they are read from the blocks at[k]. largest[k] becomes a slot's largest magnitude, as bits
ctypedef void (*block_step_t)(float **p, const void **at, const float *h,
                              int32_t *largest) noexcept nogil
# Update rows of one element: for each j < n row rows[j] of the variable and its slots, by element
# places[j] of the gradient; strides in bytes
ctypedef void (*scatter_t)(char **data, const Py_ssize_t *stride, const Py_ssize_t *rows,
                           const Py_ssize_t *places, Py_ssize_t n, const void *h) noexcept nogil
# Compute h from the hyperparameters, in the element type
ctypedef void (*scalars_t)(const double *hypers, const double *scales, bint dense,
                           void *h) noexcept nogil
# The bits of a variant that depend on the hyperparameters
ctypedef int (*choose_t)(const double *hypers) noexcept nogil

# Add the terms of n elements to lanes, the first to lane 0 of each sum
ctypedef void (*first_t)(void **p, Py_ssize_t n, const void *h, double *lanes) noexcept nogil
# Make further scalars of sums over so many elements
ctypedef void (*reduce_t)(void **p, const void *h, const double *totals, double size,
                          void *into) noexcept nogil

cdef struct block_steps:
    block_step_t step               # NULL: numbers are decoded before a step
    int[MAX_OPERANDS] storage       # the storage types (layout.pxd) of the slots

cdef struct steps:
    step_t dense        # of a rule with a reduction: of a whole row
    # the same for 16-bit numbers, by storage type (layout.pxd) less 1; NULL: by way of buffers
    half_step_t[HALVES] half
    step_t rows
    half_step_t[HALVES] half_rows
    step_t width1       # rows of one element
    step_t absent       # rows without a gradient; NULL: they do not change
    scatter_t scatter   # the same, many at a time
    scalars_t scalars
    choose_t choose
    block_steps blocks
    first_t first       # of rules that sum over whole variables; NULL: `dense` is of a whole one
    reduce_t reduce
