# cython: language_level=3
"""The assignment of rows to threads."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from tfopt.kernels.update.work cimport work
from tfopt.kernels.platform.machine cimport raise_flag, read_once_32, read_once_64, within

cdef enum:
    PREFETCHED = 512        # bytes of a row to prefetch; the hardware prefetches the rest
    OWNED_BYTES = 2048      # rows are owned in blocks of at least this many bytes and
    OWNED_ROWS = 16         # rows, so that threads do not contend for a cache line
    PIECE = 4096            # indices in which a thread looks for its own at a time


cdef inline Py_ssize_t named_row(const work *w, Py_ssize_t i) noexcept nogil:
    """The row of index i, or -1 if it is out of range because the index was changed."""
    cdef const char *at = w.indices + i * w.index_stride
    cdef Py_ssize_t row = (read_once_32(<const int32_t *>at) if w.index_size == 4
                           else read_once_64(<const int64_t *>at))
    if within(row, w.n_rows):
        return row
    raise_flag(w.outside)
    return -1


cdef inline Py_ssize_t worth_fetching(const work *w) noexcept nogil:
    """The number of bytes of a row to prefetch."""
    cdef Py_ssize_t n = w.inner * w.itemsize    # for 16-bit storage this is twice as much
    return n if n < PREFETCHED else PREFETCHED


cdef inline int owned_shift(const work *w) noexcept nogil:
    """The logarithm of the number of adjacent rows with one owner."""
    cdef int shift = 0
    while (1 << shift) < OWNED_ROWS or (w.inner * w.itemsize) << shift < OWNED_BYTES:
        shift += 1
    return shift


cdef inline int owner_of(Py_ssize_t row, int shift, int owners) noexcept nogil:
    """The thread that owns a row, independent of the order of indices; -1 if there is no row."""
    if row < 0:
        return -1
    cdef uint64_t hashed = ((<uint64_t>row >> shift) * <uint64_t>0x9E3779B97F4A7C15) >> 32
    return <int>((hashed * <uint64_t>owners) >> 32)
