/* Hints on what the caches should hold. */
#ifndef TFOPT_CACHE_HINTS_H
#define TFOPT_CACHE_HINTS_H

#include <stddef.h>
#include <string.h>

/* Ask the second-level cache for the lines of some bytes, which rarely begin where a line does. It
   waits for more lines at a time than the first level, so random rows of a large table come faster
   this way. Inlined, because GCC drops calls of functions that only prefetch. */
#if defined(__GNUC__)
__attribute__((always_inline)) static inline void prefetch_l2(const char *start, ptrdiff_t bytes) {
    for (ptrdiff_t byte = 0; byte < bytes; byte += 64)
        __builtin_prefetch(start + byte, 1, 2);
    __builtin_prefetch(start + bytes - 1, 1, 2);
}
#else
static inline void prefetch_l2(const char *start, ptrdiff_t bytes) { (void)start, (void)bytes; }
#endif

/* Copy whole lines of 64 bytes, from and to addresses where lines begin, past the caches: for what
   is hardly ever read again. */
#if defined(__SSE2__)
#include <emmintrin.h>
static inline void copy_past_caches(void *to, const void *from, size_t bytes) {
    __m128i *out = (__m128i *)to;
    const __m128i *in = (const __m128i *)from;
    for (size_t k = 0; k < bytes / sizeof(__m128i); k++)
        _mm_stream_si128(out + k, _mm_load_si128(in + k));
}
#else
static inline void copy_past_caches(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}
#endif

#endif
