"""One update of a variable and its slots, by a gradient of the whole or of some rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.arithmetic import computed, operand, select
from tfopt_ref.rounding import noise, rounded
from tfopt_ref.storage import is_blocks, loaded, stored
from tfopt_ref.training_op import Formula, TrainingOp


class Rows(NamedTuple):
    """A gradient of some rows: `values[i]` belongs to row `indices[i]`."""

    values: np.ndarray
    indices: np.ndarray


Gradient = np.ndarray | Rows


def values_of(grad: Gradient) -> np.ndarray:
    """Return the values of a gradient."""
    return grad.values if isinstance(grad, Rows) else grad


def mapped(function: Callable[..., np.ndarray], grad: Gradient, *more: Any) -> Gradient:
    """Return a gradient after a function is applied to its values and further arguments."""
    if isinstance(grad, Rows):
        return Rows(function(grad.values, *more), grad.indices)
    return function(grad, *more)


def summed(rows: Rows) -> Rows:
    """Sum rows with equal indices, in their order, at the position of the first one.

    Sums of 16 bits are computed in float32 and rounded once.
    """
    dtype = computed(rows.values.dtype)
    distinct = list(dict.fromkeys(rows.indices.tolist()))
    values = np.empty((len(distinct), *rows.values.shape[1:]), rows.values.dtype)
    with np.errstate(all="ignore"):
        for place, index in enumerate(distinct):
            total = operand(np.zeros(rows.values.shape[1:]), dtype)
            for row in rows.values[rows.indices == index]:
                total = total + operand(row, dtype)
            values[place] = total
    return Rows(values, np.array(distinct, rows.indices.dtype))


def times(grad: Gradient, scale: float) -> Gradient:
    """Return a gradient times a number; 16 bits are computed in float32 and rounded."""
    return grad if scale == 1 else mapped(_product, grad, scale)


def _product(x: np.ndarray, scale: float) -> np.ndarray:
    dtype = computed(x.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(dtype) * dtype.type(scale)).astype(x.dtype)


def updated(
    rule: TrainingOp, arrays: Sequence[np.ndarray], grad: Gradient, options: Mapping[str, Any], *,
    duplicates: str = "sum", grad_scale: float = 1.0, var_scale: float = 1.0, decay: float = 0.0,
    rounding: tuple[int, int, int] | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Apply a rule to a variable and its slots; return the new values.

    Parameters
    ----------
    rule : TrainingOp
    arrays : sequence of ndarray
        The variable, then the slots, in the rule's order.
    grad : ndarray or Rows
    options : dict
        The rule's hyperparameters, and flags that differ from their defaults.
    duplicates : {"sum", "sequential", "error"}
        Rows with equal indices are summed before the update ("sum") or used one after the other
        ("sequential"); "error" means that there are none.
    grad_scale, var_scale : float
        The factor of the gradient, and the factor of the variable before the update.
    decay : float
        The share of the variable that is subtracted after the update, unless signs are opposite.
    rounding : (int, int, int), optional
        The seed, the step and the variable's number in it, for stochastic rounding to bfloat16.
    """
    new = [array.copy("K") for array in arrays]
    more = {**rule.flags, **options}, (grad_scale, var_scale), decay, rounding
    if new[0].size == 0:
        return new
    inner = math.prod(arrays[0].shape[1:])
    with np.errstate(all="ignore"):
        if not isinstance(grad, Rows):
            step(rule.dense, new, grad, *more)
            return new
        if duplicates == "sum" or (rule.absent and duplicates != "error"):
            grad = summed(grad)
        named = rule.width1 if math.prod(grad.values.shape[1:]) == 1 else rule.rows
        for row, g in zip(grad.indices.tolist(), grad.values, strict=True):
            one = [array[row : row + 1] for array in new]
            step(named, one, g[np.newaxis], *more, first=row * inner)
        if rule.absent:
            for row in {*range(len(new[0]))} - {*grad.indices.tolist()}:
                one = [array[row : row + 1] for array in new]
                step(rule.dense, one, None, *more, first=row * inner)
    return new


def step(
    formula: Formula, arrays: Sequence[np.ndarray], grad: np.ndarray | None,
    options: Mapping[str, Any], scales: tuple[float, float], decay: float = 0.0,
    rounding: tuple[int, int, int] | None = None, first: int = 0,
) -> None:  # fmt: skip
    """Apply a formula to a variable and its slots in place.

    Numbers of 16 bits are computed in float32 and rounded once, when they are stored. `first` is
    the index of the first element in the whole variable.
    """
    dtype = computed(arrays[0].dtype)
    hypers = {k: v if isinstance(v, bool) else operand(v, dtype) for k, v in options.items()}
    shape = arrays[0].shape
    old = [loaded(array, shape) if is_blocks(array) else operand(array, dtype) for array in arrays]
    by_grad, by_var = scales
    g = None if grad is None else operand(grad, dtype) * operand(by_grad, dtype)
    new = formula(_scaled(old[0], by_var), *old[1:], g, **hypers)
    if decay:
        new = (cautiously_decayed(old[0], new[0], operand(decay, dtype)), *new[1:])
    for k, (array, before, value) in enumerate(zip(arrays, old, new, strict=True)):
        if is_blocks(array):
            array[...] = stored(value, array.dtype)
        elif rounding is not None and array.dtype.name == "bfloat16":
            indices = first + np.arange(array.size).reshape(shape)
            array[...] = rounded(np.asarray(value), noise(*rounding, k, indices))
        elif value is not before:
            array[...] = value


def cautiously_decayed(old: np.ndarray, new: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """Subtract decay * old, except where the update, old - new, and old have opposite signs."""
    agrees = ((old > 0) & (new <= old)) | ((old < 0) & (new >= old))
    decayed: np.ndarray = select(agrees, new - decay * old, new)
    return decayed


def _scaled(var: np.ndarray, scale: float) -> np.ndarray:
    """Return a variable times a real number."""
    product: np.ndarray = var
    if scale != 1 and var.dtype.kind == "c":  # a complex product makes NaNs of infinite parts
        parts = np.ascontiguousarray(var).reshape(-1).view(var.real.dtype)
        product = (parts * var.real.dtype.type(scale)).view(var.dtype).reshape(var.shape)
    elif scale != 1:
        product = np.multiply(var, operand(scale, var.dtype))
    return product
