"""Gradients checked against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import densified
from tfopt_ref.autodiff.nest import flatten
from tfopt_ref.autodiff.tape import GradientTape
from tfopt_ref.autodiff.tensor import as_tensor, constant

__all__ = ["check_grads", "compute_gradient", "max_error"]


def compute_gradient(
    f: Callable[..., Any], x: Sequence[Any], delta: float | None = None
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return the derivatives of f by each argument, by a tape and by central differences.

    Each is a matrix, with a row for each element of the result; a complex element counts as two.
    """
    if not isinstance(x, (list, tuple)):
        raise ValueError(
            "`x` must be a list or tuple of values convertible to a Tensor (arguments to `f`), "
            f"not a {type(x)}"
        )
    arrays = [np.array(as_tensor(each).array) for each in x]
    for array in arrays:
        if array.dtype.kind not in "fc":
            raise TypeError(f"the arguments must be floats or complex numbers, not {array.dtype}")
    step = 1 / 1024 if delta is None else delta
    numbers = range(len(arrays))
    return (
        tuple(_theoretical(f, arrays, i) for i in numbers),
        tuple(_numeric(f, arrays, i, step) for i in numbers),
    )


def _value(f: Callable[..., Any], arrays: Sequence[np.ndarray]) -> np.ndarray:
    value = np.array(as_tensor(f(*map(constant, arrays))).array, order="C")
    parts: np.ndarray = np.atleast_1d(value).view(_real(value.dtype)).ravel()
    return parts


def _real(dtype: Any) -> Any:
    return np.empty(0, dtype).real.dtype


def _numeric(f: Callable[..., Any], arrays: list[np.ndarray], i: int, delta: float) -> np.ndarray:
    columns = []
    for k in range(_parts(arrays[i])):
        values = []
        for signed in (delta, -delta):
            moved = np.atleast_1d(arrays[i]).copy(order="C")
            moved.view(_real(moved.dtype)).reshape(-1)[k] += signed
            given = [*arrays[:i], moved.reshape(arrays[i].shape), *arrays[i + 1 :]]
            values.append(_value(f, given))
        columns.append((values[0] - values[1]) / (2 * delta))
    return np.stack(columns, 1).astype(_real(arrays[i].dtype))


def _parts(array: np.ndarray) -> int:
    return array.size * (2 if array.dtype.kind == "c" else 1)


def _theoretical(f: Callable[..., Any], arrays: list[np.ndarray], i: int) -> np.ndarray:
    inputs = [constant(array) for array in arrays]
    with GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        y = as_tensor(f(*inputs))
    rows = []
    for k in range(_parts(y.array)):
        seed = np.zeros(max(y.array.size, 1), y.dtype)
        seed.view(_real(y.dtype))[k] = 1
        grad = tape.gradient(y, inputs[i], constant(seed.reshape(y.shape)), "zero")
        dense = np.atleast_1d(np.array(densified(grad).array, order="C"))
        rows.append(dense.view(_real(dense.dtype)).ravel())
    return np.stack(rows).astype(_real(arrays[i].dtype))


def max_error(grad1: Sequence[Any], grad2: Sequence[Any]) -> float:
    """Return the largest difference of two lists of matrices."""
    differences = [np.max(np.abs(a - b), initial=0) for a, b in zip(grad1, grad2, strict=True)]
    return float(max(differences, default=0.0))


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    atol: float = 1e-6,
    rtol: float = 1e-6,
    eps: float = 1e-5,
    seed: int = 0,
) -> None:
    """Compare gradients up to an order with central differences along random directions.

    Raises AssertionError where they differ, and TypeError for arguments that are not float64.
    """
    arrays = [np.array(as_tensor(each).array) for each in args]
    if any(array.dtype != np.float64 for array in arrays):
        raise TypeError("check_grads needs float64: differences of less are too coarse")
    random = np.random.default_rng(seed)
    _check(f, arrays, order, atol, rtol, eps, random)


def _check(
    f: Callable[..., Any], arrays: list[np.ndarray], order: int, atol: float, rtol: float,
    eps: float, random: np.random.Generator,
) -> None:  # fmt: skip
    weights: list[np.ndarray] = []

    def weighted(*inputs: Any) -> Any:
        leaves = [as_tensor(y) for y in flatten(f(*inputs))]
        if not weights:
            weights.extend(random.standard_normal(y.shape) for y in leaves)
        return sum(np.sum(y * w) for y, w in zip(leaves, weights, strict=True))

    def gradients(*inputs: Any) -> list[Any]:
        with GradientTape() as tape:
            tape.watch(list(inputs))
            y = weighted(*inputs)
        return [densified(g) for g in tape.gradient(y, list(inputs), None, "zero")]

    directions = [random.standard_normal(array.shape) for array in arrays]
    ends = [
        float(
            weighted(*(constant(a + s * eps * d) for a, d in zip(arrays, directions, strict=True)))
        )
        for s in (1, -1)
    ]
    numeric = (ends[0] - ends[1]) / (2 * eps)
    found = gradients(*map(constant, arrays))
    exact = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(found, directions, strict=True))
    np.testing.assert_allclose(exact, numeric, rtol, atol)
    if order > 1:
        _check(gradients, arrays, order - 1, atol, rtol, eps, random)
