"""Clipping by value and by norm, as formulas."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand, select
from tfopt_ref.autodiff.effects import readable, writes
from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.tensor import Operand
from tfopt_ref.autodiff.vjps import clipping
from tfopt_ref.clip_checks import (
    FLOATS,
    INTEGERS,
    as_axes,
    as_bound,
    as_limits,
    as_scalar_limit,
    as_tensor,
    as_tensors,
    check_broadcast,
    results_for,
)
from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.norms import computed, factors, norm

__all__ = [
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
]


# ---- by value


@writes("out", returns="out")
@clipping.recorded(*clipping.BY_VALUE)
def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None, *, out: Any = None
) -> Any:
    """Clip each element to two bounds: where they contradict each other, to the smaller one."""
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    (result,) = results_for([array], None if out is None else [out])
    high = as_bound(clip_value_max, "clip_value_max", "Minimum", array.dtype)
    check_broadcast(array, high)
    low = as_bound(clip_value_min, "clip_value_min", "Maximum", array.dtype)
    check_broadcast(array, low)
    with np.errstate(invalid="ignore"):
        clipped = minimum(array, high)
        result[...] = maximum(clipped, low)
    return wrapped(t, result, out)


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the smaller, or NaN if either is; a if they are equal."""
    return np.where((b < a) | (b != b), b, a)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the larger, or NaN if either is; a if they are equal."""
    return np.where((b > a) | (b != b), b, a)


# ---- by norm


@writes("out", returns="out")
@clipping.recorded(*clipping.BY_NORM)
def clip_by_norm(
    t: Any,
    clip_norm: Any,
    axes: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> Any:
    """Scale each slice of t along the axes whose norm is above clip_norm down to it."""
    check_policy(nonfinite)
    array = as_tensor(t, "t", FLOATS)
    limits = np.maximum(as_limits(clip_norm, "clip_norm"), 0.0)
    reduced = as_axes(axes, array.ndim)
    check_broadcast(array, limits)
    (result,) = results_for([array], None if out is None else [out])
    roots, exponents = norms_of_slices(array, reduced)
    for root in roots[~np.isfinite(roots)][:1]:
        if skips(nonfinite, root):
            limits = np.where(np.isfinite(roots), limits, np.inf)
    result[...] = scaled(array, *factors(roots, exponents, limits, computed(array.dtype)))
    return wrapped(t, result, out)


def norms_of_slices(array: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms over some axes, which become 1, as roots and exponents."""
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(array.shape))
    roots, exponents = np.zeros(shape), np.zeros(shape, np.int64)
    for index in np.ndindex(shape):
        one = tuple(slice(None) if axis in axes else i for axis, i in enumerate(index))
        roots[index], exponents[index] = norm([np.asarray(array[one])])
    return roots, exponents


