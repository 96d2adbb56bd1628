"""Steps of whole rows, by rules with a reduction.

Such a step sums over the elements of a row before it updates them, so it gets all of them at once,
in C order, which fixes the order of summation. Rows that are not runs in the computation type are
gathered in memory of the thread, stepped there, and scattered.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from tfopt.kernels.arrays.layout cimport (
    NATIVE, SIGNED8, clamp, decode_block, encode_block, gather, layout, scatter,
)
from tfopt.kernels.arrays.walk cimport ahead, begin_walk, go, walk
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.machine cimport omp_get_thread_num
from tfopt.kernels.platform.runtime cimport MOVED, team_size
from tfopt.kernels.update.work cimport tensor, work
from tfopt.kernels.platform.step_types cimport MAX_OPERANDS

cdef enum:
    LINE = 64       # bytes: threads do not share lines of the cache
    MOST = 4096     # threads


cdef int need_scratch(work *w, const tensor *t) except -1:
    """Have memory for rows of a tensor."""
    cdef Py_ssize_t n = t.inner + (2 * CODES if t.axes.blocked else 0)
    cdef Py_ssize_t room = (n * <Py_ssize_t>sizeof(double) + LINE - 1) // LINE * LINE
    if room <= w.room:
        return 0
    free(w.scratch)
    w.room = 0
    w.team = team_size(<Py_ssize_t>MOVED * MOST, 2)
    w.scratch = <char *>malloc(w.team * MAX_OPERANDS * room)
    if w.scratch == NULL:
        raise MemoryError
    w.room = room
    return 0


cdef Py_ssize_t grain_of_rows(const tensor *t) noexcept nogil:
    """Elements that one thread steps: a row, or as many as are whole blocks of codes, too."""
    cdef Py_ssize_t a = t.inner, b = CODES
    if t.axes == NULL or not t.axes.blocked:
        return a
    while b:
        a, b = b, a % b
    return t.inner // a * CODES


cdef char *moved(const layout *axes, int k, char *at, Py_ssize_t start, Py_ssize_t n,
                 Py_ssize_t itemsize, bint clamps, char *run, bint back) noexcept nogil:
    """Gather n elements of operand k, from position `start` on, or scatter them `back`.

    Of blocks of codes the first element begins one.

    Returns
    -------
    char *
        The run; elements that are one where they are stay there.
    """
    cdef Py_ssize_t done = 0, piece, stored
    cdef int storage = axes.storage[k]
    cdef walk w
    if storage >= SIGNED8:
        while done < n:
            piece = min(<Py_ssize_t>CODES, n - done)
            if back:
                encode_block(storage, <float *>run + done, piece, at, start + done)
            else:
                decode_block(storage, at, start + done, piece, <float *>run + done)
            done += piece
        return run
    if axes.blocked:
        stored = itemsize if storage == NATIVE else 2
        begin_walk(&w, 1, &n, &stored, at + start * stored, 0)
    else:
        begin_walk(&w, axes.ndim, axes.shape, axes.stride[k], at, start)
    if (storage == NATIVE and not clamps and n <= ahead(&w)
            and (w.stride[0] == itemsize or n == 1)):
        return w.at
    while done < n:
        piece = min(n - done, ahead(&w))
        if back:
            scatter(w.at, w.stride[0], run + done * itemsize, piece, itemsize, storage)
        else:
            gather(run + done * itemsize, w.at, w.stride[0], piece, itemsize, storage)
        done += piece
        go(&w, piece)
    return run


cdef inline char *_number(int storage, char *at, Py_ssize_t itemsize, char *run) noexcept nogil:
    """The number of a row, in the computation type."""
    if storage == NATIVE:
        return at
    gather(run, at, itemsize, 1, itemsize, storage)
    return run


cdef void run_row(const work *w, const layout *axes, char **at, Py_ssize_t start, Py_ssize_t n,
                  const void *h) noexcept nogil:
    """Step the row of n elements that begins at position `start` of the addresses `at`.

    Operands with a number for each row have the address of that of this one.
    """
    cdef void *p[MAX_OPERANDS]
    cdef char *own = w.scratch + omp_get_thread_num() * MAX_OPERANDS * w.room
    cdef char *run
    cdef int k, last = w.n_operands - 1
    for k in range(w.n_operands):
        run = own + k * w.room
        if not w.n_whole <= k < last:
            p[k] = moved(axes, k, at[k], start, n, w.itemsize, axes.clamps and k == last, run,
                         False)
        else:
            p[k] = _number(axes.storage[k], at[k], w.itemsize, run)
    if axes.clamps:
        clamp(p[last], n, w.itemsize == 8, axes.bounds)
    w.step(p, n, h)
    for k in range(last):
        if k < w.n_whole:
            if p[k] == own + k * w.room:
                moved(axes, k, at[k], start, n, w.itemsize, False, <char *>p[k], True)
        elif p[k] != at[k]:
            scatter(at[k], w.itemsize, <char *>p[k], 1, w.itemsize, axes.storage[k])


cdef void _run_blocks(const work *w, const tensor *t, Py_ssize_t row, Py_ssize_t stop,
                      const void *h) noexcept nogil:
    """Step rows of contiguous operands, of which some are blocks of codes.

    The first row begins a block. A block is decoded for its first row and encoded after its last.
    """
    cdef void *p[MAX_OPERANDS]
    cdef char *own = w.scratch + omp_get_thread_num() * MAX_OPERANDS * w.room
    cdef float *run
    cdef int k, storage, last = w.n_operands - 1
    # elements: of the first that is decoded, behind the last one, of the row, of the tensor
    cdef Py_ssize_t first = row * t.inner, decoded = first, start, size = t.size, n
    while row < stop:
        start = row * t.inner
        while decoded < start + t.inner:
            n = min(<Py_ssize_t>CODES, size - decoded)
            for k in range(w.n_whole):
                if t.axes.storage[k] >= SIGNED8:
                    decode_block(t.axes.storage[k], t.data[k], decoded, n,
                                 <float *>(own + k * w.room) + (decoded - first))
            decoded += n
        for k in range(w.n_operands):
            storage, run = t.axes.storage[k], <float *>(own + k * w.room)
            if w.n_whole <= k < last:
                p[k] = _number(storage, t.data[k] + row * (4 if storage == NATIVE else 2), 4,
                               <char *>run)
            elif storage >= SIGNED8:
                p[k] = run + (start - first)
            else:
                p[k] = moved(t.axes, k, t.data[k], start, t.inner, 4, t.axes.clamps and k == last,
                             <char *>run, False)
        if t.axes.clamps:
            clamp(p[last], t.inner, False, t.axes.bounds)
        w.step(p, t.inner, h)
        for k in range(last):
            storage = t.axes.storage[k]
            n = 1 if w.n_whole <= k < last else t.inner
            if NATIVE < storage < SIGNED8:
                scatter(t.data[k] + row * n * 2, 2, <char *>p[k], n, 4, storage)
        row += 1
        while first < decoded and min(first + CODES, size) <= start + t.inner:
            n = min(<Py_ssize_t>CODES, size - first)
            for k in range(w.n_whole):
                if t.axes.storage[k] >= SIGNED8:
                    run = <float *>(own + k * w.room)
                    encode_block(t.axes.storage[k], run, n, t.data[k], first)
                    memmove(run, run + n, (decoded - first - n) * sizeof(float))
            first += n


cdef void run_rows(const work *w, const tensor *t, Py_ssize_t row, Py_ssize_t stop,
                   const void *h) noexcept nogil:
    """Step rows row .. stop - 1 of a variable."""
    cdef void *p[MAX_OPERANDS]
    cdef int k, last = w.n_operands - 1
    cdef bint has_one
    if t.axes != NULL and t.axes.blocked:
        _run_blocks(w, t, row, stop, h)
        return
    while row < stop:
        for k in range(w.n_operands):
            has_one = w.n_whole <= k < last
            if t.axes != NULL:
                p[k] = t.data[k] + (row * t.axes.stride[k][0] if has_one else 0)
            else:
                p[k] = t.data[k] + row * w.itemsize * (1 if has_one else t.inner)
        if t.axes != NULL:
            run_row(w, t.axes, <char **>p, row * t.inner, t.inner, h)
        else:
            w.step(p, t.inner, h)
        row += 1
