/* A step of Adafactor, which is not a rule of the table. */
#include "adafactor.h"
#include "api.h"

namespace {

/* The arrays of a variable, and its numbers: as of Adafactor, `keep` to `limit` in this order. */
struct Call {
    void *var;
    const void *grad;
    void *r, *c;
    std::int64_t outer, rows, columns;
    bool factored;
    const double *numbers;
};

/* Memory that is cut from one piece. */
struct Room {
    char *at;
    template <class T> T *cut(std::int64_t n) {
        T *cut = reinterpret_cast<T *>(at);
        at += (n * sizeof(T) + 255) / 256 * 256;
        return cut;
    }
};

std::int64_t spans_of(std::int64_t n) { return (n + SPAN - 1) / SPAN; }

unsigned blocks_of(std::int64_t n, int threads) { return unsigned((n + threads - 1) / threads); }

template <class real>
void sum_squares(const Adafactor<real> &w, bool of_step, double *sums, cudaStream_t stream) {
    const std::int64_t spans = spans_of(w.size());
    reduce(SquaresOf<real>{w, of_step, sums}, spans, LANES, stream);
    reduce(SumOfSpans{sums, spans, w.totals + of_step}, 1, LANES, stream);
}

template <class real> void take_step(const Adafactor<real> &w, double *sums, cudaStream_t stream) {
    const std::int64_t means = w.factored ? w.outer * w.rows : w.columns;
    sum_squares(w, false, sums, stream);
    LAUNCH(stream, blocks_of(means, FEW), FEW, take_row_means<real>, w);
    if (w.factored) {
        LAUNCH(stream, blocks_of(w.outer * w.columns, FEW), FEW, take_column_means<real>, w);
        LAUNCH(stream, blocks_of(w.outer, FEW), FEW, take_means_of_rows<real>, w);
    }
    sum_squares(w, true, sums, stream);
    LAUNCH(stream, blocks_of(w.size(), THREADS), THREADS, step_by_means<real>, w);
}

/* Return an array of numbers as they are computed with, a copy unless they are stored so. */
template <class real, class V>
real *wide(void *array, std::int64_t n, Room &room, cudaStream_t stream) {
    if constexpr (std::is_same<real, V>::value)
        return static_cast<real *>(array);
    real *copy = room.cut<real>(n);
    if constexpr (!std::is_same<real, V>::value)
        LAUNCH(stream, blocks_of(n, THREADS), THREADS, widen<V>, copy, static_cast<V *>(array), n);
    return copy;
}

template <class real, class V>
void put_back(void *array, const real *copy, std::int64_t n, cudaStream_t stream) {
    if constexpr (!std::is_same<real, V>::value)
        LAUNCH(stream, blocks_of(n, THREADS), THREADS, narrow<V>, static_cast<V *>(array), copy, n);
}

template <class V, class G> int run(const Call &call, cudaStream_t stream) {
    using real = typename Computed<V>::type;
    const std::int64_t size = call.outer * call.rows * call.columns;
    const std::int64_t n_r = call.factored ? call.outer * call.rows : size;
    const std::int64_t n_c = call.factored ? call.outer * call.columns : 0;
    const std::int64_t copies = 2 * size + n_r + n_c + call.outer;
    void *memory = nullptr;
    if (const int error = take(&memory,
                               std::size_t(copies) * sizeof(real) +
                                   std::size_t(spans_of(size) + 2) * sizeof(double) + 7 * 256,
                               stream))
        return error;
    Room room = {static_cast<char *>(memory)};
    Adafactor<real> w;
    w.totals = room.cut<double>(2);
    double *sums = room.cut<double>(spans_of(size));
    w.r_mean = room.cut<real>(call.outer);
    w.var = wide<real, V>(call.var, size, room, stream);
    w.grad = wide<real, G>(const_cast<void *>(call.grad), size, room, stream);
    w.r = wide<real, V>(call.r, n_r, room, stream);
    w.c = call.factored ? wide<real, V>(call.c, n_c, room, stream) : nullptr;
    w.outer = call.outer;
    w.rows = call.rows;
    w.columns = call.columns;
    w.factored = call.factored;
    w.keep = real(call.numbers[0]);
    w.taken = real(call.numbers[1]);
    w.epsilon = real(call.numbers[2]);
    w.shortest = call.numbers[3];
    w.rate = call.numbers[4];
    w.limit = call.numbers[5];
    take_step(w, sums, stream);
    put_back<real, V>(call.var, w.var, size, stream);
    put_back<real, V>(call.r, w.r, n_r, stream);
    if (call.factored)
        put_back<real, V>(call.c, w.c, n_c, stream);
    return give(memory, stream);
}

} // namespace

/* Step a variable that has elements. */
API int tfopt_cuda_adafactor(int device, void *stream_, int types, void *var, const void *grad,
                             void *r, void *c, std::int64_t outer, std::int64_t rows,
                             std::int64_t columns, int factored, const double *numbers) {
    const OnDevice on(device);
    const auto stream = static_cast<cudaStream_t>(stream_);
    const Call call = {var, grad, r, c, outer, rows, columns, bool(factored), numbers};
    constexpr decltype(&run<float, float>) RUNS_OF[TYPES] = {
        run<float, float>,       run<double, double>, run<float16, float16>,
        run<bfloat16, bfloat16>, run<float, float16>, run<float, bfloat16>};
    const int error = RUNS_OF[types](call, stream);
    const int failed = last_error();
    return error ? error : failed;
}
