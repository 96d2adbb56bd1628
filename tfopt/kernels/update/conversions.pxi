# Conversions of numbers in 16 and 8 bits, for each instruction set that has them compiled.
from cpython.pycapsule cimport PyCapsule_New

from libc.stdint cimport int32_t, uint16_t

from tfopt.kernels.arrays.layout cimport BFLOAT16, FLOAT16
from tfopt.kernels.platform.halves cimport (
    CODES, decode_positive8, decode_signed8, decode_t, encode_positive8, encode_signed8, encode_t,
    halves, largest_magnitude, narrow_bfloat16, narrow_float16, positive8, signed8, widen_bfloat16,
    widen_float16,
)


cdef void _widen_float16(const uint16_t *x, Py_ssize_t n, float *y) noexcept nogil:
    widen_float16(x, n, y)


cdef void _narrow_float16(const float *x, Py_ssize_t n, uint16_t *y) noexcept nogil:
    narrow_float16(x, n, y)


cdef void _widen_bfloat16(const uint16_t *x, Py_ssize_t n, float *y) noexcept nogil:
    widen_bfloat16(x, n, y)


cdef void _narrow_bfloat16(const float *x, Py_ssize_t n, uint16_t *y) noexcept nogil:
    narrow_bfloat16(x, n, y)


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

cdef halves _halves
_halves.widen[FLOAT16], _halves.narrow[FLOAT16] = _widen_float16, _narrow_float16
_halves.widen[BFLOAT16], _halves.narrow[BFLOAT16] = _widen_bfloat16, _narrow_bfloat16
_halves.largest = _largest_magnitude
_halves.largest_code[0], _halves.largest_code[1] = 127, 1.9375
_halves.decode[0], _halves.encode[0] = <decode_t>_decode_signed8, <encode_t>_encode_signed8
_halves.decode[1], _halves.encode[1] = <decode_t>_decode_positive8, <encode_t>_encode_positive8

halves_capsule = PyCapsule_New(<void *>&_halves, b"tfopt.halves", NULL)
