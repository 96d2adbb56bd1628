"""The arrays of a sparse matrix: their validation, copies of rows, and products with weights.

`check_csr` checks a matrix passed by a user and names the error before anything else happens. Once
per fit is enough, because the kernels do not rely on it for memory safety: they compare lengths
when they are called and test each index as they read it (csr.pxd), so neither an unchecked matrix
nor one that another thread changes after the check makes them crash. Testing indices is cheaper
than a separate pass per epoch, and needs no copy of the matrix.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.coerce cimport as_array, refuse_layout, shape_of
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, prefetch_line, raise_flag, within,
)
from tfopt.kernels.platform.runtime cimport gather_team, run_team
from tfopt.kernels.platform.floats cimport real

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    BLOCK = 65536       # indices that a thread checks at a time
    AHEAD = 4           # rows ahead that are prefetched
    NEAR = 32           # entries ahead whose weights are


cdef bint _any_outside(const index *indices, Py_ssize_t n, Py_ssize_t stop) noexcept nogil:
    # what is below 0, or would be if taken from the last, has its highest bit set; so no
    # comparison, which baseline vectors have none of for unsigned numbers, nor for those of 64 bits
    cdef uint32_t narrow = 0, narrow_last = <uint32_t>min(stop - 1, <Py_ssize_t>0x7FFFFFFF)
    cdef uint64_t wide = 0, wide_last = <uint64_t>(stop - 1)
    cdef Py_ssize_t k
    if index is int32_t:
        for k in range(n):
            narrow |= <uint32_t>indices[k] | (narrow_last - <uint32_t>indices[k])
        return narrow >> 31
    else:
        for k in range(n):
            wide |= <uint64_t>indices[k] | (wide_last - <uint64_t>indices[k])
        return wide >> 63


cdef bint _any_falls(const index *indptr, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint falls = False
    for i in range(n):
        falls |= indptr[i + 1] < indptr[i]
    return falls


cdef struct search:
    const char *indices
    bint wide               # of 64 bits
    bint falls              # for an index above the next one, not for one that is not in [0, stop)
    Py_ssize_t n, stop
    int *found


cdef bint _any(const search *s, Py_ssize_t first, Py_ssize_t n) noexcept nogil:
    """Whether any of n indices is what is searched for."""
    cdef const int32_t *narrow = <const int32_t *>s.indices + first
    cdef const int64_t *wide = <const int64_t *>s.indices + first
    if s.falls:
        return _any_falls(wide, n) if s.wide else _any_falls(narrow, n)
    return _any_outside(wide, n, s.stop) if s.wide else _any_outside(narrow, n, s.stop)


cdef void _look(const void *given, int thread, int threads) noexcept nogil:
    cdef const search *s = <const search *>given
    cdef Py_ssize_t b, blocks = (s.n + BLOCK - 1) // BLOCK
    for b in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        if _any(s, b * BLOCK, min(s.n - b * BLOCK, <Py_ssize_t>BLOCK)):
            raise_flag(s.found)


cdef Py_ssize_t _find(search s) noexcept nogil:
    """The position of the first index that is searched for, or -1."""
    cdef Py_ssize_t k
    cdef int found = 0
    s.found = &found
    run_team(gather_team(s.n, 1), _look, &s)
    for k in range(s.n if found else 0):
        if _any(&s, k, 1):
            return k
    return -1


cdef Py_ssize_t first_outside(const char *indices, Py_ssize_t stride, bint wide, Py_ssize_t n,
                              Py_ssize_t stop) noexcept nogil:
    """The position of the first index that is not in [0, stop), or -1."""
    cdef Py_ssize_t k
    stop = max(stop, 0)
    if n < 2 or stride == (8 if wide else 4):
        return _find(search(indices, wide, False, n, stop, NULL))
    for k in range(n):
        if not within((<const int64_t *>indices)[0] if wide else (<const int32_t *>indices)[0],
                      stop):
            return k
        indices += stride
    return -1


cdef cnp.ndarray _array(object argument, str name, str dtypes, int ndim, int least):
    """An array that kernels can read, of elements of at least so many bytes, at most 8.

    It is copied unless it is contiguous.
    """
    cdef cnp.ndarray a = as_array(argument, name)
    if cnp.PyArray_NDIM(a) != ndim:
        raise InvalidArgumentError(
            f"{name} must be {'one' if ndim == 1 else 'two'}-dimensional: {shape_of(a)}"
        )
    if a.descr.kind != <char>ord(dtypes[0]) or not least <= cnp.PyArray_ITEMSIZE(a) <= 8:
        raise InvalidTypeError(f"{name} must be {dtypes}, not {a.dtype}")
    if not (cnp.PyArray_ISALIGNED(a) and cnp.PyArray_ISNOTSWAPPED(a)):
        refuse_layout(a, name, False)
    return cnp.PyArray_GETCONTIGUOUS(a)


cdef cnp.ndarray _index_array(object argument, str name):
    return _array(argument, name, "int32 or int64", 1, 4)


cdef cnp.ndarray _float_array(object argument, str name, int ndim):
    return _array(argument, name, "float32 or float64", ndim, 4)


cdef cnp.ndarray _wide_array(object argument, str name):
    return _array(argument, name, "int64", 1, 8)


def check_indices(indices, Py_ssize_t stop, str name not None):
    """Raise if an index is not in [0, stop).

    Parameters
    ----------
    indices : array of int32 or int64, of one dimension
    stop : int
    name : str
        The name of the array in messages.

    Raises
    ------
    InvalidArgumentError
        If it is not such an array.
    IndexOutOfRangeError
    """
    cdef cnp.ndarray a = _index_array(indices, name)
    cdef Py_ssize_t n = cnp.PyArray_SIZE(a), bad
    cdef const char *first = <const char *>cnp.PyArray_DATA(a)
    cdef int size = cnp.PyArray_ITEMSIZE(a)
    with nogil:
        bad = first_outside(first, size, size == 8, n, stop)
    if bad >= 0:
        raise IndexOutOfRangeError(f"{name}[{bad}] is {a[bad]}, which is not in [0, {stop})")


def check_csr(data, indices, indptr, shape, str name not None="X"):
    """Raise if the arrays of a matrix in CSR format are inconsistent.

    One pass over `indices`, on all threads. Columns may be in any order and may repeat; only the
    length of `data` is checked. For a CSC matrix, pass the transposed shape.

    Parameters
    ----------
    data, indices, indptr : array
        As in SciPy's `csr_matrix` and `csr_array`.
    shape : tuple of int
        The numbers of rows and columns.
    name : str
        The name of the matrix in messages.

    Raises
    ------
    InvalidArgumentError
        If an array has the wrong type, shape or length, or `indptr` decreases.
    IndexOutOfRangeError
        If a column index is out of range.
    """
    cdef Py_ssize_t n_rows, n_columns, fall, stop
    n_rows, n_columns = shape
    cdef cnp.ndarray values = as_array(data, f"{name}.data")
    cdef cnp.ndarray columns = _index_array(indices, f"{name}.indices")
    cdef cnp.ndarray ends = _index_array(indptr, f"{name}.indptr")
    cdef const char *first = <const char *>cnp.PyArray_DATA(ends)
    cdef bint wide = cnp.PyArray_ITEMSIZE(ends) == 8
    if n_rows < 0 or cnp.PyArray_SIZE(ends) != n_rows + 1:
        raise InvalidArgumentError(
            f"{name}.indptr must have one element more than {name} has rows, {n_rows + 1}, "
            f"not {cnp.PyArray_SIZE(ends)}"
        )
    if cnp.PyArray_NDIM(values) != 1:
        raise InvalidArgumentError(f"{name}.data must be one-dimensional: {shape_of(values)}")
    if ends[0] != 0:
        raise InvalidArgumentError(f"{name}.indptr must begin with 0, not {ends[0]}")
    with nogil:
        fall = _find(search(first, wide, True, n_rows, 0, NULL))
    if fall >= 0:
        raise InvalidArgumentError(
            f"{name}.indptr must not decrease, but row {fall} begins at {ends[fall]} and ends "
            f"at {ends[fall + 1]}"
        )
    stop = ends[n_rows]
    for array, what in ((values, "data"), (columns, "indices")):
        if stop > array.size:
            raise InvalidArgumentError(
                f"{name}.indptr ends with {stop}, but {name}.{what} has {array.size} elements"
            )
    check_indices(columns[:stop], n_columns, f"{name}.indices")


cdef bint _ascends(const index *indices, const int64_t *ends, extent *e) noexcept nogil:
    cdef Py_ssize_t i, k, n, start = 0, last, at
    for i in range(e.n_rows):
        n = row_length(ends, i, &start, e)
        last = -1
        for k in range(start, start + n):
            at = once(&indices[k])
            if at <= last:
                return False
            last = at
    return not e.outside


def ascends(indices, indptr):
    """Tell whether the columns ascend in each row of a CSR matrix, each occurring once.

    Other threads may change the arrays meanwhile.

    Parameters
    ----------
    indices : array of int32 or int64
    indptr : array of int64

    Returns
    -------
    bool
    """
    cdef cnp.ndarray j = _index_array(indices, "indices"), ends = _wide_array(indptr, "indptr")
    cdef extent e = extent_of(cnp.PyArray_SIZE(j), cnp.PyArray_SIZE(j), cnp.PyArray_SIZE(ends),
                              cnp.PyArray_SIZE(ends) - 1, 0, 0)
    cdef const int64_t *end = <const int64_t *>cnp.PyArray_DATA(ends)
    cdef void *p = cnp.PyArray_DATA(j)
    cdef bint is_wide = cnp.PyArray_ITEMSIZE(j) == 8, good
    with nogil:
        good = _ascends(<int64_t *>p, end, &e) if is_wide else _ascends(<int32_t *>p, end, &e)
    return good


# ---- checks in kernels

cdef int check_length(str name, Py_ssize_t length, Py_ssize_t expected) except -1:
    if length != expected:
        raise InvalidArgumentError(f"{name} must have length {expected}, not {length}")
    return 0


cdef extent extent_of(Py_ssize_t n_data, Py_ssize_t n_indices, Py_ssize_t n_indptr,
                      Py_ssize_t n_dense, Py_ssize_t width, Py_ssize_t n_weights) except *:
    """The valid range of indices, for a CSR matrix next to a dense block."""
    cdef extent e
    if n_indptr == 0:
        raise InvalidArgumentError("indptr must not be empty")
    check_length("dense", n_dense, n_indptr - 1)
    if n_weights < width:
        raise InvalidArgumentError(f"{n_weights} weights are too few for {width} dense features")
    if n_weights >= <Py_ssize_t>1 << 60:    # sums of such numbers do not overflow
        raise InvalidArgumentError(f"{n_weights} weights exceed the address space")
    e.n_rows, e.n_entries, e.n_columns = n_indptr - 1, min(n_data, n_indices), n_weights - width
    e.outside = 0
    return e


cdef int refuse_outside(const extent *e, object data, object indices, object indptr,
                        object plan) except -1:
    """Raise if a kernel met an index out of range, and say which."""
    if not e.outside:
        return 0
    check_csr(data, indices, indptr, (e.n_rows, e.n_columns), "rows")
    if plan is not None:
        check_indices(plan, e.n_rows, "plan")
    raise InvalidArgumentError("the arrays of indices were changed while they were read")


include "csr_rows.pxi"
