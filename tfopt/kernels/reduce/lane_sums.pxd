# cython: language_level=3
"""The fixed order of summation, which every sum of squares keeps on every machine.

A span of 65 536 elements is summed in 256 lanes of double precision, element i in lane i mod 256,
and the lanes by halving: lanes 128 to 255 are added to lanes 0 to 127, and so on. The sums of the
spans are then summed in the same way. Lanes allow vectorization, and short chains of additions
give precision.
"""
from libc.math cimport NAN
from libc.stdint cimport uint16_t

from tfopt.kernels.platform.machine cimport prefetch_stream
from tfopt.kernels.reduce.row_sums cimport add_rows_t
from tfopt.kernels.platform.floats cimport real

cdef enum:
    LANES = 256
    SPAN = 65536
    AHEAD = 16384   # prefetch distance in bytes; going past the end is harmless

cdef extern from *:
    """
    #if defined(__GNUC__)
    typedef double tfopt_span_lanes[256] __attribute__((aligned(64)));
    #else
    typedef double tfopt_span_lanes[256];
    #endif
    static inline double tfopt_plus_square(double sum, double y) {
    #if defined(__FMA__)
        return __builtin_fma(y, y, sum);
    #else
        return sum + y * y;
    #endif
    }
    """
    # The lanes of a span, in whole lines of the cache: where vectors of lanes lay across two
    # lines, sums from memory took a quarter longer.
    ctypedef double[LANES] span_lanes "tfopt_span_lanes"
    # The square of a float is exact in double precision: with or without FMA the sum is the same.
    double plus_square "tfopt_plus_square"(double sum, double y) noexcept nogil

# Add n elements to the lanes; the first belongs to lane 0. Each is first multiplied by scale, a
# power of two.
ctypedef void (*lanes_t)(const void *x, Py_ssize_t n, double scale, double *lanes) noexcept nogil

# The same for the squares of differences, x - y
ctypedef void (*differences_t)(const void *x, const void *y, Py_ssize_t n,
                               double *lanes) noexcept nogil

cdef struct sums:
    lanes_t[2] squares      # for float, for double
    lanes_t[2] max_abs        # maximum magnitudes instead
    lanes_t[4] nonfinite    # NaN for non-finite elements; also for float16 and bfloat16 as stored
    differences_t[2] differences
    add_rows_t[2] rows


cdef inline double square(real x, double scale) noexcept nogil:
    cdef double y = <double>x * scale
    return y * y


cdef inline double larger(double a, real x, double scale) noexcept nogil:
    cdef double y = <double>x * scale
    y = y if y > 0 else -y
    return y if y > a else a


cdef inline void add_float_squares(const float *x, Py_ssize_t n, double *lanes) noexcept nogil:
    """`add_squares` where nothing rounds but the sums."""
    cdef Py_ssize_t k, i
    while n >= LANES:
        for k in range(0, LANES, 64):
            for i in range(0, 64 * <Py_ssize_t>sizeof(float), 64):
                prefetch_stream(<const char *>(x + k) + i + AHEAD)
            for i in range(64):
                lanes[k + i] = plus_square(lanes[k + i], x[k + i])
        x += LANES
        n -= LANES
    for i in range(n):
        lanes[i] = plus_square(lanes[i], x[i])


cdef inline void add_squares(const real *x, Py_ssize_t n, double scale,
                             double *lanes) noexcept nogil:
    if real is float:
        if scale == 1:
            add_float_squares(x, n, lanes)
            return
    # Row by row: several at a time were as fast in cache, and a third of the speed from memory.
    # From memory, prefetching to the second-level cache gained a quarter, to the first a tenth.
    cdef Py_ssize_t k, i
    while n >= LANES:
        for k in range(0, LANES, 64):
            for i in range(0, 64 * <Py_ssize_t>sizeof(real), 64):
                prefetch_stream(<const char *>(x + k) + i + AHEAD)
            for i in range(64):
                lanes[k + i] = lanes[k + i] + square(x[k + i], scale)
        x += LANES
        n -= LANES
    for i in range(n):
        lanes[i] = lanes[i] + square(x[i], scale)


cdef inline void add_nonfinite(const real *x, Py_ssize_t n, double scale,
                               double *lanes) noexcept nogil:
    # in the elements' own type, so as to run at the speed of reading
    cdef real[64] zeros
    cdef Py_ssize_t i
    for i in range(64):
        zeros[i] = 0
    while n >= 64:
        for i in range(0, 64 * <Py_ssize_t>sizeof(real), 64):
            prefetch_stream(<const char *>x + i + AHEAD)
        for i in range(64):
            zeros[i] = zeros[i] + x[i] * <real>0
        x += 64
        n -= 64
    for i in range(n):
        zeros[i] = zeros[i] + x[i] * <real>0
    for i in range(64):
        lanes[0] = lanes[0] + <double>zeros[i]


cdef inline void add_narrow_nonfinite(const uint16_t *x, Py_ssize_t n, uint16_t exponent,
                                      double *lanes) noexcept nogil:
    # all exponent bits are set exactly if a number is not finite
    cdef uint16_t[64] found
    cdef uint16_t any_found = 0
    cdef Py_ssize_t i
    for i in range(64):
        found[i] = 0
    while n >= 64:
        for i in range(0, 128, 64):
            prefetch_stream(<const char *>x + i + AHEAD)
        for i in range(64):
            found[i] |= (x[i] & exponent) == exponent
        x += 64
        n -= 64
    for i in range(n):
        found[i] |= (x[i] & exponent) == exponent
    for i in range(64):
        any_found |= found[i]
    if any_found:
        lanes[0] = NAN


cdef inline void add_differences(const real *x, const real *y, Py_ssize_t n,
                                 double *lanes) noexcept nogil:
    cdef Py_ssize_t i
    cdef double moved
    while n >= LANES:
        for i in range(LANES):
            moved = <double>x[i] - <double>y[i]
            lanes[i] = lanes[i] + moved * moved
        x += LANES
        y += LANES
        n -= LANES
    for i in range(n):
        moved = <double>x[i] - <double>y[i]
        lanes[i] = lanes[i] + moved * moved


cdef inline void take_max_abs(const real *x, Py_ssize_t n, double scale,
                              double *lanes) noexcept nogil:
    cdef Py_ssize_t i
    while n > 0:
        for i in range(n if n < LANES else LANES):
            lanes[i] = larger(lanes[i], x[i], scale)
        x += LANES
        n -= LANES
