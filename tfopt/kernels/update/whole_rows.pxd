# cython: language_level=3
from tfopt.kernels.arrays.layout cimport layout
from tfopt.kernels.update.work cimport tensor, work

cdef int need_scratch(work *w, const tensor *t) except -1
cdef Py_ssize_t grain_of_rows(const tensor *t) noexcept nogil
cdef char *moved(const layout *axes, int k, char *at, Py_ssize_t start, Py_ssize_t n,
                 Py_ssize_t itemsize, bint clamps, char *run, bint back) noexcept nogil
cdef void run_row(const work *w, const layout *axes, char **at, Py_ssize_t start, Py_ssize_t n,
                  const void *h) noexcept nogil
cdef void run_rows(const work *w, const tensor *t, Py_ssize_t row, Py_ssize_t stop,
                   const void *h) noexcept nogil
