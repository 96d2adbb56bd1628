/* Copies that leave the caches to other data. */
#ifndef TFOPT_PAST_CACHES_H
#define TFOPT_PAST_CACHES_H

#include <stddef.h>
#include <string.h>

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
