# cython: language_level=3
"""The memory needed to sum gradient rows."""

from libc.stdint cimport uint32_t

from tfopt.kernels.update.distinct cimport table_size
from tfopt.kernels.update.work cimport work
from tfopt.kernels.platform.step_types cimport AHEAD

cdef enum:
    LINE = 64
    SINGLE_BYTES = 8192     # of single rows at a time, so that they stay in the first-level cache


cdef inline Py_ssize_t singles_together(Py_ssize_t row_bytes) noexcept nogil:
    """How many rows that occur once are read, clamped and scaled before they are stepped."""
    return max(<Py_ssize_t>1, min(<Py_ssize_t>AHEAD, SINGLE_BYTES // row_bytes))


cdef inline Py_ssize_t own_bytes(Py_ssize_t n, Py_ssize_t most, Py_ssize_t inner,
                                 Py_ssize_t itemsize) noexcept nogil:
    """The maximum memory of a thread for n gradient rows of `most` distinct ones: see `owned`."""
    cdef Py_ssize_t row_bytes = inner * itemsize
    cdef Py_ssize_t sums = most if inner == 1 else min(n // 2, most)
    cdef Py_ssize_t bytes_ = (singles_together(row_bytes) + sums) * row_bytes
    bytes_ += most * (sizeof(Py_ssize_t) + sizeof(uint32_t)) + table_size(most) * sizeof(uint32_t)
    bytes_ += 2 * n * sizeof(uint32_t)
    return (bytes_ + 4 * LINE - 1) // LINE * LINE      # three parts begin at lines


cdef void run_summed(const work *w) noexcept nogil
cdef void run_summed_part(const work *w, const uint32_t *rows, Py_ssize_t start, Py_ssize_t stop,
                          int thread) noexcept nogil
