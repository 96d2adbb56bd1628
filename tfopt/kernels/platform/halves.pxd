# cython: language_level=3
"""Conversion of 16-bit numbers and of blocks of codes, and what else surrounds a step."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from tfopt.kernels.platform.step_types cimport step_t

cdef extern from "halves.h" nogil:
    uint32_t bits_of_float(float value) noexcept
    float float_of_float16(uint16_t half) noexcept
    uint16_t float16_of(float value) noexcept
    float float_of_bfloat16(uint16_t brain) noexcept
    uint16_t bfloat16_of(float value) noexcept
    void widen_float16(const uint16_t *halves, Py_ssize_t n, float *floats) noexcept
    void narrow_float16(const float *floats, Py_ssize_t n, uint16_t *halves) noexcept
    void widen_bfloat16(const uint16_t *brains, Py_ssize_t n, float *floats) noexcept
    void narrow_bfloat16(const float *floats, Py_ssize_t n, uint16_t *brains) noexcept
    void clamp_float(const float *x, Py_ssize_t n, const double *bounds, float *y) noexcept
    void clamp_double(const double *x, Py_ssize_t n, const double *bounds, double *y) noexcept
    # stochastic rounding
    enum:
        NOISES "TFOPT_NOISES"
        NOISE_ROW "TFOPT_NOISE_ROW"
    uint64_t key_with(uint64_t key, uint64_t number) noexcept
    uint16_t noise_at(uint64_t key, uint32_t own, uint64_t index) noexcept
    uint16_t bfloat16_near(float value, uint16_t noise) noexcept
    void make_noise(uint64_t key, const uint32_t *own, int arrays, uint64_t first, Py_ssize_t n,
                    uint16_t *noise) noexcept
    void round_bfloat16(const float *floats, Py_ssize_t n, const uint16_t *noise,
                        uint16_t *brains) noexcept
    # with AVX2
    void widen_float16_chunk(const uint16_t *halves, float *floats) noexcept
    void narrow_float16_chunk(const float *floats, uint16_t *halves) noexcept
    void widen_bfloat16_chunk(const uint16_t *brains, float *floats) noexcept
    # to the nearest, or stochastically by the noise from `at`
    void narrow_bfloat16_chunk(const float *floats, uint16_t *brains, const uint16_t *noise,
                               Py_ssize_t at) noexcept

cdef extern from "bytes8.h" nogil:
    enum:
        CODES "TFOPT_CODES"
        CHUNK "TFOPT_CHUNK"
    ctypedef struct signed8 "tfopt_signed8":
        float unit
    ctypedef struct positive8 "tfopt_positive8":
        float unit
        uint8_t *codes
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

cdef extern from "bytes4.h" nogil:
    ctypedef struct codes4 "tfopt_codes4":
        pass
    void decode_codes4(const codes4 *block, float *floats, bint positive) noexcept
    void encode_codes4(const float *floats, codes4 *block, bint positive) noexcept

ctypedef void (*widen_t)(const uint16_t *halves, Py_ssize_t n, float *floats) noexcept nogil
ctypedef void (*narrow_t)(const float *floats, Py_ssize_t n, uint16_t *halves) noexcept nogil

# The noise of elements of several arrays, for a common key and one for each array: NOISE_ROW apart
ctypedef void (*noise_t)(uint64_t key, const uint32_t *own, int arrays, uint64_t first,
                         Py_ssize_t n, uint16_t *noise) noexcept nogil
ctypedef void (*round_t)(const float *floats, Py_ssize_t n, const uint16_t *noise,
                         uint16_t *brains) noexcept nogil
# A block of CODES numbers
ctypedef int32_t (*largest_t)(const float *floats) noexcept nogil
ctypedef void (*decode_t)(const void *block, float *floats) noexcept nogil
ctypedef void (*encode_t)(const float *floats, float unit, float inverse,
                          void *block) noexcept nogil
# The same where the block finds its units itself
ctypedef void (*encode_alone_t)(const float *floats, void *block) noexcept nogil

# Decay of a run, float or double, where a step from `before` moved it towards zero or not at all
ctypedef void (*decay_t)(void *run, const void *before, Py_ssize_t n, double decay) noexcept nogil

# A run, float or double, clamped to two bounds, neither of them NaN; NaNs stay. Perhaps in place
ctypedef void (*clamp_t)(const void *x, Py_ssize_t n, const double *bounds,
                         void *y) noexcept nogil

# A way to store CODES numbers in a block. The unit of its codes follows from the largest number, or
# `encode_alone` finds one for each part of the block.
cdef struct block_format:
    Py_ssize_t bytes
    decode_t decode
    encode_t encode
    float largest_code
    encode_alone_t encode_alone     # NULL: there is one unit

cdef enum:
    N_FORMATS = 6

cdef enum:
    STREAMS = 3     # arrays that are weighed at a time

cdef struct weighing:
    # the numbers of a call that weighs arrays
    double[STREAMS] weights
    bint adds, minus        # to what is there; to weigh how far a base is above each array

cdef struct halves:
    # by storage type (layout.pxd); type 0 needs none
    widen_t[3] widen
    narrow_t[3] narrow
    noise_t noise
    round_t round
    decay_t[2] decay        # of float, double
    clamp_t[2] clamp
    step_t[2][STREAMS] weigh    # of float, double: so many arrays
    largest_t largest
    block_format[N_FORMATS] formats     # by storage type less SIGNED8
