# The codes of bitsandbytes, included by blocks.pxi: places in a table of numbers up to 1.
from libc.stdint cimport uint8_t, uint32_t

from tfopt.kernels.platform.halves cimport bits_of_float, decode_t, encode_t, positive8

cdef enum:
    LEAST = (127 - 24) << 7     # the upper half of a float less than all middles
    HALVES_TO_1 = 24 << 7       # how many there are from there to 1

cdef float[2][CODES] _map       # of either sign, and positive; ascending
cdef float[2][CODES] _middle    # between a number and the next; NaN after the last
# By sign and upper half of a number: a code of which it is at most the next one
cdef uint8_t[2][2][HALVES_TO_1 + 1] _first


cdef void _fill(int positive):
    """Compute a table.

    In each of seven decades up to 1 are the middles of 2^k equal parts (of either sign, or twice as
    many positive ones), as float32 numbers that torch.linspace divides it at; and 0 and 1.
    """
    cdef float[CODES] size
    cdef float ends[CODES]
    cdef float[7] powers = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1]
    cdef float step, tenth = 0.1
    cdef int decade, i, parts, n = 0
    for decade in range(7):
        parts = 1 << (decade + positive)
        step = (1 - tenth) / <float>parts
        for i in range(parts + 1):
            if i < (parts + 1) // 2:
                ends[i] = <float>(tenth + <double>step * i)
            else:
                ends[i] = <float>(1 - <double>step * (parts - i))
        for i in range(parts):
            size[n] = powers[decade] * ((ends[i] + ends[i + 1]) / 2)
            n += 1
    if positive:
        _map[1][0] = 0
        for i in range(n):
            _map[1][1 + i] = size[i]
    else:
        for i in range(n):
            _map[0][n - 1 - i] = -size[i]
            _map[0][n + 1 + i] = size[i]
        _map[0][n] = 0
    _map[positive][CODES - 1] = 1
    for i in range(CODES - 1):
        _middle[positive][i] = (_map[positive][i] + _map[positive][i + 1]) / 2
    _middle[positive][CODES - 1] = NAN
    for i in range(HALVES_TO_1 + 1):
        _first[positive][0][i] = _code_above(positive, float_of_bfloat16(LEAST + i) if i else 0)
        _first[positive][1][i] = _code_above(positive, -float_of_bfloat16(LEAST + i + 1))


cdef int _code_above(int positive, float x):
    """How many middles are less than x."""
    cdef int code = 0
    while code < CODES - 1 and _middle[positive][code] < x:
        code += 1
    return code

_fill(0)
_fill(1)


def dynamic_map(int storage):
    """The numbers that codes stand for, in units of the largest."""
    cdef list numbers = []
    cdef int i
    if not DYNAMIC8 <= storage <= POSITIVE_DYNAMIC8:
        raise InvalidArgumentError(f"storage {storage} has no table of codes")
    for i in range(CODES):
        numbers.append(_map[storage - DYNAMIC8][i])
    return numbers


cdef inline void _decode_by(int positive, const positive8 *block, float *numbers) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(CODES):
        numbers[i] = _map[positive][block.codes[i]] * block.unit


cdef void _encode_by(int positive, const float *numbers, float unit,
                     positive8 *block) noexcept nogil:
    """Store the nearest codes, of two that are equally near the lower one."""
    cdef const float *middle = _middle[positive]
    cdef float[CODES] x
    cdef uint32_t bits
    cdef Py_ssize_t i
    cdef int code, half
    block.unit = unit
    if unit != unit:
        memset(block.codes, 0, CODES)
        return
    for i in range(CODES):
        x[i] = numbers[i] / unit if unit > 0 else 0
    for i in range(CODES):
        bits = bits_of_float(x[i])
        half = <int>(bits >> 16 & 0x7fff) - LEAST
        half = half if half > 0 else 0
        code = _first[positive][bits >> 31][half]
        block.codes[i] = code + (middle[code] < x[i])


cdef void _decode_dynamic(const positive8 *block, float *numbers) noexcept nogil:
    _decode_by(0, block, numbers)


cdef void _decode_positive(const positive8 *block, float *numbers) noexcept nogil:
    _decode_by(1, block, numbers)


cdef void _encode_dynamic(const float *numbers, float unit, float inverse,
                          positive8 *block) noexcept nogil:
    _encode_by(0, numbers, unit, block)


cdef void _encode_positive(const float *numbers, float unit, float inverse,
                           positive8 *block) noexcept nogil:
    _encode_by(1, numbers, unit, block)


cdef void add_dynamic_formats(block_format *formats) noexcept:
    """Add to a table the formats that are the same in all instruction sets."""
    formats[DYNAMIC8 - SIGNED8] = block_format(
        sizeof(positive8), <decode_t>_decode_dynamic, <encode_t>_encode_dynamic, 1, NULL)
    formats[POSITIVE_DYNAMIC8 - SIGNED8] = block_format(
        sizeof(positive8), <decode_t>_decode_positive, <encode_t>_encode_positive, 1, NULL)
