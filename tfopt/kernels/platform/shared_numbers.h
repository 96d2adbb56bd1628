/* Numbers that any thread may read while another one sets them: the old one is read, or the new. */
#ifndef TFOPT_SHARED_NUMBERS_H
#define TFOPT_SHARED_NUMBERS_H

#if defined(__GNUC__)
static inline int shared_int(const int *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
static inline void share_int(int *at, int value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
static inline double shared_double(const double *at) {
    double value;
    __atomic_load(at, &value, __ATOMIC_RELAXED);
    return value;
}
static inline void share_double(double *at, double value) {
    __atomic_store(at, &value, __ATOMIC_RELAXED);
}
#else
static inline int shared_int(const int *at) { return *(const volatile int *)at; }
static inline void share_int(int *at, int value) { *(volatile int *)at = value; }
static inline double shared_double(const double *at) { return *(const volatile double *)at; }
static inline void share_double(double *at, double value) { *(volatile double *)at = value; }
#endif

#endif
