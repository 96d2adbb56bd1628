"""Clipping: the factors, and calls that scale or clamp arrays.

The dense driver carries out the calls like those of rules: the result is the operand that is
written, the clipped array the one that is read, and both may be the same memory.
"""

from libc.math cimport INFINITY, frexp, ldexp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcpy

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.coerce cimport refuse_layout, shape_of, storage_of
from tfopt.kernels.update.checks cimport Call, set_tensor
from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.arrays.layout cimport NATIVE, halves_in_use
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.arrays.aliasing cimport hold, same_shape
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.halves cimport STREAMS, weighing
from tfopt.kernels.platform.runtime cimport flush_denormals
from tfopt.kernels.platform.step_types cimport step_t
from tfopt.kernels.update.work cimport tensor

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

ctypedef fused number:
    float
    double
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t


# ---- factors

cdef void _factor(double root, int64_t exponent, double limit, bint single, double *first,
                  double *second) noexcept nogil:
    """The factor first * second that scales a norm of root * 2^exponent down to a limit.

    The second is 1, unless the product would be denormal in the computation type: such a factor is
    flushed, and a tensor that has blown up, to 1e38 times the limit, would become 0 instead of a
    step in its direction. The first is 1 only if nothing is scaled.
    """
    cdef int power = 0, smallest = -126 if single else -1022
    cdef double quotient, factor
    first[0] = second[0] = 1
    if limit == INFINITY or root <= ldexp(limit, <int>-exponent):
        return
    if root - root != 0:        # infinite or NaN
        quotient = limit / root
    else:
        quotient = limit / frexp(root, &power)
    power = -power - <int>exponent
    factor = ldexp(quotient, power)
    if 0 < factor < ldexp(1, smallest) or (factor == 0 and quotient > 0):
        factor = ldexp(quotient, power - smallest)
        second[0] = ldexp(1, smallest)
    first[0] = <float>factor if single else factor
    if first[0] == 1:       # rounded up to 1: then the second is the whole factor, if there is one
        first[0] = second[0]
        second[0] = 1


def factor(double root, int exponent, double limit, bint single):
    """The two factors by which elements are multiplied in turn to scale their norm to a limit.

    Parameters
    ----------
    root : float
    exponent : int
        The norm is ``root * 2**exponent``.
    limit : float
        At least 0, or NaN.
    single : bool
        Whether the elements are computed in float32.

    Returns
    -------
    first, second : float
        The second is 1, unless the product would be denormal. The first is 1 only if nothing is
        scaled.
    """
    cdef double first = 1, second = 1
    cdef fp_state caller = fp_enter(False)
    _factor(root, exponent, limit, single, &first, &second)
    fp_leave(caller)
    return first, second


def factors(const double[::1] roots not None, const int64_t[::1] exponents not None,
            const double[::1] limits not None, real[::1] first not None,
            real[::1] second not None):
    """Compute the factors of many norms."""
    cdef Py_ssize_t i
    cdef double a = 1, b = 1
    for name, length in (("exponents", exponents.shape[0]), ("limits", limits.shape[0]),
                         ("first", first.shape[0]), ("second", second.shape[0])):
        check_length(name, length, roots.shape[0])
    cdef fp_state caller
    with nogil:
        caller = fp_enter(False)
        for i in range(roots.shape[0]):
            _factor(roots[i], exponents[i], limits[i], real is float, &a, &b)
            first[i] = <real>a
            second[i] = <real>b
        fp_leave(caller)


# ---- steps

cdef void _scale(real **p, Py_ssize_t n, const real *h) noexcept nogil:
    cdef real *out = p[0]
    cdef const real *t = p[1]
    cdef real first = h[0]
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = t[i] * first


cdef void _scale_twice(real **p, Py_ssize_t n, const real *h) noexcept nogil:
    cdef real *out = p[0]
    cdef const real *t = p[1]
    cdef real first = h[0], second = h[1]
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = t[i] * first * second


