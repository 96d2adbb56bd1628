/* Four adjacent numbers, as they are stored: in 32 or 16 bits, or as codes of blocks. Which, is
 * known when a kernel runs. Codes are decoded and encoded by the functions of the host. What is rare
 * is done apart, so that a kernel has it once. */
#pragma once

#include "../../kernels/platform/bytes4.h"
#include "../../kernels/platform/device_step.h"
#include "gradient_reader.h"
#include "thread_work.h"

constexpr int CODES = TFOPT_CODES; /* numbers of a block */

/* As in kernels/arrays/layout.pxd. */
enum Storage {
    NATIVE,
    FLOAT16,
    BFLOAT16,
    SIGNED8,
    POSITIVE8,
    SIGNED4,
    POSITIVE4,
    DYNAMIC8,
    POSITIVE_DYNAMIC8
};

/* What a rule's slots can be stored as besides floats. */
enum Codes { NONE, SIGNED, POSITIVE };

/* Codes that are places in tables: 256 ascending numbers, and the middle between each and the next. */
struct DynamicTable {
    float number[CODES], middle[CODES];
};

template <class S> using Four = Pack<S, 4>;

/* ---- floats: packs of four, or single ones where an array ends or is not aligned */

/* Whether the packs of an array are aligned; those of codes are. */
DEVICE bool has_packs(const void *array, int storage) {
    return storage >= SIGNED8 || on_packs(storage == NATIVE ? 16 : 8, array);
}

DEVICE float read_one(const void *from, int storage, std::int64_t i) {
    if (storage == NATIVE)
        return static_cast<const float *>(from)[i];
    const std::uint16_t bits = static_cast<const std::uint16_t *>(from)[i];
    return storage == FLOAT16 ? load(float16{bits}) : load(bfloat16{bits});
}
APART Four<float> read_some(const void *from, int storage, std::int64_t i, int n) {
    Four<float> four = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (j < n)
            four.e[j] = read_one(from, storage, i + j);
    return four;
}

/* Read numbers i to i + n - 1, and zeros beyond, unless they are codes. */
DEVICE void read_numbers(const void *from, int storage, std::int64_t i, int n, bool in_packs,
                         float *x) {
    Four<float> four;
    if (!in_packs) {
        four = read_some(from, storage, i, n);
    } else if (storage == NATIVE) {
        four = *reinterpret_cast<const Four<float> *>(static_cast<const float *>(from) + i);
    } else {
        const auto *at = static_cast<const std::uint16_t *>(from) + i;
        const auto halves = *reinterpret_cast<const Four<std::uint16_t> *>(at);
#pragma unroll
        for (int j = 0; j < 4; j++)
            four.e[j] = storage == FLOAT16 ? load(float16{halves.e[j]}) : load(bfloat16{halves.e[j]});
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = four.e[j];
}

APART std::uint64_t apart_key_with(std::uint64_t key, std::uint64_t number) {
    return key_with(key, number);
}

/* The stochastic rounding of four adjacent elements of a variable's arrays. */
struct Noise {
    bool rounds;
    std::uint64_t key;
    std::uint32_t lower, upper; /* of both pairs, before the keys of arrays are added */

    /* The first of them is i, a multiple of 4. */
    DEVICE Noise(const tfopt_device_storage &how, std::int64_t number, std::int64_t i)
        : rounds(how.rounds), key(0), lower(0), upper(0) {
        if (rounds) {
            const std::uint64_t pair = std::uint64_t(i) >> 1;
            key = apart_key_with(apart_key_with(apart_key_with(0, how.seed), how.step), number);
            const std::uint32_t high = std::uint32_t(apart_key_with(key, pair >> 32));
            lower = first_round(std::uint32_t(pair), high);
            upper = first_round(std::uint32_t(pair) + 1, high);
        }
    }
    /* The bfloat16 number near element j of array k. */
    DEVICE std::uint16_t one(int k, int j, float x) const {
        const std::uint32_t own = rounds ? std::uint32_t(apart_key_with(key, k + 1)) : 0;
        const std::uint32_t pair = second_round(j < 2 ? lower : upper, own) >> 16 * (j % 2);
        /* to the nearest by what makes ties even */
        const std::uint32_t nearest = 0x7fff + (bits_of_float(x) >> 16 & 1);
        return bfloat16_near(x, std::uint16_t(rounds ? pair : nearest));
    }
};

/* A number as it is stored, of 16 bits in the lower ones; of array k, and near element j of a noise. */
DEVICE std::uint32_t bits_to_store(int storage, float x, const Noise &noise, int k, int j) {
    if (storage == NATIVE)
        return bits_of_float(x);
    float16 half;
    store(&half, x);
    return storage == FLOAT16 ? half.bits : noise.one(k, j, x);
}
DEVICE void write_one(void *into, int storage, std::int64_t i, std::uint32_t bits) {
    if (storage == NATIVE)
        static_cast<std::uint32_t *>(into)[i] = bits;
    else
        static_cast<std::uint16_t *>(into)[i] = std::uint16_t(bits);
}
APART void write_some(void *into, int storage, std::int64_t i, int n, Four<std::uint32_t> bits) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (j < n)
            write_one(into, storage, i + j, bits.e[j]);
}

