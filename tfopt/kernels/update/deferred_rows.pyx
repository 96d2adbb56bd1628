"""Deferred steps: steps with a zero gradient that rows take later.

Such a step multiplies the slots and moves the variable a little less each time. So a row takes its
steps one by one only until they no longer move it; the rest multiply its slots all at once.
"""

from libc.math cimport pow
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import numpy as np

cimport tfopt.kernels.platform.numpy_api as cnp

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.update.checks cimport check_flags, check_shape
from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.arrays.csr import check_indices
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, raise_flag, read_once_64, within,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport flush_denormals, gather_team, run_team, team
from tfopt.kernels.platform.step_types cimport MAX_OPERANDS, step_t
from tfopt.kernels.update.step_table cimport Kernel, steps_of

cnp.import_array()

cdef struct debt:
    step_t step
    int n_operands
    char *data[MAX_OPERANDS]        # the variable and its slots
    Py_ssize_t inner, itemsize
    char *zeros                     # the gradient of a row
    const char *scalars             # of each step
    Py_ssize_t scalars_size
    Py_ssize_t n_steps
    const char *fading              # for each step: whether no later one moves the variable more
    double decay[MAX_OPERANDS]
    const int64_t *rows             # that take their steps
    Py_ssize_t n_rows
    int64_t *since                  # of all rows: how many steps were taken
    Py_ssize_t all_rows
    char *before                    # room for a row, for each thread
    int *outside                    # set if a row number is out of range


cdef void _multiply(real *x, Py_ssize_t n, double factor) noexcept nogil:
    cdef Py_ssize_t i
    cdef real by = <real>factor
    for i in range(n):
        x[i] = x[i] * by


cdef void _catch_up_row(const debt *d, int64_t row, int64_t *since, char *before) noexcept nogil:
    cdef Py_ssize_t k = max(since[0], <int64_t>0), size = d.inner * d.itemsize
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


cdef void _catch_up_rows(const void *steps, int thread, int threads) noexcept nogil:
    cdef const debt *d = <const debt *>steps
    cdef Py_ssize_t i, row
    cdef fp_state caller = fp_enter(flush_denormals())
    for i in range(d.n_rows * thread // threads, d.n_rows * (thread + 1) // threads):
        row = read_once_64(&d.rows[i])
        if not within(row, d.all_rows):
            raise_flag(d.outside)
            break
        _catch_up_row(d, row, &d.since[row], d.before + thread * d.inner * d.itemsize)
    fp_leave(caller)


cdef int _check(Kernel kernel, tuple arrays, tuple decays, int typenum) except -1:
    """Raise if an array is not C-contiguous in its rows."""
    cdef object a
    cdef int k
    if len(arrays) != kernel.n_operands - 1 or len(decays) != len(arrays) - 1:
        raise InvalidArgumentError(
            f"{kernel.name} has {kernel.n_operands - 1} variables, not {len(arrays)}, and decays "
            f"of all but the first, not {len(decays)}"
        )
    for k in range(len(arrays)):
        a = arrays[k]
        if not isinstance(a, cnp.ndarray) or not cnp.PyArray_ISCARRAY(<cnp.ndarray>a) \
                or cnp.PyArray_TYPE(<cnp.ndarray>a) != typenum \
                or cnp.PyArray_NDIM(<cnp.ndarray>a) == 0:
            raise InvalidTypeError(
                f"{kernel.operands[k]} must be a contiguous numpy.ndarray of rows of the dtype of "
                "scalars"
            )
        check_shape(a, <str>kernel.operands[k], arrays[0])
    return 0


def catch_up(Kernel kernel not None, int flags, tuple arrays not None,
             real[:, ::1] scalars not None, Py_ssize_t n_steps, const char[::1] fading not None,
             const int64_t[::1] rows not None, int64_t[::1] since not None, tuple decays not None):
    """Take the deferred steps of rows.

    Parameters
    ----------
    kernel : Kernel
    flags : int
        The rule's, as bits.
    arrays : tuple of ndarray
        The variable and its slots, C-contiguous, of the dtype of `scalars`; changed.
    scalars : array of shape (more than n_steps, columns)
        The scalars of the rule, for each step.
    n_steps : int
    fading : array of char
        For each step, whether no later one would move the variable more.
    rows : array of int64
        Distinct rows of the variable.
    since : array of int64
        For all rows, the number of steps taken; set to n_steps for those in `rows`.
    decays : tuple of float
        The factor by which a step without a gradient multiplies each slot.
    """
    cdef debt d
    cdef cnp.ndarray var = arrays[0] if arrays else None, a
    cdef int j
    cdef team t
    cdef int outside = 0
    _check(kernel, arrays, decays, cnp.NPY_FLOAT32 if real is float else cnp.NPY_FLOAT64)
    check_flags(kernel, flags)
    check_length("since", since.shape[0], cnp.PyArray_DIM(var, 0))
    check_length("a row of scalars", scalars.shape[1], kernel.n_given)
    if not 0 <= n_steps <= min(scalars.shape[0], fading.shape[0]):
        raise InvalidArgumentError(
            f"n_steps must be between 0 and the rows of scalars and fading, not {n_steps}"
        )
    if rows.shape[0] == 0 or n_steps == 0 or cnp.PyArray_SIZE(var) == 0:
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
    d.outside = &outside
    d.fading = &fading[0]
    d.rows, d.n_rows = &rows[0], rows.shape[0]
    d.since, d.all_rows = &since[0], since.shape[0]
    t = gather_team(d.n_rows * d.inner, d.n_operands)
    d.before = <char *>malloc(t.size * d.inner * d.itemsize)
    if d.before == NULL:
        raise MemoryError
    with nogil:
        run_team(t, _catch_up_rows, &d)
    free(d.before)
    if outside:
        check_indices(rows, since.shape[0], "rows")
        raise InvalidArgumentError("rows was changed while it was read")
