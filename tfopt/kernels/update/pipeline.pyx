"""Dense calls over the same elements, carried out together, piece by piece.

The calls take turns on pieces of the concatenated elements, so the results of one call are still in
cache for the next. So a gradient can be made just before an update, or a mean of weights updated
just after it, without reading memory again; and statistics of an update cost no memory traffic.

Calls can only take turns if piece k of each is the same elements. So a call waits until those
before it have ended if it steps whole rows or variables, if it visits elements in another order,
or if it touches memory of theirs other than the same elements of the same variable.
"""

from typing import NamedTuple

import numpy as np

from libc.math cimport INFINITY, fabs, ldexp
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.aliasing cimport FEW, disjoint, span
from tfopt.kernels.arrays.layout cimport ANY_WALK, extent, same_elements
from tfopt.kernels.update.checks cimport Call
from tfopt.kernels.update.commit cimport Write
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state, prefetch_line
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport gather_team, run_team, share_of
from tfopt.kernels.platform.step_types cimport step_t
from tfopt.kernels.reduce.lane_sums cimport span_lanes
from tfopt.kernels.reduce.norms cimport sums_in_use
from tfopt.kernels.reduce.spans cimport FARTHEST, clear, fold, misses, scaling
from tfopt.kernels.update.dense cimport run_dense, run_elements
from tfopt.kernels.update.work cimport tensor, tensor_at, work

cdef enum:
    # elements at a time where one call is watched, a part of BLOCK: operands fit in the L1 cache
    PIECE = 2048
    # Bytes of an operand at a time elsewhere. From memory, what the calls read again must be in the
    # L1 cache: then it is read while the memory works. Turns of 4 KB take 1.2 times as long, and
    # long ones, which stay in the L2 cache. What is in these caches waits for each begin of a turn
    # instead, so there long turns are the better ones.
    SHORT_TURN = 1 << 11
    LONG_TURN = 1 << 17
    CACHED = 1 << 23        # bytes of all operands that are in these caches, more or less
    LINE = 64               # bytes
    LINES = 4               # of each operand of the next turn that are fetched during this one

cdef uint64_t MIXING = 0x9E3779B97F4A7C15       # odd: no two names become one by it


class Watched(NamedTuple):
    """Statistics of an update: each sum of squares is ``sum * 4**exponent``."""

    gradient: tuple[float, int]
    update: tuple[float, int]
    nonfinite: int
    at_bound: int


include "watching.pxi"


# ---- the driver

cdef struct chain:
    const work **works
    bint *waits             # for the end of all calls before it
    Py_ssize_t n
    Py_ssize_t watched      # the position of the watched call, or -1
    double bound
    sight *seen             # of each piece

cdef struct turns:          # of the calls begin .. after_last - 1 of a chain
    const chain *c
    Py_ssize_t begin, after_last

cdef inline uint64_t _walk_of(const tensor *t) noexcept nogil:
    return t.walk if t.axes == NULL else t.axes.walk


cdef inline bint _is_whole(const work *w) noexcept nogil:
    """Whether a call steps whole rows or variables."""
    return w.by_rows or w.first != NULL


cdef bint _is_known(const chain *c, Py_ssize_t first, Py_ssize_t k, Py_ssize_t t,
                    int j) noexcept nogil:
    """Whether operand j of call k is the same elements as one of the calls from the first on."""
    cdef const tensor *own = &c.works[k].tensors[t]
    cdef const tensor *other
    cdef Py_ssize_t n = c.works[k].starts[t + 1] - c.works[k].starts[t]
    cdef int i
    while first < k:
        other = &c.works[first].tensors[t]
        for i in range(c.works[first].n_operands):
            if (own.data[j] == other.data[i] and c.works[first].itemsize == c.works[k].itemsize
                    and same_elements(own.axes, j, other.axes, i, n, c.works[k].itemsize)):
                return True
        first += 1
    return False


cdef uint64_t _named(const chain *c) noexcept nogil:
    """A name of the addresses of all calls; 0 if not all operands are runs."""
    cdef uint64_t name = <uint64_t>c.n
    cdef Py_ssize_t k, t
    cdef int j
    for k in range(c.n):
        name ^= <uint64_t>(c.works[k].itemsize * 64 + c.works[k].n_operands)
        for t in range(c.works[k].n_tensors):
            if c.works[k].tensors[t].axes != NULL:
                return 0
            for j in range(c.works[k].n_operands):
                name = (name ^ <uint64_t>c.works[k].tensors[t].data[j]) * MIXING
                name ^= name >> 32
    return name