/* Write numbers i to i + n - 1 of array k. */
DEVICE void write_numbers(void *into, int storage, std::int64_t i, int n, bool in_packs,
                          const float *x, int k, const Noise &noise) {
    Four<std::uint32_t> bits;
#pragma unroll
    for (int j = 0; j < 4; j++)
        bits.e[j] = bits_to_store(storage, x[j], noise, k, j);
    if (!in_packs)
        return write_some(into, storage, i, n, bits);
    if (storage == NATIVE) {
        *reinterpret_cast<Four<std::uint32_t> *>(static_cast<float *>(into) + i) = bits;
        return;
    }
    Four<std::uint16_t> halves;
#pragma unroll
    for (int j = 0; j < 4; j++)
        halves.e[j] = std::uint16_t(bits.e[j]);
    *reinterpret_cast<Four<std::uint16_t> *>(static_cast<std::uint16_t *>(into) + i) = halves;
}

/* ---- codes: two warps have a block, and a thread has four numbers */

/* Whether the halves of a block have units of their own, and its bytes two codes. */
DEVICE bool in_4_bits(int storage) { return storage == SIGNED4 || storage == POSITIVE4; }

/* The bytes of one block. */
DEVICE std::int64_t bytes_of(int storage) {
    return in_4_bits(storage) ? sizeof(tfopt_codes4) : sizeof(tfopt_positive8);
}

DEVICE int lane_of_thread() { return threadIdx.x % 32; }
DEVICE int half_of_thread() { return threadIdx.x / 32 % 2; }

/* Four codes are a word, at this place of a block; of those of 4 bits, another thread has half. */
DEVICE std::uint32_t *word_at(void *block, int storage) {
    std::uint32_t *words = static_cast<std::uint32_t *>(block) + 1;
    return in_4_bits(storage) ? words + 1 + half_of_thread() * 16 + lane_of_thread() % 16
                              : words + threadIdx.x % 64;
}
/* The unit of the thread's numbers. */
DEVICE float *unit_at(void *block, int storage) {
    return static_cast<float *>(block) + (in_4_bits(storage) ? half_of_thread() : 0);
}

DEVICE std::uint8_t byte_of(std::uint32_t word, int j) { return std::uint8_t(word >> 8 * j); }

/* The numbers that codes of 4 bits, or of tables, stand for. */
APART Four<float> rare_numbers(std::uint32_t word, int storage, const DynamicTable *dynamic,
                               float unit) {
    Four<float> four;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int byte = byte_of(word, j);
        const int code = lane_of_thread() < 16 ? byte & 15 : byte >> 4;
        if (in_4_bits(storage))
            four.e[j] = multiples4(code, storage == POSITIVE4) * unit;
        else
            four.e[j] = dynamic[storage == POSITIVE_DYNAMIC8].number[byte] * unit;
    }
    return four;
}

