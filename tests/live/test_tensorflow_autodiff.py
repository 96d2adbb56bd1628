"""Tapes and custom gradients: TensorFlow still gives the results of the golden file.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from golden.autodiff.facades import Ours, TensorFlow, plain, same
from golden.autodiff.record import FILE, PROGRAMS
from golden.with_tensorflow import required_tensorflow
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref

tf = required_tensorflow()

RECORDED = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_answers(name: str) -> None:
    found = json.loads(json.dumps(plain(PROGRAMS[name](TensorFlow(tf)))))
    assert same(found, RECORDED[name]), (found, RECORDED[name])


# ---- random expressions

STEPS: list[Any] = [
    lambda np, a, b: a + b,
    lambda np, a, b: a - b * 0.5,
    lambda np, a, b: a * b,
    lambda np, a, b: a / (b * b + 1.0),
    lambda np, a, b: np.sqrt(np.absolute(a) + 0.5) * b,
    lambda np, a, b: np.maximum(a, b),
    lambda np, a, b: np.minimum(a, b) - a,
    lambda np, a, b: np.where(a > b, a * 0.5, -b),
    lambda np, a, b: np.sum(a) * b,
    lambda np, a, b: np.exp(-a * a) + b,
    lambda np, a, b: np.tanh(a) - b,
    lambda np, a, b: np.max(a) * b,
    lambda np, a, b: np.clip(a, -1.0, 1.5) + b,
    lambda np, a, b: np.mean(a) - np.square(b),
]


def of_first_order(t: Any, steps: list[tuple[int, int, int]], inputs: list[Any]) -> list[Any]:
    """Return a random expression, its sum, and the gradients of that."""
    with t.GradientTape() as tape:
        tape.watch(inputs)
        values = list(inputs)
        for number, i, j in steps:
            values.append(STEPS[number](t.np, values[i % len(values)], values[j % len(values)]))
        y = t.np.sum(values[-1])
    return [values[-1], y, *tape.gradient(y, inputs, unconnected_gradients="zero")]


def derivatives(t: Any, steps: list[tuple[int, int, int]], arrays: list[np.ndarray]) -> list[Any]:
    """Return gradients of a random expression, and of the sum of their squares."""
    inputs = [t.constant(array) for array in arrays]
    with t.GradientTape() as outer:
        outer.watch(inputs)
        first = of_first_order(t, steps, inputs)[2:]
        total = sum(t.np.sum(g * g) for g in first)
    second = outer.gradient(total, inputs, unconnected_gradients="zero")
    return [np.asarray(g) for g in (*first, *second)]


def directed(
    t: Any, accumulator: Any, steps: list[Any], arrays: list[np.ndarray], along: list[np.ndarray]
) -> list[Any]:
    """Return what changes along a direction: a random expression, and its gradients."""
    inputs = [t.constant(array) for array in arrays]
    with accumulator(inputs, [t.constant(d) for d in along]) as forward:
        found = of_first_order(t, steps, inputs)
    return [np.asarray(forward.jvp(x, "zero")) for x in found]


DRAWN = given(
    steps=st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)),
        min_size=1, max_size=6,
    ),
    seed=st.integers(0, 2**32),
)  # fmt: skip


@pytest.mark.parametrize("package", [tfopt, tfopt_ref], ids=["tfopt", "tfopt_ref"])
@DRAWN
def test_random_expressions(package: ModuleType, steps: list[Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    arrays = [random.uniform(-2, 2, shape) for shape in ((2, 3), (3,), (2, 1))]
    ours = derivatives(Ours(package), steps, arrays)
    theirs = derivatives(TensorFlow(tf), steps, arrays)
    for own, tensorflows in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, tensorflows, 1e-9, 1e-9)


@DRAWN
def test_directions_of_random_expressions(steps: list[Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = (2, 3), (3,), (2, 1)
    arrays, along = ([random.uniform(-2, 2, shape) for shape in shapes] for _ in range(2))
    ours = directed(Ours(tfopt), tfopt.ForwardAccumulator, steps, arrays, along)
    theirs = directed(TensorFlow(tf), tf.autodiff.ForwardAccumulator, steps, arrays, along)
    for own, tensorflows in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, tensorflows, 1e-9, 1e-9)
