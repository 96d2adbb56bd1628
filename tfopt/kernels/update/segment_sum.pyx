"""The sparse driver that sums gradients first: each distinct row is stepped once.

A thread numbers the rows it owns in order of occurrence. It then reads the gradient, which is long,
once and nearly sequentially. A row that occurs once is stepped on the way. The others are added to
sums, which are short, and stepped at the end. Rows of one element are all summed and stepped at the
end: their sums are short, too.

Indices may share rows of the gradient, as those of a bag do. The result is that of a step whose
gradient is the sums: these keep denormals, and are stepped as they are (`exact`), or as sums of one
row each.
"""

from libc.math cimport INFINITY

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from tfopt.kernels.update.work cimport work
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, prefetch_numbered_row, prefetch_row, raise_flag, read_once,
    within,
)
from tfopt.kernels.reduce.norms cimport sums_in_use
from tfopt.kernels.update.distinct cimport place_of, table_size
from tfopt.kernels.update.row_owners cimport PIECE, named_row, owned_shift, owner_of, worth_fetching
from tfopt.kernels.platform.step_types cimport AHEAD, MAX_OPERANDS

cdef enum:
    FIRST_SIZE = 4096       # of a hash table, which grows while rows are numbered
    GROWTH = 4
    SHORT_PIECE = 2048      # occurrences that are divided into two lists at a time

cdef uint32_t SINGLE = 0xFFFFFFFF       # in place of the position of a sum

cdef Py_ssize_t[AHEAD] _in_order
for _k in range(AHEAD):
    _in_order[_k] = _k


cdef inline void _add_rows(const work *w, char *into, const Py_ssize_t *numbers,
                           const Py_ssize_t *at, Py_ssize_t n, bint exact) noexcept nogil:
    """Add rows of the gradient, clamped and scaled, to numbered sums: `exact`, with denormals."""
    cdef int last = w.n_operands - 1
    cdef fp_state before
    if exact:
        before = fp_enter(False)
    sums_in_use().rows[w.itemsize == 8](
        into, numbers, w.tensors[0].data[last], w.row_stride[last], at, n, w.inner,
        w.summing.bound, w.summing.scale)
    if exact:
        fp_leave(before)


cdef struct owned:
    char *singles       # rows that occur once, some at a time
    char *sum_          # of the rows that occur more than once
    # the distinct rows that a thread owns, by number
    Py_ssize_t *rows
    uint32_t *place     # of a row's sum, or SINGLE
    Py_ssize_t n
    # their occurrences, in order
    uint32_t *at        # in the gradient
    uint32_t *number
    Py_ssize_t n_at
    # the numbers of rows
    uint32_t *table
    Py_ssize_t size
    Py_ssize_t full_size    # enough for all rows
    Py_ssize_t row_bytes


