# cython: language_level=3
"""Reading a CSR matrix of which nothing is sure but how long its arrays are.

An index is tested as it is read, and what was tested is what is used: another thread may write to
the arrays meanwhile. What is outside is left out and remembered, and whoever began says so.
"""

from libc.stdint cimport int32_t, int64_t

from tfopt.kernels.machine cimport raise_flag, read_once_32, read_once_64, within

ctypedef fused index:
    int32_t
    int64_t

#: What indices may name.
cdef struct extent:
    Py_ssize_t n_rows
    Py_ssize_t n_entries
    Py_ssize_t n_columns
    int outside             # whether one named anything else


cdef inline Py_ssize_t once(const index *at) noexcept nogil:
    if index is int32_t:
        return read_once_32(at)
    else:
        return read_once_64(at)


cdef inline Py_ssize_t row_length(const index *indptr, Py_ssize_t i, Py_ssize_t *start,
                                  extent *e) noexcept nogil:
    """How many entries row i has, and where they begin; -1 if there is no such row."""
    cdef Py_ssize_t stop
    if within(i, e.n_rows):
        start[0], stop = once(&indptr[i]), once(&indptr[i + 1])
        if 0 <= start[0] <= stop <= e.n_entries:
            return stop - start[0]
    raise_flag(&e.outside)
    start[0] = 0
    return -1


cdef extent extent_of(Py_ssize_t n_data, Py_ssize_t n_indices, Py_ssize_t n_indptr,
                      Py_ssize_t n_dense, Py_ssize_t width, Py_ssize_t n_weights) except *
cdef int check_length(str name, Py_ssize_t length, Py_ssize_t expected) except -1
cdef int refuse_outside(const extent *e, object data, object indices, object indptr,
                        object plan) except -1
