# cython: language_level=3
"""How numbers are summed: the order that every sum of squares keeps, on every machine.

A span of 65 536 elements is added up in 256 lanes of double precision, element i in lane i mod 256,
and the lanes by halving: lanes 128 to 255 to lanes 0 to 127, and so on. The sums of the spans are
then added up in the same way. The lanes are what vector code needs, and short chains of additions
are what precision needs.
"""
from tfopt.kernels.rules cimport real

cdef enum:
    LANES = 256
    SPAN = 65536

# Take n elements into the lanes; the first belongs to lane 0. Each is multiplied by scale, a power
# of two, first.
ctypedef void (*lanes_t)(const void *x, Py_ssize_t n, double scale, double *lanes) noexcept nogil

cdef struct sums:
    lanes_t[2] squares      # of float, of double
    lanes_t[2] peaks        # the largest magnitudes instead


cdef inline double square(real x, double scale) noexcept nogil:
    cdef double y = <double>x * scale
    return y * y


cdef inline double larger(double a, real x, double scale) noexcept nogil:
    cdef double y = <double>x * scale
    y = y if y > 0 else -y
    return y if y > a else a


cdef inline void add_squares(const real *x, Py_ssize_t n, double scale,
                             double *lanes) noexcept nogil:
    cdef Py_ssize_t i
    while n > 0:        # row by row: several at a time lose the prefetcher, and half the speed
        for i in range(n if n < LANES else LANES):
            lanes[i] = lanes[i] + square(x[i], scale)
        x += LANES
        n -= LANES


cdef inline void take_peaks(const real *x, Py_ssize_t n, double scale,
                            double *lanes) noexcept nogil:
    cdef Py_ssize_t i
    while n > 0:
        for i in range(n if n < LANES else LANES):
            lanes[i] = larger(lanes[i], x[i], scale)
        x += LANES
        n -= LANES
