# cython: language_level=3
"""The memory needed to divide rows into neighbourhoods."""

from tfopt.kernels.update.work cimport work

cdef Py_ssize_t bucket_bytes(Py_ssize_t n, Py_ssize_t itemsize) noexcept
cdef bint worth_dividing(const work *w) noexcept
cdef void set_buckets(work *w, char *memory) noexcept
cdef void run_buckets(const work *w) noexcept nogil
