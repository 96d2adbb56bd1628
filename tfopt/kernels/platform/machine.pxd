# cython: language_level=3

from libc.stdint cimport int32_t, int64_t

cdef extern from "machine.h" nogil:
    ctypedef unsigned long long fp_state
    fp_state fp_enter(int flush) noexcept
    void fp_leave(fp_state caller) noexcept
    int TFOPT_CAN_FLUSH
    int TFOPT_OPENMP
    void prefetch_row(char **data, const Py_ssize_t *stride, int n, Py_ssize_t row,
                      Py_ssize_t bytes) noexcept
    void prefetch_numbered_row(char **data, const Py_ssize_t *stride, int numbers, int n,
                               Py_ssize_t row, Py_ssize_t bytes) noexcept
    void prefetch_line(const char *at) noexcept
    void prefetch_stream(const char *at) noexcept
    int32_t read_once_32(const int32_t *at) noexcept
    int64_t read_once_64(const int64_t *at) noexcept
    Py_ssize_t read_once(const Py_ssize_t *at) noexcept
    bint within(Py_ssize_t i, Py_ssize_t stop) noexcept
    void raise_flag(int *flag) noexcept
    Py_ssize_t claim(Py_ssize_t *next) noexcept
    int cpu_has_v3() noexcept
    int cpu_has_v4() noexcept
    void in_forked_child(void (*child)() noexcept nogil) noexcept
    int omp_get_max_threads() noexcept
    int omp_get_thread_num() noexcept
    int omp_get_num_threads() noexcept
    double omp_get_wtime() noexcept
