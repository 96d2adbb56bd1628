# cython: language_level=3
from tfopt.kernels.update.work cimport work

cdef int need_sums(work *w) except -1
cdef void run_tensors(const work *w) noexcept nogil
