"""Gradients that users return, checked once, before the engine adds them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import cast
from tfopt.autodiff.operands import as_tensor
from tfopt.core import engine
from tfopt.core.engine import Tensor
from tfopt.indexed_slices import IndexedSlices

__all__ = ["fitted"]


def fitted(who: str, place: int, g: Any, x: Any) -> Any:
    """Return a gradient in the shape and the dtype of the input that it is for.

    Parameters
    ----------
    who : str
        The function that returned the gradient, for messages.
    place : int
        Which of its gradients.
    g : tensor, variable, array_like, IndexedSlices or None
    x
        The input. Only tensors of floating or complex numbers have gradients.

    Returns
    -------
    Tensor, IndexedSlices or None

    Raises
    ------
    ValueError
        If the shapes differ, the input lacks one of the rows, or g is not an array of numbers.
    """
    if g is None or not isinstance(x, Tensor) or not engine.is_differentiable(x):
        return None
    if isinstance(g, IndexedSlices):
        return _fitted_rows(f"{who}: gradient {place}", g, x)
    made = as_tensor(g)
    if made.shape != x.shape:
        raise ValueError(f"{who}: gradient {place} has shape {made.shape}, its input {x.shape}")
    return _of_dtype(f"{who}: gradient {place}", made, x)


def _of_dtype(what: str, value: Any, x: Tensor) -> Any:
    if value.dtype.kind not in "biufc" and not engine.is_differentiable(value):
        raise ValueError(f"{what} has dtype {value.dtype}: expected numbers, as {x.dtype}")
    return cast(value, x.dtype)


def _fitted_rows(what: str, g: IndexedSlices, x: Tensor) -> IndexedSlices:
    """Return slices that are rows of an input."""
    if g.dense_shape is not None and g.dense_shape != x.shape:
        raise ValueError(f"{what} has dense_shape {g.dense_shape}, its input {x.shape}")
    values, indices = as_tensor(g.values), as_tensor(g.indices)
    if indices.dtype not in (np.int32, np.int64) or indices.ndim != 1:
        raise ValueError(
            f"{what} has indices of shape {indices.shape} and dtype {indices.dtype}: expected one "
            "axis, of int32 or int64"
        )
    if not x.shape or values.shape != (indices.size, *x.shape[1:]):
        raise ValueError(
            f"{what} has values of shape {values.shape} for {indices.size} indices: expected rows "
            f"of its input, whose shape is {x.shape}"
        )
    _check_range(what, indices, x.shape[0])
    return IndexedSlices(_of_dtype(what, values, x), indices, x.shape)


def _check_range(what: str, indices: Tensor, n: int) -> None:
    """Raise ValueError if an index is out of range: in a trace, of those that are known."""
    trace = engine.tracing()
    if trace is not None and trace.is_symbolic(indices):
        return
    known = engine.peek(indices)
    outside = known[(known < 0) | (known >= n)]
    if outside.size:
        raise ValueError(f"{what} has index {outside[0]}, which is out of range [0, {n})")
