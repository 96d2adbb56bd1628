/* Copies of arrays, scaled and rounded to another type: a row behind the rules, whose variable is
 * what is written, and whose gradient is what is read.
 */
#include "table.h"

namespace {

struct Copy {
    static constexpr int arrays = 1, scalars = 0;
};

/* An element; without a scale, one of the same type keeps its bits, NaNs included. */
template <class V, class G, class real> DEVICE V copied(G x, real scale) {
    if constexpr (std::is_same<V, G>::value)
        if (scale == 1)
            return x;
    V result;
    store(&result, load(x) * scale);
    return result;
}

template <class V, class G, int N> KERNEL copy(IN_PARAMETERS Tensors<V, G, 1, N> w) {
    constexpr int WIDE = 16 / (sizeof(V) > sizeof(G) ? sizeof(V) : sizeof(G));
    const int t = last_up_to(w.first, w.n, blockIdx.x);
    V *to = w.data[t][0];
    const G *from = w.grad[t];
    const bool aligned =
        on_packs(sizeof(Pack<V, WIDE>), to) && on_packs(sizeof(Pack<G, WIDE>), from);
    walk<WIDE>(blockIdx.x - w.first[t], w.size[t], aligned, [&](auto wide, std::int64_t i) {
        constexpr int n = decltype(wide)::value;
        const Pack<G, n> read = *reinterpret_cast<const Pack<G, n> *>(from + i);
        Pack<V, n> written;
#pragma unroll
        for (int j = 0; j < n; j++)
            written.e[j] = copied<V>(read.e[j], w.with.scale);
        *reinterpret_cast<Pack<V, n> *>(to + i) = written;
    });
}

template <class V, class G> void any_copy(const DenseCall &call, cudaStream_t stream) {
    constexpr int N = many<1>();
    in_launches<Copy, V, G, N>(call, [&](unsigned blocks, const auto &w) {
        LAUNCH(stream, blocks, THREADS, (copy<V, G, N>), w);
    });
}

} // namespace

Rule rule_copy() {
    return {"copy",
            Copy::arrays,
            Copy::scalars,
            nullptr,
            {any_copy<float, float>, any_copy<double, double>, any_copy<float16, float16>,
             any_copy<bfloat16, bfloat16>, any_copy<float, float16>, any_copy<float, bfloat16>,
             any_copy<float16, float>, any_copy<bfloat16, float>},
            {}};
}