def scaled(array: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return array * first * second, computed in their type; what is multiplied by 1 as it is."""
    dtype = first.dtype
    with np.errstate(all="ignore"):
        product = operand(array, dtype) * operand(first, dtype)
        product = select(second == 1, product, product * operand(second, dtype))
        return np.where(first == 1, array, product.astype(array.dtype))


def check_policy(nonfinite: Any) -> None:
    if nonfinite not in ("propagate", "raise", "skip"):
        raise InvalidArgumentError(
            f'nonfinite must be "propagate", "raise" or "skip", not {nonfinite!r}'
        )


def skips(nonfinite: str, root: Any) -> bool:
    """Say or raise what a policy wants of a norm that is not finite; return whether to skip."""
    if nonfinite == "raise":
        raise InvalidArgumentError(f"the norm is {float(root)}")
    if nonfinite == "skip":
        warnings.warn(f"the norm is {float(root)}: not clipped", RuntimeWarning, stacklevel=6)
    return nonfinite == "skip"


# ---- by the norm of many tensors


@writes("out", returns="out")
@clipping.recorded(*clipping.GLOBAL_NORM)
def global_norm(t_list: Any, name: str | None = None, *, out: Any = None) -> Any:
    """Return the norm of all elements of all tensors, of their dtype; None is left out."""
    tensors = [t for t in as_tensors(t_list, one_dtype=True) if t is not None]
    value = rounded(*norm(tensors), tensors)
    if out is None:
        return value
    (into,) = results_for([np.empty((), value.dtype)], [out])
    into[...] = value
    return out


def rounded(root: Any, exponent: int, tensors: list[np.ndarray]) -> Any:
    """Return root * 2**exponent in the dtype of the tensors, float32 if there are none."""
    dtype = tensors[0].dtype if tensors else np.dtype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.float64(root), exponent).astype(dtype)


def _of_a_recorded_call(given: dict[str, Any]) -> tuple[Any, Any]:
    """Return what a call of clip_by_global_norm that a trace records gives: results, and norm."""
    given["out"] = readable(given["out"])
    if given.get("use_norm") is not None:
        return given["out"], given["use_norm"]
    t_list = given["t_list"] if isinstance(given["t_list"], (list, tuple)) else []
    dtypes = [t.dtype for t in t_list if hasattr(t, "dtype")]
    into = np.zeros((), dtypes[0] if dtypes else np.float32)
    return given["out"], global_norm(given["t_list"], out=into)


@writes("out", returns=_of_a_recorded_call)
@clipping.recorded(*clipping.BY_GLOBAL_NORM)
def clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> tuple[list[Any], Any]:
    """Scale all tensors by one factor, so that their norm is at most clip_norm."""
    check_policy(nonfinite)
    tensors = as_tensors(t_list, one_dtype=use_norm is None)
    limit = np.maximum(as_scalar_limit(clip_norm, "clip_norm"), 0.0)
    given_norm = None if use_norm is None else as_scalar_limit(use_norm, "use_norm")
    if given_norm is not None and given_norm < 0:
        raise InvalidArgumentError(f"use_norm must not be negative: {float(given_norm)}")
    results = results_for(tensors, out)
    present = [t for t in tensors if t is not None]
    root, exponent = norm(present) if given_norm is None else (given_norm, 0)
    value = rounded(root, exponent, present) if use_norm is None else use_norm
    if not np.isfinite(root):
        limit = np.float64(math.inf if limit == math.inf or skips(nonfinite, root) else math.nan)
    for result, tensor in zip(results, tensors, strict=True):
        if tensor is not None:
            result[...] = scaled(tensor, *factors(root, exponent, limit, computed(tensor.dtype)))
    given = [None] * len(tensors) if out is None else out
    return [wrapped(t, r, o) for t, r, o in zip(t_list, results, given, strict=True)], value


def wrapped(t: Any, result: Any, given: Any) -> Any:
    """Return a result as its tensor was given: slices as slices; or the `out` that was given."""
    if given is not None:
        return given
    if isinstance(t, IndexedSlices):
        return IndexedSlices(result, t.indices, t.dense_shape)
    return result


# ---- deprecated


@writes("out", returns="out")
def clip_by_average_norm(
    t: Any,
    clip_norm: Any,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> Any:
    """Scale a tensor whose norm, divided by its number of elements, is above clip_norm down to it.

    Deprecated: use ``clip_by_norm(t, clip_norm * t.size)``.
    """
    warnings.warn(
        "clip_by_average_norm is deprecated in TensorFlow 2.0. Please use "
        "clip_by_norm(t, clip_norm * t.size) instead.",
        DeprecationWarning,
        stacklevel=4,
    )
    if isinstance(t, Operand) and out is None:
        return clip_by_norm(t, clip_norm * t.size, nonfinite=nonfinite)
    array = densified(t) if isinstance(t, IndexedSlices) else as_tensor(t, "t", FLOATS)
    limit = as_scalar_limit(clip_norm, "clip_norm")
    return clip_by_norm(array, limit * array.size, out=out, nonfinite=nonfinite)


def densified(slices: IndexedSlices) -> np.ndarray:
    """Return the array that slices are the rows of."""
    values = as_tensor(slices, "t", FLOATS)
    if slices.dense_shape is None:
        raise InvalidArgumentError("IndexedSlices without dense_shape cannot become a tensor")
    merged = IndexedSlices(values, slices.indices).sum_duplicates()
    rows, *columns = slices.dense_shape or (0,)
    if list(values.shape[1:]) != columns:
        raise InvalidArgumentError(
            f"values of shape {values.shape} are not rows of an array of shape {slices.dense_shape}"
        )
    if not all(0 <= index < rows for index in merged.indices):
        raise InvalidArgumentError(f"indices are out of range [0, {rows})")
    dense = np.zeros(slices.dense_shape, values.dtype)
    dense[merged.indices] = merged.values
    return dense
