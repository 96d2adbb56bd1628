# cython: language_level=3
"""A hash table of the numbers of distinct keys, by open addressing.

It holds the number of each key plus one, and 0 where there is none.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

ctypedef fused key_t:
    int32_t
    int64_t
    Py_ssize_t


cdef inline Py_ssize_t table_size(Py_ssize_t n) noexcept nogil:
    """The size of a table for n keys, a power of two."""
    cdef Py_ssize_t size = 16
    while size < 2 * n:
        size *= 2
    return size


cdef inline Py_ssize_t place_of(key_t key, const key_t *distinct, const uint32_t *table,
                                Py_ssize_t size) noexcept nogil:
    """The place of a key in a table, or the empty place for it."""
    cdef uint64_t hashed = (<uint64_t>key * <uint64_t>0x9E3779B97F4A7C15) >> 20
    cdef Py_ssize_t at = <Py_ssize_t>hashed & (size - 1)
    while table[at] and distinct[table[at] - 1] != key:
        at = (at + 1) & (size - 1)
    return at
