# cython: language_level=3
from tfopt.kernels.calls cimport work

cdef void run_elements(const work *w, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
