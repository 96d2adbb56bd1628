"""Dense calls over the same elements, carried out together, piece by piece.

The calls take turns on pieces of the concatenated elements, so the results of one call are still in
cache for the next. So a gradient can be made just before an update, or a mean of weights updated
just after it, without reading memory again; and statistics of an update cost no memory traffic.
If a call steps whole rows or variables, which do not end where pieces do, the calls follow each
other instead.
"""

from typing import NamedTuple

import numpy as np

from cython.parallel cimport parallel
from libc.math cimport INFINITY, fabs, frexp, ldexp
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.update.checks cimport Call
from tfopt.kernels.update.commit cimport Write
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport (
    begin_share, dismiss_team, end_share, gather_team, share_of, team,
)
from tfopt.kernels.update.step_table cimport step_t
from tfopt.kernels.reduce.lane_sums cimport LANES, span_lanes
from tfopt.kernels.reduce.norms cimport sums_in_use
from tfopt.kernels.update.dense cimport run_dense, run_elements
from tfopt.kernels.update.work cimport work

cdef enum:
    PIECE = 2048        # elements at a time, a part of BLOCK: their operands fit in the L1 cache
    FARTHEST = 1021     # largest exponent for which a power of two and its inverse are normal

cdef double LEAST = 2.0 ** -900     # squares lost to underflow are at most 2^-122 of such a sum


class Watched(NamedTuple):
    """Statistics of an update: each sum of squares is ``sum * 4**exponent``."""

    gradient: tuple[float, int]
    update: tuple[float, int]
    nonfinite: int
    at_bound: int


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


# ---- steps that only observe: before and after an update

cdef inline double _folded(double *lanes) noexcept nogil:
    """Sum the lanes pairwise: sequential additions would wait for each other."""
    cdef Py_ssize_t i, half = LANES // 2
    while half:
        for i in range(half):
            lanes[i] = lanes[i] + lanes[i + half]
        half //= 2
    return lanes[0]


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


cdef inline bint _misses(double squares, bint double_precision) noexcept nogil:
    """Whether squares of finite numbers overflowed, or may have underflowed."""
    return double_precision and (squares == INFINITY or squares < LEAST)


cdef double _scaled_squares(const real *x, const real *y, Py_ssize_t n,
                            int64_t *exponent) noexcept nogil:
    """The sum of the squares of x, or of x - y, times 4 ** -exponent."""
    cdef double peak = 0, total = 0, difference, scale
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
    if peak == 0 or peak == INFINITY:
        return peak
    frexp(peak, &power)
    power = max(-FARTHEST, min(FARTHEST, power))
    scale = ldexp(1, -power)
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
    memset(lanes, 0, sizeof(lanes))
    sums_in_use().squares[sizeof(real) == 8](grad, n, 1, lanes)
    squares = _folded(lanes)
    if squares - squares != 0:      # or finite numbers whose squares overflow
        for i in range(n):
            nonfinite += grad[i] - grad[i] != 0
    if w.bound < INFINITY:
        for i in range(n):
            at_bound += (grad[i] >= bound) | (grad[i] <= -bound)
    if nonfinite == 0 and _misses(squares, sizeof(real) == 8):
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
    memset(lanes, 0, sizeof(lanes))
    sums_in_use().differences[sizeof(real) == 8](p[0], before, n, lanes)
    squares = _folded(lanes)
    if _misses(squares, sizeof(real) == 8):
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
    into.half = NULL
    into.blocks = NULL
    memcpy(into.h, &h, sizeof(h))
    if w.itemsize == 4:
        into.step = <step_t>_look_single if before else <step_t>_compare_single
    else:
        into.step = <step_t>_look_double if before else <step_t>_compare_double


# ---- the driver

cdef struct chain:
    const work **works
    Py_ssize_t n
    Py_ssize_t watched      # the position of the watched call, or -1
    bint one_by_one         # instead of in turns
    double bound
    sight *seen             # of each piece


