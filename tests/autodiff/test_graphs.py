"""Random expressions: the same bits in both packages, and what differences say."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases import assert_same_bits
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tfopt
import tfopt_ref

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

    def __call__(self, *inputs: Any) -> Any:
        values = list(inputs)
        for function, i, j in self.steps:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(self.functions[function](a, b))
        return np.sum(values[-1]) + np.sum(values[-2] * 0.5)


def graphs(functions: list[Callable[[Any, Any], Any]]) -> st.SearchStrategy[Graph]:
    step = st.tuples(st.integers(0, len(functions) - 1), st.integers(0, 9), st.integers(0, 9))
    return st.builds(Graph, st.just(functions), st.lists(step, min_size=1, max_size=8))


def inputs(low: int = 2) -> st.SearchStrategy[list[np.ndarray]]:
    def drawn(shapes: list[tuple[int, ...]], seed: int) -> list[np.ndarray]:
        random = np.random.default_rng(seed)
        return [np.array(random.uniform(-2, 2, shape)) for shape in shapes]

    shapes = st.lists(st.sampled_from(SHAPES), min_size=low, max_size=3)
    return st.builds(drawn, shapes, st.integers(0, 2**32))


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
@given(graph=graphs(SMOOTH), arrays=inputs())
def test_differences(package: ModuleType, graph: Graph, arrays: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        value, *found = value_and_gradients(package, graph, arrays)
        assume(all(np.abs(part).max() < 1e4 for part in (value, *found)))
        package.autodiff.check_grads(graph, arrays, order=2, atol=1e-4, rtol=1e-4)


@both
@more
@given(graph=graphs(EXACT + SMOOTH[4:]), arrays=inputs())
def test_a_traced_function_is_the_same(
    package: ModuleType, graph: Graph, arrays: list[np.ndarray]
) -> None:
    """Eager and through a function: called with other values than those it was traced with."""
    traced = package.function(graph)
    with np.errstate(all="ignore"):
        traced(*(package.constant(array + 1) for array in arrays))
        eager = value_and_gradients(package, graph, arrays)
        replayed = value_and_gradients(package, traced, arrays)
        assert traced.trace_count == 1
        assert_same_bits(np.asarray(traced(*arrays)), eager[0], "value")
    for ours, theirs in zip(replayed, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@both
@more
@given(graph=graphs(EXACT + SMOOTH[4:]), arrays=inputs())
def test_a_whole_step_in_a_function_is_the_same(
    package: ModuleType, graph: Graph, arrays: list[np.ndarray]
) -> None:
    """With the tapes inside."""

    @package.function
    def step(*tensors: Any) -> Any:
        with package.GradientTape() as tape:
            tape.watch(list(tensors))
            y = graph(*tensors)
        return [y, *tape.gradient(y, list(tensors), None, "zero")]

    with np.errstate(all="ignore"):
        step(*(package.constant(array + 1) for array in arrays))
        replayed = [np.asarray(part) for part in step(*map(package.constant, arrays))]
        eager = value_and_gradients(package, graph, arrays)
    for ours, theirs in zip(replayed, eager, strict=False):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@both
@more
@given(data=st.data())
def test_what_was_broadcast_is_summed(package: ModuleType, data: st.DataObject) -> None:
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
