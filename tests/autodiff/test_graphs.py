"""Random expressions: the same bits in both packages, and what differences say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from common.cases import assert_same_bits
from differences import check_grads
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.autodiff.tracing import liveness

more = settings(max_examples=5 * settings().max_examples)
both = pytest.mark.parametrize("package", [tfopt, tfopt_ref], ids=["tfopt", "tfopt_ref"])

SHAPES = [(), (3,), (2, 3), (2, 1), (1, 3)]

#: Made of + - * / sqrt abs max sign: equal in every bit.
EXACT: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (b * b + 1.0),
    lambda a, b: np.sqrt(np.abs(a) + 0.5) * b,
    lambda a, b: np.maximum(a, b),
    lambda a, b: np.minimum(a, b) - a,
    lambda a, b: np.abs(a) * np.sign(b),
    lambda a, b: np.where(a > b, a * 0.5, -b),
    lambda a, b: np.sum(a, keepdims=True) * b,
    lambda a, b: np.square(a) - 2.0 * b,
    lambda a, b: np.clip(a, -1.0, 1.5) + b,
]
SMOOTH: list[Callable[[Any, Any], Any]] = [
    *EXACT[:4],
    lambda a, b: np.exp(-a * a) + b,
    lambda a, b: np.log(a * a + 1.0) * b,
    lambda a, b: np.tanh(a) - b,
    lambda a, b: np.sin(a) * np.cos(b),
    lambda a, b: np.mean(a, axis=-1, keepdims=True) * b if np.ndim(a) else a * b,
    lambda a, b: (a * a + 0.5) ** 1.5 / (b * b + 2.0),
    lambda a, b: np.sum(np.stack([a + b, (a + b) * 2.0, a - b]), axis=0),
    lambda a, b: (
        np.sum(np.concatenate([a + b, a - b], axis=-1), -1, keepdims=True) if np.ndim(a + b) else a
    ),
]


class Graph(NamedTuple):
    """Steps, each of which applies a function to two of the values before it."""

    functions: list[Callable[[Any, Any], Any]]
    steps: list[tuple[int, int, int]]

    def values(self, *inputs: Any) -> list[Any]:
        values = list(inputs)
        for function, i, j in self.steps:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(self.functions[function](a, b))
        return values

    def __call__(self, *inputs: Any) -> Any:
        values = self.values(*inputs)
        return np.sum(values[-1]) + np.sum(values[-2] * 0.5)


def graphs(functions: list[Callable[[Any, Any], Any]], most: int = 8) -> st.SearchStrategy[Graph]:
    step = st.tuples(st.integers(0, len(functions) - 1), st.integers(0, 9), st.integers(0, 9))
    return st.builds(Graph, st.just(functions), st.lists(step, min_size=1, max_size=most))


#: At kinks and ties, and between them.
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.5, 2.0]) | st.floats(-2, 2, width=32)
#: What is special about floats, too.
ANY_NUMBERS = NUMBERS | st.sampled_from([-0.0, np.nan, np.inf, -np.inf, 1e300, 5e-324])
#: Where no two are alike and none is 0, for differences.
SMOOTH_NUMBERS = st.floats(0.125, 2, width=32).flatmap(lambda x: st.sampled_from([x, -x]))


def inputs(numbers: st.SearchStrategy[float] = NUMBERS) -> st.SearchStrategy[list[np.ndarray]]:
    one = st.sampled_from(SHAPES).flatmap(lambda shape: arrays_of(shape, numbers))
    return st.lists(one, min_size=2, max_size=3)


def arrays_of(shape: tuple[int, ...], numbers: Any) -> st.SearchStrategy[np.ndarray]:
    size = int(np.prod(shape))
    listed = st.lists(numbers, min_size=size, max_size=size)
    return listed.map(lambda values: np.array(values, float).reshape(shape))


def value_and_gradients(package: ModuleType, graph: Any, arrays: list[Any]) -> list[np.ndarray]:
    """Return a value, its gradients and those of the sum of their squares."""
    tensors = [package.constant(array) for array in arrays]
    with package.GradientTape() as outer:
        outer.watch(tensors)
        with package.GradientTape() as tape:
            tape.watch(tensors)
            y = graph(*tensors)
        first = tape.gradient(y, tensors, None, "zero")
        total = sum(np.sum(grad * grad) for grad in first)
    second = outer.gradient(total, tensors, None, "zero")
    return [np.asarray(part) for part in (y, *first, *second)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@more
@given(graph=graphs(EXACT), arrays=inputs())
def test_the_same_bits(dtype: str, graph: Graph, arrays: list[np.ndarray]) -> None:
    given = [array.astype(dtype) for array in arrays]
    with np.errstate(all="ignore"):
        fast, ref = (value_and_gradients(p, graph, given) for p in (tfopt, tfopt_ref))
    for ours, theirs in zip(fast, ref, strict=True):
        assert ours.dtype == theirs.dtype == dtype
        assert_same_bits(ours, theirs, str(graph.steps))


@more
@given(graph=graphs(SMOOTH), arrays=inputs())
def test_the_same_numbers(graph: Graph, arrays: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        fast, ref = (value_and_gradients(p, graph, arrays) for p in (tfopt, tfopt_ref))
    for ours, theirs in zip(fast, ref, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-10, 1e-10)


@both
@more
@given(graph=graphs(SMOOTH), arrays=inputs(SMOOTH_NUMBERS))
def test_differences(package: ModuleType, graph: Graph, arrays: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        value, *found = value_and_gradients(package, graph, arrays)
        assume(all(np.abs(part).max() < 1e4 for part in (value, *found)))
        check_grads(package, graph, arrays, atol=1e-4, rtol=1e-4)


@more
@given(graph=graphs(EXACT + SMOOTH[4:]), arrays=inputs())
def test_a_traced_function_is_the_same(graph: Graph, arrays: list[np.ndarray]) -> None:
    """Eager and through a function: called with other values than those it was traced with."""
    traced = tfopt.function(graph)
    with np.errstate(all="ignore"):
        traced(*(tfopt.constant(array + 1) for array in arrays))
        eager = value_and_gradients(tfopt, graph, arrays)
        replayed = value_and_gradients(tfopt, traced, arrays)
        assert traced.trace_count == 1
        assert_same_bits(np.asarray(traced(*arrays)), eager[0], "value")
    for ours, theirs in zip(replayed, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@more
@given(graph=graphs(EXACT + SMOOTH[4:]), arrays=inputs())
def test_a_whole_step_in_a_function_is_the_same(graph: Graph, arrays: list[np.ndarray]) -> None:
    """With the tapes inside."""

    @tfopt.function
    def step(*tensors: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(list(tensors))
            y = graph(*tensors)
        return [y, *tape.gradient(y, list(tensors), None, "zero")]

    with np.errstate(all="ignore"):
        step(*(tfopt.constant(array + 1) for array in arrays))
        replayed = [np.asarray(part) for part in step(*map(tfopt.constant, arrays))]
        eager = value_and_gradients(tfopt, graph, arrays)
    for ours, theirs in zip(replayed, eager, strict=False):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


# ---- programs: views, indices, casts, and arrays that are written over

#: Of two square matrices of one size: the results are such, too.
SQUARE: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: -a,
    lambda a, b: a * 1.0,
    lambda a, b: np.tanh(a),
    lambda a, b: np.maximum(a, b),
    lambda a, b: np.where(a > b, a, 0),
    lambda a, b: a / (b * b + 1.0),
    lambda a, b: a.T,
    lambda a, b: a[::-1],
    lambda a, b: np.flip(a, 1),
    lambda a, b: a.T.reshape(-1).reshape(a.shape),
    lambda a, b: a[0] + b,
    lambda a, b: np.broadcast_to(a[-1], a.shape),
    lambda a, b: np.concatenate([a[1:], a[:1]]),
    lambda a, b: np.roll(a, 1, 0) - b,
    lambda a, b: np.sum(a, 1, keepdims=True) + b,
    lambda a, b: np.mean(a, axis=0) * b,
    lambda a, b: np.max(a, axis=1, keepdims=True) - b,
    lambda a, b: np.take(a, [0] * len(a), axis=0),
    lambda a, b: a[np.argsort(b[0])],
    lambda a, b: np.sort(a, 0),
    lambda a, b: np.cumsum(a, 0) * 0.5,
    lambda a, b: a @ b * 0.25,
    lambda a, b: np.einsum("ij->ji", a),
    lambda a, b: np.einsum("ij,jk->ik", a, b) * 0.25,
    lambda a, b: np.diagonal(a) + b,
    lambda a, b: np.tril(a),
    lambda a, b: np.real(a) - b,
    lambda a, b: np.copy(a),
    lambda a, b: a.astype(np.float32).astype(np.float64),
    lambda a, b: np.squeeze(np.expand_dims(a, 0), 0),
    lambda a, b: np.round(a, 1) + b,
    lambda a, b: np.clip(a, -1.0, 1.0),
    lambda a, b: np.ones_like(a) * a,
    lambda a, b: np.outer(a[0], b[0]),
    lambda a, b: np.sum(a[a > 0]) + b,
    lambda a, b: b * a[b > 0].size,
    lambda a, b: np.full(a.shape, 2.0) * a,
    lambda a, b: np.sum(np.stack([a, b]), 0),
]


class Pure(NamedTuple):
    """What graphs look like that return several values, some of which are views of others."""

    graph: Graph
    kept: list[int]

    def __call__(self, *inputs: Any) -> Any:
        values = self.graph.values(*inputs)
        return [values[k % len(values)] for k in self.kept]


@st.composite
def pure_graphs(draw: st.DrawFn) -> tuple[Pure, list[list[np.ndarray]]]:
    """Return a graph, and the inputs of several calls."""
    graph = draw(graphs(SQUARE, 14))
    kept = draw(st.lists(st.integers(0, 15), min_size=1, max_size=3))
    n = draw(st.integers(1, 4))
    calls = [[draw(arrays_of((n, n), ANY_NUMBERS)) for _ in range(2)] for _ in range(3)]
    return Pure(graph, kept), calls


@given(drawn=pure_graphs())
def test_programs_write_over_nothing_that_is_read_again(
    drawn: tuple[Pure, list[list[np.ndarray]]],
) -> None:
    """Traced with one call's values, replayed with others': as without; raw and recorded."""
    pure, calls = drawn
    large, liveness._LARGE = liveness._LARGE, 0
    try:
        traced = tfopt.function(pure)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for call in calls:
                expected = [np.asarray(y) for y in pure(*map(tfopt.constant, call))]
                given = [array.copy() for array in call]
                found = traced(*given)
                for array, before in zip(given, call, strict=True):
                    assert_same_bits(array, before, "an argument")
                    array[...] = 77.0  # which belongs to the caller
                tensors = [tfopt.constant(array) for array in call]
                with tfopt.GradientTape() as tape:
                    tape.watch(tensors)
                    recorded = traced(*tensors)
                    total = sum(np.sum(y) for y in recorded)
                grads = tape.gradient(total, tensors, None, "zero")
                with tfopt.GradientTape() as tape:
                    tape.watch(tensors)
                    eager = sum(np.sum(y) for y in pure(*tensors))
                others = tape.gradient(eager, tensors, None, "zero")
                for ours in (found, recorded):
                    for one, other in zip(ours, expected, strict=True):
                        np.testing.assert_array_equal(np.asarray(one), other)
                for one, other in zip(grads, others, strict=True):
                    one, other = np.asarray(one), np.asarray(other)
                    assert np.isfinite(one).tolist() == np.isfinite(other).tolist()
                    mask = np.isfinite(one) & (np.abs(other) < 1e100)
                    np.testing.assert_allclose(one[mask], other[mask], 1e-9, 1e-9)
    finally:
        liveness._LARGE = large


@given(drawn=pure_graphs())
def test_both_packages_record_the_same(drawn: tuple[Pure, list[list[np.ndarray]]]) -> None:
    pure, calls = drawn
    for call in calls[:1]:
        found = []
        for package in (tfopt, tfopt_ref):
            tensors = [package.constant(np.nan_to_num(np.clip(array, -3, 3))) for array in call]
            with package.GradientTape() as tape, np.errstate(all="ignore"):
                tape.watch(tensors)
                outs = pure(*tensors)
                total = sum(np.sum(y) for y in outs)
            grads = tape.gradient(total, tensors, None, "zero")
            found.append([np.asarray(part) for part in (*outs, *grads)])
        for one, other in zip(*found, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, 1e-9, 1e-9)


@both
@more
@given(data=st.data())
def test_gradients_of_broadcast_operands_are_summed(
    package: ModuleType, data: st.DataObject
) -> None:
    """The gradient of a broadcast array is the sum of that of an array repeated by hand."""
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    kept = data.draw(st.integers(0, len(shape)))
    small = tuple(data.draw(st.sampled_from([1, n])) for n in shape[kept:])
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a, b = np.array(random.normal(size=small)), np.array(random.normal(size=shape))
    x, seed = package.constant(a), random.normal(size=shape)
    with package.GradientTape() as tape:
        tape.watch(x)
        y = x * b - np.maximum(b, x)
    found = np.asarray(tape.gradient(y, x, seed))
    wide = np.broadcast_to(a, shape)
    each = seed * (b - np.where(b >= wide, 0.0, 1.0))
    axes = tuple(i for i, n in enumerate((1,) * kept + small) if n != shape[i] or i < kept)
    assert found.shape == small
    np.testing.assert_allclose(found, each.sum(axes, keepdims=True).reshape(small), 1e-12, 1e-12)
