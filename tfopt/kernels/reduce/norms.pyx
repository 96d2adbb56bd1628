"""Norms: sums of squares in double precision, in the order described in lane_sums.pxd.

A norm is returned as two numbers, root and exponent, and is root * 2^exponent. The exponent is 0
except for float64 whose squares overflow or underflow: those are scaled by a power of two and
summed again.
"""

from cython.parallel cimport parallel
from libc.math cimport INFINITY, frexp, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cpython.pycapsule cimport PyCapsule_GetPointer

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.aliasing cimport hold
from tfopt.kernels.arrays.coerce cimport refuse_layout, storage_of
from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.arrays.layout cimport NATIVE
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.platform.runtime cimport (
    begin_share, dismiss_team, end_share, flush_denormals, gather_team, team,
)
from tfopt.kernels.reduce.lane_sums cimport LANES, SPAN, span_lanes, sums
from tfopt.kernels.reduce.spans cimport (
    BLEMISHES, PEAKS, SQUARES, combine, fold, source, sum_span, walk,
)

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    FARTHEST = 1021     # largest exponent for which a power of two and its inverse are normal

cdef const sums *_sums = NULL
cdef double LEAST = 2.0 ** -900     # squares lost to underflow are at most 2^-122 of such a sum


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
    int flush


cdef walk *_axes_of(cnp.ndarray a, int skip) except? NULL:
    """The axes of an array except the first `skip`."""
    cdef walk *axes = <walk *>malloc(sizeof(walk))
    cdef int axis, last
    if axes == NULL:
        raise MemoryError
    axes.ndim = 0
    for axis in range(cnp.PyArray_NDIM(a) - 1, skip - 1, -1):
        last = axes.ndim - 1
        if cnp.PyArray_DIM(a, axis) == 1:
            continue
        if last >= 0 and cnp.PyArray_STRIDE(a, axis) == axes.stride[last] * axes.shape[last]:
            axes.shape[last] *= cnp.PyArray_DIM(a, axis)
            continue
        axes.shape[axes.ndim] = cnp.PyArray_DIM(a, axis)
        axes.stride[axes.ndim] = cnp.PyArray_STRIDE(a, axis)
        axes.ndim += 1
    if axes.ndim == 0:
        axes.ndim = axes.shape[0] = 1
        axes.stride[0] = 0
    return axes


cdef int _set_source(source *into, object array, int skip, object bound, int kind) except -1:
    cdef int axis
    into.axes = NULL
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
        into.axes = _axes_of(a, skip)
    return 0


# ---- one norm of many arrays

cdef void _share(const batch *b, int thread, int threads, int kind, double scale,
                 double *spans) noexcept nogil:
    """The spans that begin in a thread's share of all elements."""
    cdef Py_ssize_t t, start, before = 0, span = 0
    cdef Py_ssize_t low = b.size * thread // threads, high = b.size * (thread + 1) // threads
    cdef fp_state caller = fp_enter(b.flush)
    for t in range(b.n_sources):
        start = 0
        while start < b.sources[t].size:
            if low <= before + start < high:
                spans[span] = sum_span(_sums, &b.sources[t], start, kind, scale)
            span += 1
            start += SPAN
        before += b.sources[t].size
    fp_leave(caller)


cdef double _total(const batch *b, int kind, double scale, double *spans,
                   Py_ssize_t n_spans) noexcept nogil:
    cdef team t = gather_team(b.size, 1)
    cdef fp_state caller
    cdef double total
    if t.size == 1:
        _share(b, 0, 1, kind, scale, spans)
    else:
        with parallel(num_threads=t.size):
            begin_share(&t)
            _share(b, omp_get_thread_num(), omp_get_num_threads(), kind, scale, spans)
            end_share(&t)
        dismiss_team(&t)
    caller = fp_enter(b.flush)
    total = combine(spans, n_spans, kind == PEAKS)
    fp_leave(caller)
    return total


cdef bint _misses(double total) noexcept nogil:
    """Whether squares of float64 overflowed, or may have underflowed."""
    return total == INFINITY or total < LEAST


cdef bint _scaling(double peak, double *scale, int *exponent) noexcept nogil:
    """The power of two by which numbers up to a peak are scaled; False if the norm is the peak."""
    exponent[0] = 0
    if peak == 0 or peak == INFINITY:
        return False
    frexp(peak, exponent)
    exponent[0] = max(-FARTHEST, min(FARTHEST, exponent[0]))
    scale[0] = 2.0 ** -exponent[0]
    return True


cdef double _norm(const batch *b, double *spans, Py_ssize_t n_spans, bint any_double,
                  int *exponent) noexcept nogil:
    cdef double total = _total(b, SQUARES, 1, spans, n_spans), scale = 1
    exponent[0] = 0
    if any_double and _misses(total):
        total = _total(b, PEAKS, 1, spans, n_spans)
        if not _scaling(total, &scale, exponent):
            return total
        total = _total(b, SQUARES, scale, spans, n_spans)
    return sqrt(total)


