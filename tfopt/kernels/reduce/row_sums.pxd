# cython: language_level=3
"""Sums of rows, each in the order in which its rows are given."""

from libc.math cimport INFINITY

from tfopt.kernels.platform.machine cimport prefetch_row
from tfopt.kernels.platform.floats cimport real

cdef enum:
    ROWS_AHEAD = 16         # rows prefetched ahead
    TOGETHER = 8            # rows that are prefetched, and then added
    MOST = 4                # rows added to a sum at a time, which is then read and written once
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
    cdef Py_ssize_t i, j, run, stop, row_bytes = width * sizeof(real)
    cdef Py_ssize_t fetched = min(row_bytes, FETCHED)
    cdef char *base = <char *>sums
    cdef real *total
    cdef const real *row[MOST]
    cdef bint as_given = high == INFINITY and factor == 1
    if width == 1:
        for i in range(n):
            row[0] = <const real *>(rows + places[i] * stride)
            sums[numbers[i]] = sums[numbers[i]] + limited(row[0][0], high, factor)
        return
    i = 0
    while i < n:
        stop = min(i + TOGETHER, n)
        for j in range(i, min(stop, n - ROWS_AHEAD)):
            # what the one before it has fetched is there
            if numbers[j + ROWS_AHEAD] != numbers[j + ROWS_AHEAD - 1]:
                prefetch_row(&base, &row_bytes, 1, numbers[j + ROWS_AHEAD], fetched)
            if places[j + ROWS_AHEAD] != places[j + ROWS_AHEAD - 1]:
                prefetch_row(&rows, &stride, 1, places[j + ROWS_AHEAD], fetched)
        while i < stop:
            total = sums + numbers[i] * width
            run = 0
            while run < MOST and i + run < stop and numbers[i + run] == numbers[i]:
                row[run] = <const real *>(rows + places[i + run] * stride)
                run += 1
            if not as_given:
                run = 1
                for j in range(width):
                    total[j] = total[j] + limited(row[0][j], high, factor)
            elif run == MOST:
                for j in range(width):
                    total[j] = total[j] + row[0][j] + row[1][j] + row[2][j] + row[3][j]
            elif run > 1:
                run = 2
                for j in range(width):
                    total[j] = total[j] + row[0][j] + row[1][j]
            else:
                for j in range(width):
                    total[j] = total[j] + row[0][j]
            i += run
