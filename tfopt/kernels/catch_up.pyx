"""Steps that rows have not taken because their gradient was zero, taken late.

Such a step multiplies slots and moves the variable a little less each time. So a row takes its
steps one by one only until they no longer change it; what is left multiplies its slots, at once.
"""

from cython.parallel cimport parallel
from libc.math cimport pow
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import numpy as np

cimport numpy as cnp

from tfopt.kernels.calls cimport Kernel, steps_of
from tfopt.kernels.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.rules cimport real
from tfopt.kernels.runtime cimport flush_denormals, team_size
from tfopt.kernels.step cimport MAX_OPERANDS, step_t

cnp.import_array()

cdef struct debt:
    step_t step
    int n_operands
    char *data[MAX_OPERANDS]        # of the variable and its slots
    Py_ssize_t inner, itemsize
    char *zeros                     # a row's gradient
    const char *scalars             # of each step
    Py_ssize_t scalars_size
    Py_ssize_t n_steps
    const char *fading              # of each step: whether none after it moves the variable more
    double decay[MAX_OPERANDS]


cdef void _multiply(real *x, Py_ssize_t n, double factor) noexcept nogil:
    cdef Py_ssize_t i
    cdef real by = <real>factor
    for i in range(n):
        x[i] = x[i] * by


cdef void _catch_up_row(const debt *d, int64_t row, int64_t *since, char *before) noexcept nogil:
    cdef Py_ssize_t k = since[0], size = d.inner * d.itemsize
    cdef void *p[MAX_OPERANDS]
    cdef int j
    cdef double factor
    for j in range(d.n_operands - 1):
        p[j] = d.data[j] + row * size
    p[d.n_operands - 1] = d.zeros
    while k < d.n_steps:
        memcpy(before, p[0], size)
        d.step(p, d.inner, d.scalars + k * d.scalars_size)
        k += 1
        if d.fading[k - 1] and memcmp(before, p[0], size) == 0:
            break
    if k < d.n_steps:
        for j in range(1, d.n_operands - 1):
            factor = pow(d.decay[j], d.n_steps - k)
            if d.itemsize == 4:
                _multiply(<float *>p[j], d.inner, factor)
            else:
                _multiply(<double *>p[j], d.inner, factor)
    since[0] = d.n_steps


cdef void _catch_up_rows(const debt *d, const int64_t[::1] rows, int64_t[::1] since, char *before,
                         int thread, int threads) noexcept nogil:
    cdef Py_ssize_t i
    cdef fp_state caller = fp_enter(flush_denormals())
    for i in range(rows.shape[0] * thread // threads, rows.shape[0] * (thread + 1) // threads):
        _catch_up_row(d, rows[i], &since[rows[i]], before + thread * d.inner * d.itemsize)
    fp_leave(caller)


def catch_up(Kernel kernel not None, int flags, tuple arrays not None, real[:, ::1] scalars,
             Py_ssize_t n_steps, const char[::1] fading, const int64_t[::1] rows,
             int64_t[::1] since, tuple decays not None):
    """Take the steps that rows have not taken.

    Parameters
    ----------
    kernel : Kernel
    flags : int
        The rule's, as bits.
    arrays : tuple of ndarray
        The variable and its slots, C-contiguous, of the dtype of `scalars`; changed.
    scalars : array of shape (more than n_steps, columns)
        What the rule's step takes beside arrays, of each step.
    n_steps : int
    fading : array of char
        Of each step, whether no later one would move the variable more.
    rows : array of int64
        Distinct rows of the variable.
    since : array of int64
        Of all rows, the number of steps taken; set to n_steps for those in `rows`.
    decays : tuple of float
        What a step without a gradient multiplies each slot by.
    """
    cdef debt d
    cdef cnp.ndarray var = arrays[0], a
    cdef int j, team
    cdef char *before
    cdef Py_ssize_t n_rows = rows.shape[0]
    if n_rows == 0 or n_steps == 0 or cnp.PyArray_SIZE(var) == 0:
        return
    d.step = steps_of(kernel, flags, sizeof(real) == 8).dense
    d.n_operands = len(arrays) + 1
    d.itemsize = sizeof(real)
    d.inner = cnp.PyArray_SIZE(var) // cnp.PyArray_DIM(var, 0)
    for j in range(d.n_operands - 1):
        a = arrays[j]
        d.data[j] = <char *>cnp.PyArray_DATA(a)
        d.decay[j] = decays[j - 1] if j else 1
    zeros = np.zeros(d.inner, var.dtype)
    d.zeros = <char *>cnp.PyArray_DATA(<cnp.ndarray>zeros)
    d.scalars = <const char *>&scalars[0, 0]
    d.scalars_size = scalars.shape[1] * sizeof(real)
    d.n_steps = n_steps
    d.fading = &fading[0]
    team = team_size(n_rows * d.inner, d.n_operands)
    before = <char *>malloc(team * d.inner * d.itemsize)
    if before == NULL:
        raise MemoryError
    with nogil:
        if team == 1:
            _catch_up_rows(&d, rows, since, before, 0, 1)
        else:
            with parallel(num_threads=team):
                _catch_up_rows(&d, rows, since, before, omp_get_thread_num(),
                               omp_get_num_threads())
    free(before)
