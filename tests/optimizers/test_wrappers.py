"""Optimizers around others: accumulation, loss scaling, averages of weights, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, lay_out
from common.step_cases import ARGUMENTS
from hypothesis import given
from hypothesis import strategies as st

import tfopt


def same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


# ---- accumulation


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_four_batches_are_one_step_by_their_mean_or_sum(reduction: str) -> None:
    random = np.random.default_rng(0)
    batches = random.integers(-8, 9, (4, 5)).astype(np.float64)
    w, expected = np.ones(5), np.ones(5)
    opt = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.Adam(0.1), 4, reduction)
    plain = tfopt.optimizers.Adam(0.1)
    for _ in range(3):
        for batch in batches:
            before = w.copy()
            opt.apply_gradients([(batch, w)])
        assert not same(before, w)
        whole = batches.sum(0) / (4 if reduction == "mean" else 1)
        plain.apply_gradients([(whole, expected)])
    assert same(w, expected) and int(opt.iterations) == 3 and int(opt.pending) == 0


def test_batches_of_rows_and_dense_ones_mix() -> None:
    slices = tfopt.IndexedSlices
    w, expected = np.ones((4, 2)), np.ones((4, 2))
    opt = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.Adagrad(0.5), 3, "sum")
    plain = tfopt.optimizers.Adagrad(0.5)
    rows = slices(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1]))
    for order in ([rows, np.ones((4, 2)), rows], [np.ones((4, 2)), rows, rows]):
        for grad in order:
            opt.apply_gradients([(grad, w)])
        total = np.ones((4, 2))
        total[1] += [8, 12]
        plain.apply_gradients([(total, expected)])
        assert same(w, expected)
    for _ in range(3):
        opt.apply_gradients([(rows, w)])
    plain.apply_gradients([(slices(np.tile(rows.values, (3, 1)), np.ones(6, int)), expected)])
    assert same(w, expected)  # and the other rows are as they were


def test_no_batch_is_kept_that_does_not_fit() -> None:
    w, v = np.ones(2), np.ones(3)
    opt = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.SGD(1.0), 2)
    opt.apply_gradients([(np.ones(2), w)])
    for pairs in ([(np.ones(3), w)], [(np.ones(3), v)], [(np.ones(2), w), (np.ones(2), w)]):
        with pytest.raises(tfopt.InvalidArgumentError):
            opt.apply_gradients(pairs)
    opt.apply_gradients([(3 * np.ones(2), w)])
    assert w.tolist() == [-1, -1] and int(opt.iterations) == 1


def test_an_old_sum_with_a_nan_is_forgotten() -> None:
    w = np.ones(1)
    opt = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.SGD(0.0), 1)
    opt.apply_gradients([(np.array([np.nan]), w)])
    w[:] = 1
    opt.optimizer.learning_rate = 1.0
    opt.apply_gradients([(np.ones(1), w)])
    assert w.tolist() == [0]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_mean_of_float16_is_not_one_of_rounded_sums(sparse: bool) -> None:
    """Neither of ones that are too large, nor of ones that a loss scale has made small again."""
    optimizers = tfopt.optimizers

    def gradient(value: float) -> Any:
        array = np.full((1, 1), value, np.float16)
        return tfopt.IndexedSlices(array, np.array([0])) if sparse else array

    large, single = np.zeros((1, 1), np.float16), np.zeros((1, 1), np.float32)
    pair = optimizers.GradientAccumulation(optimizers.SGD(1.0), 2)
    for _ in range(2):
        pair.apply_gradients([(gradient(40000.0), large)])
    assert large[0, 0] == -40000
    small = np.zeros((1, 1), np.float16)
    scaled = optimizers.LossScaleOptimizer(
        optimizers.GradientAccumulation(optimizers.SGD(1024.0), 2), initial_scale=2.0**15
    )
    for _ in range(2):
        one = np.full((1, 1), 2.0**15, np.float32)
        scaled.apply_gradients([(gradient(2.0**-12), small), (one, single)])
    assert small[0, 0] == -(2.0**-17) and single[0, 0] == -1024


def test_a_clipped_sum_of_numbers() -> None:
    """One of 16 bits, which is scaled, beside one of another dtype."""
    optimizers = tfopt.optimizers
    inner = optimizers.Adafactor(1.0, relative_step=False, global_clipnorm=1.0)
    opt = optimizers.GradientAccumulation(inner, 2)
    half, single = np.ones((), np.float16), np.ones((), np.float32)
    for _ in range(2):
        opt.apply_gradients([(np.float16(0.5), half), (np.float32(-0.5), single)])
    assert half == 0 and single == 2


@pytest.mark.parametrize("clipping", [{}, {"clipnorm": 1e9}])
def test_a_refused_last_batch_is_not_added(clipping: dict[str, float]) -> None:
    rates: list[Any] = [None]
    w = np.zeros(2)
    opt = tfopt.optimizers.GradientAccumulation(
        tfopt.optimizers.SGD(lambda: rates[0], **clipping), 2, "sum"
    )
    opt.apply_gradients([(np.ones(2), w)])
    with pytest.raises(tfopt.InvalidTypeError):
        opt.apply_gradients([(10 * np.ones(2), w)])
    assert int(opt.pending) == 1
    rates[0] = 1.0
    opt.apply_gradients([(2 * np.ones(2), w)])
    assert w.tolist() == [-3, -3] and int(opt.iterations) == 1 and int(opt.pending) == 0


def test_complex_gradients_are_not_added_up() -> None:
    w = np.zeros(2, complex)
    opt = tfopt.optimizers.GradientAccumulation(tfopt.optimizers.SGD(1.0), 1)
    with pytest.raises(tfopt.InvalidTypeError, match="complex128"):
        opt.apply_gradients([(np.ones(2, complex), w)])
    assert w.tolist() == [0, 0]


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"steps": 1.5}, {"steps": True},
                                       {"steps": 2, "reduction": "max"}])  # fmt: skip
def test_refused_accumulation(arguments: dict[str, Any]) -> None:
    with pytest.raises(tfopt.InvalidArgumentError):
        tfopt.optimizers.GradientAccumulation(tfopt.optimizers.SGD(), **arguments)


def test_the_sum_is_fused_where_it_can_be() -> None:
    """A constraint or clipping by a norm changes how, and not what."""
    inner = tfopt.optimizers.SGD(1.0, clipnorm=100.0)
    assert tfopt.optimizers.SGD(1.0).capabilities.fuses and not inner.capabilities.fuses
    ws = [np.ones(9000, np.float32) for _ in range(2)]
    for w, own in zip(ws, (tfopt.optimizers.SGD(1.0, clipnorm=1e9), tfopt.optimizers.SGD(1.0)),
                      strict=True):  # fmt: skip
        opt = tfopt.optimizers.GradientAccumulation(own, 2)
        for k in range(4):
            opt.apply_gradients([(np.full(9000, k, np.float32), w)])
    assert same(*ws)


# ---- loss scaling


def test_loss_scaling_as_kerass() -> None:
    w = np.ones(2, np.float32)
    opt = tfopt.optimizers.LossScaleOptimizer(
        tfopt.optimizers.SGD(0.5), 8.0, dynamic_growth_steps=2
    )
    assert float(opt.scale_loss(2.0)) == 16
    for k, scale in enumerate([8.0, 8.0, 16.0]):
        assert float(opt.dynamic_scale) == scale and int(opt.iterations) == k
        opt.apply_gradients([(np.array([scale, 0], np.float32), w)])
    assert w.tolist() == [-0.5, 1]
    for bad in (np.inf, -np.inf, np.nan):
        opt.apply_gradients([(np.array([bad, 0], np.float32), w)])
    assert w.tolist() == [-0.5, 1] and int(opt.iterations) == 3
    assert float(opt.dynamic_scale) == 2 and int(opt.step_counter) == 0


def test_clipping_is_that_of_the_true_gradient() -> None:
    for clipping, expected in (
        ({"clipvalue": 0.5}, [0.5, 0.5]), ({"clipnorm": 1.0}, [0.4, 0.2]),
        ({"global_clipnorm": 1.0}, [0.4, 0.2]), ({"clipnorm": 10.0}, [-2, -3]),
    ):  # fmt: skip
        w = np.ones(2)
        inner = tfopt.optimizers.SGD(1.0, **clipping)
        opt = tfopt.optimizers.LossScaleOptimizer(inner, 4.0)
        opt.apply_gradients([(np.array([12.0, 16.0]), w)])
        assert np.allclose(w, expected, rtol=1e-15)


@pytest.mark.parametrize("scale", [2.0**-1022, 2.0**1022])
def test_a_scale_stays_a_number_to_divide_by(scale: float) -> None:
    w = np.zeros(1)
    opt = tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD(1.0), scale, 1)
    for gradient in (np.inf, scale) if scale < 1 else (scale, scale):
        opt.apply_gradients([(np.array([gradient]), w)])
    assert float(opt.dynamic_scale) == (2 * scale if scale < 1 else scale)
    assert w.tolist() == [-int(opt.iterations)]


def test_refused_scales() -> None:
    for arguments in ((0.0,), (np.inf,), (np.nan,), (1.0, 0)):
        with pytest.raises(tfopt.InvalidArgumentError):
            tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD(), *arguments)
    with pytest.raises(tfopt.errors.InvalidTypeError):
        tfopt.optimizers.LossScaleOptimizer("sgd")


# ---- averages of weights


@pytest.mark.parametrize("frequency", [None, 2])
def test_averages(frequency: int | None) -> None:
    w, average = np.array([8.0]), None
    opt = tfopt.optimizers.WeightAverage(tfopt.optimizers.SGD(1.0), 0.75, frequency)
    expected = 8.0
    for k in range(1, 6):
        opt.apply_gradients([(np.ones(1), w)])
        expected -= 1
        average = expected if average is None else 0.75 * average + 0.25 * expected
        if frequency and k % frequency == 0:
            expected = average
        assert w[0] == expected and opt.get_slot(w, "average").numpy()[0] == average


def test_weights_come_back_after_the_averages() -> None:
    w = np.array([8.0])
    opt = tfopt.optimizers.WeightAverage(tfopt.optimizers.SGD(1.0), 0.5)
    for _ in range(3):
        opt.apply_gradients([(np.ones(1), w)])
    with opt.averaged():
        assert w.tolist() == [5.75]
    assert w.tolist() == [5]
    opt.assign_averages()
    assert w.tolist() == [5.75]


@pytest.mark.parametrize("inner", ARGUMENTS)
def test_averages_come_in_the_order_of_the_variables(inner: str) -> None:
    """Whatever their dtypes are, by which they are computed together."""
    cls = getattr(tfopt.optimizers, inner)
    opt = tfopt.optimizers.WeightAverage(cls(**ARGUMENTS[inner]), 0.5)
    variables = [np.ones(n, dtype) for n, dtype in ((2, "f8"), (3, "f4"), (4, "f8"), (5, "f2"))]
    opt.apply_gradients([(np.ones_like(w), w) for w in variables])
    averages = [w.numpy().size for w in opt.weights if w.name.endswith("average")]
    assert averages == [2, 3, 4, 5]


def test_averages_of_optimizers_written_in_numpy() -> None:
    w = np.array([2.0])
    opt = tfopt.optimizers.WeightAverage(tfopt.optimizers.Adafactor(0.5), 0.5)
    opt.apply_gradients([(np.ones(1), w)])
    assert opt.get_slot(w, "average").numpy().tolist() == w.tolist() != [2]


def test_an_average_is_one_of_constrained_weights() -> None:
    v = tfopt.Variable(np.ones(1), constraint=lambda x: x.clip(0.5, 1))
    opt = tfopt.optimizers.WeightAverage(tfopt.optimizers.SGD(1.0), momentum=0.5)
    opt.apply_gradients([(np.ones(1), v)])
    assert v.numpy().tolist() == opt.get_slot(v, "average").numpy().tolist() == [0.5]


def test_refused_averages() -> None:
    adam = tfopt.optimizers.Adam
    late = adam(sparse="catch_up")
    for inner, arguments in (
        (late, ()),
        (tfopt.optimizers.LossScaleOptimizer(late), ()),
        (tfopt.optimizers.ParameterGroups(adam(), [("a", late)]), ()),
        (adam(), (1.5,)),
        (adam(), (0.5, 0)),
    ):
        with pytest.raises(tfopt.InvalidArgumentError):
            tfopt.optimizers.WeightAverage(inner, *arguments)


# ---- one around another


def test_averages_of_groups_of_which_one_sums_batches() -> None:
    own = tfopt.optimizers
    params = {"a": np.zeros(1), "b": np.zeros(1)}
    groups = own.ParameterGroups(own.SGD(1.0), [("a", own.GradientAccumulation(own.SGD(1.0), 2))])
    opt = own.WeightAverage(groups, momentum=0.5)
    averages = []
    for _ in range(3):
        opt.step(params, {"a": np.ones(1), "b": np.ones(1)})
        averages.append([opt.get_slot(array, "average").numpy()[0] for array in params.values()])
    assert averages == [[0, -1], [-0.5, -1.5], [-0.75, -2.25]]


def test_sums_of_sums() -> None:
    own = tfopt.optimizers
    ws = [np.zeros(2) for _ in range(2)]
    inner = own.GradientAccumulation(own.SGD(1.0), 2, "sum")
    groups = own.ParameterGroups(own.SGD(1.0), [("", own.GradientAccumulation(own.SGD(1.0), 1))])
    for w, around in zip(ws, (inner, groups), strict=True):
        opt = own.GradientAccumulation(around, 2, "sum")
        for k in (1.0, 2.0, 4.0, 8.0):
            opt.apply_gradients([(np.full(2, k), w)])
    assert ws[0].tolist() == ws[1].tolist() == [-15, -15]


def test_an_average_of_scaled_accumulated_steps() -> None:
    results = []
    for around in (True, False):
        w = np.ones(4, np.float32)
        own = tfopt.optimizers
        if around:
            inner = own.GradientAccumulation(own.AdamW(0.1), 2)
            opt = own.WeightAverage(own.LossScaleOptimizer(inner, 4.0), 0.5)
        else:
            opt = own.WeightAverage(own.AdamW(0.1), 0.5)
        for k in range(4):
            grad = np.arange(4, dtype=np.float32) + k
            for _ in range(2 if around else 1):
                opt.apply_gradients([((4 if around else 1) * grad, w)])
        results.append([w, opt.get_slot(w, "average").numpy()])
    assert all(same(*pair) for pair in zip(*results, strict=True))


@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 7, 2048, 8191, 8192, 8193, 20000, 32767, 32769, 70000]),
        min_size=1,
        max_size=4,
    ),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    layout=st.sampled_from(sorted(LAYOUTS)),
    threads=st.integers(1, 3),
    observed=st.booleans(),
)
def test_calls_that_take_turns_give_the_bits_of_calls_in_turn(
    sizes: list[int], dtype: Any, layout: str, threads: int, observed: bool
) -> None:
    tfopt.threads.set_num_threads(threads)
    random = np.random.default_rng(0)
    batches = [[random.normal(size=n).astype(dtype) for n in sizes] for _ in range(4)]
    ws = [lay_out(np.ones(n, dtype), layout) for n in sizes]
    plain = [np.ones(n, dtype) for n in sizes]
    own, adam = tfopt.optimizers, tfopt.optimizers.Adam(0.1)
    inner = own.GradientAccumulation(own.Adam(0.1), 2, "sum")
    opt = own.WeightAverage(inner, 0.5)
    opt.observe = observed
    averages: list[np.ndarray] = []
    for batch in batches:
        grads = [lay_out(grad, layout) for grad in batch]
        opt.apply_gradients(list(zip(grads, ws, strict=True)))
    for first, second in (batches[:2], batches[2:]):
        wide = np.float32 if dtype == np.float16 else dtype
        sums = [a.astype(wide) + b for a, b in zip(first, second, strict=True)]
        adam.apply_gradients([(g.astype(dtype), w) for g, w in zip(sums, plain, strict=True)])
        now = [w.astype(wide) for w in plain]
        pairs = zip(averages, now, strict=True)
        averages = [a / 2 + w / 2 for a, w in pairs] if averages else now
    for w, expected, average in zip(ws, plain, averages, strict=True):
        assert same(w, expected) and same(opt.get_slot(w, "average").numpy(), average)


# ---- state and configuration


def wrappers() -> list[Any]:
    own = tfopt.optimizers
    return [
        own.GradientAccumulation(own.AdamW(0.1), 3, "sum"),
        own.LossScaleOptimizer(own.Lion(0.1, weight_decay=0.5), 4.0, 5),
        own.WeightAverage(own.SGD(0.1, momentum=0.5), 0.5, 2),
        own.ParameterGroups(own.Adamax(0.1), [("b$", own.SGD(0.5)), ("c", {"beta_1": 0.5})]),
        own.WeightAverage(own.LossScaleOptimizer(own.Adafactor(0.1)), 0.5),
    ]


@pytest.mark.parametrize("which", range(5))
def test_weights_and_configuration_make_the_same_optimizer_again(which: int) -> None:
    params = {name: np.ones((2, 3)) for name in "abc"}
    opt = wrappers()[which]
    grads = {name: np.full((2, 3), 2.0) for name in "abc"}
    for _ in range(4):
        opt.step(params, grads)
    made = tfopt.optimizers.deserialize(tfopt.optimizers.serialize(opt))
    copies = {name: array.copy() for name, array in params.items()}
    assert type(made) is type(opt) and made.get_config() == opt.get_config()
    scratch = {name: np.ones((2, 3)) for name in "abc"}
    for _ in range(3):
        made.step(scratch, grads)
    made.set_weights(opt.get_weights())
    made.step(copies, grads)
    opt.step(params, grads)
    assert all(same(params[name], copies[name]) for name in "abc")


@pytest.mark.parametrize("which", range(4))
def test_refused_weights_change_nothing(which: int) -> None:
    opt, params = wrappers()[which], {name: np.ones(2) for name in "abc"}
    opt.step(params, params)
    before = opt.get_weights()
    for wrong in (before[:-1], [*before, np.ones(1)], [*before[:-1], np.ones(7)]):
        with pytest.raises(tfopt.InvalidArgumentError):
            opt.set_weights(wrong)
        assert all(same(*pair) for pair in zip(before, opt.get_weights(), strict=True))


# ---- written in NumPy


def test_adafactor_takes_the_rate_that_is_given() -> None:
    """Unless its steps are relative, of a number and of a schedule alike."""
    own, ends = tfopt.optimizers, {}
    rate = own.schedules.PiecewiseConstantDecay([], [4.0])
    for relative in (True, False):
        for name, given_rate in (("number", 4.0), ("schedule", rate)):
            w = np.ones((2, 2))
            opt = own.Adafactor(given_rate, relative_step=relative)
            for _ in range(2):
                opt.apply_gradients([(np.ones((2, 2)), w)])
            ends[relative, name] = w[0, 0]
    # by 1 times 1, then by the second root of 1/2 times the least length
    assert ends[True, "number"] == ends[True, "schedule"] == -0.001 * 2**-0.5
    assert ends[False, "number"] == ends[False, "schedule"] == -3 - 4 * 3


def test_a_variable_that_is_new_at_a_late_step() -> None:
    """Its share of the mean square is small, and not 0."""
    for dtype in (np.float16, np.float32, np.float64):
        for shape in ((3,), (3, 2)):
            opt, w = tfopt.optimizers.Adafactor(0.5), np.ones(shape, dtype)
            opt.iterations.assign(2**32)
            for _ in range(2):
                opt.apply_gradients([(np.full(shape, 0.5, dtype), w)])
            assert np.isfinite(w).all()


def test_weights_come_back_after_an_error() -> None:
    """In a block that has the averages in the variables."""
    average, w = tfopt.optimizers.WeightAverage(tfopt.optimizers.SGD(0.5), 0.5), np.zeros(2)
    for _ in range(3):
        average.apply_gradients([(np.ones(2), w)])
    before = w.copy()
    with pytest.raises(KeyError), average.averaged():
        assert (w != before).all()
        raise KeyError
    np.testing.assert_array_equal(w, before)
