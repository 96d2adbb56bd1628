"""Sum the rows of a sparse gradient that have the same index."""

from cython.parallel cimport parallel
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

import numpy as np

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.csr cimport check_length, index
from tfopt.kernels.arrays.csr import check_indices

from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, prefetch_row,
    raise_flag, read_once, within,
)
from tfopt.kernels.platform.runtime cimport (
    begin_share, dismiss_team, end_share, flush_denormals, gather_team, team,
)
from tfopt.kernels.update.step_table cimport AHEAD

ctypedef float complex floatcomplex
ctypedef double complex doublecomplex

ctypedef fused number:
    float
    double
    floatcomplex
    doublecomplex

cdef enum:
    OWNED_BYTES = 2048  # sums are owned in blocks of this size, so as not to share cache lines
    PIECE = 4096        # rows in which a thread looks for its own at a time


cdef Py_ssize_t _number(const index[::1] indices, index[::1] distinct, Py_ssize_t[::1] place,
                        uint32_t *table, uint64_t mask) noexcept nogil:
    """Number the distinct indices in the order of their first occurrence.

    place[i] becomes the number of indices[i]; returns how many distinct indices there are. The
    table, initially zeros and at least twice as long as the indices, holds numbers plus one.
    """
    cdef Py_ssize_t i, n = 0
    cdef uint64_t at
    for i in range(indices.shape[0]):
        at = (<uint64_t>indices[i] * <uint64_t>0x9E3779B97F4A7C15) >> 20
        at &= mask
        while table[at] and distinct[table[at] - 1] != indices[i]:
            at = (at + 1) & mask
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
    cdef Py_ssize_t n = indices.shape[0], size = 16
    if n >= <Py_ssize_t>0xFFFFFFFF:
        raise InvalidArgumentError("there must be fewer than 2**32 indices")
    while size < 2 * n:
        size *= 2
    numbered = workspace.array("distinct", (n,), np.int32 if index is int32_t else np.int64)
    places = workspace.array("place", (n,), np.intp)
    cdef index[::1] distinct = numbered
    cdef Py_ssize_t[::1] place = places
    cdef uint32_t[::1] table = workspace.array("table", (size,), np.uint32)
    with nogil:
        memset(&table[0], 0, size * sizeof(uint32_t))
        n = _number(indices, distinct, place, &table[0], size - 1)
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


cdef inline int _shift(Py_ssize_t row_bytes) noexcept nogil:
    """The logarithm of the number of adjacent sums with one owner."""
    cdef int shift = 0
    while row_bytes << shift < OWNED_BYTES and shift < 11:
        shift += 1
    return shift


cdef Py_ssize_t _owned(const Py_ssize_t[::1] place, Py_ssize_t start, Py_ssize_t stop,
                       Py_ssize_t n_sums, int shift, int owner, int owners, Py_ssize_t *mine,
                       Py_ssize_t *sums, int *outside) noexcept nogil:
    """Collect the rows start .. stop - 1 whose sums a thread owns; return their number."""
    cdef Py_ssize_t i, n = 0
    for i in range(start, stop):    # always written, kept if owned
        mine[n], sums[n] = i, read_once(&place[i])
        if not within(sums[n], n_sums):
            raise_flag(outside)
            continue
        n += (sums[n] >> shift) % owners == owner
    return n


cdef void _clear_owned(char *sums, Py_ssize_t n, Py_ssize_t row_bytes, int shift, int owner,
                       int owners) noexcept nogil:
    cdef Py_ssize_t p
    for p in range(n):
        if (p >> shift) % owners == owner:
            memset(sums + p * row_bytes, 0, row_bytes)


cdef inline number _limited(number value, number high, number factor) noexcept nogil:
    """A number clamped to [-high, high], unless it is complex, and multiplied by a factor."""
    if number is float or number is double:
        value = high if high < value else value
        value = -high if -high > value else value
        return value * factor
    else:
        return value


cdef void _add_singles(const number[:, ::1] values, const Py_ssize_t[::1] place,
                       number[:, ::1] sums, number high, number factor, int *outside) \
        noexcept nogil:
    """`_add_owned_rows` for rows of one element, all by this thread."""
    cdef Py_ssize_t i, at, n = sums.shape[0]
    for i in range(values.shape[0]):
        at = read_once(&place[i])
        if within(at, n):
            sums[at, 0] = sums[at, 0] + _limited(values[i, 0], high, factor)
        else:
            raise_flag(outside)


cdef void _add_owned_rows(const number[:, ::1] values, const Py_ssize_t[::1] place,
                          number[:, ::1] sums, double bound, double scale, int *outside,
                          int owner, int owners) noexcept nogil:
    # sums[place[i]] += values[i], i ascending, where this thread owns the sum
    cdef number high = <number>bound, factor = <number>scale
    cdef Py_ssize_t[PIECE] mine
    cdef Py_ssize_t[PIECE] places
    cdef Py_ssize_t start = 0, stop, n, i, j, width = values.shape[1]
    cdef Py_ssize_t row_bytes = width * sizeof(number)
    cdef char *base = <char *>&sums[0, 0] if sums.shape[0] and width else NULL
    cdef number *into
    cdef const number *row
    cdef int shift = _shift(row_bytes)
    cdef fp_state caller = fp_enter(flush_denormals())
    _clear_owned(base, sums.shape[0], row_bytes, shift, owner, owners)
    if width == 1 and owners == 1:
        _add_singles(values, place, sums, high, factor, outside)
        start = values.shape[0]
    while start < values.shape[0]:
        stop = min(start + PIECE, values.shape[0])
        n = _owned(place, start, stop, sums.shape[0], shift, owner, owners, mine, places, outside)
        for i in range(n if width else 0):
            if i + AHEAD < n:
                prefetch_row(&base, &row_bytes, 1, places[i + AHEAD], row_bytes)
            into = &sums[places[i], 0]
            row = &values[mine[i], 0]
            for j in range(width):
                into[j] = into[j] + _limited(row[j], high, factor)
        start = stop
    fp_leave(caller)


def add_rows(const number[:, ::1] values not None, const Py_ssize_t[::1] place not None,
             number[:, ::1] sums not None, double bound, double scale):
    """Set each row of sums to the sum, in order, of the rows of values with its position.

    Real rows are clamped to the bound first, and multiplied by the scale.
    """
    if number is floatcomplex or number is doublecomplex:
        if bound != np.inf or scale != 1:
            raise InvalidTypeError("complex rows cannot be clipped or scaled")
    check_length("place", place.shape[0], values.shape[0])
    check_length("a row of sums", sums.shape[1], values.shape[1])
    cdef int outside = 0
    cdef team t = gather_team(values.shape[0] * values.shape[1], 2)
    with nogil:
        if t.size == 1:
            _add_owned_rows(values, place, sums, bound, scale, &outside, 0, 1)
        else:
            with parallel(num_threads=t.size):
                begin_share(&t)
                _add_owned_rows(values, place, sums, bound, scale, &outside,
                                omp_get_thread_num(), omp_get_num_threads())
                end_share(&t)
        dismiss_team(&t)
    if outside:
        check_indices(place, sums.shape[0], "place")
        raise InvalidArgumentError("place was changed while it was read")
