"""The memory ranges of arrays, whether they overlap, and how they are kept where they are."""

import numpy as np

from cpython.weakref cimport PyWeakref_NewRef
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memset

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.coerce cimport refuse_layout

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()


cdef list hold(object arrays):
    """Keep the memory of arrays, or of those in lists, where it is as long as the result lives.

    NumPy lets any thread resize an array that others refer to, but for one with weak references.
    """
    cdef list held = []
    cdef object each, array
    for each in arrays:
        for array in each if isinstance(each, (list, tuple)) else (each,):
            if isinstance(array, cnp.ndarray):
                held.append(PyWeakref_NewRef(array, None))
    return held


cdef bint same_shape(cnp.ndarray a, cnp.ndarray b) noexcept:
    return (cnp.PyArray_NDIM(a) == cnp.PyArray_NDIM(b)
            and (cnp.PyArray_NDIM(a) == 0
                 or memcmp(cnp.PyArray_DIMS(a), cnp.PyArray_DIMS(b),
                           cnp.PyArray_NDIM(a) * sizeof(cnp.npy_intp)) == 0))


cdef bint same_rows(cnp.ndarray a, cnp.ndarray var) noexcept:
    """Whether an array has the shape of one number for each row of a variable."""
    cdef int ndim = min(1, cnp.PyArray_NDIM(var))
    return (cnp.PyArray_NDIM(a) == ndim
            and (ndim == 0 or cnp.PyArray_DIM(a, 0) == cnp.PyArray_DIM(var, 0)))


cdef void address_range(cnp.ndarray a, char **low, char **high) noexcept:
    """The range of addresses of a's elements."""
    cdef int axis
    cdef Py_ssize_t reach
    low[0] = high[0] = <char *>cnp.PyArray_DATA(a)
    if cnp.PyArray_SIZE(a) == 0:
        return
    if cnp.PyArray_IS_C_CONTIGUOUS(a):
        high[0] += cnp.PyArray_NBYTES(a)
        return
    high[0] += cnp.PyArray_ITEMSIZE(a)
    for axis in range(cnp.PyArray_NDIM(a)):
        reach = (cnp.PyArray_DIM(a, axis) - 1) * cnp.PyArray_STRIDE(a, axis)
        if reach < 0:
            low[0] += reach
        else:
            high[0] += reach


cdef bint overlap(cnp.ndarray a, cnp.ndarray b) except -1:
    cdef char *a_low = NULL
    cdef char *a_high = NULL
    cdef char *b_low = NULL
    cdef char *b_high = NULL
    address_range(a, &a_low, &a_high)
    address_range(b, &b_low, &b_high)
    if a_high <= b_low or b_high <= a_low:
        return False
    if cnp.PyArray_IS_C_CONTIGUOUS(a) and cnp.PyArray_IS_C_CONTIGUOUS(b):
        return a_low < a_high and b_low < b_high
    return np.shares_memory(a, b)


cdef bint same_memory(cnp.ndarray a, cnp.ndarray b) noexcept:
    return (cnp.PyArray_DATA(a) == cnp.PyArray_DATA(b) and same_shape(a, b)
            and (cnp.PyArray_NDIM(a) == 0
                 or memcmp(cnp.PyArray_STRIDES(a), cnp.PyArray_STRIDES(b),
                           cnp.PyArray_NDIM(a) * sizeof(cnp.npy_intp)) == 0))


cdef int check_itself(cnp.ndarray a, str name) except -1:
    """Raise if elements of an array share memory (as_strided can create such an array)."""
    cdef Py_ssize_t reach = cnp.PyArray_ITEMSIZE(a)
    if cnp.PyArray_SIZE(a) == 0 or cnp.PyArray_IS_C_CONTIGUOUS(a) \
            or cnp.PyArray_IS_F_CONTIGUOUS(a):
        return 0
    axes = zip((<object>a).strides, (<object>a).shape)
    for stride, n in sorted((abs(s), n) for s, n in axes if n > 1):
        if stride < reach:
            raise InvalidArgumentError(f"{name} overlaps itself: its elements share memory")
        reach += stride * (n - 1)
    return 0


cdef bint disjoint(span *spans, span *spare, Py_ssize_t n) noexcept nogil:
    """Whether no two of n spans overlap; sorts them. May be False for spans that share 16 bytes.

    A few are compared with each other. Of more a radix sort takes the least time: to compare and
    sort thousands of spans per step would take too long.
    """
    cdef size_t least = <size_t>-1, most = 0, digit
    cdef Py_ssize_t[256] at
    cdef Py_ssize_t i, begin, count
    cdef int shift = 4          # spans within the same 16 bytes may stay unordered
    for i in range(n if n <= FEW else 0):
        for begin in range(i):
            if spans[i].low < spans[begin].high and spans[begin].low < spans[i].high:
                return False
    if n <= FEW:
        return True
    for i in range(n):
        least = spans[i].low if spans[i].low < least else least
        most = spans[i].low if spans[i].low > most else most
    while n and (most - least) >> shift:
        memset(at, 0, sizeof(at))
        for i in range(n):
            at[((spans[i].low - least) >> shift) & 255] += 1
        begin = 0
        for i in range(256):
            count = at[i]
            at[i] = begin
            begin += count
        for i in range(n):
            digit = ((spans[i].low - least) >> shift) & 255
            spare[at[digit]] = spans[i]
            at[digit] += 1
        spans, spare = spare, spans
        shift += 8
    for i in range(1, n):
        if spans[i - 1].high > spans[i].low:
            return False
    return True