cdef inline char *_at_a_line(const void *memory) noexcept nogil:
    return <char *>((<uint64_t>memory + LINE - 1) // LINE * LINE)


cdef void _lay_out(const work *w, owned *s, int thread) noexcept nogil:
    """Divide the memory of a thread."""
    cdef Py_ssize_t most = w.summing.most, n = w.n_indices
    s.row_bytes = w.inner * w.itemsize
    s.singles = _at_a_line(w.summing.own + thread * w.summing.own_bytes)
    s.rows = <Py_ssize_t *>_at_a_line(s.singles + singles_together(s.row_bytes) * s.row_bytes)
    s.at = <uint32_t *>(s.rows + most)
    s.number = s.at + n
    s.place = s.number + n
    s.table = s.place + most
    s.full_size = table_size(most)
    s.sum_ = _at_a_line(s.table + s.full_size)
    s.n = s.n_at = 0
    s.size = min(<Py_ssize_t>FIRST_SIZE, s.full_size)
    memset(s.table, 0, s.size * sizeof(uint32_t))


cdef void _grow(owned *s) noexcept nogil:
    cdef Py_ssize_t k
    s.size = min(GROWTH * s.size, s.full_size)
    memset(s.table, 0, s.size * sizeof(uint32_t))
    for k in range(s.n):
        s.table[place_of(s.rows[k], s.rows, s.table, s.size)] = <uint32_t>(k + 1)


cdef inline uint32_t _number(owned *s, Py_ssize_t row) noexcept nogil:
    """The number of a row; that it occurs again is noted."""
    cdef Py_ssize_t at = place_of(row, s.rows, s.table, s.size)
    cdef uint32_t found = s.table[at]
    if found:
        s.place[found - 1] = 0
        return found - 1
    s.rows[s.n] = row
    s.place[s.n] = SINGLE
    s.n += 1
    s.table[at] = <uint32_t>s.n
    if 2 * s.n > s.size:
        _grow(s)
    return <uint32_t>(s.n - 1)


cdef inline uint32_t _term(const work *w, Py_ssize_t i) noexcept nogil:
    """The gradient's row of index i."""
    if w.summing.at == NULL:
        return <uint32_t>i
    cdef Py_ssize_t row = read_once(&w.summing.at[i])
    if within(row, w.summing.n_terms):
        return <uint32_t>row
    raise_flag(w.outside)
    return 0


cdef void _number_owned(const work *w, owned *s, int owner, int owners) noexcept nogil:
    """Number the rows that a thread owns, and list their occurrences."""
    cdef Py_ssize_t[PIECE] rows
    cdef uint32_t *at
    cdef uint32_t *number
    cdef Py_ssize_t start = 0, stop, i, n
    cdef int shift = owned_shift(w)
    while start < w.n_indices:
        stop = min(start + PIECE, w.n_indices)
        at, number = s.at + s.n_at, s.number + s.n_at
        n = 0
        for i in range(start, stop):        # branch-free: always written, kept if owned
            at[n] = _term(w, i)
            rows[n] = named_row(w, i)
            n += owner_of(rows[n], shift, owners) == owner
        for i in range(n):
            number[i] = _number(s, rows[i])
        s.n_at += n
        start = stop


cdef void _place_sums(owned *s) noexcept nogil:
    cdef Py_ssize_t k
    cdef uint32_t n = 0
    for k in range(s.n):
        if s.place[k] != SINGLE:
            s.place[k] = n
            n += 1
    memset(s.sum_, 0, n * s.row_bytes)


cdef inline void _step(const work *w, Py_ssize_t row, char *grad) noexcept nogil:
    cdef void *p[MAX_OPERANDS]
    cdef int k, last = w.n_operands - 1
    for k in range(last):
        p[k] = w.tensors[0].data[k] + row * w.row_stride[k]
    p[last] = grad
    w.step(p, w.inner, w.h)


cdef void _step_singles(const work *w, owned *s, const Py_ssize_t *at, const Py_ssize_t *number,
                        Py_ssize_t n) noexcept nogil:
    """Step rows that occur once, by sums all the same: clamped, scaled, and never -0."""
    cdef int last = w.n_operands - 1
    cdef Py_ssize_t start = 0, stop, i, bytes_ = worth_fetching(w)
    cdef Py_ssize_t together = singles_together(s.row_bytes)
    cdef char *grad = w.tensors[0].data[last]
    cdef Py_ssize_t stride = w.row_stride[last]
    while start < n:
        stop = min(start + together, n)
        memset(s.singles, 0, (stop - start) * s.row_bytes)
        _add_rows(w, s.singles, _in_order, at + start, stop - start, w.summing.exact)
        for i in range(start, stop):
            if i + AHEAD < n:
                prefetch_row(&grad, &stride, 1, at[i + AHEAD], bytes_)
                prefetch_numbered_row(w.tensors[0].data, w.row_stride, w.n_whole, last,
                                      s.rows[number[i + AHEAD]], bytes_)
            _step(w, s.rows[number[i]], s.singles + (i - start) * s.row_bytes)
        start = stop


cdef void _read_gradient(const work *w, owned *s) noexcept nogil:
    """Step the rows that occur once, and sum the gradients of the others, in order."""
    cdef Py_ssize_t[SHORT_PIECE] single_at
    cdef Py_ssize_t[SHORT_PIECE] single
    cdef Py_ssize_t[SHORT_PIECE] repeated_at
    cdef Py_ssize_t[SHORT_PIECE] place
    cdef Py_ssize_t start = 0, stop, i, singles, repeated
    cdef bint repeats
    while start < s.n_at:
        stop = min(start + SHORT_PIECE, s.n_at)
        singles = repeated = 0
        for i in range(start, stop):        # branch-free: written to both lists, kept in one
            single_at[singles] = repeated_at[repeated] = s.at[i]
            single[singles] = s.number[i]
            place[repeated] = s.place[s.number[i]]
            repeats = place[repeated] != SINGLE
            repeated += repeats
            singles += not repeats
        _add_rows(w, s.sum_, place, repeated_at, repeated, w.summing.at != NULL)
        _step_singles(w, s, single_at, single, singles)
        start = stop


cdef inline char *_stepped(const work *w, const owned *s, char *sum_) noexcept nogil:
    """A sum as it is stepped: that of shared rows added to zero, as if it were a row by itself."""
    if w.summing.at == NULL or w.summing.exact:
        return sum_
    memset(s.singles, 0, s.row_bytes)
    sums_in_use().rows[w.itemsize == 8](
        s.singles, _in_order, sum_, s.row_bytes, _in_order, 1, w.inner, INFINITY, 1)
    return s.singles


cdef void _step_sums(const work *w, owned *s) noexcept nogil:
    """Step the rows that occur more than once by their sums."""
    cdef Py_ssize_t k, n = 0, bytes_ = worth_fetching(w)
    for k in range(s.n):
        if s.place[k] != SINGLE:
            s.rows[n] = s.rows[k]
            n += 1
    for k in range(n):
        if k + AHEAD < n:
            prefetch_numbered_row(w.tensors[0].data, w.row_stride, w.n_whole, w.n_operands - 1,
                                  s.rows[k + AHEAD], bytes_)
        _step(w, s.rows[k], _stepped(w, s, s.sum_ + k * s.row_bytes))


cdef void _step_elements(const work *w, owned *s) noexcept nogil:
    """Sum all gradients of rows of one element, and step the rows."""
    cdef Py_ssize_t[SHORT_PIECE] at
    cdef Py_ssize_t[SHORT_PIECE] number
    cdef char *data[MAX_OPERANDS]
    cdef Py_ssize_t[MAX_OPERANDS] stride
    cdef Py_ssize_t start = 0, i, n
    cdef int last = w.n_operands - 1
    memset(s.sum_, 0, s.n * s.row_bytes)
    while start < s.n_at:
        n = min(s.n_at - start, <Py_ssize_t>SHORT_PIECE)
        for i in range(n):
            at[i], number[i] = s.at[start + i], s.number[start + i]
        _add_rows(w, s.sum_, number, at, n, False)
        start += n
    memcpy(data, w.tensors[0].data, sizeof(data))
    memcpy(stride, w.row_stride, sizeof(stride))
    stride[last] = s.row_bytes
    for i in range(SHORT_PIECE):
        at[i] = i
    start = 0
    while start < s.n:
        n = min(s.n - start, <Py_ssize_t>SHORT_PIECE)
        data[last] = s.sum_ + start * s.row_bytes
        w.scatter(data, stride, s.rows + start, at, n, w.h)
        start += n


cdef void _run_own(const void *call, int thread, int threads) noexcept nogil:
    cdef const work *w = <const work *>call
    cdef owned s
    cdef fp_state caller = fp_enter(w.flush)
    _lay_out(w, &s, thread)
    _number_owned(w, &s, thread, threads)
    if w.scatter != NULL:
        _step_elements(w, &s)
    else:
        _place_sums(&s)
        _read_gradient(w, &s)
        _step_sums(w, &s)
    fp_leave(caller)


cdef void run_summed_part(const work *w, const uint32_t *rows, Py_ssize_t start, Py_ssize_t stop,
                          int thread) noexcept nogil:
    """Sum and step rows of one element, those that are named at start .. stop - 1."""
    cdef owned s
    cdef Py_ssize_t i
    _lay_out(w, &s, thread)
    for i in range(start, stop):
        s.at[i - start] = <uint32_t>i
        s.number[i - start] = _number(&s, rows[i])
    s.n_at = stop - start
    _step_elements(w, &s)


cdef void run_summed(const work *w) noexcept nogil:
    run_team(at_most(gather_team(w.n_indices * w.inner, w.n_operands), w.summing.team), _run_own, w)
