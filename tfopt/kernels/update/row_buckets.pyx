"""The sparse driver of many rows of one element: they are stepped neighbourhood by neighbourhood.

A random row of one element brings a line of sixteen from memory, of the variable and of each slot,
and where a step has a tenth as many indices as the table has rows, such a line comes twice. So the
indices are first divided, with their gradients, among buckets of adjacent rows, each of which fits
in the second-level cache. Occurrences of a row stay in order. A bucket is stepped by one thread, so
the result depends neither on buckets nor on threads.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from tfopt.kernels.platform.machine cimport claim, fp_enter, fp_leave, fp_state
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team, team
from tfopt.kernels.update.row_owners cimport named_row
from tfopt.kernels.update.segment_sum cimport LINE, run_summed_part
from tfopt.kernels.update.work cimport buckets, tensor, work

cdef enum:
    BUCKETS = 256       # and one of indices out of range, which is left out
    PART = 1 << 16      # indices that a thread divides at a time
    TOGETHER = 2048     # rows stepped in one call
    FEWEST = 1 << 17    # indices for which it pays,
    LARGE = 1 << 23     # and bytes of the variable and its slots: smaller ones stay in cache
    SAMPLED = 1024      # indices looked at,
    PLACES = 1 << 14    # and how many places there are for them, so that few meet by chance

cdef uint32_t NOWHERE = 0xFFFFFFFF      # in place of a row out of range

ctypedef void (*part_t)(const work *w, Py_ssize_t k, int thread) noexcept nogil

cdef struct parts:          # which threads claim one after another
    const work *w
    part_t run
    Py_ssize_t n


cdef Py_ssize_t _parts(Py_ssize_t n) noexcept nogil:
    return (n + PART - 1) // PART


cdef Py_ssize_t bucket_bytes(Py_ssize_t n, Py_ssize_t itemsize) noexcept:
    """The memory for n indices, with gradients of so many bytes."""
    return (n * (2 * <Py_ssize_t>sizeof(uint32_t) + itemsize)
            + _parts(n) * (BUCKETS + 1) * <Py_ssize_t>sizeof(uint32_t) + LINE)


cdef bint _is_scattered(const work *w) noexcept:
    """Whether some of the indices mostly name lines of their own: hot ones stay in cache."""
    cdef bint[PLACES] seen
    cdef uint64_t place
    cdef Py_ssize_t i, row, n = 0
    memset(seen, 0, sizeof(seen))
    for i in range(SAMPLED):
        row = named_row(w, w.n_indices // SAMPLED * i)
        place = ((<uint64_t>row >> 4) * <uint64_t>0x9E3779B97F4A7C15) >> 32
        place = (place * PLACES) >> 32
        n += not seen[place]
        seen[place] = True
    return 8 * n > 7 * SAMPLED


cdef bint worth_dividing(const work *w) noexcept:
    """Whether a call has rows of one element, and enough of them that are not in cache.

    To step a variable without slots takes no longer than to divide its rows; but sums gain.
    """
    return (w.scatter != NULL and FEWEST <= w.n_indices < NOWHERE and w.n_rows < NOWHERE
            and w.n_rows * w.itemsize * (w.n_operands - 1) > LARGE
            and (w.n_operands > 2 or w.summing != NULL) and _is_scattered(w))


cdef void set_buckets(work *w, char *memory) noexcept:
    """Divide `bucket_bytes` of memory that belong to a call."""
    cdef buckets *b = w.buckets
    cdef Py_ssize_t n = w.n_indices
    b.values = <char *>((<size_t>memory + LINE - 1) // LINE * LINE)
    b.named = <uint32_t *>(b.values + n * w.itemsize)
    b.rows = b.named + n
    b.starts = b.rows + n
    b.shift = 0
    while (w.n_rows - 1) >> b.shift >= BUCKETS:
        b.shift += 1


cdef inline Py_ssize_t _bucket(const buckets *b, uint32_t row) noexcept nogil:
    return <Py_ssize_t>BUCKETS if row == NOWHERE else <Py_ssize_t>(row >> b.shift)


cdef void _count(const work *w, Py_ssize_t part, int thread) noexcept nogil:
    """Count a part's indices in each bucket; keep them, as others may change the originals."""
    cdef buckets *b = w.buckets
    cdef uint32_t *starts = b.starts + part * (BUCKETS + 1)
    cdef Py_ssize_t i
    memset(starts, 0, (BUCKETS + 1) * sizeof(uint32_t))
    for i in range(part * PART, min((part + 1) * PART, w.n_indices)):
        b.named[i] = <uint32_t>named_row(w, i)
        starts[_bucket(b, b.named[i])] += 1


