"""The drivers for rows: each row of the variable belongs to one thread.

That thread takes the row's occurrences in their order, so that neither the arithmetic nor the
result depends on the number of threads.
"""

from cython.parallel cimport parallel
from libc.stdint cimport uint64_t

from tfopt.kernels.calls cimport work
from tfopt.kernels.layout cimport run_layout
from tfopt.kernels.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, prefetch_row,
)
from tfopt.kernels.runtime cimport BLOCK, share_of, team_size
from tfopt.kernels.step cimport AHEAD, MAX_OPERANDS

cdef enum:
    PREFETCHED = 512        # bytes of a row worth asking for; the hardware sees the rest coming
    OWNED_BYTES = 2048      # rows are owned in blocks of at least so much and
    OWNED_ROWS = 16         # so many, or neighbours' owners would fight for a cache line
    PIECE = 4096            # indices a thread looks through for its own at a time


cdef inline Py_ssize_t _row(const work *w, Py_ssize_t i) noexcept nogil:
    """The row that index i names."""
    cdef const char *at = w.indices + i * w.index_stride
    return (<const int *>at)[0] if w.index_size == 4 else (<const long long *>at)[0]


cdef inline Py_ssize_t _worth_fetching(const work *w) noexcept nogil:
    """Bytes of a row to ask for ahead of time."""
    cdef Py_ssize_t n = w.inner * w.itemsize    # of what is stored in 16 bits: twice as much
    return n if n < PREFETCHED else PREFETCHED


cdef inline int _owned_shift(const work *w) noexcept nogil:
    """The logarithm of how many neighbouring rows have one owner."""
    cdef int shift = 0
    while (1 << shift) < OWNED_ROWS or (w.inner * w.itemsize) << shift < OWNED_BYTES:
        shift += 1
    return shift


cdef inline int _owner(Py_ssize_t row, int shift, int owners) noexcept nogil:
    """The thread that owns a row, the same for any order of the indices."""
    cdef uint64_t hashed = ((<uint64_t>row >> shift) * <uint64_t>0x9E3779B97F4A7C15) >> 32
    return <int>((hashed * <uint64_t>owners) >> 32)


cdef inline void _run_row(const work *w, Py_ssize_t i, Py_ssize_t start,
                          Py_ssize_t count) noexcept nogil:
    """Elements start .. start + count - 1 of occurrence i.

    That is row indices[i] of the variable and its slots, and row i of the gradient.
    """
    cdef void *p[MAX_OPERANDS]
    cdef int k, last = w.n_operands - 1
    cdef Py_ssize_t row = _row(w, i)
    for k in range(last):
        p[k] = w.tensors[0].data[k] + row * w.row_stride[k]
    p[last] = w.tensors[0].data[last] + i * w.row_stride[last]
    if w.tensors[0].axes == NULL:
        for k in range(w.n_operands):
            p[k] = <char *>p[k] + start * w.itemsize
        w.step(p, count, w.h)
    else:
        run_layout(w.tensors[0].axes, w.step, w.n_operands, <char **>p, w.itemsize, start,
                   count, w.h)


cdef void _run_owned_rows(const work *w, int owner, int owners) noexcept nogil:
    """The occurrences of the rows that one of the threads owns, in their order."""
    cdef Py_ssize_t[PIECE] mine
    cdef Py_ssize_t[PIECE] rows
    cdef Py_ssize_t start = 0, stop, i, n, bytes_ = _worth_fetching(w)
    cdef int shift = _owned_shift(w)
    while start < w.n_indices:
        stop = start + PIECE if start + PIECE < w.n_indices else w.n_indices
        n = 0
        for i in range(start, stop):        # no branch: always written, kept if owned
            mine[n] = i
            rows[n] = _row(w, i)
            n += _owner(rows[n], shift, owners) == owner
        start = stop
        if w.scatter != NULL:
            w.scatter(w.tensors[0].data, w.row_stride, rows, mine, n, w.h)
            continue
        for i in range(n):
            if i + AHEAD < n:
                prefetch_row(w.tensors[0].data, w.row_stride, w.n_operands - 1,
                             rows[i + AHEAD], bytes_)
            _run_row(w, mine[i], 0, w.inner)


cdef void _run_share_of_rows(const work *w, int thread, int threads) noexcept nogil:
    """A thread's part of each row, where rows are so long that all threads share each."""
    cdef Py_ssize_t start = share_of(w.inner, thread, threads), i
    cdef Py_ssize_t count = share_of(w.inner, thread + 1, threads) - start
    if count:
        for i in range(w.n_indices):
            _run_row(w, i, start, count)


cdef inline void _run_absent(const work *w, Py_ssize_t row, Py_ssize_t stop) noexcept nogil:
    """Step rows that are not named, row .. stop - 1."""
    cdef void *p[MAX_OPERANDS]
    cdef int k, last = w.n_operands - 1
    cdef Py_ssize_t rows = 1, bytes_ = w.inner * w.itemsize
    if w.tensors[0].axes == NULL:
        rows = stop - row
        for k in range(last):
            if w.row_stride[k] != bytes_:   # rows that lie apart
                rows = 1
    p[last] = w.zeros
    while row < stop:
        for k in range(last):
            p[k] = w.tensors[0].data[k] + row * w.row_stride[k]
        if w.tensors[0].axes == NULL:
            w.absent(p, rows * w.inner, w.h)
        else:
            run_layout(w.tensors[0].axes, w.absent, w.n_operands, <char **>p, w.itemsize, 0,
                       w.inner, w.h)
        row += rows


cdef void _run_all_rows(const work *w, int thread, int threads) noexcept nogil:
    """A thread's part of all rows: those that are named by their gradients, the others without."""
    cdef Py_ssize_t row = w.n_rows * thread // threads, stop = w.n_rows * (thread + 1) // threads
    cdef Py_ssize_t i = 0, high = w.n_indices, middle, named
    while i < high:             # the first index that is at least row
        middle = (i + high) // 2
        if _row(w, middle) < row:
            i = middle + 1
        else:
            high = middle
    while row < stop:
        named = _row(w, i) if i < w.n_indices else stop
        if named > stop:
            named = stop
        _run_absent(w, row, named)
        if named < stop:
            _run_row(w, i, 0, w.inner)
            i += 1
        row = named + 1


cdef void _run_rows(const work *w, int thread, int threads) noexcept nogil:
    cdef fp_state caller = fp_enter(w.flush)
    if w.absent != NULL:
        _run_all_rows(w, thread, threads)
    elif w.inner > BLOCK:
        _run_share_of_rows(w, thread, threads)
    else:
        _run_owned_rows(w, thread, threads)
    fp_leave(caller)


cdef void run_sparse(const work *w) noexcept nogil:
    cdef Py_ssize_t rows = w.n_indices if w.absent == NULL else w.n_rows
    cdef int team = team_size(rows * w.inner, w.n_operands)
    if w.inner == 0:
        return
    if team == 1:
        _run_rows(w, 0, 1)
        return
    with parallel(num_threads=team):
        _run_rows(w, omp_get_thread_num(), omp_get_num_threads())
