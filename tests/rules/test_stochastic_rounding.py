"""Stochastic rounding of bfloat16 variables and slots: its bits, its mean, and what refuses it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.cases import LAYOUTS, lay_out
from common.step_cases import ARGUMENTS, Overridden
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.step.step import repeats
from tfopt_ref.rounding import noise, rounded

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: Optimizers with the setting, and their arguments.
ROUNDING = {
    name: case
    for name, case in ARGUMENTS.items()
    if getattr(getattr(optimizers, name), "_by_elements", False)
}


def slot_of(values: np.ndarray, seed: int) -> np.ndarray:
    """Return float32 numbers as they become a bfloat16 slot, which a first step only rounds."""
    w = np.zeros(values.shape, np.float32)
    storage = {"momentum": "bfloat16"}
    optimizer = optimizers.SGD(1.0, 0.5, storage=storage, stochastic_rounding=seed)
    optimizer.apply_gradients([(-values, w)])
    slot: np.ndarray = optimizer.get_slot(w, "momentum").numpy()
    return slot


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays of bfloat16 hold the same bits, but for the payloads of NaNs."""
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    return bool(((a.view(np.uint16) == b.view(np.uint16)) | nan).all())


# ---- the rounding itself


@given(st.integers(0, 2**32))
def test_bits_are_those_of_the_specification(seed: int) -> None:
    """Of any numbers: denormal, infinite and not a number among them."""
    random = np.random.default_rng(seed)
    n = int(random.choice([1, 2, 31, 33, 511, 513, 2000]))
    values = random.integers(0, 2**32, n, np.uint32).view(np.float32)
    tfopt.set_flush_denormals(False)
    got = slot_of(values, seed)
    assert same(got, rounded(values, noise(seed, 1, 0, 1, np.arange(n))))


def test_the_largest_number_becomes_infinite_only_where_the_nearest_is() -> None:
    largest = np.float32(ml_dtypes.finfo(BFLOAT16).max)
    half = largest + np.float32(2.0**119)
    below = np.nextafter(half, np.float32(0))
    values = np.repeat(np.array([largest, below, half, np.inf], np.float32), 1000)
    got = slot_of(np.concatenate([values, -values]), 0).astype(np.float32)
    expected = np.repeat(np.array([largest, largest, np.inf, np.inf], np.float32), 1000)
    assert (got == np.concatenate([expected, -expected])).all()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.9])
def test_the_mean_is_the_number(part: float) -> None:
    """A number between two of bfloat16 becomes either, in proportion, and one of them stays."""
    n, value = 1 << 16, np.float32(1 + part / 128)
    got = slot_of(np.full(n, value), 1).astype(np.float64)
    assert {*np.unique(got)} <= {1.0, 1 + 1 / 128}
    assert abs(got.mean() - value) <= 5 * np.sqrt(part * (1 - part) / n) / 128


def even(counts: np.ndarray) -> bool:
    """Return whether counts in 256 classes may be those of a uniform distribution."""
    mean = counts.sum() / 256
    return bool(((counts - mean) ** 2 / mean).sum() < 400)  # chi squared: p is about 1e-8


def test_noise_is_even_and_differs_between_arrays_steps_seeds_and_elements() -> None:
    index = np.arange(1 << 16)
    first = noise(0, 1, 0, 0, index).astype(int)
    others = [(1, 1, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1), (0, 1, 0, 2)]
    given = [noise(*numbers, index).astype(int) for numbers in others]
    given += [noise(0, 1, 0, 0, index + k).astype(int) for k in (1, 2, 256, 2**33)]
    for bits in (first, *given):
        assert even(np.bincount(bits >> 8, minlength=256))
    for bits in given:
        assert even(np.bincount((first >> 12) * 16 + (bits >> 12), minlength=256))


# ---- steps


def run(
    name: str, arrays: list[np.ndarray], steps: int = 3, **options: Any
) -> tuple[Any, list[Any]]:
    """Take steps of variables, and return the optimizer and all that they have changed."""
    arguments = {**ROUNDING[name], "stochastic_rounding": 5, **options}
    optimizer = getattr(optimizers, name)(**arguments)
    for t in range(steps):
        random = np.random.default_rng(t)
        pairs = [(random.standard_normal(w.shape).astype(w.dtype), w) for w in arrays]
        optimizer.apply_gradients(pairs)
    return optimizer, [*map(np.array, arrays), *optimizer.get_weights()]


def variables(*shapes: Any) -> list[np.ndarray]:
    random = np.random.default_rng(9)
    return [random.standard_normal(shape).astype(BFLOAT16) for shape in shapes]


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    assert [a.tobytes() for a in first] == [b.tobytes() for b in second]


@pytest.mark.parametrize("name", ROUNDING)
def test_bits_do_not_depend_on_threads(name: str) -> None:
    results = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        results.append(run(name, variables(100_003, 33))[1])
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_do_not_depend_on_the_layout(layout: str) -> None:
    plain, (w,) = run("Adam", variables((70, 30, 2)))[1], variables((70, 30, 2))
    assert_same(plain, run("Adam", [lay_out(w, layout)])[1])


