"""Gradients clipped inside an update: the bits of clipping first and updating then."""

from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.cases import TRIED, assert_same_bits, edge_values
from common.clip_cases import FLOATS, array_of, bits
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt_ref.training import first_state, train_step
from tfopt_ref.update import Rows

WIDE = ("float32", "float64")
each_float = pytest.mark.parametrize("dtype", FLOATS)
CLASSES = ("SGD", "Momentum", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop")
CLIPPING = ("clipvalue", "clipnorm", "global_clipnorm", "both")


def optimizer(name: str, **options: Any) -> Any:
    if name == "Momentum":
        return tfopt.optimizers.SGD(0.5, momentum=0.9, **options)
    return getattr(tfopt.optimizers, name)(0.5, **options)


@st.composite
def options(draw: Any, kind: str) -> dict[str, Any]:
    limit = st.one_of(st.floats(0.01, 10), st.sampled_from([0.0, math.inf, 1e-310, 1e-44]))
    if kind == "both":
        return {"clipvalue": draw(limit), "global_clipnorm": draw(limit)}
    return {kind: draw(limit)}


def numbers(
    random: np.random.Generator, dtype: str, shape: tuple[int, ...], wild: bool
) -> np.ndarray:
    """Return an array: of ordinary numbers, of odd ones, or of both; only if wild, of huge ones.

    They are not drawn one by one, which takes Hypothesis longer than the steps do.
    """
    odd = np.array(
        edge_values({"float16": np.float16, "float64": np.float64}.get(dtype, np.float32))
    )
    odd = odd if wild else odd[np.abs(odd) < 2]
    are_odd = random.random(shape) < random.choice([0.0, 0.2, 0.7])
    ordinary = random.uniform(-4, 4, shape).astype(np.float16)
    with np.errstate(all="ignore"):
        return array_of(np.where(are_odd, random.choice(odd, shape), ordinary), dtype)


@st.composite
def steps(draw: Any, dtype: str) -> list[list[Any]]:
    """Return gradients of two steps for a matrix, a vector and a table, of which some rows."""
    random, every = np.random.default_rng(draw(st.integers(0, 2**32))), []
    wild = draw(st.booleans())  # with one infinity no norm is finite
    for _ in range(2):
        n = draw(st.integers(0, 5))
        matrix, vector, values = (numbers(random, dtype, s, wild) for s in ((2, 3), (5,), (n, 2)))
        every.append([matrix, vector, (values, random.integers(0, 4, n))])
    return every


def first_variables(dtype: str) -> list[np.ndarray]:
    shapes = ((6, (2, 3)), (5, (5,)), (8, (4, 2)))
    return [array_of(np.linspace(-1, 1, n), dtype).reshape(shape) for n, shape in shapes]


def run(opt: Any, dtype: str, every: list[Any], prepare: Any = None) -> list[Any]:
    """Take the steps; return the variables and their slots."""
    variables = first_variables(dtype)
    for given_ in every:
        *dense, (values, indices) = given_
        grads = [*(g.copy() for g in dense), tfopt.IndexedSlices(values.copy(), indices)]
        grads = prepare(grads) if prepare else grads
        opt.apply_gradients(zip(grads, variables, strict=True))
    slots = [opt.get_slot(v, s).numpy() for v in variables for s in opt.get_slot_names()]
    return [*variables, *slots]


def specified(opt: Any, dtype: str, every: list[Any]) -> list[Any]:
    """Return what the steps of an optimizer are to make of the variables and their slots."""
    config = tfopt.optimizers.serialize(opt)
    variables, state = dict(zip("abc", first_variables(dtype), strict=True)), first_state(config)
    for *dense, rows in every:
        grads = zip("abc", [*dense, Rows(*rows)], strict=True)
        variables, state = train_step(config, variables, state, list(grads))
    slots = [state["slots"][v][s] for v in "abc" for s in opt.get_slot_names()]
    return [*variables.values(), *slots]


def first_clip(given_: dict[str, Any], merge: str) -> Any:
    """Return what clips gradients before an optimizer sees them."""

    def prepare(grads: list[Any]) -> list[Any]:
        if merge == "before":
            grads = [*grads[:-1], grads[-1].sum_duplicates()]
        if (bound := given_.get("clipvalue")) is not None:
            grads = [tfopt.clip_by_value(g, -bound, bound) for g in grads]
        if (limit := given_.get("clipnorm")) is not None:
            grads = [tfopt.clip_by_norm(g, limit) for g in grads]
        if (limit := given_.get("global_clipnorm")) is not None:
            grads, _ = tfopt.clip_by_global_norm(grads, limit)
        return grads

    return prepare


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", CLIPPING)
@given(data=st.data())
def test_the_same_as_clipping_first(dtype: str, name: str, kind: str, data: st.DataObject) -> None:
    every = data.draw(steps(dtype))
    given_ = data.draw(options(kind))
    merge = data.draw(st.sampled_from(["after", "before"]))
    fused = run(optimizer(name, merge=merge, **given_), dtype, every)
    prepare = first_clip(given_, merge)
    apart = run(optimizer(name), dtype, every, prepare)
    for a, b in zip(fused, apart, strict=True):
        assert_same_bits(a, b, f"{name}({given_})")


@pytest.mark.counted
@each_float
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", CLIPPING)
@given(data=st.data())
def test_the_specified_clipping(dtype: str, name: str, kind: str, data: st.DataObject) -> None:
    every = data.draw(steps(dtype))
    given_ = data.draw(options(kind))
    merge = data.draw(st.sampled_from(["after", "before"]))
    flush = data.draw(st.booleans())
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(flush)
    opt = optimizer(name, merge=merge, **given_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = run(opt, dtype, every)
    theirs = specified(opt, dtype, every)
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a, b, f"{name}({given_})")
    TRIED[f"optimizer with {kind}", dtype, "mixed", "contiguous"] += 1


@given(st.integers(0, 2**32))
def test_a_common_norm_adds_squares_in_the_order_of_the_gradients(seed: int) -> None:
    """Whichever are rows: the norm is the one that `clip_by_global_norm` takes."""
    random = np.random.default_rng(seed)
    start = [random.standard_normal((40, 7)) for _ in range(6)]
    whole = [random.standard_normal((40, 7)) for _ in start]
    grads: list[Any] = [
        grad if k % 2 else tfopt.IndexedSlices(grad, random.permutation(40))
        for k, grad in enumerate(whole)
    ]
    results = []
    for limit, given_ in ((1.0, grads), (None, tfopt.clip_by_global_norm(grads, 1.0)[0])):
        variables = [w.copy() for w in start]
        opt = tfopt.optimizers.Adamax(0.5, global_clipnorm=limit)
        opt.apply_gradients(zip(given_, variables, strict=True))
        results.append(variables)
    for a, b in zip(*results, strict=True):
        assert_same_bits(a, b, "a variable")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_factor_that_is_no_normal_number_is_its_own_gradients_alone(dtype: Any) -> None:
    """The gradients beside it are not rounded before they are used."""
    random = np.random.default_rng(0)
    grad = random.standard_normal(50).astype(dtype)
    large = np.full(3, 60000, dtype)
    alone, beside, other = np.ones(50, dtype), np.ones(50, dtype), np.ones(3, dtype)
    tfopt.optimizers.SGD(1e36, clipnorm=1e-36).apply_gradients([(grad, alone)])
    tfopt.optimizers.SGD(1e36, clipnorm=1e-36).apply_gradients([(grad, beside), (large, other)])
    assert_same_bits(alone, beside, "the variable beside")


@pytest.mark.parametrize("kind", ["clipvalue", "clipnorm", "global_clipnorm"])
def test_threads_do_not_change_bits(kind: str) -> None:
    random = np.random.default_rng(0)
    grads = [random.standard_normal(n).astype(np.float32) for n in (200_000, 3, 70_001)]
    expected = None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        variables = [np.ones_like(g) for g in grads]
        opt = tfopt.optimizers.Adamax(**{kind: 0.7})
        opt.apply_gradients(zip(grads, variables, strict=True))
        expected = expected or variables
        for a, b in zip(variables, expected, strict=True):
            assert bits(a) == bits(b)


def test_strided_and_16_bit_gradients() -> None:
    grad = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6).T
    for gradient in (grad, grad.astype(np.float16)):
        var, other = np.zeros((6, 4), np.float32), np.zeros((6, 4), np.float32)
        tfopt.optimizers.SGD(1.0, clipvalue=2.0, global_clipnorm=1.0).apply_gradients(
            [(gradient, var)]
        )
        wide = gradient.astype(np.float32)
        clipped = tfopt.clip_by_norm(tfopt.clip_by_value(wide, -2, 2), 1.0)
        tfopt.optimizers.SGD(1.0).apply_gradients([(clipped, other)])
        assert bits(var) == bits(other)


