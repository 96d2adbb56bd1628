"""Steps by rules that sum over whole variables, of which they have norms.

First each span of a variable is summed, in C order and without a write; then scalars are made of
the sums, and the elements are stepped. So operands are read twice, and written once.
"""

from libc.stdlib cimport malloc
from libc.string cimport memcpy

from tfopt.kernels.arrays.layout cimport clamp
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team, share_of, team
from tfopt.kernels.reduce.lane_sums cimport SPAN, span_lanes
from tfopt.kernels.reduce.spans cimport clear, combine, fold
from tfopt.kernels.platform.step_types cimport MAX_OPERANDS, MAX_SCALARS, MAX_SUMS, N_SCALES
from tfopt.kernels.update.whole_rows cimport moved
from tfopt.kernels.update.work cimport set_scale, tensor, work

cdef enum:
    PIECE = 512     # elements that are gathered at a time, whole blocks of codes and lanes

ctypedef double[PIECE] run_of_numbers
# What sums or steps spans of a tensor.
ctypedef void (*handle_t)(const work *w, Py_ssize_t t, Py_ssize_t first, Py_ssize_t low,
                          Py_ssize_t high) noexcept nogil


cdef Py_ssize_t _spans_of(const tensor *t) noexcept nogil:
    return (t.size + SPAN - 1) // SPAN


cdef int need_sums(work *w) except -1:
    """Have memory for the sums of all spans."""
    cdef Py_ssize_t t, n = 0
    for t in range(w.n_tensors):
        n += _spans_of(&w.tensors[t])
    w.span_sums = <double *>malloc((n + 1) * w.n_sums * sizeof(double))
    if w.span_sums == NULL:
        raise MemoryError
    return 0


# ---- pieces of operands

cdef void _take(const work *w, const tensor *t, Py_ssize_t start, Py_ssize_t n,
                run_of_numbers *buffer, void **p) noexcept nogil:
    """Set p to runs of n elements of all operands, in the computation type."""
    cdef int k, last = w.n_operands - 1
    for k in range(w.n_operands):
        p[k] = moved(t.axes, k, t.data[k], start, n, w.itemsize, t.axes.clamps and k == last,
                     <char *>buffer[k], False)
    if t.axes.clamps:
        clamp(p[last], n, w.itemsize == 8, t.axes.bounds)


cdef void _put_back(const work *w, const tensor *t, Py_ssize_t start, Py_ssize_t n,
                    run_of_numbers *buffer, void **p) noexcept nogil:
    """Write the runs of the variable and its slots that are copies."""
    cdef int k
    for k in range(w.n_operands - 1):
        if p[k] == <void *>buffer[k]:
            moved(t.axes, k, t.data[k], start, n, w.itemsize, False, <char *>p[k], True)


# ---- sums

cdef void _sum_span(const work *w, const tensor *t, Py_ssize_t start, const void *h,
                    double *totals) noexcept nogil:
    """The sums of the span that begins with an element."""
    cdef span_lanes[MAX_SUMS] lanes
    cdef run_of_numbers[MAX_OPERANDS] buffer
    cdef void *p[MAX_OPERANDS]
    cdef Py_ssize_t stop = min(start + SPAN, t.size), at = start, n
    cdef int k
    for k in range(w.n_sums):
        clear(lanes[k], 0, stop - start)
    while at < stop:
        if t.axes == NULL:
            n = stop - at
            for k in range(w.n_operands):
                p[k] = t.data[k] + at * w.itemsize
        else:
            n = min(<Py_ssize_t>PIECE, stop - at)
            _take(w, t, at, n, buffer, p)
        w.first(p, n, h, lanes[0])
        at += n
    for k in range(w.n_sums):
        totals[k] = fold(lanes[k], stop - start, False)


# ---- shares

cdef inline const void *_scaled(const work *w, const tensor *t, double *own) noexcept nogil:
    """The scalars of a tensor, in memory of the thread."""
    memcpy(own, w.h, sizeof(w.h))
    if w.own_scales:
        set_scale(own, t.scale, w.itemsize)
    return own


