"""Gradients compared with differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.tape import GradientTape, UnconnectedGradients
from tfopt.autodiff.tensor import constant
from tfopt.core.nest import flatten
from tfopt.imports import imported
from tfopt.indexed_slices import densify

__all__ = ["check_grads", "compute_gradient", "max_error"]

Matrices = tuple[np.ndarray, ...]


def compute_gradient(
    f: Callable[..., Any], x: Sequence[Any], delta: float | None = None
) -> tuple[Matrices, Matrices]:
    """Return the derivatives of a function twice: by its gradients, and by central differences.

    Parameters
    ----------
    f : callable
        Of tensors; returns one.
    x : list or tuple of array_like
        Its arguments, of floats or complex numbers.
    delta : float, default 1/1024
        Half the distance of the two points of a difference.

    Returns
    -------
    theoretical, numeric : tuple of ndarray of shape (result's size, argument's size)
        A matrix for each argument. A complex number counts as two real ones.

    Raises
    ------
    ValueError
        If x is neither a list nor a tuple.
    TypeError
        If an argument is of another dtype.

    Notes
    -----
    TensorFlow's ``tf.test.compute_gradient``.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.autodiff import compute_gradient, max_error
    >>> theoretical, numeric = compute_gradient(np.square, [np.array([1.0, 2.0])])
    >>> theoretical
    (array([[2., 0.],
           [0., 4.]]),)
    >>> max_error(theoretical, numeric) < 1e-9
    True
    """
    if not isinstance(x, (list, tuple)):
        raise ValueError(
            "`x` must be a list or tuple of values convertible to a Tensor (arguments to `f`), "
            f"not a {type(x)}"
        )
    arrays = [np.array(as_tensor(each).numpy(), order="C") for each in x]
    for array in arrays:
        if array.dtype.kind not in "fc":
            raise TypeError(f"the arguments must be floats or complex numbers, not {array.dtype}")
    step = 1 / 1024 if delta is None else delta
    places = range(len(arrays))
    return (
        tuple(_theoretical(f, arrays, k) for k in places),
        tuple(_numeric(f, arrays, k, step) for k in places),
    )


def max_error(grad1: Sequence[np.ndarray], grad2: Sequence[np.ndarray]) -> float:
    """Return the largest difference of the results of `compute_gradient`.

    Parameters
    ----------
    grad1, grad2 : sequence of ndarray

    Returns
    -------
    float

    Notes
    -----
    TensorFlow's function of the same name (tensorflow/python/ops/gradient_checker_v2.py).
    """
    pairs = zip(grad1, grad2, strict=True)
    return max((float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs), default=0.0)


def _parts(array: np.ndarray) -> np.ndarray:
    """Return the elements as a vector of real numbers: a view, of what is contiguous."""
    flat = np.atleast_1d(array).reshape(-1)
    return flat.view(flat.real.dtype)


def _theoretical(f: Callable[..., Any], arrays: list[np.ndarray], place: int) -> np.ndarray:
    tensors = [constant(array) for array in arrays]
    with GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        y = as_tensor(f(*tensors))
    rows = []
    for k in range(_parts(y.numpy()).size):
        seed = np.zeros(y.size, y.dtype)
        _parts(seed)[k] = 1
        seeds = constant(seed.reshape(y.shape))
        grad = tape.gradient(y, tensors[place], seeds, UnconnectedGradients.ZERO)
        rows.append(_parts(np.array(as_tensor(densify(grad)).numpy())))
    parts = _parts(arrays[place])
    return np.stack(rows) if rows else np.zeros((0, parts.size), parts.dtype)


def _numeric(
    f: Callable[..., Any], arrays: list[np.ndarray], place: int, delta: float
) -> np.ndarray:
    def values(k: int, step: float) -> np.ndarray:
        moved = arrays[place].copy(order="C")
        _parts(moved)[k : k + 1] += step
        given = [*arrays[:place], moved, *arrays[place + 1 :]]
        return _parts(np.array(as_tensor(f(*map(constant, given))).numpy()))

    width = _parts(arrays[place]).size
    differences = [(values(k, delta) - values(k, -delta)) / (2 * delta) for k in range(width)]
    columns = np.stack(differences, axis=1) if width else np.zeros((values(0, 0.0).size, 0))
    return columns.astype(arrays[place].real.dtype)


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

    Parameters
    ----------
    f : callable
        Of tensors; returns a nested structure of them.
    args : sequence of array_like of float64
    order : int, default 2
        Derivatives of all orders up to this one are compared. Those of the second order need a
        gradient that has a gradient: if yours has none, give 1.
    atol, rtol : float
    eps : float
        Half the distance of the two points of a difference.
    seed : int
        Of the directions.

    Raises
    ------
    AssertionError
        If they differ: it names the order and the argument.
    TypeError
        If an argument is not of float64: differences of less are too coarse.

    Notes
    -----
    ``jax.test_util.check_grads`` for reverse mode.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.autodiff import check_grads
    >>> check_grads(lambda x: np.exp(np.sin(x)), [np.array([0.5, 1.5])])
    """
    arrays = [np.array(as_tensor(each).numpy()) for each in args]
    if any(array.dtype != np.float64 for array in arrays):
        raise TypeError("check_grads needs float64: differences of less are too coarse")
    random = imported("numpy.random").default_rng(seed)
    _check(f, arrays, 1, order, (atol, rtol, eps), random)


def _check(
    f: Callable[..., Any],
    arrays: list[np.ndarray],
    order: int,
    orders: int,
    limits: tuple[float, float, float],
    random: np.random.Generator,
) -> None:
    atol, rtol, eps = limits
    weights: list[np.ndarray] = []

    def weighted(*inputs: Any) -> Any:
        parts = [as_tensor(leaf) for leaf in flatten(f(*inputs))]
        if not weights:
            weights.extend(random.standard_normal(y.shape) for y in parts)
        return sum(np.sum(y * w) for y, w in zip(parts, weights, strict=True))

    def gradients(*inputs: Any) -> list[Any]:
        with GradientTape() as tape:
            tape.watch(list(inputs))
            y = weighted(*inputs)
        found = tape.gradient(y, list(inputs), None, UnconnectedGradients.ZERO)
        return [densify(g) for g in found]

    found = gradients(*map(constant, arrays))
    for place, (g, array) in enumerate(zip(found, arrays, strict=True)):
        direction = random.standard_normal(array.shape)
        ends = []
        for step in (eps, -eps):
            moved = [*arrays[:place], array + step * direction, *arrays[place + 1 :]]
            ends.append(float(weighted(*map(constant, moved))))
        what = (
            f"the derivative of order {order} with respect to argument {place}, along a random "
            "direction, is not what differences say (desired)"
        )
        along = float(np.sum(as_tensor(g).numpy() * direction))
        np.testing.assert_allclose(along, (ends[0] - ends[1]) / (2 * eps), rtol, atol, err_msg=what)
    if order < orders:
        _check(gradients, arrays, order + 1, orders, limits, random)
