/* Numbers stored in 4 bits, in blocks of 256. Each half of a block has a unit, its largest magnitude,
   and its byte i has the codes of its numbers i, in the lower bits, and 64 + i. */
#ifndef TFOPT_BYTES4_H
#define TFOPT_BYTES4_H

#include "bytes8.h"

#define TFOPT_HALF (TFOPT_CODES / 2)
#define TFOPT_PAIRS (TFOPT_HALF / 2) /* of codes in a half, a byte each */

typedef struct {
    float units[2];
    uint8_t codes[2][TFOPT_PAIRS];
} tfopt_codes4;

/* Powers of two, between which numbers are rounded up or down (rounded_bits). */
#define TFOPT_EXPONENT(power) (127 + (power))

/* Of either sign: the lower three bits are 0 for zero, or for 2^-6 to 1. There is no negative zero. */
TFOPT_INLINE floats signed4_multiples(ints codes) {
    ints place = codes & 7;
    ints bits = where_nonzero(place, (place + TFOPT_EXPONENT(-7)) << 23);
    return floats_of_bits(bits | (-(codes >> 3) & INT32_MIN));
}
TFOPT_INLINE ints signed4_codes(floats multiples) {
    ints bits = bits_of(multiples);
    floats size = smaller(floats_of_bits(bits & 0x7fffffff), each_float(1));
    /* between 0 and 2^-6 as between 2^-7 and 2^-6 */
    floats raised = larger(size, (size + each_float(0.015625f)) * each_float(0.5f));
    ints place = rounded_bits(bits_of(raised), 23) - TFOPT_EXPONENT(-7);
    return place | where_nonzero(place, bits >> 28 & 8);
}
/* Means of squares: 2^-15 to 1. There is no zero, since steps are divided by them. */
TFOPT_INLINE floats positive4_multiples(ints codes) {
    return floats_of_bits((codes + TFOPT_EXPONENT(-15)) << 23);
}
TFOPT_INLINE ints positive4_codes(floats multiples) {
    floats least = each_float(1.0f / 32768), size = smaller(multiples, each_float(1));
    return rounded_bits(bits_of(larger(size, least)), 23) - TFOPT_EXPONENT(-15);
}

TFOPT_INLINE floats multiples4(ints codes, int positive) {
    return positive ? positive4_multiples(codes) : signed4_multiples(codes);
}
TFOPT_INLINE ints codes4(floats multiples, int positive) {
    return positive ? positive4_codes(multiples) : signed4_codes(multiples);
}
TFOPT_INLINE void decode_codes4(const tfopt_codes4 *block, float *x, int positive) {
    for (int half = 0; half < 2; half++, x += TFOPT_HALF) {
        floats unit = each_float(block->units[half]);
        for (ptrdiff_t i = 0; i < TFOPT_PAIRS; i += TFOPT_LANES) {
            ints pairs = from_bytes(block->codes[half] + i);
            store_floats(x + i, multiples4(pairs & 15, positive) * unit);
            store_floats(x + TFOPT_PAIRS + i, multiples4(pairs >> 4, positive) * unit);
        }
    }
}
TFOPT_INLINE void encode_codes4(const float *x, tfopt_codes4 *block, int positive) {
    float inverses[2];
    for (int half = 0; half < 2; half++) { /* early, since codes wait for divisions */
        ints largest = largest_with(each_int(0), x + half * TFOPT_HALF, TFOPT_HALF);
        block->units[half] = unit_of(largest_lane(largest), 1, &inverses[half]);
    }
    for (int half = 0; half < 2; half++, x += TFOPT_HALF) {
        floats inverse = each_float(inverses[half]);
        if (inverses[half] != inverses[half]) {
            memset(block->codes[half], 0, TFOPT_PAIRS);
            continue;
        }
        for (ptrdiff_t i = 0; i < TFOPT_PAIRS; i += TFOPT_LANES * TFOPT_PACKED) {
            ints pairs[TFOPT_PACKED];
            for (int k = 0; k < TFOPT_PACKED; k++) {
                const float *at = x + i + TFOPT_LANES * k;
                floats low = load_floats(at) * inverse;
                floats high = load_floats(at + TFOPT_PAIRS) * inverse;
                pairs[k] = codes4(low, positive) | codes4(high, positive) << 4;
            }
            to_bytes(pairs, block->codes[half] + i);
        }
    }
}

#endif
