# Steps that only observe, before and after an update; included by pipeline.pyx.

cdef struct sight:
    # statistics of a piece; squares that overflow or underflow are scaled by 4 ** -exponent
    double gradient
    double update
    int64_t gradient_exponent
    int64_t update_exponent
    int64_t nonfinite       # of the gradient
    int64_t at_bound        # elements of the gradient at the bound

cdef struct watch:
    sight *seen
    double bound
    Py_ssize_t at           # number of elements processed
    double[PIECE + CODES] before    # the variable before the update, in computation type


cdef inline void _add(double *total, int64_t *exponent, double squares, int64_t its) noexcept nogil:
    """Add squares to a sum; the larger of the exponents becomes that of the sum."""
    if squares == 0 and its == 0:
        return
    if total[0] == 0:
        total[0], exponent[0] = squares, its
    elif its > exponent[0]:
        total[0], exponent[0] = squares + ldexp(total[0], <int>(2 * (exponent[0] - its))), its
    else:
        total[0] = total[0] + ldexp(squares, <int>(2 * (its - exponent[0])))


cdef double _scaled_squares(const real *x, const real *y, Py_ssize_t n,
                            int64_t *exponent) noexcept nogil:
    """The sum of the squares of x, or of x - y, times 4 ** -exponent."""
    cdef double peak = 0, total = 0, difference, scale = 1
    cdef int power = 0
    cdef Py_ssize_t i
    for i in range(n):
        peak = max(peak, fabs(x[i]))
        if y != NULL:
            peak = max(peak, fabs(y[i]))
    if y != NULL and peak < 1:      # no difference overflows
        peak = 0
        for i in range(n):
            peak = max(peak, fabs(x[i] - y[i]))
    exponent[0] = 0
    if not scaling(peak, &scale, &power):
        return peak
    for i in range(n):
        difference = x[i] * scale
        if y != NULL:
            difference -= y[i] * scale
        total += difference * difference
    exponent[0] = power
    return total


cdef void _look(real **p, Py_ssize_t n, watch *w, int last) noexcept nogil:
    cdef real *before = <real *>w.before + w.at
    cdef const real *grad = p[last]
    cdef span_lanes lanes
    cdef double squares
    cdef real bound = <real>w.bound
    cdef int64_t nonfinite = 0, at_bound = 0, exponent = 0
    cdef Py_ssize_t i
    memcpy(before, p[0], n * sizeof(real))
    clear(lanes, 0, n)
    sums_in_use().squares[sizeof(real) == 8](grad, n, 1, lanes)
    squares = fold(lanes, n, False)
    if squares - squares != 0:      # or finite numbers whose squares overflow
        for i in range(n):
            nonfinite += grad[i] - grad[i] != 0
    if w.bound < INFINITY:
        for i in range(n):
            at_bound += (grad[i] >= bound) | (grad[i] <= -bound)
    if nonfinite == 0 and sizeof(real) == 8 and misses(squares):
        squares = _scaled_squares(grad, <const real *>NULL, n, &exponent)
    _add(&w.seen.gradient, &w.seen.gradient_exponent, squares, exponent)
    w.seen.nonfinite += nonfinite
    w.seen.at_bound += at_bound
    w.at += n


cdef void _compare(real **p, Py_ssize_t n, watch *w) noexcept nogil:
    cdef const real *before = <real *>w.before + w.at
    cdef span_lanes lanes
    cdef double squares
    cdef int64_t exponent = 0
    clear(lanes, 0, n)
    sums_in_use().differences[sizeof(real) == 8](p[0], before, n, lanes)
    squares = fold(lanes, n, False)
    if sizeof(real) == 8 and misses(squares):
        squares = _scaled_squares(<const real *>p[0], before, n, &exponent)
    _add(&w.seen.update, &w.seen.update_exponent, squares, exponent)
    w.at += n


# Such a step finds its watch, and the position of the gradient, in place of scalars.

cdef struct looking:
    watch *w
    int last


cdef void _look_single(void **p, Py_ssize_t n, const void *h) noexcept nogil:
    _look(<float **>p, n, (<const looking *>h).w, (<const looking *>h).last)


cdef void _look_double(void **p, Py_ssize_t n, const void *h) noexcept nogil:
    _look(<double **>p, n, (<const looking *>h).w, (<const looking *>h).last)


cdef void _compare_single(void **p, Py_ssize_t n, const void *h) noexcept nogil:
    _compare(<float **>p, n, (<const looking *>h).w)


cdef void _compare_double(void **p, Py_ssize_t n, const void *h) noexcept nogil:
    _compare(<double **>p, n, (<const looking *>h).w)


cdef void _set_looking(work *into, const work *w, watch *own, bint before) noexcept nogil:
    """Derive from an update's work one that observes the same elements."""
    cdef looking h
    h.w, h.last = own, w.n_operands - 1
    into[0] = w[0]
    into.own_scales = False
    into.looks = True
    into.half = NULL
    into.blocks = NULL
    memcpy(into.h, &h, sizeof(h))
    if w.itemsize == 4:
        into.step = <step_t>_look_single if before else <step_t>_compare_single
    else:
        into.step = <step_t>_look_double if before else <step_t>_compare_double