cdef void _scale_each(real **p, Py_ssize_t n, const real *h) noexcept nogil:
    # multiplying by 1 would flush a denormal
    cdef real *out = p[0]
    cdef const real *first = p[1]
    cdef const real *second = p[2]
    cdef const real *t = p[3]
    cdef real product
    cdef Py_ssize_t i
    for i in range(n):
        product = t[i] * first[i]
        product = product if second[i] == 1 else product * second[i]
        out[i] = t[i] if first[i] == 1 else product


cdef inline number _clamped(number t, number low, number high) noexcept nogil:
    # between equal numbers t's bits are kept; NaNs of t and of bounds propagate
    cdef number u
    if number is float or number is double:
        u = high if (high < t) | (high != high) else t
        return low if (low > u) | (low != low) else u
    else:
        u = high if high < t else t
        return low if low > u else u


cdef void _clamp(number **p, Py_ssize_t n, const number *h) noexcept nogil:
    cdef number *out = p[0]
    cdef const number *t = p[1]
    cdef number low = h[0], high = h[1]
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = _clamped(t[i], low, high)


cdef void _clamp_each(number **p, Py_ssize_t n, const number *h) noexcept nogil:
    cdef number *out = p[0]
    cdef const number *low = p[1]
    cdef const number *high = p[2]
    cdef const number *t = p[3]
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = _clamped(t[i], low[i], high[i])


# ---- calls

cdef step_t _clamping(int typenum, bint each) noexcept:
    """The step for a type of integers or floats."""
    if typenum == cnp.NPY_FLOAT64:
        return <step_t>_clamp_each[double] if each else <step_t>_clamp[double]
    if typenum == cnp.NPY_INT8:
        return <step_t>_clamp_each[int8_t] if each else <step_t>_clamp[int8_t]
    if typenum == cnp.NPY_INT16:
        return <step_t>_clamp_each[int16_t] if each else <step_t>_clamp[int16_t]
    if typenum == cnp.NPY_INT32:
        return <step_t>_clamp_each[int32_t] if each else <step_t>_clamp[int32_t]
    if typenum == cnp.NPY_UINT8:
        return <step_t>_clamp_each[uint8_t] if each else <step_t>_clamp[uint8_t]
    if typenum == cnp.NPY_UINT16:
        return <step_t>_clamp_each[uint16_t] if each else <step_t>_clamp[uint16_t]
    if typenum == cnp.NPY_UINT32:
        return <step_t>_clamp_each[uint32_t] if each else <step_t>_clamp[uint32_t]
    if cnp.PyTypeNum_ISSIGNED(typenum):
        return <step_t>_clamp_each[int64_t] if each else <step_t>_clamp[int64_t]
    return <step_t>_clamp_each[uint64_t] if each else <step_t>_clamp[uint64_t]


cdef cnp.ndarray _array(object a, str name):
    """Check that an array has a supported dtype and can be read in place."""
    if not isinstance(a, cnp.ndarray):
        raise InvalidTypeError(f"{name} must be a numpy.ndarray, not {type(a).__name__}")
    if storage_of(a) < 0 and not cnp.PyArray_ISINTEGER(a):
        raise InvalidTypeError(f"{name} has a dtype that cannot be clipped: {a.dtype}")
    if not (cnp.PyArray_ISALIGNED(a) and cnp.PyArray_ISNOTSWAPPED(a)):
        refuse_layout(a, name, False)
    return a


cdef int _check_type(cnp.ndarray a, str name, int typenum) except -1:
    if not cnp.PyArray_EquivTypenums(cnp.PyArray_TYPE(a), typenum):
        raise InvalidTypeError(f"{name} has a dtype that differs from the first array's: {a.dtype}")
    return 0


cdef int _check_shape(object a, cnp.ndarray out) except -1:
    if not same_shape(_array(a, "the array"), out):
        raise InvalidArgumentError(
            "out must have the shape of its input: "
            f"{shape_of(out)} {shape_of(a)}"
        )
    return 0


