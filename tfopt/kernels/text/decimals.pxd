# cython: language_level=3
"""Decimal numbers in text, rounded to the nearest double as Python's float() rounds them.

A mantissa of up to 19 digits is multiplied by a power of five of 128 bits (Eisel and Lemire's
algorithm); that decides the rounding of all such numbers. Longer ones are tried with the mantissa
cut off and with the next one: almost always both give the same double.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SIZEOF_INT128__) && !defined(TFOPT_NO_INT128)
    static inline int tfopt_leading_zeros(uint64_t x) { return __builtin_clzll(x); }
    static inline void tfopt_multiply(uint64_t a, uint64_t b, uint64_t *high,
                                      uint64_t *low) {
        unsigned __int128 product = (unsigned __int128)a * b;
        *high = (uint64_t)(product >> 64);
        *low = (uint64_t)product;
    }
    #else /* a 32-bit processor, MSVC, or a test */
    static inline int tfopt_leading_zeros(uint64_t x) {
        int zeros = 0;
        for (; !(x >> 63); x <<= 1) zeros++;
        return zeros;
    }
    static inline void tfopt_multiply(uint64_t a, uint64_t b, uint64_t *high,
                                      uint64_t *low) {
        uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
        uint64_t first = a0 * b0, second = a1 * b0 + (first >> 32);
        uint64_t third = a0 * b1 + (uint32_t)second;
        *high = a1 * b1 + (second >> 32) + (third >> 32);
        *low = third << 32 | (uint32_t)first;
    }
    #endif
    static inline double tfopt_double_of(uint64_t bits) {
        double x;
        memcpy(&x, &bits, 8);
        return x;
    }
    """
    int leading_zeros "tfopt_leading_zeros"(uint64_t x) noexcept nogil
    void multiply "tfopt_multiply"(uint64_t a, uint64_t b, uint64_t *high,
                                   uint64_t *low) noexcept nogil
    double double_of "tfopt_double_of"(uint64_t bits) noexcept nogil

cdef enum:
    LEAST_POWER = -342      # below, the largest mantissa gives zero
    MOST_POWER = 308        # above, the smallest one gives infinity
    MOST_DIGITS = 19        # what 64 bits hold for certain

cdef enum scanned:
    NUMBER              # *value has been set
    NO_NUMBER           # the text is not a number
    UNDECIDED           # too many digits to tell between two doubles


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return <unsigned char>(c - c"0") < 10


cdef inline double scaled(uint64_t mantissa, int64_t power, const uint64_t *fives) noexcept nogil:
    """mantissa * 10**power, rounded to the nearest double, ties to even."""
    cdef uint64_t high, low, more, unused, bits
    cdef int64_t exponent
    cdef int zeros, upper
    cdef const uint64_t *five
    if mantissa == 0 or power < LEAST_POWER:
        return 0.0
    if power > MOST_POWER:
        return double_of(<uint64_t>0x7FF << 52)
    five = fives + 2 * (power - LEAST_POWER)
    zeros = leading_zeros(mantissa)
    mantissa <<= zeros
    multiply(mantissa, five[0], &high, &low)
    if high & 0x1FF == 0x1FF:       # the 64 bits left out might carry into those that count
        multiply(mantissa, five[1], &more, &unused)
        low += more
        high += low < more
    upper = <int>(high >> 63)
    bits = high >> (upper + 9)
    exponent = (((152170 + 65536) * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:               # a denormal number, or zero
        if exponent <= -63:
            return 0.0
        bits >>= 1 - exponent
        bits = (bits + (bits & 1)) >> 1
        return double_of(bits)      # 1 << 52 is the smallest normal number
    if low <= 1 and -4 <= power <= 23 and bits & 3 == 1 and bits << (upper + 9) == high:
        bits &= ~<uint64_t>1        # a tie
    bits = (bits + (bits & 1)) >> 1
    if bits == <uint64_t>1 << 53:
        bits >>= 1
        exponent += 1
    if exponent >= 0x7FF:
        return double_of(<uint64_t>0x7FF << 52)
    return double_of((bits & (((<uint64_t>1) << 52) - 1)) | <uint64_t>exponent << 52)


cdef inline scanned scan_number(const unsigned char **at, const unsigned char *end, double *value,
                                const uint64_t *fives) noexcept nogil:
    """Read a number that begins at *at*, which is then where it ends."""
    cdef const unsigned char *p = at[0]
    cdef const unsigned char *first
    cdef uint64_t mantissa = 0
    cdef int64_t power = 0, written = 0
    cdef int kept = 0               # digits in the mantissa, zeros in front of it apart
    cdef bint negative = False, falls = False, any_digit = False, cut = False
    cdef double x
    if p < end and (p[0] == c"-" or p[0] == c"+"):
        negative = p[0] == c"-"
        p += 1
    first = p
    while p < end and is_digit(p[0]):
        if kept < MOST_DIGITS:
            mantissa = 10 * mantissa + (p[0] - c"0")
            kept += mantissa != 0
        else:
            power += 1
            cut |= p[0] != c"0"
        p += 1
    any_digit = p > first
    if p < end and p[0] == c".":
        p += 1
        first = p
        while p < end and is_digit(p[0]):
            if kept < MOST_DIGITS:
                mantissa = 10 * mantissa + (p[0] - c"0")
                kept += mantissa != 0
                power -= 1
            else:
                cut |= p[0] != c"0"
            p += 1
        any_digit |= p > first
    if not any_digit:
        return NO_NUMBER
    if p < end and (p[0] == c"e" or p[0] == c"E"):
        p += 1
        if p < end and (p[0] == c"-" or p[0] == c"+"):
            falls = p[0] == c"-"
            p += 1
        if p == end or not is_digit(p[0]):
            return NO_NUMBER
        while p < end and is_digit(p[0]):
            if written < 1000000000000LL:     # no text has digits that make up for more
                written = 10 * written + (p[0] - c"0")
            p += 1
        power += -written if falls else written
    at[0] = p
    x = scaled(mantissa, power, fives)
    if cut and x != scaled(mantissa + 1, power, fives):
        return UNDECIDED
    value[0] = -x if negative else x
    return NUMBER