cdef void _run_share(const chain *c, int thread, int threads) noexcept nogil:
    cdef const work *first = c.works[0]
    cdef Py_ssize_t n = first.starts[first.n_tensors]
    cdef Py_ssize_t start = share_of(n, thread, threads), end = share_of(n, thread + 1, threads)
    cdef Py_ssize_t stop, k
    cdef watch own
    cdef work before, after
    cdef fp_state caller = fp_enter(first.flush)
    own.bound = c.bound
    if c.watched >= 0:
        _set_looking(&before, c.works[c.watched], &own, True)
        _set_looking(&after, c.works[c.watched], &own, False)
    while start < end:
        stop = min(start + PIECE, end)
        for k in range(c.n):
            if k != c.watched:
                run_elements(c.works[k], start, stop)
                continue
            own.seen = &c.seen[start // PIECE]
            own.at = 0
            run_elements(&before, start, stop)
            run_elements(c.works[k], start, stop)
            own.at = 0
            run_elements(&after, start, stop)
        start = stop
    fp_leave(caller)


cdef void _run(const chain *c) noexcept nogil:
    cdef const work *first = c.works[0]
    cdef int operands = 0
    cdef team t
    cdef Py_ssize_t k
    if c.one_by_one:
        for k in range(c.n):
            run_dense(c.works[k])
        return
    for k in range(c.n):
        operands += c.works[k].n_operands
    t = gather_team(first.starts[first.n_tensors], operands)
    if t.size == 1:
        _run_share(c, 0, 1)
        return
    with parallel(num_threads=t.size):
        begin_share(&t)
        _run_share(c, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)


cdef class Turns(Write):
    """Checked dense calls that take turns, in order.

    Parameters
    ----------
    calls : list of Call
        With equal numbers and sizes of variables. If one is watched, they are real, and none steps
        whole rows or variables.
    watched : int, optional
        The position of the call to watch.
    bound : float, optional
        Elements of the gradient with at least this magnitude are counted.
    """

    cdef chain c
    cdef list calls
    cdef object array
    cdef Py_ssize_t pieces

    def __cinit__(self, list calls not None, Py_ssize_t watched=-1, double bound=INFINITY):
        cdef Call call
        cdef const work *first
        cdef Py_ssize_t k, grain = 1
        cdef sight[::1] seen
        self.calls = list(calls)
        self.c.n = len(self.calls)
        self.c.watched = watched
        self.c.bound = bound
        self.c.works = <const work **>malloc((self.c.n + 1) * sizeof(void *))
        if self.c.works == NULL:
            raise MemoryError
        if not self.calls or not -1 <= watched < self.c.n:
            raise InvalidArgumentError(
                f"calls must not be empty and watched must be in [-1, {self.c.n}), not {watched}"
            )
        for k in range(self.c.n):
            if not isinstance(self.calls[k], Call):
                raise InvalidTypeError(f"call {k} is a {type(self.calls[k]).__name__}")
            call = self.calls[k]
            self.c.works[k] = &call.w
            self.c.one_by_one |= call.w.by_rows or call.w.first != NULL
            if call.w.index_size or (k == watched and call.complex_numbers) \
                    or (self.c.one_by_one and watched >= 0):
                raise InvalidTypeError(
                    "the calls of a pipeline must be dense, and watched ones of real numbers, "
                    "element by element"
                )
        first = self.c.works[0]
        for k in range(self.c.n):       # all share the elements alike
            call = self.calls[k]
            grain = max(grain, call.w.grain)
        for k in range(self.c.n):
            call = self.calls[k]
            call.w.grain = grain
        for k in range(1, self.c.n):
            if (self.c.works[k].n_tensors != first.n_tensors or memcmp(
                    self.c.works[k].starts, first.starts,
                    (first.n_tensors + 1) * sizeof(Py_ssize_t))):
                raise InvalidArgumentError("the calls of a pipeline must have the same sizes")
        if watched >= 0:
            self.pieces = max((first.starts[first.n_tensors] + PIECE - 1) // PIECE, 1)
            self.array = np.zeros(self.pieces, _SIGHT)
            seen = self.array
            self.c.seen = &seen[0]

    def __dealloc__(self):
        free(self.c.works)

    cdef void carry_out(self) noexcept:
        with nogil:
            if self.c.seen != NULL:     # perhaps of calls that have been carried out before
                memset(self.c.seen, 0, self.pieces * sizeof(sight))
            _run(&self.c)

    def watched(self):
        """The statistics of the watched update.

        Returns
        -------
        Watched
            Statistics of the gradient before scaling. They do not depend on the number of threads.
        """
        cdef sight *one = self.c.seen
        if self.pieces == 1:
            return Watched((one.gradient, one.gradient_exponent), (one.update, one.update_exponent),
                           one.nonfinite, one.at_bound)
        counts = (self.array[name].sum().item() for name in ("nonfinite", "at_bound"))
        return Watched(*(self._total(name) for name in ("gradient", "update")), *counts)

    def _total(self, name):
        squares, exponents = self.array[name], self.array[f"{name}_exponent"]
        exponent = 0
        if exponents.any():
            exponent = int(exponents.max(where=squares > 0, initial=-FARTHEST))
            squares = np.ldexp(squares, 2 * (exponents - exponent))
        with np.errstate(over="ignore", invalid="ignore"):
            return squares.sum().item(), exponent


def run_together(list calls not None):
    """Carry out checked dense calls in turns, in order."""
    Turns(calls).carry_out()


_SIGHT = np.dtype([
    ("gradient", np.float64), ("update", np.float64), ("gradient_exponent", np.int64),
    ("update_exponent", np.int64), ("nonfinite", np.int64), ("at_bound", np.int64),
])