cdef int _fill(batch *b, list arrays, list bounds, int kind, Py_ssize_t *n_spans,
               bint *any_double) except -1:
    """Set up a batch; the caller frees it with `_free`, also after an error."""
    cdef Py_ssize_t t
    b.n_sources = len(arrays)
    b.size = 0
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
        b.size += b.sources[t].size
        n_spans[0] += (b.sources[t].size + SPAN - 1) // SPAN
        any_double[0] |= b.sources[t].is_double
    return 0


cdef void _free(batch *b) noexcept:
    cdef Py_ssize_t t
    if b.sources != NULL:
        for t in range(b.n_sources):
            free(b.sources[t].axes)
        free(b.sources)


cdef double _of(list arrays, list bounds, int kind, bint root, int *exponent) except? -1:
    """The sum over all elements of arrays; for squares the norm, if the root is requested."""
    cdef batch b
    cdef Py_ssize_t n_spans = 0
    cdef bint any_double = False
    cdef double *spans = NULL
    cdef double answer = 0
    cdef list _held
    arrays = list(arrays)       # which no other thread can change
    _held = hold(arrays)
    b.sources = NULL
    exponent[0] = 0
    try:
        _fill(&b, arrays, bounds, kind, &n_spans, &any_double)
        if n_spans == 0:
            return 0
        spans = <double *>malloc(n_spans * sizeof(double))
        if spans == NULL:
            raise MemoryError
        with nogil:
            if not root:
                answer = _total(&b, kind, 1, spans, n_spans)
            else:
                answer = _norm(&b, spans, n_spans, any_double, exponent)
        return answer
    finally:
        free(spans)
        _free(&b)


def norm(list arrays not None, list bounds=None):
    """The norm of all elements of arrays of real floats.

    If there are bounds, the elements of each array are first clamped to its bound and the negative.

    Returns
    -------
    root : float
    exponent : int
        The norm is ``root * 2**exponent``.
    """
    cdef int exponent = 0
    cdef double root = _of(arrays, bounds, SQUARES, True, &exponent)
    return root, exponent


def all_finite(list arrays not None):
    """Whether all elements of real floating arrays are finite."""
    cdef int exponent = 0
    return _of(arrays, None, BLEMISHES, False, &exponent) == 0


def sum_of_squares(cnp.ndarray array not None):
    """The sum of squares of an array, in double precision."""
    cdef int exponent = 0
    return _of([array], None, SQUARES, False, &exponent)


# ---- many norms of one array

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
    if s.is_double and _misses(total):
        total = _slice_total(s, True, 1)
        if not _scaling(total, &scale, &power):
            return total
        total = _slice_total(s, False, scale)
    exponent[0] = power
    return sqrt(total)


cdef void _share_of_slices(const source *first, const walk *outer, Py_ssize_t n, int flush,
                           int thread, int threads, double *roots,
                           int64_t *exponents) noexcept nogil:
    cdef Py_ssize_t i, rest
    cdef int axis
    cdef source s
    cdef fp_state caller = fp_enter(flush)
    memcpy(&s, first, sizeof(source))
    for i in range(n * thread // threads, n * (thread + 1) // threads):
        rest = i
        s.data = first.data
        for axis in range(outer.ndim):
            s.data += rest % outer.shape[axis] * outer.stride[axis]
            rest //= outer.shape[axis]
        roots[i] = _slice_norm(&s, &exponents[i])
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
    cdef source s
    cdef walk outer
    cdef Py_ssize_t n = roots.shape[0]
    cdef Py_ssize_t slices = 1
    cdef int axis, flush = flush_denormals()
    cdef team t
    if not 0 <= outer_axes <= cnp.PyArray_NDIM(array):
        raise InvalidArgumentError(
            f"outer_axes must be between 0 and the number of axes, not {outer_axes}"
        )
    for axis in range(outer_axes):
        slices *= cnp.PyArray_DIM(array, axis)
    check_length("roots", n, slices)
    check_length("exponents", exponents.shape[0], slices)
    if n == 0:
        return
    outer.ndim = outer_axes
    for axis in range(outer_axes):      # innermost first
        outer.shape[axis] = cnp.PyArray_DIM(array, outer_axes - 1 - axis)
        outer.stride[axis] = cnp.PyArray_STRIDE(array, outer_axes - 1 - axis)
    _set_source(&s, array, outer_axes, None, SQUARES)
    if s.size > 0:
        t = gather_team(n * s.size, 1)
        with nogil:
            if t.size == 1:
                _share_of_slices(&s, &outer, n, flush, 0, 1, &roots[0], &exponents[0])
            else:
                with parallel(num_threads=t.size):
                    begin_share(&t)
                    _share_of_slices(&s, &outer, n, flush, omp_get_thread_num(),
                                     omp_get_num_threads(), &roots[0], &exponents[0])
                    end_share(&t)
            dismiss_team(&t)
    else:
        roots[:] = 0
    free(s.axes)
