# cython: language_level=3
"""Conversion of 16-bit numbers and of blocks of 8-bit codes from and to float32."""

from libc.stdint cimport int32_t, uint16_t

cdef extern from "halves.h" nogil:
    float float_of_float16(uint16_t half) noexcept
    uint16_t float16_of(float value) noexcept
    float float_of_bfloat16(uint16_t brain) noexcept
    uint16_t bfloat16_of(float value) noexcept
    void widen_float16(const uint16_t *halves, Py_ssize_t n, float *floats) noexcept
    void narrow_float16(const float *floats, Py_ssize_t n, uint16_t *halves) noexcept
    void widen_bfloat16(const uint16_t *brains, Py_ssize_t n, float *floats) noexcept
    void narrow_bfloat16(const float *floats, Py_ssize_t n, uint16_t *brains) noexcept
    # with AVX2
    void widen_float16_chunk(const uint16_t *halves, float *floats) noexcept
    void narrow_float16_chunk(const float *floats, uint16_t *halves) noexcept
    void widen_bfloat16_chunk(const uint16_t *brains, float *floats) noexcept
    void narrow_bfloat16_chunk(const float *floats, uint16_t *brains) noexcept

cdef extern from "bytes8.h" nogil:
    enum:
        CODES "TFOPT_CODES"
        CHUNK "TFOPT_CHUNK"
    ctypedef struct signed8 "tfopt_signed8":
        float unit
    ctypedef struct positive8 "tfopt_positive8":
        float unit
    ctypedef float block_numbers "tfopt_numbers"[CODES]
    ctypedef struct ints:   # a vector
        pass
    void copy_chunk(const float *source, float *to) noexcept
    ints each_int(int32_t x) noexcept
    ints largest_with(ints largest, const float *floats, Py_ssize_t n) noexcept
    int32_t largest_lane(ints x) noexcept
    int32_t largest_magnitude(const float *floats) noexcept
    float unit_of(int32_t largest, float largest_code, float *inverse) noexcept
    void decode_signed8(const signed8 *block, Py_ssize_t start, Py_ssize_t n,
                        float *floats) noexcept
    void encode_signed8(const float *floats, float unit, float inverse, signed8 *block) noexcept
    void decode_positive8(const positive8 *block, Py_ssize_t start, Py_ssize_t n,
                          float *floats) noexcept
    void encode_positive8(const float *floats, float unit, float inverse,
                          positive8 *block) noexcept

ctypedef void (*widen_t)(const uint16_t *halves, Py_ssize_t n, float *floats) noexcept nogil
ctypedef void (*narrow_t)(const float *floats, Py_ssize_t n, uint16_t *halves) noexcept nogil

# A block of CODES numbers
ctypedef int32_t (*largest_t)(const float *floats) noexcept nogil
ctypedef void (*decode_t)(const void *block, float *floats) noexcept nogil
ctypedef void (*encode_t)(const float *floats, float unit, float inverse,
                          void *block) noexcept nogil

cdef struct halves:
    # by storage type (layout.pxd); type 0 needs none
    widen_t[3] widen
    narrow_t[3] narrow
    largest_t largest
    # by storage type less SIGNED8
    decode_t[2] decode
    encode_t[2] encode
    float[2] largest_code
