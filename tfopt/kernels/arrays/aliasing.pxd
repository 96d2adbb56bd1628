# cython: language_level=3
cimport tfopt.kernels.platform.numpy_api as cnp

cdef enum:
    FEW = 12    # spans that are compared with each other, instead of sorted

cdef struct span:
    size_t low
    size_t high

cdef class Occupied:
    cdef span *spans
    cdef Py_ssize_t n
    cdef readonly bint apart

    cdef bint meets(self, size_t low, size_t high) noexcept

cdef list hold(object arrays)
cdef bint same_shape(cnp.ndarray a, cnp.ndarray b) noexcept
cdef bint same_rows(cnp.ndarray a, cnp.ndarray var) noexcept
cdef void address_range(cnp.ndarray a, char **low, char **high) noexcept
cdef bint overlap(cnp.ndarray a, cnp.ndarray b) except -1
cdef bint same_memory(cnp.ndarray a, cnp.ndarray b) noexcept
cdef int check_itself(cnp.ndarray a, str name) except -1
cdef bint all_apart(list columns) except -1
cdef bint disjoint(span *spans, span *spare, Py_ssize_t n) noexcept nogil
