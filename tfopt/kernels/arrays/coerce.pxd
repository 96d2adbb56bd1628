# cython: language_level=3
cimport tfopt.kernels.platform.numpy_api as cnp

cdef int read_scalar(object value, str name, double *into) except -1
cdef str shape_of(object array)
cdef int refuse_layout(cnp.ndarray a, str name, bint written) except -1
cdef int storage_of(cnp.ndarray a) except -2
cdef int block_storage_of(cnp.ndarray a) except -1
cpdef cnp.ndarray as_array(object value, str name)
