/* Machine-specific functions without a portable equivalent in C. */
#ifndef TFOPT_MACHINE_H
#define TFOPT_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#define TFOPT_OPENMP 1
#else
#define TFOPT_OPENMP 0
static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
static inline double omp_get_wtime(void) { return 0; }
#endif

/* The floating-point state of a kernel: round to nearest, nothing trapped, denormals flushed (both
   operands and results) or not, whatever the caller or another library has set. */
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
typedef unsigned int fp_state;
static inline fp_state fp_enter(int flush) {
    fp_state caller = _mm_getcsr();
    _mm_setcsr(flush ? 0x9fc0u : 0x1f80u); /* masks all; FTZ is bit 15, DAZ bit 6 */
    return caller;
}
static inline void fp_leave(fp_state caller) { _mm_setcsr(caller); }
#define TFOPT_CAN_FLUSH 1
#elif defined(__aarch64__) && defined(__GNUC__)
typedef unsigned long long fp_state;
static inline fp_state fp_enter(int flush) {
    fp_state caller, kernel = flush ? 1ull << 24 : 0; /* FPCR.FZ */
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(caller));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(kernel));
    return caller;
}
static inline void fp_leave(fp_state caller) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(caller));
}
#define TFOPT_CAN_FLUSH 1
#else
typedef int fp_state;
static inline fp_state fp_enter(int flush) { (void)flush; return 0; }
static inline void fp_leave(fp_state caller) { (void)caller; }
#define TFOPT_CAN_FLUSH 0
#endif

/* Ask for a row of n arrays: its lines of 64 bytes, the last byte's too, since rows rarely begin
   where lines do. The second-level cache is asked, which waits for more lines at a time than the
   first: random rows of a large table come up to 1.5 times as fast. GCC takes a function whose only
   effect is a prefetch for one without effects and drops its calls, so this one must never be a
   function to it. */
#if defined(__GNUC__)
__attribute__((always_inline)) static inline void prefetch_row(char *const *data,
                                                               const ptrdiff_t *stride, int n,
                                                               ptrdiff_t row, ptrdiff_t bytes) {
    for (int k = 0; k < n; k++) {
        const char *start = data[k] + row * stride[k];
        for (ptrdiff_t byte = 0; byte < bytes; byte += 64)
            __builtin_prefetch(start + byte, 1, 2);
        __builtin_prefetch(start + bytes - 1, 1, 2);
    }
}
/* The same for arrays of rows and, from the first of `numbers`, arrays with one number for each row. */
__attribute__((always_inline)) static inline void prefetch_numbered_row(
    char *const *data, const ptrdiff_t *stride, int numbers, int n, ptrdiff_t row,
    ptrdiff_t bytes) {
    prefetch_row(data, stride, numbers, row, bytes);
    for (int k = numbers; k < n; k++)
        __builtin_prefetch(data[k] + row * stride[k], 1, 2);
}
__attribute__((always_inline)) static inline void prefetch_line(const char *at) {
    __builtin_prefetch(at);
}
/* Ask for a line of an array that is read in order: to the second-level cache, from further ahead
   than the first-level one has room for. */
__attribute__((always_inline)) static inline void prefetch_stream(const char *at) {
    __builtin_prefetch(at, 0, 2);
}
#else
static inline void prefetch_line(const char *at) { (void)at; }
static inline void prefetch_stream(const char *at) { (void)at; }
static inline void prefetch_row(char *const *data, const ptrdiff_t *stride, int n, ptrdiff_t row,
                                ptrdiff_t bytes) {
    (void)data, (void)stride, (void)n, (void)row, (void)bytes;
}
static inline void prefetch_numbered_row(char *const *data, const ptrdiff_t *stride, int numbers,
                                         int n, ptrdiff_t row, ptrdiff_t bytes) {
    (void)data, (void)stride, (void)numbers, (void)n, (void)row, (void)bytes;
}
#endif

/* An index that another thread may be changing: what is read here is tested, and then used, as it was
   read. A plain read may be made twice. */
static inline int32_t read_once_32(const int32_t *at) { return *(const volatile int32_t *)at; }
static inline int64_t read_once_64(const int64_t *at) { return *(const volatile int64_t *)at; }
static inline ptrdiff_t read_once(const ptrdiff_t *at) { return *(const volatile ptrdiff_t *)at; }

/* Whether i is in [0, stop), which is likely. */
static inline int within(ptrdiff_t i, ptrdiff_t stop) {
#if defined(__GNUC__)
    return __builtin_expect((size_t)i < (size_t)stop, 1);
#else
    return (size_t)i < (size_t)stop;
#endif
}

/* Any thread may set the flag, without synchronization. */
#if defined(__GNUC__)
static inline void raise_flag(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }
#else
static inline void raise_flag(int *flag) { *(volatile int *)flag = 1; }
#endif

/* The next number of a count that threads share. */
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static inline ptrdiff_t claim(ptrdiff_t *next) {
    return (ptrdiff_t)_InterlockedExchangeAdd64((volatile long long *)next, 1);
}
#else
static inline ptrdiff_t claim(ptrdiff_t *next) {
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
}
#endif

/* Whether the processor has all of x86-64-v3 or -v4, and the system saves the registers. Compilers
   have a function that says so, but in zig's library it finds no processor to have anything. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
static inline int cpu_has(unsigned level_1, unsigned level_7, unsigned extended,
                          unsigned registers) {
    unsigned a, b, c, d, saved;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & level_1) != level_1) return 0;
    __asm__ __volatile__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    return (saved & registers) == registers &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & level_7) == level_7 &&
           __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & extended) == extended;
}
#define V3_LEVEL_1 (bit_AVX | bit_F16C | bit_FMA | bit_MOVBE | bit_OSXSAVE)
#define V3_LEVEL_7 (bit_AVX2 | bit_BMI | bit_BMI2)
static inline int cpu_has_v3(void) {
    return cpu_has(V3_LEVEL_1, V3_LEVEL_7, bit_LZCNT, 0x06); /* halves of 256-bit registers */
}
static inline int cpu_has_v4(void) {
    return cpu_has(V3_LEVEL_1,
                   V3_LEVEL_7 | bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ |
                       bit_AVX512VL,
                   bit_LZCNT, 0xe6); /* and masks, and both halves of 512-bit registers */
}
#else
static inline int cpu_has_v3(void) { return 0; }
static inline int cpu_has_v4(void) { return 0; }
#endif

/* Calls `child` in every forked child, also after a fork that Python does not see. */
#if !defined(_WIN32)
#include <pthread.h>
static inline void in_forked_child(void (*child)(void)) { pthread_atfork(0, 0, child); }
#else
static inline void in_forked_child(void (*child)(void)) { (void)child; }
#endif

#endif
