"""Norms: sums of squares in double precision, in the order described in lane_sums.pxd.

A norm is returned as two numbers, root and exponent, and is root * 2^exponent. The exponent is 0
except for float64 whose squares overflow or underflow: those are scaled by a power of two and
summed again.
"""

from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cpython.pycapsule cimport PyCapsule_GetPointer

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.aliasing cimport hold
from tfopt.kernels.arrays.coerce cimport refuse_layout, storage_of
from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.arrays.layout cimport NATIVE, layout, merge_axes
from tfopt.kernels.arrays.walk cimport begin_walk, walk
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.platform.runtime cimport flush_denormals, gather_team, run_team
from tfopt.kernels.reduce.lane_sums cimport LANES, SPAN, span_lanes, sums
from tfopt.kernels.reduce.spans cimport (
    BLEMISHES, PEAKS, SQUARES, combine, fold, misses, scaling, source, sum_span,
)

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef const sums *_sums = NULL


def use_sums(capsule):
    """Use the sums of an instruction set."""
    global _sums
    _sums = <const sums *>PyCapsule_GetPointer(capsule, b"tfopt.sums")


cdef const sums *sums_in_use() noexcept nogil:
    return _sums


cdef struct batch:
    source *sources
    Py_ssize_t n_sources
    Py_ssize_t size         # elements of all
    Py_ssize_t unknown      # those of sources whose sums are not known
    int flush
    double *spans           # the sums
    Py_ssize_t n_spans
    int kind                # of the sums
    double scale            # of the elements


cdef void _set_axes(layout *into, cnp.ndarray a, int first, int stop) noexcept:
    """Set axes first .. stop - 1 of an array."""
    cdef const cnp.npy_intp *strides = cnp.PyArray_STRIDES(a) + first
    merge_axes(into, 1, stop - first, cnp.PyArray_DIMS(a) + first, &strides, True)


cdef int _set_source(source *into, object array, int skip, object bound, int kind) except -1:
    cdef int axis
    into.axes, into.known = NULL, NULL
    if not isinstance(array, cnp.ndarray):
        raise InvalidTypeError(f"an array must be a numpy.ndarray, not {type(array).__name__}")
    cdef cnp.ndarray a = array
    if storage_of(a) < 0 or cnp.PyArray_ISCOMPLEX(a):
        raise InvalidTypeError(f"a norm needs real floats, not {a.dtype}")
    if not (cnp.PyArray_ISALIGNED(a) and cnp.PyArray_ISNOTSWAPPED(a)):
        refuse_layout(a, "an array", False)
    into.clamps = bound is not None
    if into.clamps:
        into.bounds[0], into.bounds[1] = -<double>bound, bound
    into.data = <char *>cnp.PyArray_DATA(a)
    into.is_double = cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT64
    into.storage = storage_of(a)
    into.size = 1
    for axis in range(skip, cnp.PyArray_NDIM(a)):
        into.size *= cnp.PyArray_DIM(a, axis)
    into.narrow = (
        kind == BLEMISHES and into.storage != NATIVE and cnp.PyArray_IS_C_CONTIGUOUS(a)
    )
    if into.narrow:
        return 0
    if into.clamps or skip or into.storage != NATIVE or not cnp.PyArray_IS_C_CONTIGUOUS(a):
        into.axes = <layout *>malloc(sizeof(layout))
        if into.axes == NULL:
            raise MemoryError
        _set_axes(into.axes, a, skip, cnp.PyArray_NDIM(a))
    return 0


# ---- one norm of many arrays

