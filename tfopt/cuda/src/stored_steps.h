/* Steps of whole variables, however they are stored: a pair of warps has 256 elements at a time, as
 * many as a block of codes, of which it finds the largest magnitudes. */
#pragma once

#include <utility>

#include "drivers.h"
#include "stored.h"

constexpr int STORED = 64; /* tensors of a launch */

/* Call with each number below n, as a type. */
template <int n, class Each> DEVICE void for_each(const Each &each) {
    if constexpr (n > 0) {
        for_each<n - 1>(each);
        each(std::integral_constant<int, n - 1>());
    }
}

/* The tensors of a launch, and how threads step them, four elements at a time (portability.h). */
template <class Rule> struct StoredTensors {
    static constexpr int arrays = Rule::arrays, step = 4 * THREADS;
    /* Whether an array may be codes. */
    static constexpr BOTH bool is_coded(int k) {
        return k < arrays && Rule::codes_of(k) != NONE;
    }
    /* The arrays of which warps share numbers. */
    static constexpr int shared = is_coded(1) || is_coded(2) || is_coded(3) ? arrays : 0;
    static_assert(arrays <= 4, "an array without a place among the coded ones");

    Scalars<float> with;
    tfopt_device_storage how;
    std::int64_t before; /* number of tensors in previous launches */
    int n;
    void *data[STORED][arrays];
    const void *grad[STORED];
    std::int64_t size[STORED], number[STORED];
    std::uint32_t first[STORED]; /* the tensor's first block */

    /* What a thread keeps while warps share numbers. */
    struct Own {
        int t, n;       /* the tensor, and how many elements there are */
        bool in_packs;  /* whether there are four, and all arrays are aligned */
        std::int64_t i; /* the first of these */
        float x[arrays][4];
        int largest[arrays], beside[arrays]; /* magnitudes, as bits */
        std::uint32_t word[arrays], other[arrays];
    };

    DEVICE bool is_shared(int k) const { return how.storage[k] >= SIGNED8; }
    DEVICE bool is_passed(int k) const { return in_4_bits(how.storage[k]); }
    DEVICE const DynamicTable *dynamic() const {
        return static_cast<const DynamicTable *>(how.dynamic);
    }
    /* The block of codes, NULL past the end of the tensor. */
    DEVICE void *block_of(const Own &own, int k) const {
        const std::int64_t block = own.i / CODES;
        return block * CODES < size[own.t]
                   ? static_cast<char *>(data[own.t][k]) + block * bytes_of(how.storage[k])
                   : nullptr;
    }
    DEVICE int tensor() const { return last_up_to(first, n, blockIdx.x); }
    DEVICE std::int64_t start_in(int t) const {
        return std::int64_t(blockIdx.x - first[t]) * CHUNK;
    }
    DEVICE int items() const {
        const int t = tensor();
        const std::int64_t rest = size[t] - start_in(t);
        return int(((rest < CHUNK ? rest : CHUNK) + step - 1) / step);
    }

    /* Read and step a thread's elements. */
    DEVICE void begin(int item, Own &own) const {
        own.t = tensor();
        own.i = start_in(own.t) + item * step + threadIdx.x * 4;
        const std::int64_t rest = size[own.t] - own.i;
        own.n = rest >= 4 ? 4 : rest > 0 ? int(rest) : 0;
        own.in_packs = own.n == 4 && has_packs(grad[own.t], how.storage[arrays]);
        for (int k = 0; k < arrays; k++)
            own.in_packs = own.in_packs && has_packs(data[own.t][k], how.storage[k]);
        float g[4];
        read_numbers(grad[own.t], how.storage[arrays], own.i, own.n, own.in_packs, g);
        for_each<arrays>([&](auto place) {
            constexpr int k = decltype(place)::value;
            if constexpr (is_coded(k))
                if (how.storage[k] >= SIGNED8) {
                    void *block = block_of(own, k);
                    if (block)
                        decode<Rule::codes_of(k)>(block, how.storage[k], dynamic(), own.x[k]);
                    for (int j = 0; j < 4 && !block; j++)
                        own.x[k][j] = 0;
                    return;
                }
            read_numbers(data[own.t][k], how.storage[k], own.i, own.n, own.in_packs, own.x[k]);
        });
        const auto read = reading_of(with, before + own.t);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x[arrays];
            for (int k = 0; k < arrays; k++)
                x[k] = own.x[k][j];
            x[0] = x[0] * with.keep;
            Rule::dense(x, read(g[j]), with.s, with.constants);
            x[0] = decayed(x[0], own.x[0][j], with);
            for (int k = 0; k < arrays; k++)
                own.x[k][j] = j < own.n ? x[k] : 0; /* a block ends in zeros */
        }
        for (int k = 0; k < shared; k++)
            own.largest[k] = largest_of(own.x[k]);
    }

    /* Encode, once the largest magnitudes are known. */
    DEVICE void encode_all(Own &own) const {
        for_each<arrays>([&](auto place) {
            constexpr int k = decltype(place)::value;
            if constexpr (is_coded(k))
                if (how.storage[k] >= SIGNED8)
                    if (void *block = block_of(own, k))
                        own.word[k] =
                            encode<Rule::codes_of(k)>(block, how.storage[k], dynamic(),
                                                      own.largest[k], own.beside[k], own.x[k]);
        });
    }

    DEVICE void end(const Own &own) const {
        const Noise noise(how, number[own.t], own.i);
        for_each<arrays>([&](auto place) {
            constexpr int k = decltype(place)::value;
            if constexpr (is_coded(k))
                if (how.storage[k] >= SIGNED8) {
                    if (void *block = block_of(own, k))
                        write_word(block, how.storage[k], own.word[k], own.other[k]);
                    return;
                }
            write_numbers(data[own.t][k], how.storage[k], own.i, own.n, own.in_packs, own.x[k], k,
                          noise);
        });
    }
};