def test_gradients_are_not_changed() -> None:
    grads = [np.float32([3, 4]), tfopt.IndexedSlices(np.float32([3, 4]), [1, 1])]
    before = [grads[0].copy(), grads[1].values.copy()]
    for merge in ("before", "after"):
        opt = tfopt.optimizers.Adamax(global_clipnorm=1, clipvalue=2, merge=merge)
        opt.apply_gradients([(grads[0], np.ones(2, np.float32)), (grads[1], np.ones(2, "f4"))])
    assert bits(grads[0]) == bits(before[0]) and bits(grads[1].values) == bits(before[1])


@each_float
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", CLIPPING)
@pytest.mark.parametrize("strided", [False, True])
def test_no_gradient_is_written(dtype: str, name: str, kind: str, strided: bool) -> None:
    """Of one variable and of several, which steps take together."""
    random = np.random.default_rng(0)
    step = 2 if strided else 1
    grads = [array_of(random.uniform(-4, 4, (n, 3 * step)), dtype)[:, ::step] for n in (5, 700)]
    given_ = [grad.tobytes() for grad in grads]
    limits = dict.fromkeys(["clipvalue", "global_clipnorm"] if kind == "both" else [kind], 0.5)
    for chosen in (grads[:1], grads):
        opt = optimizer(name, **limits)
        weights = [array_of(np.ones((len(grad), 3 * step)), dtype)[:, ::step] for grad in chosen]
        for _ in range(2):
            opt.apply_gradients(list(zip(chosen, weights, strict=True)))
        assert [grad.tobytes() for grad in grads] == given_


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"clipnorm": 1}, [0, -1.4]),  # TensorFlow's: rows are clipped, then summed
        ({"global_clipnorm": 1}, [0, -1.4]),
        ({"clipvalue": 1}, [0, -2]),
        ({"clipnorm": 1, "merge": "before"}, [0, -1]),
        ({"global_clipnorm": 1, "merge": "before"}, [0, -1]),
        ({"clipvalue": 1, "merge": "before"}, [0, -1]),
        ({"clipvalue": 3.5, "clipnorm": 1, "merge": "before"}, [0, -1]),
    ],
)
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_repeated_rows(given_: dict[str, Any], expected: list[float], momentum: float) -> None:
    var = np.zeros(2)
    opt = tfopt.optimizers.SGD(1.0, momentum=momentum, **given_)
    opt.apply_gradients([(tfopt.IndexedSlices([3.0, 4.0], [1, 1]), var)])
    np.testing.assert_allclose(var, expected, rtol=1e-12)