cdef bint all_apart(list columns) except -1:
    """Whether no two arrays of lists overlap; may be False for arrays that are close together."""
    cdef Py_ssize_t n = 0
    cdef list column
    cdef object a
    cdef bint answer
    for column in columns:
        n += len(column)
    cdef span *spans = <span *>malloc((2 * n + 1) * sizeof(span))
    if spans == NULL:
        raise MemoryError
    cdef span *spare = spans + n
    n = 0
    for column in columns:
        for a in column:
            address_range(<cnp.ndarray>a, <char **>&spans[n].low, <char **>&spans[n].high)
            n += spans[n].low < spans[n].high
    answer = disjoint(spans, spare, n)
    free(spans)
    return answer


cdef int _by_address(const void *a, const void *b) noexcept nogil:
    cdef size_t x = (<const span *>a).low, y = (<const span *>b).low
    return (x > y) - (x < y)


cdef class Occupied:
    """The memory of arrays: what else overlaps it is found by bisection.

    Parameters
    ----------
    arrays : list of ndarray or tuple of int
        Of an array on a device, the addresses of its first byte and past its last one.

    Attributes
    ----------
    apart : bool
        Whether no two of the arrays share addresses.
    """

    def __cinit__(self, list arrays not None):
        cdef Py_ssize_t i, n = 0
        cdef object a
        self.spans = <span *>malloc((len(arrays) + 1) * sizeof(span))
        if self.spans == NULL:
            raise MemoryError
        for a in arrays:
            if isinstance(a, tuple):
                self.spans[n].low, self.spans[n].high = a
            else:
                address_range(<cnp.ndarray?>a, <char **>&self.spans[n].low,
                              <char **>&self.spans[n].high)
            n += self.spans[n].low < self.spans[n].high
        qsort(self.spans, n, sizeof(span), &_by_address)
        self.apart = True
        for i in range(n):      # overlapping spans become one
            if self.n and self.spans[self.n - 1].high > self.spans[i].low:
                self.apart = False
                self.spans[self.n - 1].high = max(self.spans[self.n - 1].high, self.spans[i].high)
            else:
                self.spans[self.n] = self.spans[i]
                self.n += 1

    def __dealloc__(self):
        free(self.spans)

    cdef bint meets(self, size_t low, size_t high) noexcept:
        """Whether any of these bytes are among the arrays' addresses."""
        cdef Py_ssize_t first = 0, stop = self.n, middle
        while first < stop:         # the first span that ends behind low
            middle = (first + stop) // 2
            if self.spans[middle].high > low:
                stop = middle
            else:
                first = middle + 1
        return first < self.n and self.spans[first].low < high

    def touches(self, cnp.ndarray array not None):
        """Whether an array's range of addresses overlaps that of any of the arrays."""
        cdef char *low = NULL
        cdef char *high = NULL
        address_range(array, &low, &high)
        return low < high and bool(self.meets(<size_t>low, <size_t>high))


# ---- checks of lists of arrays

def check_layouts(list arrays not None, str name not None, bint written):
    """Raise if arrays cannot be read, or written, in place."""
    cdef Py_ssize_t t
    cdef cnp.ndarray a
    for t in range(len(arrays)):
        if not isinstance(arrays[t], cnp.ndarray):
            raise InvalidTypeError(
                f"{name} must be a numpy.ndarray, not {type(arrays[t]).__name__}"
            )
        a = arrays[t]
        if cnp.PyArray_CHKFLAGS(a, cnp.NPY_ARRAY_CARRAY if written else cnp.NPY_ARRAY_CARRAY_RO) \
                and cnp.PyArray_ISNOTSWAPPED(a):
            continue
        if written:
            if not cnp.PyArray_ISBEHAVED(a):
                refuse_layout(a, name, True)
            check_itself(a, name)
        elif not (cnp.PyArray_ISALIGNED(a) and cnp.PyArray_ISNOTSWAPPED(a)):
            refuse_layout(a, name, False)


def in_place(cnp.ndarray out not None, cnp.ndarray array not None):
    """Whether two arrays have the same memory, shape and strides."""
    return bool(same_memory(out, array))


def certainly_apart(list outs not None, list arrays not None):
    """Whether no out shares memory with anything but its own array.

    May be False for arrays that are close together, or for two that overlap but are only read.
    """
    cdef list others = []
    cdef Py_ssize_t t
    if len(outs) != len(arrays):
        raise InvalidArgumentError(
            f"out must list one array for each input: {len(outs)} for {len(arrays)}"
        )
    for a in (*outs, *arrays):
        if not isinstance(a, cnp.ndarray):
            raise InvalidTypeError(f"a numpy.ndarray was expected, not {type(a).__name__}")
    for t in range(len(outs)):
        if not same_memory(<cnp.ndarray?>outs[t], <cnp.ndarray?>arrays[t]):
            others.append(arrays[t])
    return bool(all_apart([outs, others]))