cdef void _share(const void *arrays, int thread, int threads) noexcept nogil:
    """The spans that begin in a thread's share of all elements."""
    cdef const batch *b = <const batch *>arrays
    cdef Py_ssize_t t, start, before = 0, span = 0
    cdef bint is_first = b.kind == SQUARES and b.scale == 1
    cdef Py_ssize_t low = b.size * thread // threads, high = b.size * (thread + 1) // threads
    cdef fp_state caller = fp_enter(b.flush)
    for t in range(b.n_sources):
        start = 0
        while start < b.sources[t].size:
            if low <= before + start < high:
                if is_first and b.sources[t].known != NULL:
                    b.spans[span] = b.sources[t].known[start // SPAN]
                else:
                    b.spans[span] = sum_span(_sums, &b.sources[t], start, b.kind, b.scale)
            span += 1
            start += SPAN
        before += b.sources[t].size
    fp_leave(caller)


cdef double _total(batch *b, int kind, double scale) noexcept nogil:
    cdef fp_state caller
    cdef double total
    cdef Py_ssize_t read = b.unknown if kind == SQUARES and scale == 1 else b.size
    b.kind, b.scale = kind, scale
    run_team(gather_team(read, 1), _share, b)
    caller = fp_enter(b.flush)
    total = combine(b.spans, b.n_spans, 1, kind == PEAKS)
    fp_leave(caller)
    return total


cdef double _norm(batch *b, bint any_double, int *exponent) noexcept nogil:
    cdef double total = _total(b, SQUARES, 1), scale = 1
    exponent[0] = 0
    if any_double and misses(total):
        total = _total(b, PEAKS, 1)
        if not scaling(total, &scale, exponent):
            return total
        total = _total(b, SQUARES, scale)
    return sqrt(total)


cdef int _fill(batch *b, list arrays, list bounds, list known, int kind,
               bint *any_double) except -1:
    """Set up a batch; the caller frees it with `_free`, also after an error."""
    cdef Py_ssize_t t, n_spans
    cdef const double[::1] sums_of_spans
    b.n_sources = len(arrays)
    if bounds is not None:
        bounds = list(bounds)
        check_length("bounds", len(bounds), len(arrays))
    b.flush = flush_denormals()
    b.sources = <source *>calloc(b.n_sources + 1, sizeof(source))
    if b.sources == NULL:
        raise MemoryError
    for t in range(b.n_sources):
        _set_source(&b.sources[t], arrays[t], 0,
                    None if bounds is None else bounds[t], kind)
        n_spans = (b.sources[t].size + SPAN - 1) // SPAN
        b.size += b.sources[t].size
        b.n_spans += n_spans
        any_double[0] |= b.sources[t].is_double
        if known is None or known[t] is None:
            b.unknown += b.sources[t].size
        elif n_spans:
            sums_of_spans = known[t]
            check_length("the sums of an array", sums_of_spans.shape[0], n_spans)
            b.sources[t].known = &sums_of_spans[0]
    b.spans = <double *>malloc(b.n_spans * sizeof(double))
    if b.spans == NULL and b.n_spans:
        raise MemoryError
    return 0


cdef void _free(batch *b) noexcept:
    cdef Py_ssize_t t
    free(b.spans)
    if b.sources != NULL:
        for t in range(b.n_sources):
            free(b.sources[t].axes)
        free(b.sources)


cdef double _of(list arrays, list bounds, list known, int kind, bint root,
                int *exponent) except? -1:
    """The sum over all elements of arrays; for squares the norm, if the root is requested."""
    cdef batch b
    cdef bint any_double = False
    cdef double answer = 0
    cdef list _held
    arrays = list(arrays)       # which no other thread can change
    _held = hold(arrays)
    memset(&b, 0, sizeof(b))
    exponent[0] = 0
    try:
        _fill(&b, arrays, bounds, known, kind, &any_double)
        if b.n_spans == 0:
            return 0
        with nogil:
            if not root:
                answer = _total(&b, kind, 1)
            else:
                answer = _norm(&b, any_double, exponent)
        return answer
    finally:
        _free(&b)


def norm(list arrays not None, list bounds=None, list known=None):
    """The norm of all elements of arrays of real floats.

    If there are bounds, the elements of each array are first clamped to its bound and the negative.
    An array whose sums are known, as `span_sums` returns them, is not read, unless squares of
    float64 over- or underflow.

    Returns
    -------
    root : float
    exponent : int
        The norm is ``root * 2**exponent``.
    """
    cdef int exponent = 0
    if known is not None:
        known = list(known)     # which no other thread can change
        check_length("known", len(known), len(arrays))
    cdef double root = _of(arrays, bounds, known, SQUARES, True, &exponent)
    return root, exponent


def span_sums(cnp.ndarray array not None):
    """The sums of squares of an array's spans, of which `norm` makes norms in any order.

    Returns
    -------
    sums : ndarray of float64
        One element for each span.
    total : float
        It is finite only if the array is; of dtypes other than float64, exactly if it is.
    """
    cdef batch b
    cdef bint any_double = False
    cdef list _held = hold([array])
    cdef cnp.ndarray made
    cdef double total = 0
    memset(&b, 0, sizeof(b))
    try:
        _fill(&b, [array], None, None, SQUARES, &any_double)
        made = np.empty(b.n_spans)
        if b.n_spans:
            with nogil:
                total = _total(&b, SQUARES, 1)
            memcpy(cnp.PyArray_DATA(made), b.spans, b.n_spans * sizeof(double))
        return made, total
    finally:
        _free(&b)


def all_finite(list arrays not None):
    """Whether all elements of real floating arrays are finite."""
    cdef int exponent = 0
    return _of(arrays, None, None, BLEMISHES, False, &exponent) == 0


def sum_of_squares(cnp.ndarray array not None):
    """The sum of squares of an array, in double precision."""
    cdef int exponent = 0
    return _of([array], None, None, SQUARES, False, &exponent)


# ---- many norms of one array

cdef struct slices:
    source first
    layout outer            # from slice to slice
    Py_ssize_t n
    int flush
    double *roots
    int64_t *exponents


cdef double _slice_total(const source *s, bint max_abs, double scale) noexcept nogil:
    """The same as `_total` for one array, without memory for its spans."""
    cdef span_lanes lanes
    cdef Py_ssize_t start = 0, n = 0
    cdef double total
    if s.size <= SPAN:
        return sum_span(_sums, s, 0, PEAKS if max_abs else SQUARES, scale)
    memset(lanes, 0, sizeof(lanes))
    while start < s.size:
        total = sum_span(_sums, s, start, PEAKS if max_abs else SQUARES, scale)
        if max_abs:
            lanes[n % LANES] = max(lanes[n % LANES], total)
        else:
            lanes[n % LANES] = lanes[n % LANES] + total
        n += 1
        start += SPAN
    return fold(lanes, n, max_abs)


cdef double _slice_norm(const source *s, int64_t *exponent) noexcept nogil:
    cdef double total = _slice_total(s, False, 1), scale = 1
    cdef int power = 0
    if s.is_double and misses(total):
        total = _slice_total(s, True, 1)
        if not scaling(total, &scale, &power):
            return total
        total = _slice_total(s, False, scale)
    exponent[0] = power
    return sqrt(total)


cdef void _share_of_slices(const void *given, int thread, int threads) noexcept nogil:
    cdef const slices *all_ = <const slices *>given
    cdef Py_ssize_t i
    cdef source s = all_.first
    cdef walk w
    cdef fp_state caller = fp_enter(all_.flush)
    for i in range(all_.n * thread // threads, all_.n * (thread + 1) // threads):
        begin_walk(&w, all_.outer.ndim, all_.outer.shape, all_.outer.stride[0], all_.first.data, i)
        s.data = w.at
        all_.roots[i] = _slice_norm(&s, &all_.exponents[i])
    fp_leave(caller)


def slice_norms(cnp.ndarray array not None, int outer_axes, double[::1] roots not None,
                int64_t[::1] exponents not None):
    """Write the norm of each slice of an array along its last axes to roots and exponents.

    Parameters
    ----------
    array : ndarray
    outer_axes : int
        The number of leading axes that enumerate the slices.
    roots, exponents : memoryviews
        One element for each slice; the exponents must be zeros.
    """
    cdef list _held = hold([array])
    cdef slices s
    cdef Py_ssize_t n = 1
    cdef int axis
    if not 0 <= outer_axes <= cnp.PyArray_NDIM(array):
        raise InvalidArgumentError(
            f"outer_axes must be between 0 and the number of axes, not {outer_axes}"
        )
    for axis in range(outer_axes):
        n *= cnp.PyArray_DIM(array, axis)
    check_length("roots", roots.shape[0], n)
    check_length("exponents", exponents.shape[0], n)
    if n == 0:
        return
    s.n, s.flush = n, flush_denormals()
    s.roots, s.exponents = &roots[0], &exponents[0]
    _set_axes(&s.outer, array, 0, outer_axes)
    _set_source(&s.first, array, outer_axes, None, SQUARES)
    if s.first.size > 0:
        with nogil:
            run_team(gather_team(n * s.first.size, 1), _share_of_slices, &s)
    else:
        roots[:] = 0
    free(s.first.axes)
