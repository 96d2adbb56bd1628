"""Summing the rows of a sparse gradient that share an index."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

import numpy as np

from tfopt.kernels.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.rules cimport real
from tfopt.kernels.runtime cimport flush_denormals

ctypedef fused index:
    int32_t
    int64_t


ctypedef fused number:
    float
    double
    float complex
    double complex


cdef Py_ssize_t _number(const index[::1] indices, index[::1] distinct, Py_ssize_t[::1] place,
                        Py_ssize_t *table, uint64_t mask) noexcept nogil:
    """Number the distinct indices in the order of their first occurrence.

    place[i] becomes the number of indices[i]; returns how many there are. The table, of at least
    twice as many zeros as there are indices, holds numbers plus one.
    """
    cdef Py_ssize_t i, n = 0
    cdef uint64_t at
    for i in range(indices.shape[0]):
        at = (<uint64_t>indices[i] * <uint64_t>0x9E3779B97F4A7C15) >> 20
        at &= mask
        while table[at] and distinct[table[at] - 1] != indices[i]:
            at = (at + 1) & mask
        if table[at] == 0:
            distinct[n] = indices[i]
            n += 1
            table[at] = n
        place[i] = table[at] - 1
    return n


cdef void _add_rows(const number[:, ::1] values, const Py_ssize_t[::1] place,
                    number[:, ::1] sums) noexcept nogil:
    # sums[place[i]] += values[i], i ascending
    cdef Py_ssize_t i, j
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            sums[place[i], j] = sums[place[i], j] + values[i, j]


def distinct_indices(const index[::1] indices):
    """The distinct indices, in the order of their first occurrence, and each index's place there.

    Returns
    -------
    distinct : ndarray, dtype of indices
    place : ndarray of intp
        ``distinct[place] == indices``.
    """
    cdef Py_ssize_t n = indices.shape[0], size = 16
    cdef index[::1] distinct = np.empty(n, np.int32 if index is int32_t else np.int64)
    cdef Py_ssize_t[::1] place = np.empty(n, np.intp)
    while size < 2 * n:
        size *= 2
    cdef Py_ssize_t *table = <Py_ssize_t *>calloc(size, sizeof(Py_ssize_t))
    if table == NULL:
        raise MemoryError
    with nogil:
        n = _number(indices, distinct, place, table, size - 1)
    free(table)
    return np.asarray(distinct[:n]), np.asarray(place)


def add_rows(const number[:, ::1] values, const Py_ssize_t[::1] place, number[:, ::1] sums):
    """Add each row of values, in order, to the row of sums that place names."""
    cdef fp_state caller
    with nogil:
        caller = fp_enter(flush_denormals())
        _add_rows(values, place, sums)
        fp_leave(caller)


cdef void _add_scaled_rows(const real[:, ::1] values, const Py_ssize_t[::1] place,
                           real[:, ::1] sums, double bound, double scale) noexcept nogil:
    cdef real high = <real>bound, low = -<real>bound, factor = <real>scale, value
    cdef Py_ssize_t i, j
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = high if high < values[i, j] else values[i, j]
            value = low if low > value else value
            sums[place[i], j] = sums[place[i], j] + value * factor


def add_scaled_rows(const real[:, ::1] values, const Py_ssize_t[::1] place, real[:, ::1] sums,
                    double bound, double scale):
    """Do the same with rows that are clamped to a bound first, and multiplied by a number."""
    cdef fp_state caller
    with nogil:
        caller = fp_enter(flush_denormals())
        _add_scaled_rows(values, place, sums, bound, scale)
        fp_leave(caller)
