# cython: language_level=3
"""The spans of an array: its elements in C order, whatever their layout, and the sum of each span.

What is summed, squares, magnitudes or marks of non-finite numbers, is a loop of the instruction set
in use (`sums`).
"""
from libc.string cimport memset

from libc.math cimport INFINITY, frexp, ldexp

from tfopt.kernels.arrays.layout cimport clamp, gather, layout
from tfopt.kernels.arrays.walk cimport ahead, begin_walk, go, walk
from tfopt.kernels.reduce.lane_sums cimport LANES, SPAN, lanes_t, span_lanes, sums

cdef enum:
    PIECE = 4 * LANES       # elements gathered at a time
    SQUARES = 0             # what is summed over a span, or maximized
    PEAKS = 1
    BLEMISHES = 2
    FARTHEST = 1021         # largest exponent for which a power of two and its inverse are normal

cdef struct source:
    char *data
    Py_ssize_t size
    bint is_double          # the computation type is double, not float
    int storage
    bint narrow             # read in its 16-bit storage type
    layout *axes            # in C order; NULL: one contiguous run, in computation type or narrow
    const double *known     # the sums of squares of its spans, if they have been computed before
    bint clamps             # elements are clamped to these bounds as they are read
    double[2] bounds


cdef inline void visit(const source *s, Py_ssize_t start, Py_ssize_t count, lanes_t take,
                       double scale, double *lanes) noexcept nogil:
    """Pass elements start .. start + count - 1, in C order, to `take`."""
    cdef double[PIECE] buffer
    cdef Py_ssize_t itemsize = 2 if s.narrow else 8 if s.is_double else 4
    cdef Py_ssize_t filled, run
    cdef walk w
    if s.axes == NULL:
        take(s.data + start * itemsize, count, scale, lanes)
        return
    begin_walk(&w, s.axes.ndim, s.axes.shape, s.axes.stride[0], s.data, start)
    while count > 0:
        filled = 0
        while filled < PIECE and count > 0:
            run = min(ahead(&w), PIECE - filled, count)
            gather(<char *>buffer + filled * itemsize, w.at, w.stride[0], run, itemsize,
                   s.storage)
            filled += run
            count -= run
            go(&w, run)
        if s.clamps:
            clamp(buffer, filled, s.is_double, s.bounds)
        take(buffer, filled, scale, lanes)


cdef inline void clear(double *lanes, Py_ssize_t first, Py_ssize_t used) noexcept nogil:
    """Set the lanes to zero, from the first on, that `fold` reads if so many are used."""
    cdef Py_ssize_t i, n = 1
    while n < used and n < LANES:
        n *= 2
    for i in range(first, n):
        lanes[i] = 0


cdef inline void halve(double *lanes, Py_ssize_t half, Py_ssize_t used) noexcept nogil:
    cdef Py_ssize_t i
    if used > half:     # unused lanes hold zeros, and adding them changes nothing
        for i in range(half):
            lanes[i] = lanes[i] + lanes[i + half]


cdef inline double fold(double *lanes, Py_ssize_t used, bint max_abs) noexcept nogil:
    """Halve the lanes down to one."""
    cdef Py_ssize_t i
    if max_abs:
        for i in range(1, LANES):
            lanes[0] = max(lanes[0], lanes[i])
        return lanes[0]
    halve(lanes, 128, used)    # constant lengths let the compiler vectorize
    halve(lanes, 64, used)
    if used > 32:       # three times at once, so that the sums in between stay in registers
        for i in range(8):
            lanes[i] = (((lanes[i] + lanes[i + 32]) + (lanes[i + 16] + lanes[i + 48]))
                        + ((lanes[i + 8] + lanes[i + 40]) + (lanes[i + 24] + lanes[i + 56])))
    else:
        halve(lanes, 16, used)
        halve(lanes, 8, used)
    halve(lanes, 4, used)
    halve(lanes, 2, used)
    halve(lanes, 1, used)
    return lanes[0]


cdef inline double sum_span(const sums *table, const source *s, Py_ssize_t start, int kind,
                            double scale) noexcept nogil:
    cdef span_lanes lanes
    cdef Py_ssize_t count = min(s.size - start, <Py_ssize_t>SPAN)
    cdef lanes_t take = table.squares[s.is_double]
    if kind == PEAKS:
        take = table.max_abs[s.is_double]
    elif kind == BLEMISHES:
        take = table.nonfinite[1 + s.storage if s.narrow else s.is_double]
    memset(lanes, 0, sizeof(lanes))
    visit(s, start, count, take, scale, lanes)
    return fold(lanes, count, kind == PEAKS)


cdef inline double combine(const double *spans, Py_ssize_t n, int apart,
                           bint max_abs) noexcept nogil:
    """The sum of those of n spans, which are so many numbers apart, in the same order."""
    cdef span_lanes lanes
    cdef Py_ssize_t i
    if n == 1:
        return spans[0]
    memset(lanes, 0, sizeof(lanes))
    for i in range(n):
        if max_abs:
            lanes[i % LANES] = max(lanes[i % LANES], spans[i * apart])
        else:
            lanes[i % LANES] = lanes[i % LANES] + spans[i * apart]
    return fold(lanes, n, max_abs)


cdef inline bint misses(double squares) noexcept nogil:
    """Whether squares of float64 overflowed, or may have underflowed."""
    # squares lost to underflow are at most 2^-122 of such a sum
    return squares == INFINITY or squares < 2.0 ** -900


cdef inline bint scaling(double peak, double *scale, int *exponent) noexcept nogil:
    """The power of two by which numbers up to a peak are scaled; False if the norm is the peak."""
    exponent[0] = 0
    if peak == 0 or peak == INFINITY:
        return False
    frexp(peak, exponent)
    exponent[0] = max(-FARTHEST, min(FARTHEST, exponent[0]))
    scale[0] = ldexp(1, -exponent[0])
    return True
