/* Numbers stored in 8 bits, in blocks with a unit each: a code times its unit is the number. Blocks
   are whole; one of fewer numbers ends in zeros. */
#ifndef TFOPT_BYTES8_H
#define TFOPT_BYTES8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lanes.h"

#define TFOPT_CODES 256 /* in a block */
#define TFOPT_CHUNK 16  /* of which steps read a part at a time */

typedef struct {
    float unit;
    int8_t codes[TFOPT_CODES];
} tfopt_signed8;

typedef struct {
    float unit;
    uint8_t codes[TFOPT_CODES];
} tfopt_positive8;

/* Where the numbers of a block are kept: a vector that is not aligned is on two lines of the cache. */
#if defined(__GNUC__)
typedef float tfopt_numbers[TFOPT_CODES] __attribute__((aligned(64)));
#else
typedef float tfopt_numbers[TFOPT_CODES];
#endif

/* In whole vectors, which loads then get from the stores. */
TFOPT_INLINE void copy_chunk(const float *source, float *to) {
    for (ptrdiff_t i = 0; i < TFOPT_CHUNK; i += TFOPT_LANES) store_floats(to + i, load_floats(source + i));
}
/* The largest magnitudes by lane, of n more numbers too. Magnitudes are in the order of their bits,
   and the maximum of integers is an instruction. */
TFOPT_INLINE ints largest_with(ints largest, const float *x, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i += TFOPT_LANES)
        largest = larger_ints(largest, bits_of(load_floats(x + i)) & 0x7fffffff);
    return largest;
}
/* The bits of the largest magnitude of a block. */
TFOPT_INLINE int32_t largest_magnitude(const float *x) {
    return largest_lane(largest_with(each_int(0), x, TFOPT_CODES));
}
/* The unit in which that magnitude has the largest code, and its inverse: NaNs if it is infinite or
   a NaN. A unit so small that it has no inverse counts as zero. */
TFOPT_INLINE float unit_of(int32_t largest, float largest_code, float *inverse) {
    float size = float_from_bits(largest < 0x7f800000 ? (uint32_t)largest : 0x7fc00000);
    float unit = size / largest_code;
    *inverse = 1 / unit;
    if (unit == unit && !(*inverse <= 3.4028234663852886e38f)) unit = *inverse = 0;
    return unit;
}

TFOPT_INLINE void decode_signed8(const tfopt_signed8 *block, ptrdiff_t start, ptrdiff_t n, float *x) {
    floats unit = each_float(block->unit);
    for (ptrdiff_t i = 0; i < n; i += TFOPT_LANES)
        store_floats(x + i, floats_of(from_signed_bytes(block->codes + start + i)) * unit);
}
TFOPT_INLINE void encode_signed8(const float *x, float unit, float inverse, tfopt_signed8 *block) {
    ints codes[TFOPT_PACKED];
    block->unit = unit;
    if (unit != unit) {
        memset(block->codes, 0, TFOPT_CODES);
        return;
    }
    for (ptrdiff_t i = 0; i < TFOPT_CODES; i += TFOPT_LANES * TFOPT_PACKED) {
        for (int k = 0; k < TFOPT_PACKED; k++)
            codes[k] = nearest_ints(load_floats(x + i + TFOPT_LANES * k) * each_float(inverse));
        to_signed_bytes(codes, block->codes + i);
    }
}

/* Means of squares: numbers of 4 bits each for the exponent and the mantissa, without a sign, so that
   small ones are as precise as large ones. The largest is 31/16, the least 17/16 * 2^-15. A positive
   number does not become zero, since steps are divided by it; a negative one does. They change by less
   than half of a distance at a time, so that rounded to the nearest most would not change at all. */
#define TFOPT_BIAS ((127 - 15) << 4)

TFOPT_INLINE floats positive8_multiples(const uint8_t *codes) {
    ints wide = from_bytes(codes);
    return floats_of_bits(where_nonzero(wide, (wide + TFOPT_BIAS) << 19));
}
TFOPT_INLINE ints positive8_codes(floats multiples) {
    ints bits = bits_of(larger(multiples, each_float(1.0625f / 32768)));
    return where_positive(multiples, rounded_bits(bits, 19) - TFOPT_BIAS);
}
TFOPT_INLINE void decode_positive8(const tfopt_positive8 *block, ptrdiff_t start, ptrdiff_t n,
                                   float *x) {
    floats unit = each_float(block->unit);
    for (ptrdiff_t i = 0; i < n; i += TFOPT_LANES)
        store_floats(x + i, positive8_multiples(block->codes + start + i) * unit);
}
TFOPT_INLINE void encode_positive8(const float *x, float unit, float inverse,
                                   tfopt_positive8 *block) {
    ints codes[TFOPT_PACKED];
    block->unit = unit;
    if (unit != unit) {
        memset(block->codes, 0, TFOPT_CODES);
        return;
    }
    for (ptrdiff_t i = 0; i < TFOPT_CODES; i += TFOPT_LANES * TFOPT_PACKED) {
        for (int k = 0; k < TFOPT_PACKED; k++)
            codes[k] = positive8_codes(load_floats(x + i + TFOPT_LANES * k) * each_float(inverse));
        to_bytes(codes, block->codes + i);
    }
}

#endif
