/* The 16-bit formats float16 and bfloat16, which are computed in float32. */
#ifndef TFOPT_HALVES_H
#define TFOPT_HALVES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* Between a widening and a rounding, numbers are to stay in registers. On a GPU, functions are those of
   the host: of one number, since TFOPT_LANES is 1 there (lanes.h). */
#if defined(__CUDACC__)
#define TFOPT_INLINE static __host__ __device__ __forceinline__
#define TFOPT_FUNCTION TFOPT_INLINE
#elif defined(__GNUC__)
#define TFOPT_INLINE __attribute__((always_inline)) static inline
#define TFOPT_FUNCTION static inline
#else
#define TFOPT_INLINE static inline
#define TFOPT_FUNCTION static inline
#endif

/* Widened exactly, rounded to nearest even. Written without branches, so that
   loops of them become vector code, and without operations that denormal flushing could reach: the
   denormals of float16 are normal numbers of float32. A NaN stays one. */
TFOPT_FUNCTION float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
TFOPT_FUNCTION uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
TFOPT_FUNCTION float float_of_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    uint32_t normal = (rest << 13) + ((127 - 15) << 23);
    uint32_t special = (rest << 13) | 0x7f800000; /* infinity and NaN */
    float denormal = (float)(int32_t)rest * 5.9604644775390625e-8f; /* 2^-24 */
    uint32_t bits = rest >= 0x7c00 ? special : rest < 0x0400 ? bits_of_float(denormal) : normal;
    return float_from_bits(bits | sign);
}
TFOPT_FUNCTION uint16_t float16_of(float value) {
    uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    /* a normal result: round 13 bits off, ties to even */
    uint32_t normal = (rest + 0xfff + ((rest >> 13) & 1) - ((127 - 15) << 23)) >> 13;
    /* a denormal one: the sum's last bit is worth 2^-24, so the addition rounds */
    float shifted = float_from_bits(rest < 0x38800000 ? rest : 0) + 0.5f;
    uint32_t denormal = bits_of_float(shifted) - 0x3f000000;
    uint32_t half = rest < 0x38800000 ? denormal : rest >= 0x477ff000 ? 0x7c00 : normal;
    return (uint16_t)((rest > 0x7f800000 ? 0x7e00 : half) | sign);
}
TFOPT_FUNCTION float float_of_bfloat16(uint16_t brain) {
    return float_from_bits((uint32_t)brain << 16);
}
TFOPT_FUNCTION uint16_t bfloat16_of(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

/* The same for runs, compiled for each instruction set: some have an instruction for it. */
TFOPT_INLINE void widen_float16(const uint16_t *halves, ptrdiff_t n, float *floats) {
    ptrdiff_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(halves + i));
        _mm256_storeu_ps(floats + i, _mm256_cvtph_ps(eight));
    }
#endif
    for (; i < n; i++) floats[i] = float_of_float16(halves[i]);
}
TFOPT_INLINE void narrow_float16(const float *floats, ptrdiff_t n, uint16_t *halves) {
    ptrdiff_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m256 eight = _mm256_loadu_ps(floats + i);
        __m128i rounded = _mm256_cvtps_ph(eight, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(halves + i), rounded);
    }
#endif
    for (; i < n; i++) halves[i] = float16_of(floats[i]);
}
TFOPT_INLINE void widen_bfloat16(const uint16_t *brains, ptrdiff_t n, float *floats) {
    ptrdiff_t i = 0;
#if defined(__AVX2__) && defined(__GNUC__)
    for (; i + 8 <= n; i += 8) {
        __m256i eight = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(brains + i)));
        _mm256_storeu_si256((__m256i *)(floats + i), _mm256_slli_epi32(eight, 16));
    }
#endif
    for (; i < n; i++) floats[i] = float_of_bfloat16(brains[i]);
}
#if defined(__AVX2__) && defined(__GNUC__)
/* Rounded to the high 16 bits, which are then the low ones; wrong for a NaN. */
TFOPT_INLINE __m256i rounded_to_high(__m256i bits) {
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(half, odd), 16);
}
static void narrow_with_nan(const float *floats, ptrdiff_t n, uint16_t *brains)
    __attribute__((noinline, cold, unused));
static void narrow_with_nan(const float *floats, ptrdiff_t n, uint16_t *brains) {
    for (ptrdiff_t i = 0; i < n; i++) brains[i] = bfloat16_of(floats[i]);
}
#endif
TFOPT_INLINE void narrow_bfloat16(const float *floats, ptrdiff_t n, uint16_t *brains) {
    ptrdiff_t i = 0;
#if defined(__AVX2__) && defined(__GNUC__)
    for (; i + 16 <= n; i += 16) {
        __m256 low = _mm256_loadu_ps(floats + i), high = _mm256_loadu_ps(floats + i + 8);
        __m256 nan = _mm256_cmp_ps(low, high, _CMP_UNORD_Q);
        __m256i pairs; /* in the order 0, 2, 1, 3 */
        if (__builtin_expect(!_mm256_testz_ps(nan, nan), 0)) {
            narrow_with_nan(floats + i, 16, brains + i);
            continue;
        }
        pairs = _mm256_packus_epi32(rounded_to_high(_mm256_castps_si256(low)),
                                    rounded_to_high(_mm256_castps_si256(high)));
        _mm256_storeu_si256((__m256i *)(brains + i), _mm256_permute4x64_epi64(pairs, 0xd8));
    }
#endif
    for (; i < n; i++) brains[i] = bfloat16_of(floats[i]);
}

