# cython: language_level=3
"""Sums of rows, each in the order in which its rows are given."""

from libc.math cimport INFINITY

from tfopt.kernels.platform.machine cimport prefetch_row
from tfopt.kernels.platform.floats cimport real

cdef enum:
    ROWS_AHEAD = 16         # rows prefetched ahead
    FETCHED = 512           # bytes of a row to prefetch; the hardware prefetches the rest

# Add rows, clamped to a bound and scaled, to contiguous sums of the same width: for each j < n in
# order row places[j] of those a stride of bytes apart to sum numbers[j].
ctypedef void (*add_rows_t)(void *sums, const Py_ssize_t *numbers, char *rows,
                            Py_ssize_t stride, const Py_ssize_t *places, Py_ssize_t n,
                            Py_ssize_t width, double bound, double scale) noexcept nogil


cdef inline real limited(real value, real high, real factor) noexcept nogil:
    """A number clamped to [-high, high] and multiplied by a factor."""
    value = high if high < value else value
    value = -high if -high > value else value
    return value * factor


cdef inline void add_rows(real *sums, const Py_ssize_t *numbers, char *rows, Py_ssize_t stride,
                          const Py_ssize_t *places, Py_ssize_t n, Py_ssize_t width, double bound,
                          double scale) noexcept nogil:
    cdef real high = <real>bound, factor = <real>scale
    cdef Py_ssize_t i, j, row_bytes = width * sizeof(real), fetched = min(row_bytes, FETCHED)
    cdef char *base = <char *>sums
    cdef real *total
    cdef const real *row
    cdef bint as_given = high == INFINITY and factor == 1
    if width == 1:
        for i in range(n):
            row = <const real *>(rows + places[i] * stride)
            sums[numbers[i]] = sums[numbers[i]] + limited(row[0], high, factor)
        return
    for i in range(n):
        if i + ROWS_AHEAD < n:
            # what the one before it has fetched is there
            if numbers[i + ROWS_AHEAD] != numbers[i + ROWS_AHEAD - 1]:
                prefetch_row(&base, &row_bytes, 1, numbers[i + ROWS_AHEAD], fetched)
            if places[i + ROWS_AHEAD] != places[i + ROWS_AHEAD - 1]:
                prefetch_row(&rows, &stride, 1, places[i + ROWS_AHEAD], fetched)
        total = sums + numbers[i] * width
        row = <const real *>(rows + places[i] * stride)
        if as_given:
            for j in range(width):
                total[j] = total[j] + row[j]
        else:
            for j in range(width):
                total[j] = total[j] + limited(row[j], high, factor)