def test_norms_that_are_not_finite() -> None:
    a, b = np.zeros(2), np.zeros(2)
    grads = np.array([1.0, np.inf]), np.array([1.0, 2.0])
    tfopt.optimizers.SGD(1.0, global_clipnorm=1.0).apply_gradients(zip(grads, (a, b), strict=True))
    assert np.isnan(a).all() and np.isnan(b).all()
    a, b = np.zeros(2), np.zeros(2)
    tfopt.optimizers.SGD(1.0, clipnorm=1.0).apply_gradients(zip(grads, (a, b), strict=True))
    assert a[0] == 0 and np.isnan(a[1]) and np.allclose(np.linalg.norm(b), 1)
    a = np.zeros(2)
    tfopt.optimizers.SGD(1.0, global_clipnorm=math.inf).apply_gradients([(grads[0], a)])
    assert a.tolist() == [-1, -math.inf]


def test_a_norm_that_no_float32_holds() -> None:
    var = np.zeros(2, np.float32)
    tfopt.optimizers.SGD(1.0, global_clipnorm=1.0).apply_gradients([(np.float32([3e38] * 2), var)])
    np.testing.assert_allclose(var, -math.sqrt(0.5), rtol=1e-6)


def test_variables_of_two_dtypes() -> None:
    a, b = np.zeros(1, np.float32), np.zeros(1)
    pairs = [(np.float32([3]), a), (np.array([4.0]), b)]
    tfopt.optimizers.SGD(1.0, global_clipnorm=1.0).apply_gradients(pairs)
    np.testing.assert_allclose([a[0], b[0]], [-0.6, -0.8], rtol=1e-6)


