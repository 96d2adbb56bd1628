# cython: language_level=3

from libc.stdint cimport uint8_t

cdef bint finite_number(const uint8_t *start, const uint8_t *end, double *value) noexcept nogil
