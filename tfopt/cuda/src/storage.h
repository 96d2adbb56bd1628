/* Storage types and their computation types: 16-bit types are computed in float, rounded once. */
#pragma once

#include "portability.h"

#ifndef __CUDACC__
#include <cstring>

#include "../../kernels/platform/halves.h"
#endif

struct float16 {
    std::uint16_t bits;
};
struct bfloat16 {
    std::uint16_t bits;
};

template <class Stored> struct Computed {
    using type = Stored;
};
template <> struct Computed<float16> {
    using type = float;
};
template <> struct Computed<bfloat16> {
    using type = float;
};
template <> struct Computed<void> { /* a type that is known when a kernel runs: see stored.h */
    using type = float;
};

/* The storage types of a variable and its gradient; a single array has one of the first four. In
 * the last two only copies are made. */
enum Types { F32, F64, F16, BF16, F32_F16, F32_BF16, F16_F32, BF16_F32, TYPES };

BOTH float load(float x) { return x; }
BOTH double load(double x) { return x; }

#ifdef __CUDACC__
__device__ __forceinline__ float load(float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ __forceinline__ float load(bfloat16 x) {
    return __uint_as_float(std::uint32_t(x.bits) << 16);
}
#else
inline float load(float16 x) { return float_of_float16(x.bits); }
inline float load(bfloat16 x) { return float_of_bfloat16(x.bits); }
#endif

/* A number of the type with a given number. */
DEVICE double load_one(const void *at, int type, std::int64_t i) {
    switch (type) {
    case F64:
        return static_cast<const double *>(at)[i];
    case F32:
        return static_cast<const float *>(at)[i];
    case F16:
        return load(static_cast<const float16 *>(at)[i]);
    default:
        return load(static_cast<const bfloat16 *>(at)[i]);
    }
}

BOTH void store(float *at, float x) { *at = x; }
BOTH void store(double *at, double x) { *at = x; }

#ifdef __CUDACC__
__device__ __forceinline__ void store(float16 *at, float x) {
    at->bits = __half_as_ushort(__float2half_rn(x));
}
__device__ __forceinline__ void store(bfloat16 *at, float x) {
    // to nearest, ties to even; NaN stays NaN
    const std::uint32_t bits = __float_as_uint(x);
    at->bits = std::uint16_t(x != x ? (bits >> 16) | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
inline void store(float16 *at, float x) { at->bits = float16_of(x); }
inline void store(bfloat16 *at, float x) { at->bits = bfloat16_of(x); }
#endif

/* A non-negative number or NaN, rounded to a type as by NumPy: directly to float16, to bfloat16 via
 * float. */
DEVICE void store_one(void *at, int type, double x) {
    union {
        float value;
        std::uint32_t bits;
    } nearest = {float(x)};
    switch (type) {
    case F64:
        *static_cast<double *>(at) = x;
        break;
    case F32:
        *static_cast<float *>(at) = nearest.value;
        break;
    case F16:
        /* Round to odd in float: a last bit of 1 records that the value was inexact. */
        if (double(nearest.value) > x)
            nearest.bits -= 1; /* now it is the largest float not above x */
        if (double(nearest.value) < x)
            nearest.bits |= 1;
        store(static_cast<float16 *>(at), nearest.value);
        break;
    default:
        store(static_cast<bfloat16 *>(at), nearest.value);
    }
}

/* Adjacent elements that are read and written together. */
template <class Stored, int N> struct alignas(sizeof(Stored) * N) Pack {
    Stored e[N];
};
