# cython: language_level=3
"""Safe reading of a CSR matrix of which only the lengths of the arrays are certain.

Each index is read once, tested, and the tested value is used, because another thread may write to
the arrays. An index out of range is skipped and recorded, and the caller of the kernel raises.
"""

from libc.stdint cimport int32_t, int64_t

from tfopt.kernels.platform.machine cimport raise_flag, read_once_32, read_once_64, within

ctypedef fused index:
    int32_t
    int64_t

#: The valid range of indices.
cdef struct extent:
    Py_ssize_t n_rows
    Py_ssize_t n_entries
    Py_ssize_t n_columns
    int outside             # set if an index was out of range


cdef inline Py_ssize_t once(const index *at) noexcept nogil:
    if index is int32_t:
        return read_once_32(at)
    else:
        return read_once_64(at)


cdef inline Py_ssize_t row_length(const index *indptr, Py_ssize_t i, Py_ssize_t *start,
                                  extent *e) noexcept nogil:
    """The number of entries of row i, and where they begin; -1 if there is no such row."""
    cdef Py_ssize_t stop
    if within(i, e.n_rows):
        start[0], stop = once(&indptr[i]), once(&indptr[i + 1])
        if 0 <= start[0] <= stop <= e.n_entries:
            return stop - start[0]
    raise_flag(&e.outside)
    start[0] = 0
    return -1


cdef Py_ssize_t first_outside(const char *indices, Py_ssize_t stride, bint wide, Py_ssize_t n,
                              Py_ssize_t stop) noexcept nogil
cdef extent extent_of(Py_ssize_t n_data, Py_ssize_t n_indices, Py_ssize_t n_indptr,
                      Py_ssize_t n_dense, Py_ssize_t width, Py_ssize_t n_weights) except *
cdef int check_length(str name, Py_ssize_t length, Py_ssize_t expected) except -1
cdef int refuse_outside(const extent *e, object data, object indices, object indptr,
                        object plan) except -1
