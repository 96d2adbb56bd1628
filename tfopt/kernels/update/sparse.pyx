"""The sparse drivers: each row of the variable belongs to one thread.

That thread processes the row's occurrences in order, so neither the arithmetic nor the result
depends on the number of threads.
"""

from tfopt.kernels.update.work cimport work
from tfopt.kernels.arrays.layout cimport begin_halves, half_run, layout, run_half_rows, run_layout
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, prefetch_line, prefetch_numbered_row, raise_flag,
)
from tfopt.kernels.update.row_owners cimport (
    PIECE, PREFETCHED, named_row, owned_shift, owner_of, worth_fetching,
)
from tfopt.kernels.platform.runtime cimport BLOCK, at_most, gather_team, run_team, share_of
from tfopt.kernels.platform.step_types cimport AHEAD, MAX_OPERANDS
from tfopt.kernels.update.row_buckets cimport run_buckets
from tfopt.kernels.update.segment_sum cimport run_summed
from tfopt.kernels.update.whole_rows cimport run_row

cdef enum:
    LARGE = 1 << 23     # bytes: smaller tables are in the outer caches
    NEAR = 2            # rows ahead that come to the first-level cache


cdef inline void _run_row(const work *w, Py_ssize_t i, Py_ssize_t row, Py_ssize_t start,
                          Py_ssize_t count) noexcept nogil:
    """Elements start .. start + count - 1 of occurrence i.

    They are those of a row of the variable and its slots, and of row i of the gradient.
    """
    cdef void *p[MAX_OPERANDS + 1]
    cdef int k, last = w.n_operands - 1
    for k in range(last):
        p[k] = w.tensors[0].data[k] + row * w.row_stride[k]
    p[last] = w.tensors[0].data[last] + i * w.row_stride[last]
    p[last + 1] = <void *>(row * w.inner)   # the index of the row's first element
    if w.by_rows and w.tensors[0].axes != NULL:
        run_row(w, w.tensors[0].axes, <char **>p, 0, count, w.h)
    elif w.tensors[0].axes == NULL:
        for k in range(w.n_operands):
            p[k] = <char *>p[k] + start * w.itemsize
        w.step(p, count, w.h)
    else:
        run_layout(w.tensors[0].axes, w.step, w.half, w.n_operands, True, <char **>p, w.itemsize,
                   start, count, w.h)


cdef void _run_owned_rows(const work *w, int owner, int owners) noexcept nogil:
    """The occurrences of the rows that a thread owns, in order."""
    cdef Py_ssize_t[PIECE] mine
    cdef Py_ssize_t[PIECE] rows
    cdef Py_ssize_t start = 0, stop, i, n, byte, bytes_ = worth_fetching(w)
    cdef int shift = owned_shift(w), last = w.n_operands - 1, k
    # rows of a large table come to the second-level cache before they come to the first
    cdef bint is_large = w.n_rows * w.inner * w.itemsize * last > LARGE
    cdef int near = NEAR if is_large else AHEAD
    cdef const char *at
    cdef const layout *axes = w.tensors[0].axes
    cdef half_run halves
    cdef bint in_halves = (
        axes != NULL and axes.ndim == 1
        and begin_halves(&halves, axes, w.half, w.n_operands, <const float *>w.h)
    )
    while start < w.n_indices:
        stop = start + PIECE if start + PIECE < w.n_indices else w.n_indices
        n = 0
        for i in range(start, stop):        # branch-free: always written, kept if owned
            mine[n] = i
            rows[n] = named_row(w, i)
            n += owner_of(rows[n], shift, owners) == owner
        start = stop
        if w.scatter != NULL:
            w.scatter(w.tensors[0].data, w.row_stride, rows, mine, n, w.h)
            continue
        if in_halves:
            run_half_rows(&halves, w.tensors[0].data, w.row_stride, rows, mine, n, w.inner,
                          min(2 * w.inner, <Py_ssize_t>PREFETCHED))
            continue
        for i in range(n):
            if is_large and i + AHEAD < n:
                prefetch_numbered_row(w.tensors[0].data, w.row_stride, w.n_whole, last,
                                      rows[i + AHEAD], bytes_)
            if i + near < n:
                for k in range(last):
                    at = w.tensors[0].data[k] + rows[i + near] * w.row_stride[k]
                    if k >= w.n_whole:
                        prefetch_line(at)
                        continue
                    for byte in range(0, bytes_, 64):
                        prefetch_line(at + byte)
                    prefetch_line(at + bytes_ - 1)
            _run_row(w, mine[i], rows[i], 0, w.inner)


