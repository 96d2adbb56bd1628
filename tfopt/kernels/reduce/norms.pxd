# cython: language_level=3
from tfopt.kernels.reduce.lane_sums cimport sums

cdef const sums *sums_in_use() noexcept nogil