cdef void _place(const work *w) noexcept nogil:
    """Make the counts the positions at which the buckets of each part begin."""
    cdef buckets *b = w.buckets
    cdef Py_ssize_t k, part
    cdef uint32_t count, total = 0
    for k in range(BUCKETS + 1):
        for part in range(_parts(w.n_indices)):
            count = b.starts[part * (BUCKETS + 1) + k]
            b.starts[part * (BUCKETS + 1) + k] = total
            total += count


cdef void _divide(const work *w, Py_ssize_t part, int thread) noexcept nogil:
    """Move a part's rows and gradients to their buckets."""
    cdef buckets *b = w.buckets
    cdef uint32_t *starts = b.starts + part * (BUCKETS + 1)
    cdef const char *grad = w.tensors[0].data[w.n_operands - 1]
    cdef Py_ssize_t stride = w.row_stride[w.n_operands - 1], i, k
    cdef uint32_t at
    for i in range(part * PART, min((part + 1) * PART, w.n_indices)):
        k = _bucket(b, b.named[i])
        at = starts[k]
        starts[k] = at + 1
        b.rows[at] = b.named[i]
        if w.itemsize == 4:
            memcpy(b.values + <Py_ssize_t>at * 4, grad + i * stride, 4)
        elif w.itemsize == 8:
            memcpy(b.values + <Py_ssize_t>at * 8, grad + i * stride, 8)
        else:
            memcpy(b.values + at * w.itemsize, grad + i * stride, w.itemsize)


cdef void _step_rows(const work *w, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Step the rows at start .. stop - 1, one after another."""
    cdef Py_ssize_t[TOGETHER] rows
    cdef Py_ssize_t[TOGETHER] at
    cdef Py_ssize_t n, i
    while start < stop:
        n = min(stop - start, <Py_ssize_t>TOGETHER)
        for i in range(n):
            rows[i], at[i] = w.buckets.rows[start + i], start + i
        w.scatter(w.tensors[0].data, w.row_stride, rows, at, n, w.h)
        start += n


cdef void _step(const work *w, Py_ssize_t k, int thread) noexcept nogil:
    """Step the rows of a bucket."""
    cdef const uint32_t *ends = w.buckets.starts + (_parts(w.n_indices) - 1) * (BUCKETS + 1)
    cdef Py_ssize_t start = ends[k - 1] if k else 0
    cdef work own = w[0]        # whose gradients are those of the buckets
    cdef tensor one = w.tensors[0]
    cdef fp_state caller
    if start == ends[k]:
        return
    one.data[w.n_operands - 1] = w.buckets.values
    own.tensors = &one
    own.row_stride[w.n_operands - 1] = w.itemsize
    caller = fp_enter(w.flush)
    if w.summing != NULL:
        run_summed_part(&own, w.buckets.rows, start, ends[k], thread)
    else:
        _step_rows(&own, start, ends[k])
    fp_leave(caller)


cdef void _claim_parts(const void *all_parts, int thread, int threads) noexcept nogil:
    cdef const parts *p = <const parts *>all_parts
    cdef Py_ssize_t k = claim(&p.w.buckets.claimed)
    while k < p.n:
        p.run(p.w, k, thread)
        k = claim(&p.w.buckets.claimed)


cdef void _share(const work *w, part_t run, Py_ssize_t n, int operands) noexcept nogil:
    """Run all parts, each by the thread that comes first."""
    cdef parts all_parts = parts(w, run, n)
    cdef team t = gather_team(w.n_indices, operands)
    if w.summing != NULL:
        t = at_most(t, w.summing.team)
    w.buckets.claimed = 0
    run_team(t, _claim_parts, &all_parts)


cdef void run_buckets(const work *w) noexcept nogil:
    cdef Py_ssize_t n = _parts(w.n_indices)
    _share(w, _count, n, 2)
    _place(w)
    _share(w, _divide, n, 2)
    _share(w, _step, BUCKETS, w.n_operands)
