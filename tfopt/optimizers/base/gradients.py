"""Gradients and variables as a caller gives them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.call_site import stacklevel
from tfopt.core.engine import Tensor, raw
from tfopt.core.sparse_conversion import each_as_slices
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import dense_call
from tfopt.kernels.norms import all_finite
from tfopt.kernels.row_calls import sparse_call
from tfopt.variable import Variable

__all__ = [
    "any_overlap",
    "are_finite",
    "as_array",
    "as_variable",
    "checked_gradient",
    "memory_of",
    "now_at",
    "of_variable",
    "refuse_rows",
    "unzipped",
]


_UNNAMED = "Variable"  # the name of a variable that was given none


def unzipped(pairs: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return gradients and variables of pairs, without those whose gradient is None."""
    try:
        grads, variables = zip(*pairs, strict=True)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "grads_and_vars must be pairs of a gradient and a variable"
        ) from None
    grads = tuple(each_as_slices(grads))
    if type(None) not in map(type, grads):
        return grads, variables
    return _without_none(grads, variables)


def _without_none(
    grads: tuple[Any, ...], variables: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    kept = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
    missing = [_name(v) for g, v in zip(grads, variables, strict=True) if g is None]
    if not kept:
        raise InvalidArgumentError(f"No gradients provided for any variable: {missing}.")
    message = f"Gradients do not exist for variables {missing}."
    warnings.warn(message, stacklevel=stacklevel())
    grads, variables = zip(*kept, strict=True)
    return grads, variables


def as_gradient(grad: Any) -> Any:
    """Return the array of a tensor, slices of arrays, and any other gradient as it is."""
    if isinstance(grad, Tensor):
        return raw(grad)
    if isinstance(grad, IndexedSlices) and isinstance(grad.values, Tensor):
        return IndexedSlices(raw(grad.values), raw(grad.indices), grad.dense_shape)
    return grad


def as_array(grad: Any, dtype: np.dtype[Any]) -> Any:
    """Return a dense gradient as it is if it has a dtype; a list gets the variable's."""
    if hasattr(grad, "dtype"):
        return grad
    try:
        if isinstance(grad, (str, bytes)):  # of which NumPy reads numbers
            raise TypeError
        return np.asarray(grad, dtype)
    except (TypeError, ValueError, OverflowError):
        raise InvalidTypeError(
            f"a gradient must be an array or IndexedSlices of numbers, not {grad!r:.60}"
        ) from None


def of_variable(error: InvalidArgumentError, variable: Variable) -> InvalidArgumentError:
    """Return an error that says which variable it is about, if that has a name."""
    if variable.name == _UNNAMED or str(error).startswith(f"{variable.name}: "):
        return error
    return type(error)(f"{variable.name}: {error}")


def checked_gradient(grad: Any, variable: Variable) -> Any:
    """Return a gradient, an array or IndexedSlices, that fits a variable."""
    try:
        return _checked_gradient(grad, variable)
    except InvalidArgumentError as error:
        raise of_variable(error, variable) from None


def _checked_gradient(grad: Any, variable: Variable) -> Any:
    array = variable.numpy()
    simplest, lr = kernels["gradient_descent"], (0.0,)  # checked as for it, and never carried out
    if isinstance(grad, IndexedSlices):
        sparse_call(simplest, (array, grad.values), grad.indices, lr, 0, 1.0)
        return grad
    grad = as_array(grad, array.dtype)
    dense_call(simplest, (array, grad), lr, 0, 1.0)
    return np.asarray(grad)


def are_finite(grads: Iterable[Any]) -> bool:
    """Return whether no element of gradients, which fit their variables, is infinite or NaN."""
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    complex_ones = [array for array in arrays if array.dtype.kind == "c"]
    real = [array for array in arrays if array.dtype.kind != "c"]
    return all_finite(real) and all(np.isfinite(array).all() for array in complex_ones)


def refuse_rows(grads: Iterable[Any], variables: Iterable[Variable]) -> None:
    """Refuse gradients of some rows where a constraint is one of the whole variable."""
    for grad, variable in zip(grads, variables, strict=True):
        if variable.constraint is not None and isinstance(grad, IndexedSlices):
            raise RuntimeError(
                f"Cannot use a constraint function on a sparse variable: {variable.name}"
            )


def any_overlap(variables: Iterable[Variable]) -> bool:
    """Whether the addresses of any two variables that have elements meet."""
    spans = sorted(span for span in map(_span, variables) if span is not None)
    return any(low < end for (_, end), (low, _) in pairwise(spans))


def _span(variable: Variable) -> tuple[int, int] | None:
    if variable.device == "gpu":
        there = backend_of(variable).describe(variable, variable.name)
        return (there.address, there.end) if there.size else None
    host = variable.numpy()
    return np.lib.array_utils.byte_bounds(host) if host.size else None


def as_variable(var: Any) -> Variable:
    """Return a variable as it is, and an array as one."""
    if isinstance(var, Variable):
        return var
    if isinstance(var, np.ndarray) or is_device_array(var):
        return Variable(var)
    raise InvalidTypeError(f"Trying to update a {type(var).__name__}, not a variable")


def _name(var: Any) -> str:
    return var.name if isinstance(var, Variable) else "Variable"


def memory_of(variable: Variable) -> tuple[Any, ...]:
    """Return what identifies a variable: the same memory seen the same way is the same variable.

    So that slots are found again when a caller makes a new view, or wraps an array, at each step.
    """
    if variable.device == "gpu":
        there = backend_of(variable).describe(variable, variable.name)
        return there.address, there.shape, there.dtype
    array = variable.numpy()
    return array.ctypes.data, array.shape, array.strides, array.dtype


def now_at(memory: Any, moved: dict[Any, Variable]) -> Any:
    """Return the memory of a variable after others have come in the places of some, by theirs."""
    return memory_of(moved[memory]) if memory in moved else memory
