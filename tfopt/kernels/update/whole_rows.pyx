"""Steps of whole rows, by rules with a reduction.

Such a step sums over the elements of a row before it updates them, so it gets all of them at once,
in C order, which fixes the order of summation. Rows that are not runs in the computation type are
gathered in memory of the thread, stepped there, and scattered.
"""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memmove

from tfopt.kernels.arrays.coerce cimport block_storage_of, storage_of
from tfopt.kernels.arrays.layout cimport (
    NATIVE, SIGNED8, clamp, decode_block, encode_block, gather, layout, scatter,
)
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.machine cimport omp_get_thread_num
from tfopt.kernels.platform.runtime cimport MOVED, team_size
from tfopt.kernels.update.work cimport tensor, work
from tfopt.kernels.update.step_table cimport MAX_DIMS, MAX_OPERANDS

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    LINE = 64       # bytes: threads do not share lines of the cache
    MOST = 4096     # threads


cdef int set_rows(tensor *into, list variables, cnp.ndarray grad, int n_whole,
                  int skip_axes) except -1:
    """Set the addresses of operands, and unless rows are runs, their axes in C order.

    The operands from `n_whole` on, but the gradient, have one number for each row.
    """
    cdef layout *axes = <layout *>calloc(1, sizeof(layout))
    cdef cnp.ndarray a, var = variables[0]
    cdef int k, axis, last, n = len(variables)
    cdef bint are_runs = True, merges
    if axes == NULL:
        raise MemoryError
    axes.n_written = n
    for k in range(n + 1):
        a = variables[k] if k < n else grad
        into.data[k] = <char *>cnp.PyArray_DATA(a)
        axes.storage[k] = block_storage_of(a)
        if axes.storage[k] > NATIVE:
            axes.blocked = True
        else:
            axes.storage[k] = storage_of(a)
        are_runs = are_runs and axes.storage[k] == NATIVE
        if n_whole <= k < n and cnp.PyArray_NDIM(a):
            axes.stride[k][0] = cnp.PyArray_STRIDE(a, 0)
            are_runs = are_runs and (skip_axes or cnp.PyArray_IS_C_CONTIGUOUS(a))
    into.axes = axes
    if axes.blocked:        # then all are contiguous
        return 0
    for axis in range(cnp.PyArray_NDIM(var) - 1, skip_axes - 1, -1):
        if cnp.PyArray_DIM(var, axis) == 1:
            continue
        last = axes.ndim - 1
        merges = last >= 0
        for k in range(n + 1):
            if not n_whole <= k < n:
                a = variables[k] if k < n else grad
                merges = merges and (cnp.PyArray_STRIDE(a, axis)
                                     == axes.stride[k][last] * axes.shape[last])
        if not merges:
            last = axes.ndim
            axes.ndim += 1
            axes.shape[last] = 1
        for k in range(n + 1):
            if not merges and not n_whole <= k < n:
                a = variables[k] if k < n else grad
                axes.stride[k][last] = cnp.PyArray_STRIDE(a, axis)
        axes.shape[last] *= cnp.PyArray_DIM(var, axis)
    if axes.ndim == 0:      # a single element
        axes.ndim = axes.shape[0] = 1
    for k in range(n + 1):
        if not n_whole <= k < n and axes.shape[0] != 1:
            a = variables[k] if k < n else grad
            are_runs = are_runs and axes.stride[k][0] == cnp.PyArray_ITEMSIZE(a)
    if are_runs and axes.ndim == 1:
        free(axes)
        into.axes = NULL
    return 0


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

    Returns
    -------
    char *
        The run; elements that are one where they are stay there.
    """
    cdef Py_ssize_t index[MAX_DIMS]
    cdef Py_ssize_t rest = start, piece, stride = axes.stride[k][0]
    cdef char *to = run
    cdef int axis
    for axis in range(axes.ndim):
        index[axis] = rest
        if axis < axes.ndim - 1:
            index[axis] = rest % axes.shape[axis]
            rest //= axes.shape[axis]
        at += index[axis] * axes.stride[k][axis]
    if (axes.storage[k] == NATIVE and not clamps and n <= axes.shape[0] - index[0]
            and (stride == itemsize or n == 1)):
        return at
    while n > 0:
        piece = min(n, axes.shape[0] - index[0])
        if back:
            scatter(at, stride, to, piece, itemsize, axes.storage[k])
        else:
            gather(to, at, stride, piece, itemsize, axes.storage[k])
        to += piece * itemsize
        n -= piece
        at += piece * stride
        index[0] += piece
        axis = 0
        while index[axis] == axes.shape[axis] and axis + 1 < axes.ndim:     # carry
            at += axes.stride[k][axis + 1] - index[axis] * axes.stride[k][axis]
            index[axis] = 0
            axis += 1
            index[axis] += 1
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
        elif axes.storage[k] == NATIVE:
            p[k] = at[k]
        else:
            p[k] = run
            gather(run, at[k], w.itemsize, 1, w.itemsize, axes.storage[k])
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
    cdef char *at
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
            n = 1 if w.n_whole <= k < last else t.inner
            at = t.data[k] + row * n * (4 if storage == NATIVE else 2)
            p[k] = at
            if storage >= SIGNED8:
                p[k] = run + (start - first)
            elif storage != NATIVE or (k == last and t.axes.clamps):
                p[k] = run
                gather(<char *>run, at, 4 if storage == NATIVE else 2, n, 4, storage)
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