# ---- configuration and errors


@pytest.mark.parametrize("kind", ["clipvalue", "clipnorm", "global_clipnorm"])
def test_limits(kind: str) -> None:
    for bad in (-1.0, math.nan):
        with pytest.raises(tfopt.InvalidArgumentError, match=f"Expected {kind} >= 0, received: "):
            tfopt.optimizers.SGD(**{kind: bad})
    for wrong in ("1", True, [1.0], np.ones(2), 1j):
        with pytest.raises(tfopt.InvalidTypeError, match=f"{kind} must be a number"):
            tfopt.optimizers.SGD(**{kind: wrong})
    opt = tfopt.optimizers.SGD(**{kind: np.float32(2)})
    assert getattr(opt, kind) == 2 and opt.get_config()[kind] == 2
    assert tfopt.optimizers.SGD.from_config(opt.get_config()).get_config() == opt.get_config()
    setattr(opt, kind, None)
    assert kind not in opt.get_config()
    with pytest.raises(tfopt.InvalidArgumentError):
        setattr(opt, kind, -1)


def test_two_norms() -> None:
    message = (
        "Cannot accept both `clipnorm` and `global_clipnorm`, "
        "passed `clipnorm` 1.0, `global_clipnorm` 2.0"
    )
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        tfopt.optimizers.SGD(clipnorm=1, global_clipnorm=2)
    opt = tfopt.optimizers.SGD(clipnorm=1)
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        opt.global_clipnorm = 2
    assert opt.global_clipnorm is None


def test_merge() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match='merge must be "after" or "before"'):
        tfopt.optimizers.SGD(merge="never")
    assert tfopt.optimizers.SGD(merge="before").get_config()["merge"] == "before"
    assert "merge" not in tfopt.optimizers.SGD().get_config()


def test_refused_steps_change_nothing() -> None:
    opt = tfopt.optimizers.SGD(1.0, clipvalue=1, global_clipnorm=1.0)
    var, table = np.ones(2), np.ones((2, 2))
    good = np.ones(2)
    for bad in (
        tfopt.IndexedSlices(np.ones((1, 2)), [7]),
        tfopt.IndexedSlices(np.ones((1, 3)), [0]),
        np.ones(3),
        np.ones((2, 2), np.complex128),
    ):
        with pytest.raises(tfopt.InvalidArgumentError):
            opt.apply_gradients([(good, var), (bad, table)])
        assert (var == 1).all() and (table == 1).all() and opt.iterations.numpy() == 0
    complex_var = np.ones(2, complex)
    with pytest.raises(tfopt.InvalidTypeError, match="complex128 cannot be clipped"):
        opt.apply_gradients([(good, var), (np.ones(2, complex), complex_var)])
    assert (var == 1).all() and (complex_var == 1).all()
