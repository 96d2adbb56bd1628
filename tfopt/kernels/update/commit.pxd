# cython: language_level=3
from libc.stdint cimport int64_t

cimport tfopt.kernels.platform.numpy_api as cnp
from tfopt.kernels.update.checks cimport Call

cdef class Write:
    cdef int check(self) except -1
    cdef int begin(self) except -1
    cdef void carry_out(self) noexcept

cdef class Count(Write):
    cdef cnp.ndarray number
    cdef int64_t *at

cdef class Assign(Write):
    cdef cnp.ndarray to, values

cdef class AssignRows(Write):
    cdef cnp.ndarray to, values
    cdef const int64_t[::1] rows

cdef class RowsOf(Write):
    cdef Call call, rows

cdef class Attributes(Write):
    cdef dict attributes, values

cdef class Mark(Write):
    cdef int64_t[::1] into
    cdef const int64_t[::1] places
    cdef int64_t number

cdef class Meanwhile:
    cdef object make, prepare
    cdef list last

cdef class Undo:
    cdef list kept, attributes
    cdef readonly bint done

cdef class Prepared:
    cdef public list writes, variables
    cdef public bint counts