/* The thread's numbers of a block. */
template <int codes>
DEVICE void decode(void *block, int storage, const DynamicTable *dynamic, float *x) {
    static_assert(codes != NONE, "numbers without codes");
    const std::uint32_t word = *word_at(block, storage);
    const float unit = *unit_at(block, storage);
    if (storage > POSITIVE8) {
        const auto four = rare_numbers(word, storage, dynamic, unit);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = four.e[j];
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const std::uint8_t byte = byte_of(word, j);
        const std::int8_t code = std::int8_t(byte);
        x[j] = (codes == POSITIVE ? positive8_multiples(&byte) : floats_of(from_signed_bytes(&code)))
               * unit;
    }
}

/* The largest magnitude of numbers that may be stored as codes, as bits. */
DEVICE int largest_of(const float *x) { return largest_with(each_int(0), x, 4); }

/* The code of a number of at most 1: how many middles are less. */
DEVICE int dynamic_code(const float *middle, float x) {
    int code = 0;
#pragma unroll 1
    for (int step = CODES / 2; step; step /= 2)
        code += middle[code + step - 1] < x ? step : 0;
    return code;
}

/* Codes of 4 bits, in the half of each byte that is the thread's, or of tables. */
APART std::uint32_t rare_codes(Four<float> x, int storage, const DynamicTable *dynamic, float unit,
                               float inverse) {
    const bool lower = lane_of_thread() < 16;
    std::uint32_t word = 0;
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
        const float number = j == 0 ? x.e[0] : j == 1 ? x.e[1] : j == 2 ? x.e[2] : x.e[3];
        int code;
        if (in_4_bits(storage))
            code = codes4(number * inverse, storage == POSITIVE4) << (lower ? 0 : 4);
        else
            code = dynamic_code(dynamic[storage == POSITIVE_DYNAMIC8].middle,
                                unit > 0 ? number / unit : 0);
        word |= std::uint32_t(code) << 8 * j;
    }
    return word;
}

/* The word of codes of the thread's numbers. The largest magnitudes, as bits, are those of this warp
 * and of the one beside it, which has the other half of the block. The unit gets written. */
template <int codes>
DEVICE std::uint32_t encode(void *block, int storage, const DynamicTable *dynamic, int largest,
                            int beside, const float *x) {
    static_assert(codes != NONE, "numbers without codes");
    const float largest_code = storage > POSITIVE8 ? 1 : codes == POSITIVE ? 1.9375f : 127;
    const bool alone = in_4_bits(storage);
    float inverse;
    const float unit = unit_of(alone || largest > beside ? largest : beside, largest_code, &inverse);
    if (lane_of_thread() == 0 && (alone || half_of_thread() == 0))
        *unit_at(block, storage) = unit;
    if (unit != unit)
        return 0;
    if (storage > POSITIVE8)
        return rare_codes({x[0], x[1], x[2], x[3]}, storage, dynamic, unit, inverse);
    std::uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        std::uint8_t byte;
        const int code = codes == POSITIVE ? positive8_codes(x[j] * inverse)
                                           : nearest_ints(x[j] * inverse);
        if (codes == POSITIVE)
            to_bytes(&code, &byte);
        else
            to_signed_bytes(&code, reinterpret_cast<std::int8_t *>(&byte));
        word |= std::uint32_t(byte) << 8 * j;
    }
    return word;
}

/* Write codes; of those of 4 bits, with those of the thread that has the other half of the bytes. */
DEVICE void write_word(void *block, int storage, std::uint32_t word, std::uint32_t other) {
    if (!in_4_bits(storage))
        *word_at(block, storage) = word;
    else if (lane_of_thread() < 16)
        *word_at(block, storage) = word | other;
}
