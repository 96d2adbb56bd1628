# Copies of rows of a sparse matrix, and products with weights; included by csr.pyx.

cdef void _copy_rows(const char *elements, Py_ssize_t itemsize, const int64_t *rows,
                     Py_ssize_t n_rows, const int64_t *ends, const int64_t *new, char *copied,
                     extent *e) noexcept nogil:
    """Copy the elements of rows one after another, to where `new` says that they end."""
    cdef Py_ssize_t i, at, n, start = 0
    for i in range(n_rows):
        if i + AHEAD < n_rows:
            n = row_length(ends, once(&rows[i + AHEAD]), &start, e)
            for at in range(0, n * itemsize, 64):
                prefetch_line(elements + start * itemsize + at)
        n = row_length(ends, once(&rows[i]), &start, e)
        if n != new[i + 1] - new[i]:
            raise_flag(&e.outside)
            return
        memcpy(copied + new[i] * itemsize, elements + start * itemsize, n * itemsize)


def take(data, indices, indptr, rows, Py_ssize_t n_columns):
    """Copy rows of a CSR matrix.

    Parameters
    ----------
    data : array of float32 or float64
    indices : array of int32 or int64
    indptr : array of int64
    rows : array of int64
        In any order; a row may occur more than once.
    n_columns : int

    Returns
    -------
    data, indices, indptr : ndarray
        Of the matrix of these rows, of the same dtypes.

    Raises
    ------
    InvalidArgumentError
        If the arrays are inconsistent.
    IndexOutOfRangeError
        If the number of a row, or of a column of these rows, is out of range.
    """
    cdef cnp.ndarray x = _float_array(data, "data", 1), j = _index_array(indices, "indices")
    cdef cnp.ndarray old = _wide_array(indptr, "indptr"), which = _wide_array(rows, "rows")
    cdef cnp.ndarray new, values, columns
    cdef extent e = extent_of(cnp.PyArray_SIZE(x), cnp.PyArray_SIZE(j), cnp.PyArray_SIZE(old),
                              cnp.PyArray_SIZE(old) - 1, 0, n_columns)
    cdef Py_ssize_t i, n_rows = cnp.PyArray_SIZE(which), start = 0
    cdef cnp.npy_intp n = n_rows + 1
    new = cnp.PyArray_ZEROS(1, &n, cnp.NPY_INT64, 0)
    cdef const int64_t *row = <const int64_t *>cnp.PyArray_DATA(which)
    cdef const int64_t *ends = <const int64_t *>cnp.PyArray_DATA(old)
    cdef int64_t *end = <int64_t *>cnp.PyArray_DATA(new)
    n = 0
    for i in range(n_rows):
        n += max(<Py_ssize_t>0, row_length(ends, once(&row[i]), &start, &e))
        end[i + 1] = n
    values = cnp.PyArray_EMPTY(1, &n, cnp.PyArray_TYPE(x), 0)
    columns = cnp.PyArray_EMPTY(1, &n, cnp.PyArray_TYPE(j), 0)
    cdef Py_ssize_t value_size = cnp.PyArray_ITEMSIZE(x), index_size = cnp.PyArray_ITEMSIZE(j)
    cdef char *value = <char *>cnp.PyArray_DATA(values)
    cdef char *column = <char *>cnp.PyArray_DATA(columns)
    with nogil:
        _copy_rows(<const char *>cnp.PyArray_DATA(x), value_size, row, n_rows, ends, end, value, &e)
        _copy_rows(<const char *>cnp.PyArray_DATA(j), index_size, row, n_rows, ends, end, column,
                   &e)
        if (_any_outside(<int32_t *>column, n, n_columns) if index_size == 4
                else _any_outside(<int64_t *>column, n, n_columns)):
            raise_flag(&e.outside)
    if e.outside:
        check_indices(which, e.n_rows, "rows")
    refuse_outside(&e, x, j, old, None)
    return values, columns, new


cdef void _dot(const real *x, const index *j, const int64_t *ends, const real *w,
               Py_ssize_t width, real *sums, extent *e) noexcept nogil:
    cdef Py_ssize_t i, k, c, at, n, start = 0
    cdef real total
    for i in range(e.n_rows):
        n = row_length(ends, i, &start, e)
        total = 0
        for c in range(width):
            sums[i * width + c] = 0
        for k in range(start, start + n):
            at = once(&j[k])
            if not within(at, e.n_columns):
                raise_flag(&e.outside)
                return
            if k + NEAR < e.n_entries:
                prefetch_line(<const char *>(w + once(&j[k + NEAR]) * width))
            if width == 1:
                total += x[k] * w[at]
                continue
            for c in range(width):
                sums[i * width + c] += x[k] * w[at * width + c]
        if width == 1:
            sums[i] = total


def dot(data, indices, indptr, w):
    """Multiply a CSR matrix by a dense one. A sum has its terms in the order of the entries.

    Parameters
    ----------
    data : array of float32 or float64
    indices : array of int32 or int64
    indptr : array of int64
    w : array of the dtype of data, shape (n_columns, width)

    Returns
    -------
    ndarray, shape (n_rows, width)

    Raises
    ------
    InvalidArgumentError
        If the arrays are inconsistent.
    IndexOutOfRangeError
        If the number of a column is out of range.
    """
    cdef cnp.ndarray x = _float_array(data, "data", 1), j = _index_array(indices, "indices")
    cdef cnp.ndarray ends = _wide_array(indptr, "indptr"), weights = _float_array(w, "w", 2)
    cdef cnp.ndarray products
    cdef extent e = extent_of(cnp.PyArray_SIZE(x), cnp.PyArray_SIZE(j), cnp.PyArray_SIZE(ends),
                              cnp.PyArray_SIZE(ends) - 1, 0, cnp.PyArray_DIM(weights, 0))
    cdef cnp.npy_intp[2] shape = [e.n_rows, cnp.PyArray_DIM(weights, 1)]
    if cnp.PyArray_TYPE(weights) != cnp.PyArray_TYPE(x):
        raise InvalidTypeError(f"w must be {x.dtype} as data, not {weights.dtype}")
    products = cnp.PyArray_EMPTY(2, shape, cnp.PyArray_TYPE(x), 0)
    cdef bint is_double = cnp.PyArray_ITEMSIZE(x) == 8, is_wide = cnp.PyArray_ITEMSIZE(j) == 8
    cdef void *p = cnp.PyArray_DATA(x)
    cdef void *q = cnp.PyArray_DATA(j)
    cdef void *r = cnp.PyArray_DATA(weights)
    cdef void *s = cnp.PyArray_DATA(products)
    cdef const int64_t *end = <const int64_t *>cnp.PyArray_DATA(ends)
    cdef fp_state caller
    with nogil:
        caller = fp_enter(False)
        if is_double and is_wide:
            _dot(<double *>p, <int64_t *>q, end, <double *>r, shape[1], <double *>s, &e)
        elif is_double:
            _dot(<double *>p, <int32_t *>q, end, <double *>r, shape[1], <double *>s, &e)
        elif is_wide:
            _dot(<float *>p, <int64_t *>q, end, <float *>r, shape[1], <float *>s, &e)
        else:
            _dot(<float *>p, <int32_t *>q, end, <float *>r, shape[1], <float *>s, &e)
        fp_leave(caller)
    refuse_outside(&e, x, j, ends, None)
    return products
