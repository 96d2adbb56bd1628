"""A hash table that numbers fingerprints in the order of insertion."""

cimport cython

from libc.stdint cimport int64_t, uint64_t

import numpy as np

from tfopt.kernels.arrays.csr cimport check_length


@cython.final
cdef class FingerprintTable:
    """Numbers for fingerprints.

    Open addressing: fingerprints are practically random, so the first half serves as the hash.
    """

    cdef int64_t[:, ::1] _prints    # by number
    cdef int64_t[::1] _numbers      # the number plus one of each occupied slot; else 0
    cdef Py_ssize_t _n

    def __cinit__(self):
        self._prints = np.empty((8, 2), np.int64)
        self._numbers = np.zeros(16, np.int64)
        self._n = 0

    def __len__(self):
        return self._n

    @property
    def fingerprints(self):
        """A copy of the fingerprints, ordered by number: int64 of shape (n, 2)."""
        return np.array(self._prints[:self._n])

    cdef Py_ssize_t _place(self, const int64_t *one) noexcept nogil:
        """The slot of a fingerprint, or where it would be inserted."""
        cdef uint64_t mask = <uint64_t>self._numbers.shape[0] - 1
        cdef uint64_t at = <uint64_t>one[0] & mask
        cdef Py_ssize_t k
        while self._numbers[at]:
            k = self._numbers[at] - 1
            if self._prints[k, 0] == one[0] and self._prints[k, 1] == one[1]:
                break
            at = (at + 1) & mask
        return <Py_ssize_t>at

    cdef int _grow(self) except -1:
        cdef Py_ssize_t k
        cdef int64_t[:, ::1] before = self._prints
        self._prints = np.empty((2 * before.shape[0], 2), np.int64)
        self._prints[:before.shape[0]] = before
        self._numbers = np.zeros(2 * self._numbers.shape[0], np.int64)
        for k in range(self._n):
            self._numbers[self._place(&self._prints[k, 0])] = k + 1
        return 0

    def find(self, const int64_t[:, ::1] fingerprints not None):
        """Return the number of each fingerprint, -1 for those not in the table."""
        cdef Py_ssize_t i
        cdef int64_t[::1] found = np.empty(fingerprints.shape[0], np.int64)
        check_length("a fingerprint", fingerprints.shape[1], 2)
        with nogil:
            for i in range(fingerprints.shape[0]):
                found[i] = self._numbers[self._place(&fingerprints[i, 0])] - 1
        return np.asarray(found)

    def add(self, const int64_t[:, ::1] fingerprints not None):
        """Return the number of each fingerprint, inserting new ones."""
        cdef Py_ssize_t i, at
        cdef int64_t[::1] found = np.empty(fingerprints.shape[0], np.int64)
        check_length("a fingerprint", fingerprints.shape[1], 2)
        for i in range(fingerprints.shape[0]):
            if self._n == self._prints.shape[0]:
                self._grow()
            at = self._place(&fingerprints[i, 0])
            if self._numbers[at] == 0:
                self._prints[self._n, 0] = fingerprints[i, 0]
                self._prints[self._n, 1] = fingerprints[i, 1]
                self._n += 1
                self._numbers[at] = self._n
            found[i] = self._numbers[at] - 1
        return np.asarray(found)