/* Clamped to two bounds, neither of them NaN; NaNs stay. Perhaps in place, which GCC cannot know. */
#if defined(__GNUC__) && !defined(__clang__)
#define TFOPT_EACH_ALONE _Pragma("GCC ivdep")
#else
#define TFOPT_EACH_ALONE
#endif
#define TFOPT_CLAMP(real)                                                                          \
    static inline void clamp_##real(const real *x, ptrdiff_t n, const double *bounds, real *y) {   \
        real low = (real)bounds[0], high = (real)bounds[1];                                        \
        TFOPT_EACH_ALONE                                                                           \
        for (ptrdiff_t i = 0; i < n; i++) {                                                        \
            real value = high < x[i] ? high : x[i];                                                \
            y[i] = low > value ? low : value;                                                      \
        }                                                                                          \
    }
TFOPT_CLAMP(float)
TFOPT_CLAMP(double)

/* Rounded stochastically: up, in magnitude, with the probability that what is cut off is of a unit.
   The noise is 16 bits; 0x8000 makes it the nearest. Beyond the largest finite number there is none
   to choose between, so the nearest is taken. A NaN stays one. */
TFOPT_FUNCTION uint16_t bfloat16_near(float value, uint16_t noise) {
    uint32_t bits = bits_of_float(value), size = bits & 0x7fffffff;
    uint32_t rounded = (bits + (size < 0x7f7f0000 ? noise : 0x8000)) >> 16;
    return (uint16_t)(size > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}
TFOPT_INLINE void round_bfloat16(const float *floats, ptrdiff_t n, const uint16_t *noise,
                                 uint16_t *brains) {
    for (ptrdiff_t i = 0; i < n; i++) brains[i] = bfloat16_near(floats[i], noise[i]);
}

/* The noise is a function of a key and of the element's index, whatever is stepped beside it. A key
   of numbers, to which one more is added, as in Steele, Lea, Flood: Fast Splittable Pseudorandom
   Number Generators, 2014. */
TFOPT_FUNCTION uint64_t key_with(uint64_t key, uint64_t number) {
    uint64_t z = (key ^ number) + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
/* Two rounds of shift and multiplication, for two elements at a time, of which one gets the low half
   and one the high half. The first round is common to the arrays that are stepped together; before
   the second, each adds its own key. */
TFOPT_FUNCTION uint32_t first_round(uint32_t pair, uint32_t key) {
    uint32_t x = pair ^ key;
    x = (x ^ (x >> 16)) * 0x21f0aaad;
    return x ^ (x >> 15);
}
TFOPT_FUNCTION uint32_t second_round(uint32_t x, uint32_t own) {
    x = (x ^ own) * 0xd35a2d97;
    return x ^ (x >> 15);
}
TFOPT_FUNCTION uint16_t noise_at(uint64_t key, uint32_t own, uint64_t index) {
    uint64_t pair = index >> 1;
    uint32_t x = first_round((uint32_t)pair, (uint32_t)key_with(key, pair >> 32));
    x = second_round(x, own);
    return (uint16_t)(index & 1 ? x >> 16 : x);
}

#define TFOPT_NOISES 512 /* of a run that is rounded at a time */
#define TFOPT_NOISE_ROW (TFOPT_NOISES + 32) /* from the noise of one array to that of the next */

/* The noise of n elements whose indices are `first` and each one more than the one before; it begins
   at the second place if the first index is odd. */
TFOPT_INLINE void make_noise(uint64_t key, const uint32_t *own, int arrays, uint64_t first,
                             ptrdiff_t n, uint16_t *noise) {
    uint32_t common[TFOPT_NOISE_ROW / 2];
    uint64_t pair = first >> 1;
    ptrdiff_t i, start = 0, pairs = (ptrdiff_t)(((first + (uint64_t)n + 1) >> 1) - pair);
    while (start < pairs) {
        uint32_t low = (uint32_t)pair, high = (uint32_t)key_with(key, pair >> 32);
        ptrdiff_t rest = (ptrdiff_t)0x100000000 - low; /* that have the same high bits */
        ptrdiff_t stop = pairs - start < rest ? pairs : start + rest;
        pair += (uint64_t)(stop - start);
        for (; start < stop; start++, low++) common[start] = first_round(low, high);
    }
    for (int k = 0; k < arrays; k++, noise += TFOPT_NOISE_ROW)
        for (i = 0; i < pairs; i++) {
            uint32_t x = second_round(common[i], own[k]);
            memcpy(noise + 2 * i, &x, sizeof x); /* little-endian, as all processors here */
        }
}

/* A chunk, for loops that step its numbers before they leave the registers. All that is asked of
   their order is that it be that of the other operands: as a pair of bfloat16 is 32 bits, a shift
   widens one and a mask the other, so the first of every pair come before the second ones. */
#if defined(__AVX2__)
TFOPT_INLINE void widen_float16_chunk(const uint16_t *halves, float *floats) {
    widen_float16(halves, 16, floats);
}
TFOPT_INLINE void narrow_float16_chunk(const float *floats, uint16_t *halves) {
    narrow_float16(floats, 16, halves);
}
/* The high 16 bits are rounded up if the low ones are more than a half, or a half and the high ones
   are odd, thus: if the low ones, with the last of the high ones added to their own, are more than a
   half. A NaN among the numbers must have zeros for its low bits, then it stays as it is. So has any
   that was widened, or that the processor made of numbers. */
#if defined(__AVX512BW__) && defined(__AVX512VL__)
TFOPT_INLINE void widen_bfloat16_chunk(const uint16_t *brains, float *floats) {
    __m512i pairs = _mm512_loadu_si512(brains);
    _mm512_storeu_si512(floats, _mm512_slli_epi32(pairs, 16));
    _mm512_storeu_si512(floats + 16, _mm512_and_si512(pairs, _mm512_set1_epi32(~0xffff)));
}
TFOPT_INLINE void narrow_bfloat16_chunk(const float *floats, uint16_t *brains,
                                        const uint16_t *noise, ptrdiff_t at) {
    const __mmask32 seconds = 0xaaaaaaaa;
    __m512i first = _mm512_loadu_si512(floats), second = _mm512_loadu_si512(floats + 16);
    __m512i high = _mm512_mask_blend_epi16(seconds, _mm512_srli_epi32(first, 16), second);
    __m512i low = _mm512_mask_blend_epi16(seconds, first, _mm512_slli_epi32(second, 16));
    __mmask32 up;
    if (noise) { /* up if the sum of it and of the low bits is more than these can hold */
        __m512i added = _mm512_loadu_si512(noise + at), twice = _mm512_add_epi16(high, high);
        __mmask32 largest = _mm512_cmpeq_epu16_mask(twice, _mm512_set1_epi16((short)0xfefe));
        added = _mm512_mask_mov_epi16(added, largest, _mm512_set1_epi16((short)0x8000));
        up = _mm512_cmpgt_epu16_mask(added, _mm512_xor_si512(low, _mm512_set1_epi32(-1)));
    } else {
        __m512i sticky = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(1), 0xf8);
        up = _mm512_cmpgt_epu16_mask(sticky, _mm512_set1_epi16((short)0x8000));
    }
    _mm512_storeu_si512(brains, _mm512_mask_sub_epi16(high, up, high, _mm512_set1_epi16(-1)));
}
#else
TFOPT_INLINE void widen_bfloat16_chunk(const uint16_t *brains, float *floats) {
    __m256i pairs = _mm256_loadu_si256((const __m256i *)brains);
    _mm256_storeu_si256((__m256i *)floats, _mm256_slli_epi32(pairs, 16));
    _mm256_storeu_si256((__m256i *)(floats + 8),
                        _mm256_and_si256(pairs, _mm256_set1_epi32(~0xffff)));
}
TFOPT_INLINE void narrow_bfloat16_chunk(const float *floats, uint16_t *brains,
                                        const uint16_t *noise, ptrdiff_t at) {
    __m256i first = _mm256_loadu_si256((const __m256i *)floats);
    __m256i second = _mm256_loadu_si256((const __m256i *)(floats + 8));
    __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xaa);
    __m256i low = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa);
    __m256i up;
    if (noise) { /* up if the sum of it and of the low bits is more than these can hold */
        __m256i added = _mm256_loadu_si256((const __m256i *)(noise + at)), sum;
        __m256i twice = _mm256_add_epi16(high, high);
        __m256i largest = _mm256_cmpeq_epi16(twice, _mm256_set1_epi16((short)0xfefe));
        added = _mm256_blendv_epi8(added, _mm256_set1_epi16((short)0x8000), largest);
        sum = _mm256_add_epi16(low, added);
        up = _mm256_cmpeq_epi16(_mm256_max_epu16(sum, low), sum); /* if it holds them */
        up = _mm256_cmpeq_epi16(up, _mm256_setzero_si256());
    } else {
        __m256i sticky = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(1)));
        __m256i least = _mm256_set1_epi16((short)0x8001); /* that is more than a half */
        up = _mm256_cmpeq_epi16(_mm256_max_epu16(sticky, least), sticky);
    }
    _mm256_storeu_si256((__m256i *)brains, _mm256_sub_epi16(high, up));
}
#endif
#endif

#endif
