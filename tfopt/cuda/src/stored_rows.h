/* Steps of rows of a variable, however it and its slots are stored, except as codes. A group of
 * threads steps a row's occurrences one after another, however many there are. */
#pragma once

#include "stored_steps.h"

/* A sum of gradients as it is stored. */
DEVICE float rounded_to(int storage, float x) {
    float16 half;
    bfloat16 brain;
    store(&half, x);
    store(&brain, x);
    return storage == NATIVE ? x : storage == FLOAT16 ? load(half) : load(brain);
}

template <class Rule> struct StoredRows {
    static constexpr int arrays = Rule::arrays;
    Rows<void, void, arrays> rows;
    tfopt_device_storage how;
    std::int64_t number;

    DEVICE void get(std::int64_t at, float *x) const {
#pragma unroll
        for (int k = 0; k < arrays; k++)
            x[k] = read_one(rows.data[k], how.storage[k], at);
    }
    DEVICE void put(std::int64_t at, const float *x) const {
        const Noise noise(how, number, at & ~std::int64_t(3));
#pragma unroll
        for (int k = 0; k < arrays; k++)
            write_one(rows.data[k], how.storage[k], at,
                      bits_to_store(how.storage[k], x[k], noise, k, int(at & 3)));
    }
};

/* As `rows` in drivers.h. */
template <class Rule> KERNEL stored_rows(IN_PARAMETERS StoredRows<Rule> work) {
    const auto &w = work.rows;
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t first = thread / w.group;
    if (first >= w.n || (w.found->outside & w.found->repeated) != NOTHING)
        return;
    const std::uint32_t row = w.row[first];
    if (row == w.n_rows || (first > 0 && w.row[first - 1] == row))
        return; /* another group processes the row */
    const auto read = reading_of(w.with, 0);
    const int storage = work.how.storage[Rule::arrays]; /* of the gradient */
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        std::int64_t i = first;
        do {
            float g = 0, x[Rule::arrays];
            if (w.summed) {
                for (; i < w.n && w.row[i] == row; i++) {
                    const float gradient = read_one(w.grad, storage, w.order[i] * w.inner + c);
                    g = g + (w.clips_each ? read(gradient) : gradient);
                }
                g = rounded_to(storage, g);
                g = w.clips_each ? g : read(g);
            } else {
                g = read(read_one(w.grad, storage, w.order[i++] * w.inner + c));
            }
            work.get(row * w.inner + c, x);
            step_row<Rule>(x, g, w.with, w.inner);
            work.put(row * w.inner + c, x);
        } while (i < w.n && w.row[i] == row);
    }
}

/* As `absent_rows`. */
template <class Rule> KERNEL stored_absent_rows(IN_PARAMETERS StoredRows<Rule> work) {
    const auto &w = work.rows;
    const std::int64_t thread = std::int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const std::int64_t row = thread / w.group;
    if (!is_absent(w, row))
        return;
    const std::int64_t begin = std::int64_t(blockIdx.y) * COLUMNS;
    const std::int64_t end = w.inner - begin < COLUMNS ? w.inner : begin + COLUMNS;
    for (std::int64_t c = begin + thread % w.group; c < end; c += w.group) {
        float x[Rule::arrays];
        work.get(row * w.inner + c, x);
        step_absent<Rule>(x, w.with);
        work.put(row * w.inner + c, x);
    }
}
