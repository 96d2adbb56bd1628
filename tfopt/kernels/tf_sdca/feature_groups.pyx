"""Conversion of TensorFlow's groups of sparse features to rows.

Each group lists (example, feature id, value), ordered by example, and the ids that have weights.
The functions return the position of the first error, or -1.
"""

cimport cython

import numpy as np

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from tfopt.errors import IndexOutOfRangeError

from tfopt.kernels.arrays.csr cimport check_length, index, once
from tfopt.kernels.platform.machine cimport read_once_64, within
from tfopt.kernels.platform.floats cimport real

ctypedef fused place:
    int
    int64_t


@cython.final
cdef class Places:
    """The position of the weight of each id; a subtraction if the ids ascend by one."""

    cdef readonly Py_ssize_t repeated   # the position of a duplicate id, or -1
    cdef int64_t first
    cdef Py_ssize_t n
    cdef bint ascend
    cdef const int64_t[::1] ids
    cdef Py_ssize_t *table              # positions plus one; NULL if not needed
    cdef uint64_t mask

    def __cinit__(self, const int64_t[::1] ids not None):
        cdef Py_ssize_t k
        self.ids = np.array(ids, np.int64)      # a private copy
        self.n, self.repeated = ids.shape[0], -1
        self.first = ids[0] if self.n else 0
        self.ascend = True
        for k in range(self.n):
            if ids[k] != self.first + k:
                self.ascend = False
                break
        if not self.ascend:
            self._fill_table()

    def __dealloc__(self):
        free(self.table)

    cdef int _fill_table(self) except -1:
        cdef Py_ssize_t k
        cdef uint64_t size = 16, at
        while size < 2 * <uint64_t>self.n:
            size *= 2
        self.mask = size - 1
        self.table = <Py_ssize_t *>calloc(size, sizeof(Py_ssize_t))
        if self.table == NULL:
            raise MemoryError
        for k in range(self.n):
            at = self._slot(self.ids[k])
            if self.table[at]:
                self.repeated = k
                return 0
            self.table[at] = k + 1
        return 0

    cdef inline uint64_t _slot(self, int64_t id) noexcept nogil:
        """The slot of an id in the table, or where it would be inserted."""
        cdef uint64_t at = (<uint64_t>id * <uint64_t>0x9E3779B97F4A7C15) >> 20 & self.mask
        while self.table[at] and self.ids[self.table[at] - 1] != id:
            at = (at + 1) & self.mask
        return at

    cdef inline Py_ssize_t find(self, int64_t id) noexcept nogil:
        """The position of an id, or -1."""
        cdef uint64_t distance
        if self.ascend:
            distance = <uint64_t>id - <uint64_t>self.first
            return <Py_ssize_t>distance if distance < <uint64_t>self.n else -1
        return self.table[self._slot(id)] - 1


def count(const index[::1] example_indices not None, int64_t[::1] counts not None):
    """Count the entries of each example; example indices must be valid and ascend."""
    cdef Py_ssize_t k, n = counts.shape[0], fault = -1, example, last = 0
    with nogil:
        for k in range(example_indices.shape[0]):
            example = once(&example_indices[k])
            if not last <= example < n:
                fault = k
                break
            last = example
            counts[last] += 1
    return fault


cdef Py_ssize_t _fill(const index[::1] example_indices, const index[::1] ids,
                      const real[::1] values, Places places, Py_ssize_t offset,
                      int64_t[::1] ends, int64_t[::1] seen, real[::1] data,
                      place[::1] indices, bint *repeated) noexcept nogil:
    cdef Py_ssize_t k, at, to, example
    cdef bint has_values = values is not None
    for k in range(example_indices.shape[0]):
        at = places.find(ids[k])
        if at < 0:
            return k
        example = once(&example_indices[k])
        if not within(example, ends.shape[0]):
            return -2
        if seen[at] == example:
            repeated[0] = True
            return k
        seen[at] = example
        to = read_once_64(&ends[example])
        if not within(to, data.shape[0]):
            return -2
        ends[example] = to + 1
        indices[to] = <place>(offset + at)
        data[to] = values[k] if has_values else 1
    return -1


def fill(real[::1] data not None, place[::1] indices not None, int64_t[::1] ends not None,
         const index[::1] example_indices not None, const index[::1] ids not None,
         const real[::1] values, Places places not None, Py_ssize_t offset,
         int64_t[::1] seen not None):
    """Append a group's entries to the rows of their examples, with the positions of their weights.

    Parameters
    ----------
    data, indices
        The rows.
    ends : memoryview of int64
        The current end of each row.
    example_indices, ids, values
        The entries; without values, they are 1.
    places : Places
        The positions of the ids that have weights; `offset` is the position of the first.
    seen : memoryview of int64
        -1 for each position.

    Returns
    -------
    fault : int
        The first entry whose id has no weight, or is repeated in its example; or -1.
    repeated : bool
        Whether it is repeated.
    """
    cdef bint repeated = False
    cdef Py_ssize_t fault, n = example_indices.shape[0]
    check_length("ids", ids.shape[0], n)
    check_length("values", n if values is None else values.shape[0], n)
    check_length("indices", indices.shape[0], data.shape[0])
    check_length("seen", seen.shape[0], places.n)
    with nogil:
        fault = _fill(example_indices, ids, values, places, offset, ends, seen, data, indices,
                      &repeated)
    if fault < -1:
        raise IndexOutOfRangeError(
            "an entry belongs to no example, or its output array is too short"
        )
    return fault, bool(repeated)


def first_not_finite(const real[::1] values not None):
    """The position of the first infinity or NaN, or -1."""
    cdef Py_ssize_t k, n = values.shape[0]
    cdef bint bad = False
    with nogil:
        for k in range(n):
            bad |= values[k] - values[k] != 0
        if not bad:
            n = -1
        else:
            for k in range(n):
                if values[k] - values[k] != 0:
                    n = k
                    break
    return n
