"""Steps of nested arrays, sparse gradients of other libraries, decay, and what a step did."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tfopt

sparse = pytest.importorskip("scipy.sparse")

# ---- step


def test_nested_structures() -> None:
    params = {"b": [np.ones(2), (np.ones(1), tfopt.Variable(np.ones(3)))], "a": np.ones(())}
    grads = {"a": np.array(2.0), "b": ([1.0, 1.0], [np.ones(1), None])}
    opt = tfopt.optimizers.SGD(0.5)
    assert int(opt.step(params, grads)) == 1
    assert params["a"] == 0 and params["b"][0].tolist() == [0.5, 0.5]
    assert params["b"][1][0].tolist() == [0.5] and params["b"][1][1].numpy().tolist() == [1, 1, 1]


def test_one_array_is_a_structure() -> None:
    w = np.ones(2)
    tfopt.optimizers.SGD(1.0).step(w, np.ones(2))
    assert w.tolist() == [0, 0]


def test_the_state_belongs_to_the_place() -> None:
    """An array may be replaced by another one; its slots go on."""
    params, kept = {"w": np.ones(2), "v": np.ones(2)}, np.ones(2)
    opt, plain = tfopt.optimizers.Adam(0.1), tfopt.optimizers.Adam(0.1)
    for _ in range(3):
        opt.step(params, {"w": np.ones(2), "v": np.ones(2)})
        plain.apply_gradients([(np.ones(2), kept)])
        params["w"] = params["w"].copy()
    assert params["w"].tolist() == kept.tolist() and len(opt.weights) == 5
    slot = opt.get_slot(params["v"], "m")
    assert slot.name == "Adam/v/m"


@pytest.mark.parametrize(
    ("params", "grads"),
    [
        ({"w": np.ones(2)}, {"v": np.ones(2)}),
        ({"w": np.ones(2)}, [np.ones(2)]),
        ([np.ones(2)], [np.ones(2), np.ones(2)]),
        ([[np.ones(2)]], [np.ones(2)]),
        ({"w": np.ones(2)}, {"w": None}),
        ({"w": 1.0}, {"w": 1.0}),
        ({"w": None}, {"w": np.ones(2)}),
    ],
)
def test_structures_that_do_not_fit(params: Any, grads: Any) -> None:
    opt = tfopt.optimizers.SGD(1.0)
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.step(params, grads)
    assert int(opt.iterations) == 0


@pytest.mark.parametrize("turn", [1, 2])
def test_states_stay_in_their_places_when_arrays_change_theirs(turn: int) -> None:
    """As buffers do that take turns."""
    optimizers = tfopt.optimizers
    inner = optimizers.AdamW(0.1, weight_decay=0.5)
    arrays = [np.zeros(2) for _ in range(3)]
    inner.exclude_from_weight_decay(arrays[:1])
    opt = optimizers.GradientAccumulation(inner, 2)
    straight = optimizers.AdamW(0.1, weight_decay=0.5)
    expected = [np.zeros(2) for _ in range(3)]
    straight.exclude_from_weight_decay(expected[:1])
    for step in range(6):
        for own, after in zip(arrays, expected, strict=True):
            own[:] = after
        grads = [np.full(2, k + step % 2 + 1.0) for k in range(3)]
        opt.step(arrays, grads)
        if step % 2:
            straight.step(expected, [grad - 0.5 for grad in grads])
        assert all(np.array_equal(*pair) for pair in zip(arrays, expected, strict=True))
        arrays = [*arrays[turn:], *arrays[:turn]]
    assert len(opt.get_weights()) == 2 + 3 * 3


@pytest.mark.parametrize(
    "later",
    [
        lambda a, b: [a, a],
        lambda a, b: [b, b],
        lambda a, b: [b],  # whose own state would be lost
    ],
)
def test_no_two_places_get_one_state(later: Any) -> None:
    a, b = np.zeros(2), np.zeros(2)
    opt = tfopt.optimizers.ParameterGroups(tfopt.optimizers.SGD(1.0, momentum=0.5), [])
    opt.step([a, b], [np.ones(2), 2 * np.ones(2)])
    before = opt.get_weights()
    given = later(a, b)
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.step(given, [np.ones(2) for _ in given])
    assert all(np.array_equal(*pair) for pair in zip(before, opt.get_weights(), strict=True))
    opt.step([a, b], [np.zeros(2), np.zeros(2)])
    assert a.tolist() == [-1.5] * 2 and b.tolist() == [-3.0] * 2


def test_no_two_places_have_one_name() -> None:
    w = np.zeros(1)
    for params in ({"a/b": w, "a": {"b": np.zeros(1)}}, {"1": w, 1: np.zeros(1)}):
        with pytest.raises(
            tfopt.InvalidArgumentError, match="two entries of the structure have the name"
        ):
            tfopt.optimizers.SGD(1.0).step(params, params)
    assert w.tolist() == [0]


def test_rows_that_owe_nothing_may_be_replaced() -> None:
    rows = tfopt.IndexedSlices(np.ones((1, 2)), np.array([0]))
    tables = [np.ones((3, 2)), np.ones((3, 2))]
    opt, plain = (tfopt.optimizers.Adam(0.1, sparse="catch_up") for _ in range(2))
    for _ in range(3):
        opt.step({"w": tables[0]}, {"w": rows})
        plain.step({"w": tables[1]}, {"w": rows})
        with pytest.raises(tfopt.InvalidArgumentError, match="deferred updates"):
            opt.step({"w": tables[0].copy()}, {"w": rows})
        opt.flush()
        plain.flush()
        tables[0] = tables[0].copy()
    assert np.array_equal(*tables)


@pytest.mark.parametrize("other", [np.ones(3), np.ones(2, np.float32)])
def test_a_place_keeps_its_shape_and_dtype(other: np.ndarray) -> None:
    opt = tfopt.optimizers.Adam(1.0)
    opt.step({"w": np.ones(2)}, {"w": np.ones(2)})
    with pytest.raises(tfopt.InvalidArgumentError, match="w was float64"):
        opt.step({"w": other}, {"w": np.ones_like(other)})
    assert other.tolist() == np.ones_like(other).tolist()


def test_rows_that_owe_steps_stay_where_they_are() -> None:
    opt, w = tfopt.optimizers.Adam(0.1, sparse="catch_up"), np.ones((3, 1))
    grad = tfopt.IndexedSlices(np.ones((1, 1)), np.array([0]))
    opt.step([w], [grad])
    with pytest.raises(tfopt.InvalidArgumentError, match="deferred updates"):
        opt.step([w.copy()], [grad])


# ---- scipy's and torch's sparse gradients


class Coo:
    """What a torch COO tensor shows of itself."""

    is_sparse = True

    def __init__(self, indices: Any, values: Any, shape: tuple[int, ...]) -> None:
        self.indices, self.values, self.shape = np.array(indices), np.array(values), shape

    def _indices(self) -> Any:
        return Held(self.indices)

    def _values(self) -> Any:
        return Held(self.values)


class Held:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def detach(self) -> Held:
        return self

    def numpy(self) -> np.ndarray:
        return self.array


def foreign() -> list[Any]:
    """The gradient of rows 1 and 3 of (5, 2) in many forms; an entry of row 3 is a sum."""
    dense = np.zeros((5, 2))
    dense[1], dense[3] = [1, 2], [0, 4]
    entries = ([1.0, 2.0, 3.0, 1.0], ([1, 1, 3, 3], [0, 1, 1, 1]))
    return [
        sparse.csr_matrix(dense),
        sparse.csr_array(dense),
        sparse.coo_matrix(entries, shape=(5, 2)),
        sparse.coo_array(entries, shape=(5, 2)),
        sparse.csc_array(dense),
        Coo([[1, 3, 3]], [[1.0, 2.0], [0.0, 3.0], [0.0, 1.0]], (5, 2)),
        Coo(entries[1], entries[0], (5, 2)),
    ]


@pytest.mark.parametrize("form", range(7))
def test_sparse_gradients_of_other_libraries(form: int) -> None:
    opt, w = tfopt.optimizers.Adagrad(1.0), np.ones((5, 2))
    same, expected = tfopt.optimizers.Adagrad(1.0), np.ones((5, 2))
    opt.apply_gradients([(foreign()[form], w)])
    rows = tfopt.IndexedSlices(np.array([[1.0, 2.0], [0.0, 4.0]]), np.array([1, 3]))
    same.apply_gradients([(rows, expected)])
    assert w.tolist() == expected.tolist() and w[0].tolist() == [1, 1]


@pytest.mark.parametrize("form", range(7))
def test_they_are_clipped_too(form: int) -> None:
    grad = foreign()[form]
    if form != 5:  # there row 3 is two rows
        assert float(tfopt.global_norm([grad, np.array([2.0])])) == 5
        assert tfopt.clip_by_norm(grad, 1.0).values[1, 1] == pytest.approx(4 / math.sqrt(21))
        assert tfopt.clip_by_global_norm([grad], 1.0)[0][0].indices.tolist() == [1, 3]
    assert tfopt.clip_by_value(grad, -1.0, 1.0).values.max() == 1
    with pytest.warns(DeprecationWarning):
        assert tfopt.clip_by_average_norm(grad, 1e9).shape == (5, 2)


def test_entries_by_three_indices() -> None:
    grad = Coo([[0], [0], [0]], [1.0], (1, 1, 1))
    with pytest.raises(tfopt.errors.InvalidTypeError, match="must have 1 or 2 sparse dimensions"):
        tfopt.optimizers.SGD().apply_gradients([(grad, np.ones((1, 1, 1)))])


# ---- decoupled weight decay

CLASSES = (
    *("SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Nadam", "Lion"),
    *("Yogi", "RAdam", "ADOPT", "AdEMAMix", "Signum"),
    *("RowwiseAdagrad", "RowwiseAdam", "AdamMini"),
)


@pytest.mark.parametrize("name", CLASSES)
def test_weights_decay_before_the_step(name: str) -> None:
    w, expected = np.full(3, 4.0), np.full(3, 4.0)
    decaying = getattr(tfopt.optimizers, name)(np.float64(0.5), weight_decay=0.25)
    plain = getattr(tfopt.optimizers, name)(np.float64(0.5), weight_decay=0.0)
    for grad in (np.array([1.0, -2.0, 0.0]), np.array([0.5, 0.5, -1.0])):
        expected *= 1 - 0.5 * 0.25
        plain.apply_gradients([(grad, expected)])
        decaying.apply_gradients([(grad, w)])
    assert w.tolist() == expected.tolist() and decaying.get_config()["weight_decay"] == 0.25


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("mode", ["tensorflow", "lazy"])
def test_named_rows_decay_once(name: str, mode: str) -> None:
    w = np.full((3, 1), 4.0)
    opt = getattr(tfopt.optimizers, name)(0.5, weight_decay=0.25, sparse=mode)
    opt.apply_gradients([(tfopt.IndexedSlices(np.zeros((2, 1)), np.array([1, 1])), w)])
    assert w[1, 0] == 3.5
    everywhere = mode == "tensorflow" and name in ("Adam", "AdamW", "Nadam", "RMSprop")
    assert w[0, 0] == w[2, 0] == (3.5 if everywhere else 4)


def test_rows_that_catch_up_end_where_dense_steps_do() -> None:
    table, dense = np.ones((3, 1)), np.ones((3, 1))
    late = tfopt.optimizers.AdamW(0.1, weight_decay=0.5, sparse="catch_up")
    plain = tfopt.optimizers.AdamW(0.1, weight_decay=0.5)
    for k in range(300):
        row = k % 2 if k < 5 else 1
        late.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 1)), np.array([row])), table)])
        grad = np.zeros((3, 1))
        grad[row] = 1
        plain.apply_gradients([(grad, dense)])
    late.flush()
    np.testing.assert_allclose(table, dense, rtol=1e-12)
    assert dense[2, 0] == pytest.approx(0.95**300)


def test_exclusions() -> None:
    params = {"w": np.ones(2), "norm": {"scale": np.ones(2)}, "bias": np.ones(2)}
    zeros = {"w": np.zeros(2), "norm": {"scale": np.zeros(2)}, "bias": np.zeros(2)}
    opt = tfopt.optimizers.AdamW(0.5, weight_decay=0.5)
    opt.step(params, zeros)
    opt.exclude_from_weight_decay(var_list=[params["bias"]], var_names=["^norm/"])
    opt.step(params, zeros)
    assert params["w"][0] == 0.5625 and params["bias"][0] == params["norm"]["scale"][0] == 0.75
    opt.exclude_from_weight_decay([params["w"]])  # beside those
    opt.step(params, zeros)
    assert params["w"][0] == 0.5625 and params["bias"][0] == params["norm"]["scale"][0] == 0.75


def test_decay_can_be_set_at_any_time() -> None:
    w, opt = np.ones(1), tfopt.optimizers.SGD(0.5)
    assert "weight_decay" not in opt.get_config()
    opt.weight_decay = 1.0
    opt.apply_gradients([(np.zeros(1), w)])
    assert w[0] == 0.5
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.weight_decay = -1.0


def test_ftrl_makes_weights_anew() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="weight_decay cannot be used with Ftrl"):
        tfopt.optimizers.Ftrl(weight_decay=0.1)


# ---- what a step did


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("clipping", [{}, {"clipvalue": 0.5}, {"clipnorm": 0.5},
                                      {"global_clipnorm": 1e3}])  # fmt: skip
def test_a_report(dtype: Any, clipping: dict[str, float]) -> None:
    random = np.random.default_rng(5)
    ws = [np.ones(9001, dtype), np.ones((7, 3), dtype).T, np.ones((6, 2), dtype)]
    before = [w.astype(np.float64) for w in ws]
    grads = [random.normal(size=w.shape).astype(dtype) for w in ws[:2]]
    rows = random.normal(size=(4, 2)).astype(dtype)
    pairs = [
        *zip(grads, ws[:2], strict=True),
        (tfopt.IndexedSlices(rows, np.array([1, 1, 0, 5])), ws[2]),
    ]
    opt = tfopt.optimizers.Adagrad(0.1, **clipping)
    opt.apply_gradients(pairs[:1])
    assert opt.last_step is None
    opt.observe = True
    before[0] = ws[0].astype(np.float64)
    opt.apply_gradients(pairs)
    given = [g.astype(np.float64) for g in (*grads, rows)]
    moved = [w - old for w, old in zip(ws, before, strict=True)]
    assert opt.last_step.update_norm == pytest.approx(norm_of(moved), rel=1e-12)
    if "clipvalue" in clipping:
        given = [np.clip(g, -0.5, 0.5) for g in given]
    assert opt.last_step.gradient_norm == pytest.approx(norm_of(given), rel=1e-12)
    assert opt.last_step.clipped == (bool(clipping) and "global_clipnorm" not in clipping)
    assert opt.last_step.nonfinite == 0


def norm_of(arrays: list[np.ndarray]) -> float:
    return math.sqrt(sum(float(np.square(array).sum()) for array in arrays))


def test_a_report_counts_what_is_not_finite() -> None:
    opt, w = tfopt.optimizers.SGD(1.0), np.ones(5000)
    opt.observe = True
    grad = np.zeros(5000)
    grad[[3, 2100, 4999]] = [np.nan, np.inf, -np.inf]
    opt.apply_gradients([(grad, w)])
    assert opt.last_step.nonfinite == 3 and math.isnan(opt.last_step.gradient_norm)


def test_a_report_is_of_the_true_gradient() -> None:
    inner, w = tfopt.optimizers.SGD(1.0, global_clipnorm=2.0), np.ones(2)
    opt = tfopt.optimizers.LossScaleOptimizer(inner, 8.0)
    opt.observe = True
    opt.apply_gradients([(np.array([24.0, 32.0]), w)])
    assert opt.last_step == tfopt.optimizers.StepReport(5.0, pytest.approx(2.0), True, 0)


def test_reports_do_not_depend_on_threads() -> None:
    random = np.random.default_rng(0)
    start, grad = random.normal(size=(2, 1_000_003))
    reports = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        opt, w = tfopt.optimizers.Adam(0.1), start.copy()
        opt.observe = True
        opt.apply_gradients([(grad, w)])
        reports.append((opt.last_step, w.tobytes()))
    assert reports[0] == reports[1] == reports[2]


def test_complex_steps_are_not_observed() -> None:
    opt, w = tfopt.optimizers.SGD(1.0), np.ones(2, complex)
    opt.observe = True
    with pytest.raises(tfopt.errors.InvalidTypeError, match="observed"):
        opt.apply_gradients([(w.copy(), w)])
    assert w.tolist() == [1, 1]


# ---- Adafactor


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4), (6,), ()])
def test_adafactor(shape: tuple[int, ...]) -> None:
    """Against the paper's formulas, written out."""
    random, w = np.random.default_rng(7), np.ones(shape)
    x, r, c, v = w.copy(), 0.0, 0.0, 0.0
    opt = tfopt.optimizers.Adafactor(0.3)
    for t in range(1, 4):
        g = random.normal(size=shape)
        opt.apply_gradients([(g, w)])
        kept, square = 1 - t**-0.8, g * g + 1e-30
        if len(shape) >= 2:
            r = kept * r + (1 - kept) * square.mean(-1)
            c = kept * c + (1 - kept) * square.mean(-2)
            v = (r / r.mean(-1, keepdims=True))[..., None] * c[..., None, :]
        else:
            v = kept * v + (1 - kept) * square
        u = g / np.sqrt(v)
        u = u / max(1.0, math.sqrt((u * u).mean()))
        x = x - max(1e-3, math.sqrt((x * x).mean())) * min(0.3, t**-0.5) * u
    np.testing.assert_allclose(w, x, rtol=1e-13)


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4), (6,), ()])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_adafactor_with_decay(shape: tuple[int, ...], dtype: str) -> None:
    """A step is that without decay, from weights that have been multiplied first."""
    random = np.random.default_rng(8)
    w = random.normal(size=shape).astype(dtype)
    same, cls = w.copy(), tfopt.optimizers.Adafactor
    decaying, plain = cls(0.3, weight_decay=0.25), cls(0.3)
    for _ in range(3):
        g = random.normal(size=shape).astype(dtype)
        decaying.apply_gradients([(g, w)])
        same *= same.dtype.type(1 - 0.3 * 0.25)
        plain.apply_gradients([(g, same)])
        assert w.tobytes() == same.tobytes()
    again = cls.from_config(decaying.get_config())
    assert again.weight_decay == 0.25 and "weight_decay" not in plain.get_config()


def test_adafactors_rows_are_those_of_a_dense_gradient() -> None:
    w, same = np.ones((4, 3)), np.ones((4, 3))
    rows = np.array([[1.0, 2, 3], [4, 5, 6]])
    tfopt.optimizers.Adafactor(0.1).apply_gradients(
        [(tfopt.IndexedSlices(rows, np.array([2, 0])), w)]
    )
    dense = np.zeros((4, 3))
    dense[[2, 0]] = rows
    tfopt.optimizers.Adafactor(0.1).apply_gradients([(dense, same)])
    assert w.tolist() == same.tolist()
    with pytest.raises(tfopt.errors.InvalidTypeError):
        tfopt.optimizers.Adafactor().apply_gradients([(np.ones(2, complex), np.ones(2, complex))])
