/* Vectors of the widest registers of the instruction set that a module is compiled for, of one number
   where it has none that convert bytes: compilers then make vectors of the loops. */
#ifndef TFOPT_LANES_H
#define TFOPT_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "halves.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__GNUC__)
#define TFOPT_LANES 16
#elif defined(__AVX2__) && defined(__GNUC__)
#define TFOPT_LANES 8
#else
#define TFOPT_LANES 1
#endif

#if TFOPT_LANES > 1
#define TFOPT_PACKED 4 /* vectors of integers that fit in one of bytes */
typedef float floats __attribute__((vector_size(4 * TFOPT_LANES), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * TFOPT_LANES), may_alias));
typedef uint32_t naturals __attribute__((vector_size(4 * TFOPT_LANES), may_alias));
typedef float floats_anywhere __attribute__((vector_size(4 * TFOPT_LANES), may_alias, aligned(4)));

TFOPT_INLINE floats load_floats(const float *x) { return *(const floats_anywhere *)x; }
TFOPT_INLINE void store_floats(float *x, floats y) { *(floats_anywhere *)x = y; }
TFOPT_INLINE floats each_float(float x) { return x - (floats){0}; }
TFOPT_INLINE ints each_int(int32_t x) { return x - (ints){0}; }
TFOPT_INLINE ints bits_of(floats x) { return (ints)x; }
TFOPT_INLINE floats floats_of_bits(ints x) { return (floats)x; }
TFOPT_INLINE floats floats_of(ints x) { return __builtin_convertvector(x, floats); }
TFOPT_INLINE ints where_positive(floats test, ints x) { return (test > 0) & x; }
TFOPT_INLINE ints where_nonzero(ints test, ints x) { return (test != 0) & x; }
#else
#define TFOPT_PACKED 1
typedef float floats;
typedef int32_t ints;
typedef uint32_t naturals;

TFOPT_INLINE floats load_floats(const float *x) { return *x; }
TFOPT_INLINE void store_floats(float *x, floats y) { *x = y; }
TFOPT_INLINE floats each_float(float x) { return x; }
TFOPT_INLINE ints each_int(int32_t x) { return x; }
TFOPT_INLINE ints bits_of(floats x) { return (int32_t)bits_of_float(x); }
TFOPT_INLINE floats floats_of_bits(ints x) { return float_from_bits((uint32_t)x); }
TFOPT_INLINE floats floats_of(ints x) { return (float)x; }
TFOPT_INLINE ints where_positive(floats test, ints x) { return -(test > 0) & x; }
TFOPT_INLINE ints where_nonzero(ints test, ints x) { return -(test != 0) & x; }
TFOPT_INLINE ints from_signed_bytes(const int8_t *x) { return *x; }
TFOPT_INLINE ints from_bytes(const uint8_t *x) { return *x; }
TFOPT_INLINE ints larger_ints(ints x, ints y) { return x > y ? x : y; }
TFOPT_INLINE floats larger(floats x, floats y) { return x > y ? x : y; }
TFOPT_INLINE floats smaller(floats x, floats y) { return x < y ? x : y; }
TFOPT_INLINE int32_t largest_lane(ints x) { return x; }
TFOPT_INLINE void to_signed_bytes(const ints *x, int8_t *bytes) { *bytes = (int8_t)*x; }
/* Integers above 255 become 255. */
TFOPT_INLINE void to_bytes(const ints *x, uint8_t *bytes) {
    *bytes = (uint8_t)(*x > 255 ? 255 : *x);
}
/* Rounded to nearest even, for magnitudes up to 2^22. */
TFOPT_INLINE ints nearest_ints(floats x) {
    return (int32_t)(bits_of_float(x + 12582912.0f) - 0x4b400000);
}
#endif