cdef void _run_share_of_rows(const work *w, int thread, int threads) noexcept nogil:
    """A thread's part of each row, for rows so long that all threads share each of them."""
    cdef Py_ssize_t start = share_of(w.inner, thread, threads), i, row
    cdef Py_ssize_t count = share_of(w.inner, thread + 1, threads) - start
    if count:
        for i in range(w.n_indices):
            row = named_row(w, i)
            if row >= 0:
                _run_row(w, i, row, start, count)


cdef inline void _run_absent(const work *w, Py_ssize_t row, Py_ssize_t stop) noexcept nogil:
    """Step rows row .. stop - 1, which have no gradient."""
    cdef void *p[MAX_OPERANDS + 1]
    cdef int k, last = w.n_operands - 1
    cdef Py_ssize_t rows = 1, bytes_ = w.inner * w.itemsize
    if w.tensors[0].axes == NULL:
        rows = stop - row
        for k in range(last):
            if w.row_stride[k] != bytes_:   # rows are not contiguous
                rows = 1
    p[last] = w.zeros
    while row < stop:
        for k in range(last):
            p[k] = w.tensors[0].data[k] + row * w.row_stride[k]
        p[last + 1] = <void *>(row * w.inner)
        if w.tensors[0].axes == NULL:
            w.absent(p, rows * w.inner, w.h)
        else:
            run_layout(w.tensors[0].axes, w.absent, NULL, w.n_operands, True, <char **>p,
                       w.itemsize, 0, w.inner, w.h)
        row += rows


cdef void _run_all_rows(const work *w, int thread, int threads) noexcept nogil:
    """A thread's share of all rows, with or without a gradient."""
    cdef Py_ssize_t row = w.n_rows * thread // threads, stop = w.n_rows * (thread + 1) // threads
    cdef Py_ssize_t i = 0, high = w.n_indices, middle, named
    while i < high:             # the first index that is at least row
        middle = (i + high) // 2
        if named_row(w, middle) < row:
            i = middle + 1
        else:
            high = middle
    while row < stop:
        named = named_row(w, i) if i < w.n_indices else stop
        if named > stop:
            named = stop
        if named < row:     # out of range, or out of order
            raise_flag(w.outside)
            return
        _run_absent(w, row, named)
        if named < stop:
            _run_row(w, i, named, 0, w.inner)
            i += 1
        row = named + 1


cdef void _run_rows(const void *call, int thread, int threads) noexcept nogil:
    cdef const work *w = <const work *>call
    cdef fp_state caller = fp_enter(w.flush)
    if w.absent != NULL:
        _run_all_rows(w, thread, threads)
    elif w.inner > BLOCK and not w.by_rows:
        _run_share_of_rows(w, thread, threads)
    else:
        _run_owned_rows(w, thread, threads)
    fp_leave(caller)


cdef void run_sparse(const work *w) noexcept nogil:
    cdef Py_ssize_t rows = w.n_indices if w.absent == NULL else w.n_rows
    if w.inner == 0:
        return
    if w.buckets != NULL:
        run_buckets(w)
    elif w.summing != NULL:
        run_summed(w)
    else:
        run_team(at_most(gather_team(rows * w.inner, w.n_operands), w.team), _run_rows, w)
