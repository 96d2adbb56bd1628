"""The sparse driver that sums gradients first: each distinct row is stepped once.

A thread numbers the rows it owns in order of occurrence, adds each gradient row to the sum with its
number, and steps the rows by the sums. So the gradient, which is long, is read sequentially; only
the sums, which are short, are accessed in random order.
"""

from cython.parallel cimport parallel
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from tfopt.kernels.update.checks cimport work
from tfopt.kernels.platform.runtime cimport (
    begin_share, dismiss_team, end_share, gather_team, team,
)
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, prefetch_row,
    raise_flag,
)
from tfopt.kernels.update.row_owners cimport PIECE, named_row, owned_shift, owner_of, worth_fetching
from tfopt.kernels.update.rules cimport real
from tfopt.kernels.update.step_table cimport AHEAD, MAX_OPERANDS

cdef struct sums:
    # the distinct rows that a thread owns
    int64_t *rows
    char *sum_          # by number
    uint32_t *table     # the number of a row plus one, at its hash
    Py_ssize_t mask
    Py_ssize_t row_bytes
    Py_ssize_t n
    Py_ssize_t most     # capacity in rows


cdef inline Py_ssize_t _number(sums *s, int64_t row) noexcept nogil:
    """The number of a row; a new row starts with a sum of zero. -1 if the table is full."""
    cdef Py_ssize_t at = <Py_ssize_t>(
        (<uint64_t>row * <uint64_t>0x9E3779B97F4A7C15) >> 20) & s.mask
    while s.table[at] and s.rows[s.table[at] - 1] != row:
        at = (at + 1) & s.mask
    if s.table[at] == 0:
        if s.n == s.most:
            return -1
        s.rows[s.n] = row
        memset(s.sum_ + s.n * s.row_bytes, 0, s.row_bytes)
        s.n += 1
        s.table[at] = <uint32_t>s.n
    return s.table[at] - 1


cdef inline void _add(real *total, const real *row, Py_ssize_t n, real high,
                      real factor) noexcept nogil:
    """Add a row of the gradient, clamped and scaled, to a sum."""
    cdef real low = -high, value
    cdef Py_ssize_t j
    for j in range(n):
        value = high if high < row[j] else row[j]
        value = low if low > value else value
        total[j] = total[j] + value * factor


cdef Py_ssize_t _owned(const work *w, Py_ssize_t start, Py_ssize_t stop, int owner, int owners,
                       Py_ssize_t *mine, Py_ssize_t *rows) noexcept nogil:
    """Collect the indices start .. stop - 1 whose rows a thread owns; return their number."""
    cdef Py_ssize_t i, n = 0
    cdef int shift = owned_shift(w)
    for i in range(start, stop):        # branch-free: always written, kept if owned
        mine[n] = i
        rows[n] = named_row(w, i)
        n += owner_of(rows[n], shift, owners) == owner
    return n


cdef void _sum_owned(const work *w, sums *s, real *kind, int owner, int owners) noexcept nogil:
    """Sum the gradients of the rows that a thread owns, in the order of their occurrences."""
    cdef Py_ssize_t[PIECE] mine
    cdef Py_ssize_t[PIECE] number
    cdef Py_ssize_t start = 0, stop, i, n, inner = w.inner
    cdef const char *grad = w.tensors[0].data[w.n_operands - 1]
    cdef Py_ssize_t stride = w.row_stride[w.n_operands - 1]
    cdef real high = <real>w.summing.bound, factor = <real>w.summing.scale
    while start < w.n_indices:
        stop = min(start + PIECE, w.n_indices)
        n = _owned(w, start, stop, owner, owners, mine, number)
        for i in range(n):
            number[i] = _number(s, number[i])
            if number[i] < 0:       # indices were changed after they were counted
                raise_flag(w.outside)
                return
        for i in range(n):
            if i + AHEAD < n:
                prefetch_row(&s.sum_, &s.row_bytes, 1, number[i + AHEAD], s.row_bytes)
            _add(<real *>(s.sum_ + number[i] * s.row_bytes),
                 <const real *>(grad + mine[i] * stride), inner, high, factor)
        start = stop


cdef void _step_sums(const work *w, const sums *s) noexcept nogil:
    cdef void *p[MAX_OPERANDS]
    cdef int j, last = w.n_operands - 1
    cdef Py_ssize_t k, bytes_ = worth_fetching(w)
    for k in range(s.n):
        if k + AHEAD < s.n:
            prefetch_row(w.tensors[0].data, w.row_stride, last, s.rows[k + AHEAD], bytes_)
        for j in range(last):
            p[j] = w.tensors[0].data[j] + s.rows[k] * w.row_stride[j]
        p[last] = s.sum_ + k * s.row_bytes
        w.step(p, w.inner, w.h)


cdef void _run_own(const work *w, int thread, int threads) noexcept nogil:
    cdef sums s
    cdef Py_ssize_t start = 0, stop, owned = 0
    cdef Py_ssize_t[PIECE] mine
    cdef Py_ssize_t[PIECE] rows
    cdef fp_state caller = fp_enter(w.flush)
    s.rows = <int64_t *>(w.summing.own + thread * w.summing.own_bytes)
    s.sum_ = <char *>(s.rows + w.summing.most)
    s.row_bytes = w.inner * w.itemsize
    s.table = <uint32_t *>(s.sum_ + w.summing.most * s.row_bytes)
    s.n = 0
    while start < w.n_indices:
        stop = min(start + PIECE, w.n_indices)
        owned += _owned(w, start, stop, thread, threads, mine, rows)
        start = stop
    # as small as possible, so that it stays in cache
    s.most = min(owned, w.summing.most)
    s.mask = table_size(s.most) - 1
    memset(s.table, 0, (s.mask + 1) * sizeof(uint32_t))
    if w.itemsize == 4:
        _sum_owned(w, &s, <float *>NULL, thread, threads)
    else:
        _sum_owned(w, &s, <double *>NULL, thread, threads)
    _step_sums(w, &s)
    fp_leave(caller)


cdef void run_summed(const work *w) noexcept nogil:
    cdef team t = gather_team(w.n_indices * w.inner, w.n_operands)
    t.size = min(t.size, w.summing.team)
    if t.size == 1:
        _run_own(w, 0, 1)
        return
    with parallel(num_threads=t.size):
        begin_share(&t)
        _run_own(w, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
