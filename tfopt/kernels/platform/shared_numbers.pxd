# cython: language_level=3

cdef extern from "shared_numbers.h" nogil:
    int shared_int(const int *at) noexcept
    void share_int(int *at, int value) noexcept
    double shared_double(const double *at) noexcept
    void share_double(double *at, double value) noexcept