cdef Call _call(list outs, list between, list arrays, int flush):
    """A call that computes each out from an array and the operands between, a list for each."""
    cdef Call call = Call.__new__(Call)
    cdef Py_ssize_t t, n = len(arrays)
    cdef cnp.ndarray out
    cdef list operands, column
    outs, arrays = list(outs), list(arrays)     # which no other thread can change
    cdef list columns = [outs] + between
    columns.append(arrays)
    call.held = hold(columns)
    for column in columns:
        if len(column) != n:
            raise InvalidArgumentError(
                f"out must list one array for each input: {len(column)} for {n}"
            )
    call.w.tensors = <tensor *>calloc(n + 1, sizeof(tensor))
    call.w.starts = <Py_ssize_t *>malloc((n + 1) * sizeof(Py_ssize_t))
    call.w.n_tensors = call.n_laid_out = 0
    if call.w.tensors == NULL or call.w.starts == NULL:
        raise MemoryError
    call.w.flush = flush
    call.w.n_operands = 2 + len(between)
    call.w.starts[0] = 0
    for t in range(n):
        out = _array(outs[t], "out")
        if not cnp.PyArray_ISWRITEABLE(out):
            refuse_layout(out, "out", True)
        operands = [out]
        for column in between:
            _check_shape(column[t], out)
            operands.append(column[t])
        _check_shape(arrays[t], out)
        set_tensor(&call.w.tensors[t], operands, arrays[t], 0, len(operands), False)
        if call.w.tensors[t].axes != NULL:
            call.w.tensors[t].axes.n_written = 1
            call.w.tensors[t].axes.overwrites = True
        call.w.n_tensors = call.n_laid_out = t + 1
        call.w.starts[t + 1] = call.w.starts[t] + cnp.PyArray_SIZE(out)
    call.arrays = (outs, between, arrays)
    return call


def scale_call(list outs not None, list arrays not None, double first, double second,
               bint single):
    """Multiply arrays by `first` and then by `second`; all have one computation type."""
    cdef Call call = _call(outs, [], arrays, flush_denormals())
    cdef cnp.ndarray a
    for a in (*call.arrays[0], *call.arrays[2]):
        if storage_of(a) <= NATIVE or not single:   # 16-bit dtypes are computed in float32
            _check_type(a, "an array", cnp.NPY_FLOAT32 if single else cnp.NPY_FLOAT64)
    cdef float *floats = <float *>call.w.h
    cdef double *doubles = <double *>call.w.h
    call.w.itemsize = 4 if single else 8
    if single:
        floats[0], floats[1] = <float>first, <float>second
        call.w.step = <step_t>_scale[float] if second == 1 else <step_t>_scale_twice[float]
    else:
        doubles[0], doubles[1] = first, second
        call.w.step = <step_t>_scale[double] if second == 1 else <step_t>_scale_twice[double]
    return call


def round_call(list outs not None, list arrays not None):
    """Round float32 arrays to 16 bits, denormals included."""
    cdef Call call = _call(outs, [], arrays, False)
    cdef cnp.ndarray a
    for a in call.arrays[0]:
        if storage_of(a) <= NATIVE:
            raise InvalidTypeError(f"out must be float16 or bfloat16, not {a.dtype}")
    for a in call.arrays[2]:
        _check_type(a, "an array", cnp.NPY_FLOAT32)
    call.w.itemsize = sizeof(float)
    call.w.step = NULL      # the layout, which rounds what it scatters, does it all
    return call


