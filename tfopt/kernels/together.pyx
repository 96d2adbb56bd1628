"""Dense calls over the same elements, carried out together.

What one call leaves for the next is still in the cache when that comes to it, for they take turns
at pieces of the line of elements. So a gradient is made on its way into an update, or a mean of
weights kept on the way out of it, without being read from memory once more; and what an update
does can be watched at no cost in traffic.
"""

from typing import NamedTuple

import numpy as np

from cython.parallel cimport parallel
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cpython.pycapsule cimport PyCapsule_GetPointer

from tfopt.kernels.calls cimport Call, work
from tfopt.kernels.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.rules cimport real
from tfopt.kernels.runtime cimport share_of, team_size
from tfopt.kernels.step cimport step_t
from tfopt.kernels.sums cimport LANES, sums
from tfopt.kernels.training cimport run_elements

cdef enum:
    PIECE = 2048        # elements in turn, a part of BLOCK: with all operands they fit in the L1 cache


class Watched(NamedTuple):
    """What an update of many elements did."""

    gradient_squares: float
    update_squares: float
    nonfinite: int
    at_bound: int

cdef struct sight:
    # what is seen of one piece
    double gradient_squares
    double update_squares
    int64_t nonfinite       # of the gradient
    int64_t at_bound        # of the gradient's elements, those of this magnitude

cdef struct watch:
    sight *seen
    double bound
    Py_ssize_t at           # how many of the piece's elements have passed
    double[PIECE] before    # the variable's, in the type computed in


# ---- steps that only look: before an update, and after it

cdef const sums *_sums = NULL


def use_sums(capsule):
    """Take the sums of an instruction set."""
    global _sums
    _sums = <const sums *>PyCapsule_GetPointer(capsule, b"tfopt.sums")


cdef inline double _folded(double *lanes) noexcept nogil:
    """Halve the lanes down to one: one after another they would wait for each other."""
    cdef Py_ssize_t i, half = LANES // 2
    while half:
        for i in range(half):
            lanes[i] = lanes[i] + lanes[i + half]
        half //= 2
    return lanes[0]


cdef void _look(real **p, Py_ssize_t n, watch *w, int last) noexcept nogil:
    cdef real *before = <real *>w.before + w.at
    cdef const real *grad = p[last]
    cdef double[LANES] lanes
    cdef double squares
    cdef real bound = <real>w.bound
    cdef int64_t nonfinite = 0, at_bound = 0
    cdef Py_ssize_t i
    memcpy(before, p[0], n * sizeof(real))
    memset(lanes, 0, sizeof(lanes))
    _sums.squares[sizeof(real) == 8](grad, n, 1, lanes)
    squares = _folded(lanes)
    if squares - squares != 0:      # or too large for squares, which are finite numbers, too
        for i in range(n):
            nonfinite += grad[i] - grad[i] != 0
    if w.bound < INFINITY:
        for i in range(n):
            at_bound += (grad[i] >= bound) | (grad[i] <= -bound)
    w.seen.gradient_squares += squares
    w.seen.nonfinite += nonfinite
    w.seen.at_bound += at_bound
    w.at += n


cdef void _compare(real **p, Py_ssize_t n, watch *w) noexcept nogil:
    cdef double[LANES] lanes
    memset(lanes, 0, sizeof(lanes))
    _sums.differences[sizeof(real) == 8](p[0], <real *>w.before + w.at, n, lanes)
    w.seen.update_squares += _folded(lanes)
    w.at += n


# Such a step finds its watch, and the place of the gradient, where others have their scalars.

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
    """Make of an update's work one that looks at the same elements."""
    cdef looking h
    h.w, h.last = own, w.n_operands - 1
    into[0] = w[0]
    into.own_scales = False
    memcpy(into.h, &h, sizeof(h))
    if w.itemsize == 4:
        into.step = <step_t>_look_single if before else <step_t>_compare_single
    else:
        into.step = <step_t>_look_double if before else <step_t>_compare_double


# ---- the driver

cdef struct chain:
    const work **works
    Py_ssize_t n
    Py_ssize_t watched      # the place of the one that is watched, or -1
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
    cdef int operands = 0, team
    cdef Py_ssize_t k
    for k in range(c.n):
        operands += c.works[k].n_operands
    team = team_size(first.starts[first.n_tensors], operands)
    if team == 1:
        _run_share(c, 0, 1)
        return
    with parallel(num_threads=team):
        _run_share(c, omp_get_thread_num(), omp_get_num_threads())


def run_together(list calls not None, Py_ssize_t watched=-1, double bound=INFINITY):
    """Carry out checked dense calls in turns, the first one first.

    Parameters
    ----------
    calls : list of Call
        Of variables that are as many, and of the same sizes; of real numbers where one is watched.
    watched : int, optional
        The place of the call to watch.
    bound : float, optional
        A magnitude; the gradient's elements that have it, or more, are counted.

    Returns
    -------
    Watched or None
        Of the gradient as it is read, before it is scaled. The sums do not depend on threads.
    """
    cdef chain c
    cdef Call call
    cdef Py_ssize_t k, pieces
    cdef sight[::1] seen
    c.n = len(calls)
    c.watched = watched
    c.bound = bound
    c.works = <const work **>malloc(c.n * sizeof(void *))
    if c.works == NULL:
        raise MemoryError
    for k in range(c.n):
        call = calls[k]
        c.works[k] = &call.w
    if watched >= 0:
        pieces = (c.works[0].starts[c.works[0].n_tensors] + PIECE - 1) // PIECE
        array = np.zeros(max(pieces, 1), _SIGHT)
        seen = array
        c.seen = &seen[0]
    with nogil:
        _run(&c)
    free(c.works)
    if watched < 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return Watched(*(array[name].sum().item() for name in Watched._fields))

_SIGHT = np.dtype([(name, np.float64 if "squares" in name else np.int64) for name in Watched._fields])