cdef void _sum_tensor(const work *w, Py_ssize_t t, Py_ssize_t first, Py_ssize_t low,
                      Py_ssize_t high) noexcept nogil:
    """Spans low .. high - 1 of a tensor, the first of which has a number."""
    cdef double[2 * (MAX_SCALARS + N_SCALES)] own
    cdef const tensor *it = &w.tensors[t]
    cdef const void *h = _scaled(w, it, own)
    cdef Py_ssize_t span
    for span in range(low, high):
        _sum_span(w, it, span * SPAN, h, w.span_sums + (first + span) * w.n_sums)


cdef void _step_tensor(const work *w, Py_ssize_t t, Py_ssize_t first, Py_ssize_t low,
                       Py_ssize_t high) noexcept nogil:
    """Step spans low .. high - 1 of a tensor, the sums of which begin at a number."""
    cdef double[2 * (MAX_SCALARS + N_SCALES)] own
    cdef run_of_numbers[MAX_OPERANDS] buffer
    cdef double[MAX_SUMS] totals
    cdef const tensor *it = &w.tensors[t]
    cdef const void *h = _scaled(w, it, own)
    cdef void *p[MAX_OPERANDS]
    cdef Py_ssize_t start = low * SPAN, stop = min(high * SPAN, it.size), n
    cdef int k
    for k in range(w.n_sums):
        totals[k] = combine(w.span_sums + first * w.n_sums + k, _spans_of(it), w.n_sums, False)
    w.reduce(NULL, h, totals, <double>it.size, <char *>own + w.n_given * w.itemsize)
    while start < stop:
        n = stop - start
        if it.axes == NULL:
            for k in range(w.n_operands):
                p[k] = it.data[k] + start * w.itemsize
            w.step(p, n, h)
        else:
            n = min(<Py_ssize_t>PIECE, n)
            _take(w, it, start, n, buffer, p)
            w.step(p, n, h)
            _put_back(w, it, start, n, buffer, p)
        start += n


cdef Py_ssize_t _spans_before(const work *w, Py_ssize_t t, Py_ssize_t element) noexcept nogil:
    """How many spans of a tensor begin before an element of all tensors."""
    cdef Py_ssize_t within = min(max(element - w.starts[t], <Py_ssize_t>0), w.tensors[t].size)
    return (within + SPAN - 1) // SPAN


cdef void _share(const work *w, handle_t handle, int thread, int threads) noexcept nogil:
    """Sum or step the spans that begin in a thread's share of the elements.

    Both times these are the same, so that they are in the thread's cache.
    """
    cdef Py_ssize_t n = w.starts[w.n_tensors], t, first = 0, start, stop
    cdef Py_ssize_t low = share_of(n, thread, threads), high = share_of(n, thread + 1, threads)
    cdef fp_state caller = fp_enter(w.flush)
    for t in range(w.n_tensors):
        start, stop = _spans_before(w, t, low), _spans_before(w, t, high)
        if start < stop:
            handle(w, t, first, start, stop)
        first += _spans_of(&w.tensors[t])
    fp_leave(caller)


cdef void _sum_share(const void *w, int thread, int threads) noexcept nogil:
    _share(<const work *>w, _sum_tensor, thread, threads)


cdef void _step_share(const void *w, int thread, int threads) noexcept nogil:
    _share(<const work *>w, _step_tensor, thread, threads)


cdef void _run_alone(const work *w) noexcept nogil:
    """One tensor after another, so that small ones are still in cache when they are stepped."""
    cdef Py_ssize_t t, first = 0, spans
    cdef fp_state caller = fp_enter(w.flush)
    for t in range(w.n_tensors):
        spans = _spans_of(&w.tensors[t])
        if spans:
            _sum_tensor(w, t, first, 0, spans)
            _step_tensor(w, t, first, 0, spans)
        first += spans
    fp_leave(caller)


cdef void run_tensors(const work *w) noexcept nogil:
    """Step whole variables, by at most as many threads as there are spans to sum."""
    cdef Py_ssize_t t, spans = 0
    cdef team sums
    for t in range(w.n_tensors):
        spans += _spans_of(&w.tensors[t])
    sums = at_most(gather_team(w.starts[w.n_tensors], w.n_operands), max(spans, <Py_ssize_t>1))
    if sums.size == 1:
        _run_alone(w)
        return
    run_team(sums, _sum_share, w)
    run_team(at_most(gather_team(w.starts[w.n_tensors], w.n_operands), sums.size), _step_share, w)
