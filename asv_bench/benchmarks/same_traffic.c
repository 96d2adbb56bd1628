/* The yardstick of the dense updates: the memory traffic of a step, with next to no arithmetic.
 *
 * Each of `n_written` arrays is read and written, one more is read only. Of the simple ways to
 * write this, going through the arrays block by block is the fastest: a single loop over all of
 * them is as fast where memory is the limit, but up to a fifth slower in cache or on one thread.
 */
#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 512 }; /* elements: what is read by all fits in the first-level cache */

/* With keep = 1 and add = 0, which the compiler cannot know, no value changes. */
void same_traffic(float *const *written, size_t n_written, const float *read, size_t n,
                  float keep, float add, int threads, size_t repeats) {
    while (repeats--) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (size_t start = 0; start < n; start += BLOCK) {
            size_t stop = start + BLOCK < n ? start + BLOCK : n;
            for (size_t k = 0; k < n_written; k++) {
                float *a = written[k];
#pragma omp simd
                for (size_t i = start; i < stop; i++) {
                    a[i] = a[i] * keep + read[i] * add;
                }
            }
        }
    }
}

enum { AHEAD = 16, LINE = 64 }; /* rows asked for ahead, and bytes of a cache line */

/* The yardstick of updates of rows: of each of `n_written` tables a row is read and written, in
 * random order and asked for ahead, for each row of `read`, which is read in order. A thread takes
 * rows without asking whose they are. Lines are asked for as if to be read, and by the second-level
 * cache: where prefetches for writing are instructions of their own, these bring lines to the
 * first-level one, which waits for fewer at a time, and the loop took 1.2 to 1.7 times as long. */
void random_rows(float *const *written, size_t n_written, const float *read, const int64_t *rows,
                 size_t n, size_t width, float keep, float add, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n_written && i + AHEAD < n; k++) {
            const char *row = (const char *)(written[k] + rows[i + AHEAD] * width);
            for (size_t byte = 0; byte < 4 * width; byte += LINE) {
                __builtin_prefetch(row + byte, 0, 2);
            }
            __builtin_prefetch(row + 4 * width - 1, 0, 2);
        }
        for (size_t k = 0; k < n_written; k++) {
            float *a = written[k] + rows[i] * width;
#pragma omp simd
            for (size_t j = 0; j < width; j++) {
                a[j] = a[j] * keep + read[i * width + j] * add;
            }
        }
    }
}

/* The yardstick of clipping: read an array, and then, if `writes`, read and write it. */
float clip_traffic(float *a, size_t n, float keep, int writes, int threads, size_t repeats) {
    float total = 0;
    while (repeats--) {
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : total)
        for (size_t start = 0; start < n; start += BLOCK) {
            size_t stop = start + BLOCK < n ? start + BLOCK : n;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (size_t i = start; i < stop; i++) {
                sum += a[i];
            }
            total += sum;
        }
        if (!writes) {
            continue;
        }
#pragma omp parallel for schedule(static) num_threads(threads)
        for (size_t start = 0; start < n; start += BLOCK) {
            size_t stop = start + BLOCK < n ? start + BLOCK : n;
#pragma omp simd
            for (size_t i = start; i < stop; i++) {
                a[i] *= keep;
            }
        }
    }
    return total;
}