cdef class Rounding:
    """Rounds float32 arrays to others of 16 bits, call after call; by one step at a time."""

    cdef Call call
    cdef list columns       # of that call, if all of them are contiguous
    cdef list dtypes

    def call_of(self, list outs not None, list arrays not None):
        """What `round_call` returns: the last call, if these are its arrays, with its memory."""
        if self.columns is None or not self._is_of(outs, arrays):
            self.columns = None
            self.call = round_call(outs, arrays)
            self.columns, self.dtypes = [self.call.arrays[0], self.call.arrays[2]], []
            for column in self.columns:
                self.dtypes.append(column[0].dtype if column else None)
            if not self._is_of(outs, arrays):
                self.columns = None
        self.call.w.grain = 1       # which a pipeline with others may have changed
        return self.call

    cdef bint _is_of(self, list outs, list arrays) except -1:
        cdef Py_ssize_t t, n = len(<list>self.columns[0])
        cdef int k
        cdef cnp.ndarray array
        cdef list given
        for k in range(2):
            given = arrays if k else outs
            if len(given) != n:
                return False
            for t in range(n):
                if given[t] is not (<list>self.columns[k])[t]:
                    return False
                array = given[t]    # which may have been given other memory, dtype or shape
                if not (cnp.PyArray_DATA(array) == <void *>self.call.w.tensors[t].data[k]
                        and array.descr is self.dtypes[k] and same_shape(array, outs[t])
                        and cnp.PyArray_CHKFLAGS(array, cnp.NPY_ARRAY_CARRAY if k == 0
                                                 else cnp.NPY_ARRAY_CARRAY_RO)
                        and cnp.PyArray_SIZE(array) == (self.call.w.starts[t + 1]
                                                        - self.call.w.starts[t])):
                    return False
        return True


def scale_each_call(cnp.ndarray out not None, cnp.ndarray array not None,
                    cnp.ndarray first not None, cnp.ndarray second not None):
    """Multiply each element by its own factors, in computation type and of array's shape."""
    cdef Call call = _call([out], [[first], [second]], [array], flush_denormals())
    cdef int typenum = cnp.NPY_FLOAT64 if cnp.PyArray_TYPE(first) == cnp.NPY_FLOAT64 \
        else cnp.NPY_FLOAT32
    _check_type(first, "first", typenum)
    _check_type(second, "second", typenum)
    for a in (out, array):
        if storage_of(a) <= NATIVE or typenum == cnp.NPY_FLOAT64:
            _check_type(a, "an array", typenum)
    call.w.itemsize = cnp.PyArray_ITEMSIZE(first)
    call.w.step = <step_t>_scale_each[float] if call.w.itemsize == 4 \
        else <step_t>_scale_each[double]
    return call


def clamp_call(cnp.ndarray out not None, cnp.ndarray array not None, cnp.ndarray low not None,
               cnp.ndarray high not None):
    """Clamp an array to bounds: of its shape and dtype, or 0-d and in computation type.

    Nothing is computed, so denormals are not flushed and compare by their values.
    """
    cdef bint each = cnp.PyArray_NDIM(low) > 0
    cdef Call call = _call([out], [[low], [high]] if each else [], [array], False)
    cdef int typenum = cnp.PyArray_TYPE(array)
    if cnp.PyArray_ISCOMPLEX(array):
        raise InvalidTypeError(f"complex numbers cannot be clamped: {array.dtype}")
    _check_type(out, "out", typenum)
    if not each and storage_of(array) > NATIVE:
        typenum = cnp.NPY_FLOAT32
    for bound in (low, high):
        _check_type(_array(bound, "a bound"), "a bound", typenum)
        if cnp.PyArray_NDIM(bound) and not each:
            raise InvalidArgumentError("both bounds must have the same number of dimensions")
    if storage_of(array) > NATIVE or cnp.PyArray_TYPE(array) == cnp.NPY_FLOAT32:
        call.w.itemsize = 4
        call.w.step = <step_t>_clamp_each[float] if each else <step_t>_clamp[float]
    else:
        call.w.itemsize = cnp.PyArray_ITEMSIZE(array)
        call.w.step = _clamping(cnp.PyArray_TYPE(array), each)
    if not each:
        memcpy(<char *>call.w.h, cnp.PyArray_DATA(low), call.w.itemsize)
        memcpy(<char *>call.w.h + call.w.itemsize, cnp.PyArray_DATA(high), call.w.itemsize)
    return call


include "means.pxi"