cdef bint _go_together(const chain *c, Py_ssize_t first, Py_ssize_t stop) except -1:
    """Whether calls first .. stop - 1 can take turns."""
    cdef span[2 * FEW] few
    cdef span *spans = few
    cdef const work *w
    cdef Py_ssize_t k, t, n_tensors = c.works[first].n_tensors, most = 0, n = 0
    cdef int j
    cdef bint answer
    for k in range(first, stop):
        w = c.works[k]
        most += n_tensors * w.n_operands
        if _is_whole(w):
            return stop == first + 1
        for t in range(n_tensors):
            if _walk_of(&w.tensors[t]) != _walk_of(&c.works[first].tensors[t]) \
                    or (_walk_of(&w.tensors[t]) == ANY_WALK and k > first):
                return False
    if stop == first + 1:
        return True
    if most > FEW:
        spans = <span *>malloc(2 * most * sizeof(span))
        if spans == NULL:
            raise MemoryError
    for k in range(first, stop):
        w = c.works[k]
        for t in range(n_tensors):
            for j in range(w.n_operands):
                if not _is_known(c, first, k, t, j):
                    extent(w.tensors[t].axes, j, w.tensors[t].data[j],
                           w.starts[t + 1] - w.starts[t], w.itemsize, &spans[n].low,
                           &spans[n].high)
                    n += spans[n].low < spans[n].high
    answer = disjoint(spans, spans + n, n)
    if spans != few:
        free(spans)
    return answer


cdef Py_ssize_t _turn(const chain *c, Py_ssize_t begin, Py_ssize_t after_last) noexcept nogil:
    """The elements of a turn of these calls."""
    cdef const work *first = c.works[begin]
    cdef Py_ssize_t k, operands = 0
    for k in range(begin, after_last):
        operands += c.works[k].n_operands
    if first.starts[first.n_tensors] * operands * first.itemsize <= CACHED:
        return LONG_TURN // first.itemsize
    return SHORT_TURN // first.itemsize


cdef inline void _fetch(const work *w, Py_ssize_t at) noexcept nogil:
    """Ask for the first lines of the turn that begins with an element."""
    cdef Py_ssize_t line
    cdef const tensor *it = &w.tensors[tensor_at(w, at)]
    cdef int k
    if it.axes != NULL:
        return
    at -= w.starts[it - w.tensors]
    for k in range(w.n_operands):
        for line in range(LINES):
            prefetch_line(it.data[k] + at * w.itemsize + LINE * line)


cdef void _run_share(const void *calls, int thread, int threads) noexcept nogil:
    """A thread's share of the elements of calls that take turns."""
    cdef const chain *c = (<const turns *>calls).c
    cdef Py_ssize_t begin = (<const turns *>calls).begin
    cdef Py_ssize_t after_last = (<const turns *>calls).after_last
    cdef const work *first = c.works[begin]
    cdef Py_ssize_t n = first.starts[first.n_tensors]
    cdef Py_ssize_t start = share_of(n, thread, threads), end = share_of(n, thread + 1, threads)
    cdef bint watches = begin <= c.watched < after_last
    cdef Py_ssize_t stop, k, size = PIECE if watches else _turn(c, begin, after_last)
    cdef watch own
    cdef work before, after
    cdef fp_state caller = fp_enter(first.flush)
    own.bound = c.bound
    if watches:
        _set_looking(&before, c.works[c.watched], &own, True)
        _set_looking(&after, c.works[c.watched], &own, False)
    while start < end:
        stop = min(start + size, end)
        for k in range(begin, after_last):
            if k == begin + 1 and stop < end:   # for which the first call would wait
                _fetch(first, stop)
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


cdef void _run_together(const chain *c, Py_ssize_t begin, Py_ssize_t after_last) noexcept nogil:
    cdef const work *first = c.works[begin]
    cdef turns calls = turns(c, begin, after_last)
    cdef int operands = 0
    cdef Py_ssize_t k
    for k in range(begin, after_last):
        operands += c.works[k].n_operands
    run_team(gather_team(first.starts[first.n_tensors], operands), _run_share, &calls)


cdef void _run(const chain *c) noexcept nogil:
    cdef Py_ssize_t first = 0, stop
    while first < c.n:
        stop = first + 1
        while stop < c.n and not c.waits[stop]:
            stop += 1
        if stop == first + 1 and first != c.watched:
            run_dense(c.works[first])
        else:
            _run_together(c, first, stop)
        first = stop


cdef class Turns(Write):
    """Checked dense calls that take turns, in order.

    Parameters
    ----------
    calls : list of Call
        With equal numbers and sizes of variables. The watched one is of real numbers, and does not
        step whole rows or variables.
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
        self.c.waits = <bint *>calloc(self.c.n + 1, sizeof(bint))
        if self.c.works == NULL or self.c.waits == NULL:
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
            if call.w.index_size or (k == watched and (
                    call.complex_numbers or _is_whole(&call.w))):
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
        self._set_waits()
        if watched >= 0:
            self.pieces = max((first.starts[first.n_tensors] + PIECE - 1) // PIECE, 1)
            self.array = np.zeros(self.pieces, _SIGHT)
            seen = self.array
            self.c.seen = &seen[0]

    cdef int _set_waits(self) except -1:
        """Find which calls wait.

        Those of many variables keep the name of what took turns, for when they are repeated.
        """
        cdef Call call
        cdef Py_ssize_t k = 0, stop
        cdef uint64_t name = _named(&self.c) if self.c.works[0].n_tensors > FEW else 0
        for call in self.calls:
            if name and call.together == name:
                return 0
        while k < self.c.n:
            stop = self.c.n
            while not _go_together(&self.c, k, stop):
                stop -= 1
            self.c.waits[k] = k > 0
            if stop - k == self.c.n:
                for call in self.calls:
                    call.together = name
            k = stop
        return 0

    def __dealloc__(self):
        free(self.c.works)
        free(self.c.waits)

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
