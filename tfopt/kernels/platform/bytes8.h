/* Numbers stored in 8 bits, in blocks with a unit each: a code times its unit is the number. */
#ifndef TFOPT_BYTES8_H
#define TFOPT_BYTES8_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "halves.h"

#define TFOPT_CODES 256 /* in a block */

typedef struct {
    float unit;
    int8_t codes[TFOPT_CODES];
} tfopt_signed8;

typedef struct {
    float unit;
    uint8_t codes[TFOPT_CODES];
} tfopt_positive8;

/* The largest magnitude of n numbers, or a NaN if one is infinite or a NaN. Magnitudes are in the
   order of their bits, and those of integers have a maximum that is a vector instruction. */
TFOPT_INLINE float largest_finite(const float *x, ptrdiff_t n) {
    int32_t top = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        int32_t size = (int32_t)(bits_of_float(x[i]) & 0x7fffffff);
        top = size > top ? size : top;
    }
    return float_from_bits(top < 0x7f800000 ? (uint32_t)top : 0x7fc00000);
}
/* The unit in which the largest number has the largest code, and its inverse. A unit so small that
   it has none counts as zero. */
TFOPT_INLINE float unit_of(float top, float codes, float *inverse) {
    float unit = top / codes;
    *inverse = 1 / unit;
    if (unit == unit && !(*inverse <= 3.4028234663852886e38f)) unit = *inverse = 0;
    return unit;
}
/* Rounded to the nearest integer, ties to even, in the low bits of the sum. */
TFOPT_INLINE uint32_t integer_bits(float x) { return bits_of_float(x + 12582912.0f); }

TFOPT_INLINE void decode_signed8(const tfopt_signed8 *block, ptrdiff_t n, float *x) {
    float unit = block->unit;
    for (ptrdiff_t i = 0; i < n; i++) x[i] = (float)block->codes[i] * unit;
}
TFOPT_INLINE void encode_signed8(const float *x, ptrdiff_t n, tfopt_signed8 *block) {
    float inverse, unit = unit_of(largest_finite(x, n), 127, &inverse);
    block->unit = unit;
    if (unit != unit) memset(block->codes, 0, TFOPT_CODES);
    else
        for (ptrdiff_t i = 0; i < n; i++) block->codes[i] = (int8_t)integer_bits(x[i] * inverse);
}

/* Means of squares: numbers of 4 bits each for the exponent and the mantissa, without a sign, so that
   small ones are as precise as large ones. The largest is 31/16, the least 17/16 * 2^-15. A positive
   number does not become zero, since steps are divided by it; a negative one does. */
#define TFOPT_BIAS ((127 - 15) << 4)

TFOPT_INLINE void decode_positive8(const tfopt_positive8 *block, ptrdiff_t n, float *x) {
    float unit = block->unit;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t code = block->codes[i];
        x[i] = float_from_bits(code ? (code + TFOPT_BIAS) << 19 : 0) * unit;
    }
}
TFOPT_INLINE void encode_positive8(const float *x, ptrdiff_t n, tfopt_positive8 *block) {
    const float least = 1.0625f / 32768;
    float inverse, unit = unit_of(largest_finite(x, n), 1.9375f, &inverse);
    block->unit = unit;
    if (unit != unit) memset(block->codes, 0, TFOPT_CODES);
    else
        for (ptrdiff_t i = 0; i < n; i++) {
            float multiple = x[i] * inverse, kept = multiple > least ? multiple : least;
            uint32_t code = (bits_of_float(kept) - (TFOPT_BIAS << 19) + (1 << 18)) >> 19;
            block->codes[i] = (uint8_t)(multiple > 0 ? code : 0);
        }
}

#endif
