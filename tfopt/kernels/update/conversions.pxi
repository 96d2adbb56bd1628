# Conversions of numbers in 16, 8 and 4 bits, cautious weight decay and weighted sums, for each
# instruction set that has them compiled.
from cpython.pycapsule cimport PyCapsule_New

from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from tfopt.kernels.arrays.layout cimport (
    BFLOAT16, FLOAT16, POSITIVE4, POSITIVE8, SIGNED4, SIGNED8,
)
from tfopt.kernels.platform.halves cimport (
    CODES, block_format, clamp_double, clamp_float, clamp_t, codes4, decay_t, decode_codes4,
    decode_positive8, decode_signed8, decode_t, encode_alone_t, encode_codes4, encode_positive8,
    encode_signed8, encode_t, halves, largest_magnitude, make_noise, narrow_bfloat16,
    narrow_float16, positive8, round_bfloat16, signed8, weighing, widen_bfloat16, widen_float16,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.step_types cimport MAX_OPERANDS, step_t


cdef void _widen_float16(const uint16_t *x, Py_ssize_t n, float *y) noexcept nogil:
    widen_float16(x, n, y)


cdef void _narrow_float16(const float *x, Py_ssize_t n, uint16_t *y) noexcept nogil:
    narrow_float16(x, n, y)


cdef void _widen_bfloat16(const uint16_t *x, Py_ssize_t n, float *y) noexcept nogil:
    widen_bfloat16(x, n, y)


cdef void _narrow_bfloat16(const float *x, Py_ssize_t n, uint16_t *y) noexcept nogil:
    narrow_bfloat16(x, n, y)


cdef void _make_noise(uint64_t key, const uint32_t *own, int arrays, uint64_t first,
                      Py_ssize_t n, uint16_t *noise) noexcept nogil:
    make_noise(key, own, arrays, first, n, noise)


cdef void _round_bfloat16(const float *x, Py_ssize_t n, const uint16_t *noise,
                          uint16_t *y) noexcept nogil:
    round_bfloat16(x, n, noise, y)


cdef int32_t _largest_magnitude(const float *x) noexcept nogil:
    return largest_magnitude(x)


cdef void _decode_signed8(const signed8 *block, float *y) noexcept nogil:
    decode_signed8(block, 0, CODES, y)


cdef void _encode_signed8(const float *x, float unit, float inverse,
                          signed8 *block) noexcept nogil:
    encode_signed8(x, unit, inverse, block)


cdef void _decode_positive8(const positive8 *block, float *y) noexcept nogil:
    decode_positive8(block, 0, CODES, y)


cdef void _encode_positive8(const float *x, float unit, float inverse,
                            positive8 *block) noexcept nogil:
    encode_positive8(x, unit, inverse, block)


cdef void _decode_signed4(const codes4 *block, float *y) noexcept nogil:
    decode_codes4(block, y, False)


cdef void _encode_signed4(const float *x, codes4 *block) noexcept nogil:
    encode_codes4(x, block, False)


cdef void _decode_positive4(const codes4 *block, float *y) noexcept nogil:
    decode_codes4(block, y, True)


cdef void _encode_positive4(const float *x, codes4 *block) noexcept nogil:
    encode_codes4(x, block, True)


cdef void _clamp_float(const float *x, Py_ssize_t n, const double *bounds,
                       float *y) noexcept nogil:
    clamp_float(x, n, bounds, y)


cdef void _clamp_double(const double *x, Py_ssize_t n, const double *bounds,
                        double *y) noexcept nogil:
    clamp_double(x, n, bounds, y)


cdef void _decay(real *run, const real *before, Py_ssize_t n, double decay) noexcept nogil:
    # a zero that the compiler does not know: denormals are flushed whether or not they decay
    cdef real by = <real>decay, zero = by - by
    cdef bint agrees
    cdef Py_ssize_t i
    for i in range(n):
        agrees = (((before[i] > 0) & (run[i] <= before[i]))
                  | ((before[i] < 0) & (run[i] >= before[i])))
        run[i] = run[i] - (by * before[i] if agrees else zero)


cdef inline void _weigh(real **p, Py_ssize_t n, const weighing *by, const int members,
                        const bint minus) noexcept nogil:
    """Add w x of each member to out, in this order; w (base - x) where there is a base."""
    cdef real *out = p[0]
    cdef const real *base = p[1]
    cdef const real *x = p[1 + minus]
    cdef const real *y = p[min(2, members) + minus]
    cdef const real *z = p[members + minus]
    cdef real first = <real>by.weights[0], second = <real>by.weights[1]
    cdef real third = <real>by.weights[2], total
    cdef Py_ssize_t i
    if not by.adds:
        memset(out, 0, n * sizeof(real))
    for i in range(n):
        total = out[i] + first * (base[i] - x[i] if minus else x[i])
        if members > 1:
            total = total + second * (base[i] - y[i] if minus else y[i])
        if members > 2:
            total = total + third * (base[i] - z[i] if minus else z[i])
        out[i] = total


cdef void _weigh_some(real **p, Py_ssize_t n, const weighing *by, const int members) noexcept nogil:
    # by pieces that stay in the L1 cache, with constants, so that loops have no branches
    cdef Py_ssize_t piece
    cdef int k
    cdef real *at[MAX_OPERANDS]
    for k in range(members + 1 + by.minus):
        at[k] = p[k]
    while n > 0:
        piece = min(n, 1024)
        if by.minus:
            _weigh(at, piece, by, members, True)
        else:
            _weigh(at, piece, by, members, False)
        for k in range(members + 1 + by.minus):
            at[k] += piece
        n -= piece


cdef void _weigh_one(real **p, Py_ssize_t n, const void *h) noexcept nogil:
    _weigh_some(p, n, <const weighing *>h, 1)


cdef void _weigh_two(real **p, Py_ssize_t n, const void *h) noexcept nogil:
    _weigh_some(p, n, <const weighing *>h, 2)


cdef void _weigh_three(real **p, Py_ssize_t n, const void *h) noexcept nogil:
    _weigh_some(p, n, <const weighing *>h, 3)

cdef halves _halves
_halves.widen[FLOAT16], _halves.narrow[FLOAT16] = _widen_float16, _narrow_float16
_halves.widen[BFLOAT16], _halves.narrow[BFLOAT16] = _widen_bfloat16, _narrow_bfloat16
_halves.noise, _halves.round = _make_noise, _round_bfloat16
_halves.largest = _largest_magnitude
_halves.formats[SIGNED8 - SIGNED8] = block_format(
    sizeof(signed8), <decode_t>_decode_signed8, <encode_t>_encode_signed8, 127, NULL)
_halves.formats[POSITIVE8 - SIGNED8] = block_format(
    sizeof(positive8), <decode_t>_decode_positive8, <encode_t>_encode_positive8, 1.9375, NULL)
_halves.formats[SIGNED4 - SIGNED8] = block_format(
    sizeof(codes4), <decode_t>_decode_signed4, NULL, 0, <encode_alone_t>_encode_signed4)
_halves.formats[POSITIVE4 - SIGNED8] = block_format(
    sizeof(codes4), <decode_t>_decode_positive4, NULL, 0, <encode_alone_t>_encode_positive4)
_halves.clamp[0], _halves.clamp[1] = <clamp_t>_clamp_float, <clamp_t>_clamp_double
_halves.decay[0], _halves.decay[1] = <decay_t>_decay[float], <decay_t>_decay[double]
_halves.weigh[0][0], _halves.weigh[1][0] = <step_t>_weigh_one[float], <step_t>_weigh_one[double]
_halves.weigh[0][1], _halves.weigh[1][1] = <step_t>_weigh_two[float], <step_t>_weigh_two[double]
_halves.weigh[0][2] = <step_t>_weigh_three[float]
_halves.weigh[1][2] = <step_t>_weigh_three[double]

halves_capsule = PyCapsule_New(<void *>&_halves, b"tfopt.halves", NULL)
