"""Clipping against TensorFlow itself: random calls, differences, errors.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import inspect
import math
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from golden.clipping import CALLS, DIFFERENCES, Call, Difference, Tensors, check_close, drawn, flat
from golden.optimizers import REPLAYS
from golden.with_tensorflow import apply_gradients, optimizer, required_tensorflow

import tfopt

tf = required_tensorflow()

CASES = 25  # of each function and dtype
EVERY = [(call, dtype) for call in CALLS for dtype in call.dtypes]


@pytest.fixture(autouse=True)
def _not_deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@cache
def answered(number: int) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Return arguments with TensorFlow's answers."""
    call, dtype = EVERY[number]
    package = Tensors(tf)
    return [(a, flat(call.function(package, *a))) for a in drawn(call, dtype, CASES)]


@pytest.mark.parametrize(
    "number", range(len(EVERY)), ids=[f"{call.name}-{dtype}" for call, dtype in EVERY]
)
def test_answers(either: Any, number: int) -> None:
    call: Call = EVERY[number][0]
    for arguments, answer in answered(number):
        check_close(flat(call.function(either, *arguments)), answer, call.name)


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_difference(case: Difference) -> None:
    """That TensorFlow still answers what the list of differences says."""
    if isinstance(case.theirs, str):
        with pytest.raises(getattr(tf.errors, case.theirs)):
            case.function(Tensors(tf))
        return
    first = float(flat(case.function(Tensors(tf)))[0].flat[0])
    assert first == case.theirs or (math.isnan(first) and math.isnan(case.theirs))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("clip_by_value", tf.clip_by_value),
        ("clip_by_norm", tf.clip_by_norm),
        ("clip_by_global_norm", tf.clip_by_global_norm),
        ("global_norm", tf.linalg.global_norm),
        ("clip_by_average_norm", tf.compat.v1.clip_by_average_norm),
    ],
)
def test_signature(name: str, theirs: Any) -> None:
    """TensorFlow's parameters come first; what is added is given by keyword."""
    ours = inspect.signature(getattr(tfopt, name)).parameters.values()
    expected = inspect.signature(theirs).parameters.values()
    positional = [(p.name, p.default) for p in ours if p.kind != p.KEYWORD_ONLY]
    assert positional == [(p.name, p.default) for p in expected]


A = np.zeros((2, 3), np.float32)

#: Calls of both packages that TensorFlow refuses with the same words.
REFUSED = {
    "bound that enlarges": lambda m: m.clip_by_value(A, 0, np.zeros((1, 2, 3), "f4")),
    "bound that does not broadcast": lambda m: m.clip_by_value(A, np.zeros((1, 1, 2), "f4"), 0),
    "column with a row": lambda m: m.clip_by_value(A[:, :1], np.zeros(3, "f4"), 1),
    "None": lambda m: m.clip_by_value(None, 0, 1),
    "limit that does not broadcast": lambda m: m.clip_by_norm(A, np.zeros(4, "f4")),
    "limit that enlarges": lambda m: m.clip_by_norm(A, np.zeros((1, 2, 3), "f4")),
    "axis twice": lambda m: m.clip_by_norm(A, 1.0, [0, -2]),
    "no such axis": lambda m: m.clip_by_norm(A, 1.0, [2]),
    "generator": lambda m: m.clip_by_global_norm((x for x in [A]), 1.0),
    "dict": lambda m: m.linalg.global_norm({}),
    "two dtypes": lambda m: m.linalg.global_norm([A, A.astype(float)]),
    "ints": lambda m: m.linalg.global_norm([np.int32([1])]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises((ValueError, TypeError)) as ours:
        REFUSED[name](tfopt)
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)) as theirs:
        REFUSED[name](tf)
    assert str(ours.value).split(" Received")[0] in str(theirs.value)


# ---- in optimizers

CLIPPING = (
    {"clipnorm": 1.0},
    {"clipvalue": 0.5},
    {"global_clipnorm": 2.0},
    {"clipvalue": 1.0, "global_clipnorm": 0.3},
    {"clipvalue": 0.7, "clipnorm": 100.0},
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["SGD", "Adamax", "Ftrl"])
@pytest.mark.parametrize("clipping", CLIPPING, ids=lambda given: "-".join(given))
@pytest.mark.parametrize("package", REPLAYS)
def test_optimizers(package: str, clipping: dict[str, float], name: str, dtype: str) -> None:
    """Dense gradients, and rows of which some repeat."""
    random = np.random.default_rng(len(name))
    inputs: dict[str, dict[str, np.ndarray]] = {
        v: {"first": random.uniform(0.5, 1, shape).astype(dtype)}
        for v, shape in (("dense", (2, 3)), ("rows", (5, 2)))
    }
    inputs["dense"]["grads"] = random.standard_normal((4, 2, 3)).astype(dtype)
    inputs["rows"]["grads"] = random.standard_normal((4, 4, 2)).astype(dtype)
    inputs["rows"]["indices"] = random.integers(5, size=(4, 4))
    config = getattr(tfopt.optimizers, name)(0.1, **clipping).get_config()
    *_, ours = REPLAYS[package](name, config, inputs, dtype)
    theirs = optimizer(name, config, dtype)
    variables = {v: tf.Variable(given["first"]) for v, given in inputs.items()}
    for step in range(4):
        rows = inputs["rows"]["grads"][step], inputs["rows"]["indices"][step]
        pairs = zip([inputs["dense"]["grads"][step], rows], variables.values(), strict=True)
        apply_gradients(theirs, list(pairs))
    for v, variable in variables.items():
        rtol = 2e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(ours[v][0], variable.numpy(), rtol=rtol)
