# cython: language_level=3
from tfopt.kernels.update.work cimport work

cdef void run_sparse(const work *w) noexcept nogil