#if TFOPT_LANES == 16
TFOPT_INLINE ints from_signed_bytes(const int8_t *x) {
    return (ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)x));
}
TFOPT_INLINE ints from_bytes(const uint8_t *x) {
    return (ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x));
}
TFOPT_INLINE ints nearest_ints(floats x) { return (ints)_mm512_cvtps_epi32((__m512)x); }
TFOPT_INLINE ints larger_ints(ints x, ints y) {
    return (ints)_mm512_max_epi32((__m512i)x, (__m512i)y);
}
TFOPT_INLINE floats larger(floats x, floats y) {
    return (floats)_mm512_max_ps((__m512)x, (__m512)y);
}
TFOPT_INLINE floats smaller(floats x, floats y) {
    return (floats)_mm512_min_ps((__m512)x, (__m512)y);
}
TFOPT_INLINE int32_t largest_lane(ints x) { return _mm512_reduce_max_epi32((__m512i)x); }
/* Packing takes the quarters of vectors by turns. */
TFOPT_INLINE __m512i in_order(__m512i bytes) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, bytes);
}
TFOPT_INLINE __m512i to_words(const ints *x) {
    return _mm512_packs_epi32((__m512i)x[0], (__m512i)x[1]);
}
TFOPT_INLINE void to_signed_bytes(const ints *x, int8_t *bytes) {
    _mm512_storeu_si512(bytes, in_order(_mm512_packs_epi16(to_words(x), to_words(x + 2))));
}
TFOPT_INLINE void to_bytes(const ints *x, uint8_t *bytes) {
    _mm512_storeu_si512(bytes, in_order(_mm512_packus_epi16(to_words(x), to_words(x + 2))));
}
#elif TFOPT_LANES == 8
TFOPT_INLINE ints from_signed_bytes(const int8_t *x) {
    return (ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x));
}
TFOPT_INLINE ints from_bytes(const uint8_t *x) {
    return (ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
}
TFOPT_INLINE ints nearest_ints(floats x) { return (ints)_mm256_cvtps_epi32((__m256)x); }
TFOPT_INLINE ints larger_ints(ints x, ints y) {
    return (ints)_mm256_max_epi32((__m256i)x, (__m256i)y);
}
TFOPT_INLINE floats larger(floats x, floats y) {
    return (floats)_mm256_max_ps((__m256)x, (__m256)y);
}
TFOPT_INLINE floats smaller(floats x, floats y) {
    return (floats)_mm256_min_ps((__m256)x, (__m256)y);
}
TFOPT_INLINE int32_t largest_lane(ints x) {
    __m128i low = _mm256_castsi256_si128((__m256i)x), high = _mm256_extracti128_si256((__m256i)x, 1);
    __m128i four = _mm_max_epi32(low, high), two = _mm_max_epi32(four, _mm_srli_si128(four, 8));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_srli_si128(two, 4)));
}
/* Packing takes the halves of vectors by turns. */
TFOPT_INLINE __m256i in_order(__m256i bytes) {
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
TFOPT_INLINE __m256i to_words(const ints *x) {
    return _mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]);
}
TFOPT_INLINE void to_signed_bytes(const ints *x, int8_t *bytes) {
    __m256i packed = in_order(_mm256_packs_epi16(to_words(x), to_words(x + 2)));
    _mm256_storeu_si256((__m256i *)bytes, packed);
}
TFOPT_INLINE void to_bytes(const ints *x, uint8_t *bytes) {
    __m256i packed = in_order(_mm256_packus_epi16(to_words(x), to_words(x + 2)));
    _mm256_storeu_si256((__m256i *)bytes, packed);
}
#endif

/* The bits of positive floats without the lowest `cut` of them. Those say how likely it is that the rest
   is rounded up, so that the mean of many is theirs; whether it is depends on a hash of all bits. */
TFOPT_INLINE ints rounded_bits(ints bits, int cut) {
    ints noise = (ints)((naturals)bits * 0x9e3779b1u >> (32 - cut));
    return (bits + noise) >> cut;
}

#endif
