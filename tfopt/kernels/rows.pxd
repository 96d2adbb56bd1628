# cython: language_level=3
from tfopt.kernels.calls cimport work

cdef void run_sparse(const work *w) noexcept nogil