def test_rows_round_as_the_whole_does_in_any_order_and_however_often_they_occur() -> None:
    (w,) = variables((40, 7))
    random = np.random.default_rng(0)
    g = random.standard_normal(w.shape).astype(BFLOAT16)
    results = []
    for ids in (None, np.arange(40), random.permutation(40), np.repeat(np.arange(40), 2)):
        v = w.copy()
        optimizer = optimizers.Lion(0.5, sparse="lazy", stochastic_rounding=5)
        scale = BFLOAT16.type(0.5 if ids is not None and len(ids) > 40 else 1)  # halves are exact
        grad = g if ids is None else IndexedSlices(g[ids] * scale, ids)
        optimizer.apply_gradients([(grad, v)])
        results.append([v, *optimizer.get_weights()])
    for other in results[1:]:
        assert_same(results[0], other)


def test_steps_that_are_repeated_traced_or_watched_round_alike() -> None:
    fresh, repeated, traced, watched = (
        optimizers.Adam(0.1, stochastic_rounding=5) for _ in range(4)
    )
    watched.observe = True
    apply = tfopt.function(lambda grad, var: traced.apply_gradients([(grad, var)]))
    shape = (300,)
    arrays = [tfopt.Variable(w) for w in variables(shape, shape, shape, shape)]
    for w in arrays[1:]:
        w.assign(arrays[0].numpy())
    for t in range(4):
        g = np.random.default_rng(t).standard_normal(shape).astype(BFLOAT16)
        fresh._repeated = repeats()
        for optimizer, w in zip((fresh, repeated, watched), arrays, strict=False):
            optimizer.apply_gradients([(g, w)])
        apply(g, arrays[3])
    states = [
        [w.numpy(), *optimizer.get_weights()]
        for optimizer, w in zip((fresh, repeated, watched, traced), arrays, strict=True)
    ]
    for other in states[1:]:
        assert_same(states[0], other)


@pytest.mark.parametrize("name", ROUNDING)
def test_training_goes_on_from_where_it_was_saved(name: str, tmp_path: Path) -> None:
    path, arrays = tmp_path / "state.safetensors", variables((5, 3), 40)
    first, _ = run(name, arrays)
    named = dict(zip("ab", arrays, strict=True))
    first.save(path, named)
    other = getattr(optimizers, name)(stochastic_rounding=1)
    copies = {key: w.copy() for key, w in named.items()}
    other.load(path, copies)
    again, pickled = copy.deepcopy((first, arrays))
    assert other.stochastic_rounding == again.stochastic_rounding == 5
    random = np.random.default_rng(77)
    grads = [random.standard_normal(w.shape).astype(BFLOAT16) for w in arrays]
    first.apply_gradients(list(zip(grads, arrays, strict=True)))
    other.step(copies, dict(zip("ab", grads, strict=True)))
    again.apply_gradients(list(zip(grads, pickled, strict=True)))
    assert_same(arrays, [*copies.values()])
    assert_same(arrays, pickled)


def test_small_steps_arrive_that_rounding_to_the_nearest_loses() -> None:
    moved = []
    for seed in (None, 0):
        w = np.ones(2000, BFLOAT16)
        optimizer = optimizers.SGD(2.0**-12, stochastic_rounding=seed)
        for _ in range(64):
            optimizer.apply_gradients([(np.ones(2000, BFLOAT16), w)])
        moved.append(1 - float(w.astype(np.float64).mean()))
    assert moved[0] == 0 and abs(moved[1] - 2.0**-6) < 1e-3


# ---- what is refused


@pytest.mark.parametrize("bad", [True, 1.0, "5"])
def test_a_seed_is_a_whole_number(bad: Any) -> None:
    with pytest.raises(InvalidTypeError, match="must be an integer, not"):
        optimizers.Adam(stochastic_rounding=bad)


@pytest.mark.parametrize("bad", [-1, 2**64])
def test_a_seed_has_64_bits(bad: int) -> None:
    optimizer = optimizers.Adam(stochastic_rounding=2**64 - 1)
    with pytest.raises(InvalidArgumentError, match="must be between 0 and"):
        optimizer.stochastic_rounding = bad
    assert optimizer.stochastic_rounding == 2**64 - 1


@pytest.mark.parametrize(
    ("dtypes", "storage", "message"),
    [
        ([np.float32, np.float64], None, "change nothing: neither w0, w1 nor their slots are"),
        ([BFLOAT16, np.float16], None, "w1 or a slot of it is float16"),
        ([BFLOAT16], "float16", "w0 or a slot of it is float16"),
    ],
)
def test_variables_of_other_dtypes_are_refused(dtypes: Any, storage: Any, message: str) -> None:
    arrays = [np.ones(3, dtype) for dtype in dtypes]
    optimizer = optimizers.Adam(storage=storage, stochastic_rounding=5)
    pairs = [(w.copy(), tfopt.Variable(w, f"w{k}")) for k, w in enumerate(arrays)]
    with pytest.raises(InvalidTypeError, match=message):
        optimizer.apply_gradients(pairs)
    assert all((w == 1).all() for w in arrays) and len(optimizer.get_weights()) == 1


def test_what_cannot_round_so_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="excludes stochastic_rounding"):
        optimizers.Adam(sparse="catch_up", stochastic_rounding=5)
    with pytest.raises(InvalidArgumentError, match="overridden method for each variable"):
        Overridden(stochastic_rounding=5)
    with pytest.raises(InvalidArgumentError, match="a rule with a reduction excludes"):
        optimizers.RowwiseAdagrad(stochastic_rounding=5)
