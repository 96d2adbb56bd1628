"""Sum the rows of a sparse gradient that have the same index."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.csr cimport check_length, index
from tfopt.kernels.arrays.coerce cimport storage_of
from tfopt.kernels.arrays.csr import check_indices
from tfopt.kernels.arrays.layout cimport NATIVE, halves_in_use

from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.halves cimport widen_t
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, prefetch_row, raise_flag, read_once, within,
)
from tfopt.kernels.platform.runtime cimport (
    flush_denormals, gather_team, run_team, share_of, team,
)
from tfopt.kernels.reduce.norms cimport sums_in_use
from tfopt.kernels.reduce.row_sums cimport FETCHED, ROWS_AHEAD, add_rows_t, limited
from tfopt.kernels.update.distinct cimport place_of, table_size

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    OWNED_BYTES = 2048  # sums are owned in blocks of this size, so as not to share cache lines
    PIECE = 4096        # rows in which a thread looks for its own at a time


cdef Py_ssize_t _number(const index[::1] indices, index[::1] distinct, Py_ssize_t[::1] place,
                        uint32_t *table, Py_ssize_t size) noexcept nogil:
    """Number the distinct indices in the order of their first occurrence.

    place[i] becomes the number of indices[i]; returns how many distinct indices there are. The
    table is initially empty.
    """
    cdef Py_ssize_t i, at, n = 0
    for i in range(indices.shape[0]):
        at = place_of(indices[i], &distinct[0], table, size)
        if table[at] == 0:
            distinct[n] = indices[i]
            n += 1
            table[at] = <uint32_t>n
        place[i] = table[at] - 1
    return n


def distinct_indices(const index[::1] indices not None, workspace):
    """The distinct indices, in the order of first occurrence, and the position of each index there.

    Returns
    -------
    distinct : ndarray, dtype of indices
    place : ndarray of intp
        ``distinct[place] == indices``. Both are the workspace's "distinct" and "place".

    Raises
    ------
    InvalidArgumentError
        If there are more indices than 32 bits can number.
    """
    cdef Py_ssize_t n = indices.shape[0], size = table_size(n)
    if n >= <Py_ssize_t>0xFFFFFFFF:
        raise InvalidArgumentError("there must be fewer than 2**32 indices")
    numbered = workspace.array("distinct", (n,), np.int32 if index is int32_t else np.int64)
    places = workspace.array("place", (n,), np.intp)
    cdef index[::1] distinct = numbered
    cdef Py_ssize_t[::1] place = places
    cdef uint32_t[::1] table = workspace.array("table", (size,), np.uint32)
    with nogil:
        memset(&table[0], 0, size * sizeof(uint32_t))
        n = _number(indices, distinct, place, &table[0], size)
    return numbered[:n], places


cdef Py_ssize_t _rank(const index[::1] ascending, index one) noexcept nogil:
    cdef Py_ssize_t low = 0, high = ascending.shape[0], middle
    while high - low > 1:
        middle = (low + high) // 2
        if ascending[middle] <= one:
            low = middle
        else:
            high = middle
    return low


def put_in_order(index[::1] distinct not None, Py_ssize_t[::1] place not None, workspace):
    """Sort distinct indices, and renumber the positions accordingly."""
    cdef Py_ssize_t i, at, n = distinct.shape[0]
    cdef Py_ssize_t[::1] rank = workspace.array("rank", (n,), np.intp)
    sorted_ = workspace.array("sorted", (n,), np.int32 if index is int32_t else np.int64)
    sorted_[...] = distinct
    sorted_.sort()
    cdef const index[::1] ascending = sorted_
    cdef int outside = 0
    with nogil:
        for i in range(n):
            rank[i] = _rank(ascending, distinct[i])
        for i in range(place.shape[0]):
            at = read_once(&place[i])
            if within(at, n):
                place[i] = rank[at]
            else:
                outside = 1
        distinct[...] = ascending
    if outside:
        raise IndexOutOfRangeError(f"place must be in [0, {n})")


cdef struct addition:
    add_rows_t add
    char *rows
    Py_ssize_t stride           # of rows, in bytes
    char *sums                  # contiguous
    Py_ssize_t sum_bytes
    Py_ssize_t width            # in real numbers, of which a complex one has two
    const Py_ssize_t *place     # of each term's sum
    const Py_ssize_t *at        # of each term's row; NULL: one after another
    const double *weights       # of the terms, or NULL
    widen_t widen               # rows of 16 bits; or NULL
    float *wide                 # a row for each thread
    Py_ssize_t n_terms, n_rows, n_sums
    double bound, scale
    bint flush
    int *outside


cdef inline int _shift(Py_ssize_t sum_bytes) noexcept nogil:
    """The logarithm of the number of adjacent sums with one owner."""
    cdef int shift = 0
    while sum_bytes << shift < OWNED_BYTES and shift < 11:
        shift += 1
    return shift


cdef void _add_numbers(const addition *a, real *sums, const real *numbers) noexcept nogil:
    """Add all rows, of one element, without a detour: by this thread alone."""
    cdef real high = <real>a.bound, factor = <real>a.scale
    cdef Py_ssize_t i, at
    for i in range(a.n_terms):
        at = read_once(&a.place[i])
        if not within(at, a.n_sums):
            raise_flag(a.outside)
            return
        sums[at] = sums[at] + limited(numbers[i], high, factor)


cdef void _add_one_by_one(const addition *a, const Py_ssize_t *terms, const Py_ssize_t *sums,
                          const Py_ssize_t *rows, Py_ssize_t n, float *wide) noexcept nogil:
    """Add rows that have weights of their own, or 16 bits, in order."""
    cdef Py_ssize_t i, stride = a.stride, zero = 0
    cdef Py_ssize_t bytes_ = min(<Py_ssize_t>FETCHED, a.sum_bytes)
    cdef char *given = a.rows
    for i in range(n):
        if i + ROWS_AHEAD < n:
            prefetch_row(&given, &stride, 1, rows[i + ROWS_AHEAD], bytes_)
        if a.widen != NULL:
            a.widen(<const uint16_t *>(a.rows + rows[i] * stride), a.width, wide)
        a.add(a.sums, &sums[i], a.rows if a.widen == NULL else <char *>wide, stride,
              &rows[i] if a.widen == NULL else &zero, 1, a.width, a.bound,
              a.scale if a.weights == NULL else a.weights[terms[i]])


cdef void _add_owned_rows(const void *given, int owner, int owners) noexcept nogil:
    """Add the rows whose sums a thread owns, in order."""
    cdef const addition *a = <const addition *>given
    cdef Py_ssize_t[PIECE] terms
    cdef Py_ssize_t[PIECE] sums
    cdef Py_ssize_t[PIECE] rows
    cdef Py_ssize_t start = 0, i, n
    cdef int shift = _shift(a.sum_bytes)
    cdef bint alone = owners == 1, outside = False
    cdef bint plain = a.weights == NULL and a.widen == NULL
    cdef fp_state caller = fp_enter(a.flush)
    for i in range(a.n_sums):
        if alone or (i >> shift) % owners == owner:
            memset(a.sums + i * a.sum_bytes, 0, a.sum_bytes)
    if alone and a.width == 1 and plain and a.at == NULL:
        if a.sum_bytes == 4:
            _add_numbers(a, <float *>a.sums, <const float *>a.rows)
        else:
            _add_numbers(a, <double *>a.sums, <const double *>a.rows)
        start = a.n_terms
    while start < a.n_terms:
        n = 0
        for i in range(start, min(start + PIECE, a.n_terms)):   # always written, kept if owned
            terms[n], sums[n] = i, read_once(&a.place[i])
            rows[n] = i if a.at == NULL else read_once(&a.at[i])
            outside |= not (within(sums[n], a.n_sums) and within(rows[n], a.n_rows))
            n += alone or (sums[n] >> shift) % owners == owner
        if outside:
            raise_flag(a.outside)
            break
        if plain:
            a.add(a.sums, sums, a.rows, a.stride, rows, n, a.width, a.bound, a.scale)
        else:
            _add_one_by_one(a, terms, sums, rows, n, a.wide + owner * a.width)
        start += PIECE
    fp_leave(caller)


cdef bint _describe(addition *a, cnp.ndarray rows, const Py_ssize_t[::1] place, cnp.ndarray sums,
                    double bound, double scale, const Py_ssize_t[::1] at,
                    const double[::1] weights, int *outside) except -1:
    """Check what is to be added; return False if there is nothing, and the sums are zeros."""
    cdef int typenum = cnp.PyArray_TYPE(sums), storage = storage_of(rows)
    cdef bint is_complex = cnp.PyArray_ISCOMPLEX(sums)
    cdef bint is_double = typenum == cnp.NPY_FLOAT64 or typenum == cnp.NPY_COMPLEX128
    if (typenum not in (cnp.NPY_FLOAT32, cnp.NPY_FLOAT64, cnp.NPY_COMPLEX64, cnp.NPY_COMPLEX128)
            or (storage > NATIVE and typenum != cnp.NPY_FLOAT32)
            or (storage <= NATIVE and cnp.PyArray_TYPE(rows) != typenum)
            or cnp.PyArray_NDIM(rows) != 2 or cnp.PyArray_NDIM(sums) != 2
            or not cnp.PyArray_ISCARRAY(sums) or not _has_runs(rows)
            or (at is None and not cnp.PyArray_ISCARRAY_RO(rows))):
        raise InvalidTypeError("rows and sums must be C-contiguous matrices of one type of floats")
    if is_complex and (bound != INFINITY or scale != 1):
        raise InvalidTypeError("complex rows cannot be clipped or scaled")
    a.n_terms = place.shape[0]
    check_length("place", a.n_terms, cnp.PyArray_DIM(rows, 0) if at is None else at.shape[0])
    check_length("a row of sums", cnp.PyArray_DIM(sums, 1), cnp.PyArray_DIM(rows, 1))
    if weights is not None:
        check_length("weights", weights.shape[0], a.n_terms)
    if a.n_terms == 0 or cnp.PyArray_SIZE(rows) == 0:
        sums[...] = 0
        return False
    a.add = sums_in_use().rows[is_double]
    a.rows, a.sums = cnp.PyArray_BYTES(rows), cnp.PyArray_BYTES(sums)
    a.width = cnp.PyArray_DIM(rows, 1) * (2 if is_complex else 1)
    a.stride, a.sum_bytes = cnp.PyArray_STRIDE(rows, 0), a.width * (8 if is_double else 4)
    a.widen, a.wide = halves_in_use().widen[storage] if storage > NATIVE else NULL, NULL
    a.n_rows, a.n_sums = cnp.PyArray_DIM(rows, 0), cnp.PyArray_DIM(sums, 0)
    a.place, a.at = &place[0], NULL if at is None else &at[0]
    a.weights = NULL if weights is None else &weights[0]
    a.bound, a.scale, a.outside = bound, scale, outside
    a.flush = at is None and flush_denormals()
    return True


cdef object _room(addition *a, int threads):
    """Memory in which threads widen rows of 16 bits; None if there are none."""
    if a.widen == NULL:
        return None
    wide = np.empty((threads, a.width), np.float32)
    a.wide = <float *>cnp.PyArray_DATA(<cnp.ndarray>wide)
    return wide


cdef int _refuse(list lists) except -1:
    """Say what is outside, of lists as `add_many` takes them."""
    for rows, place, sums, at, _ in lists:
        check_indices(place, len(sums), "place")
        if at is not None:
            check_indices(at, len(rows), "at")
    raise InvalidArgumentError("place was changed while it was read")


def add_rows(cnp.ndarray rows not None, const Py_ssize_t[::1] place not None,
             cnp.ndarray sums not None, double bound, double scale,
             const Py_ssize_t[::1] at=None, const double[::1] weights=None):
    """Set each sum to the sum, in order, of the rows with its position.

    Real rows are clamped to the bound first, and multiplied by the scale. With `at`, the terms are
    these rows instead of all in turn, which need not follow each other in memory; such sums keep
    denormal numbers. With weights, these multiply the terms. Rows of 16 bits are added up in
    float32.
    """
    cdef int outside = 0
    cdef addition a
    if not _describe(&a, rows, place, sums, bound, scale, at, weights, &outside):
        return
    cdef team threads = gather_team(a.n_terms * a.width, 2)
    _held = _room(&a, threads.size)
    with nogil:
        run_team(threads, _add_owned_rows, &a)
    if outside:
        _refuse([(rows, place, sums, at, weights)])


cdef struct additions:
    const addition *each
    Py_ssize_t n
    Py_ssize_t work         # of all


cdef inline Py_ssize_t _work(const addition *a) noexcept nogil:
    return a.n_terms * a.width


cdef void _add_share(const void *given, int thread, int threads) noexcept nogil:
    """Add the rows of those lists whose middles are in a thread's share of the work."""
    cdef const additions *all_ = <const additions *>given
    cdef Py_ssize_t start = share_of(all_.work, thread, threads)
    cdef Py_ssize_t stop = share_of(all_.work, thread + 1, threads)
    cdef Py_ssize_t k, before = 0, middle
    for k in range(all_.n):
        middle = before + _work(&all_.each[k]) // 2
        before += _work(&all_.each[k])
        if start <= middle < stop:
            _add_owned_rows(&all_.each[k], 0, 1)


