# cython: language_level=3
from tfopt.kernels.update.checks cimport Call
from tfopt.kernels.update.work cimport work

cdef void run_elements(const work *w, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
cdef void run_dense(const work *w) noexcept nogil
cdef void run_call(Call call) noexcept
cdef int refuse_changed(Call call) except -1
