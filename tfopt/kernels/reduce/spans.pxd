# cython: language_level=3
"""The spans of an array: its elements in C order, whatever their layout, and the sum of each span.

What is summed, squares, magnitudes or marks of non-finite numbers, is a loop of the instruction set
in use (`sums`).
"""
from libc.string cimport memset

from tfopt.kernels.arrays.layout cimport clamp, gather
from tfopt.kernels.reduce.lane_sums cimport LANES, SPAN, lanes_t, span_lanes, sums
from tfopt.kernels.update.step_table cimport MAX_DIMS

cdef enum:
    PIECE = 4 * LANES       # elements gathered at a time
    SQUARES = 0             # what is summed over a span, or maximized
    PEAKS = 1
    BLEMISHES = 2

cdef struct walk:
    # axes in C order, innermost first, adjacent axes merged where possible
    int ndim
    Py_ssize_t[MAX_DIMS] shape
    Py_ssize_t[MAX_DIMS] stride     # in bytes

cdef struct source:
    char *data
    Py_ssize_t size
    bint is_double          # the computation type is double, not float
    int storage
    bint narrow             # read in its 16-bit storage type
    walk *axes              # NULL: one contiguous run, in computation type or narrow
    bint clamps             # elements are clamped to these bounds as they are read
    double[2] bounds


cdef inline void visit(const source *s, Py_ssize_t start, Py_ssize_t count, lanes_t take,
                       double scale, double *lanes) noexcept nogil:
    """Pass elements start .. start + count - 1, in C order, to `take`."""
    cdef double[PIECE] buffer
    cdef Py_ssize_t[MAX_DIMS] index
    cdef Py_ssize_t itemsize = 2 if s.narrow else 8 if s.is_double else 4
    cdef Py_ssize_t rest = start, filled, run
    cdef const walk *axes = s.axes
    cdef const char *at = s.data
    cdef int axis
    if axes == NULL:
        take(s.data + start * itemsize, count, scale, lanes)
        return
    for axis in range(axes.ndim):
        index[axis] = rest % axes.shape[axis]
        rest //= axes.shape[axis]
        at += index[axis] * axes.stride[axis]
    while count > 0:
        filled = 0
        while filled < PIECE and count > 0:
            run = min(axes.shape[0] - index[0], PIECE - filled, count)
            gather(<char *>buffer + filled * itemsize, at, axes.stride[0], run, itemsize,
                   s.storage)
            filled += run
            count -= run
            index[0] += run
            at += run * axes.stride[0]
            axis = 0
            while index[axis] == axes.shape[axis] and axis + 1 < axes.ndim:     # carry
                at += axes.stride[axis + 1] - index[axis] * axes.stride[axis]
                index[axis] = 0
                axis += 1
                index[axis] += 1
        if s.clamps:
            clamp(buffer, filled, s.is_double, s.bounds)
        take(buffer, filled, scale, lanes)


cdef inline void clear(double *lanes, Py_ssize_t used) noexcept nogil:
    """Set the lanes to zero that `fold` reads if so many elements are added."""
    cdef Py_ssize_t i, n = 1
    while n < used and n < LANES:
        n *= 2
    for i in range(n):
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
    halve(lanes, 32, used)
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


cdef inline double combine(const double *spans, Py_ssize_t n, bint max_abs) noexcept nogil:
    """The sum of the spans, in the same order."""
    cdef span_lanes lanes
    cdef Py_ssize_t i
    if n == 1:
        return spans[0]
    memset(lanes, 0, sizeof(lanes))
    for i in range(n):
        if max_abs:
            lanes[i % LANES] = max(lanes[i % LANES], spans[i])
        else:
            lanes[i % LANES] = lanes[i % LANES] + spans[i]
    return fold(lanes, n, max_abs)