def add_many(list lists not None):
    """Set sums as `add_rows` does without a bound, for several lists of rows; threads share these.

    Parameters
    ----------
    lists : list of tuple
        Of each: the rows, the places, the sums, `at`, and weights or None.
    """
    cdef Py_ssize_t n = len(lists)
    cdef int outside = 0
    cdef additions all_ = additions(NULL, 0, 0)
    cdef addition *each = <addition *>malloc((n + 1) * sizeof(addition))
    cdef team threads
    cdef list held = []
    if each == NULL:
        raise MemoryError
    all_.each = each
    try:
        for rows, place, sums, at, weights in lists:
            if _describe(&each[all_.n], rows, place, sums, INFINITY, 1, at, weights, &outside):
                held.append(_room(&each[all_.n], 1))
                all_.work += _work(&each[all_.n])
                all_.n += 1
        threads = gather_team(all_.work, 2)
        with nogil:
            run_team(threads, _add_share, &all_)
        if outside:
            _refuse(lists)
    finally:
        free(each)


cdef bint _has_runs(cnp.ndarray rows):
    """Whether each row is a run of numbers that can be read in place."""
    return (cnp.PyArray_ISALIGNED(rows) and cnp.PyArray_ISNOTSWAPPED(rows)
            and (cnp.PyArray_SIZE(rows) == 0 or cnp.PyArray_DIM(rows, 1) == 1
                 or cnp.PyArray_STRIDE(rows, 1) == cnp.PyArray_ITEMSIZE(rows)))
