"""Conversion and checks of gradients passed by a caller."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.callers import stacklevel
from tfopt.core.engine import Tensor, raw
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.arrays.aliasing import Occupied
from tfopt.kernels.arrays.coerce import of_torch
from tfopt.kernels.reduce.norms import all_finite
from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.repetition import are_arrays
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.state.variables import as_variable
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.sparse_conversion import each_as_slices
from tfopt.updates.rule_steps import as_array
from tfopt.variable import Variable

__all__ = [
    "apart_from",
    "are_finite",
    "as_gradient",
    "as_taken",
    "checked_gradient",
    "host_arrays",
    "split_pairs",
    "of_variable",
    "refuse_rows",
]

_UNNAMED = "Variable"  # the default name of a variable


def split_pairs(pairs: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split pairs into gradients and variables, without those whose gradient is None.

    Gradients of several variables that share memory with one of them are copied.

    Raises
    ------
    InvalidArgumentError
        If an element is not a pair, or if all gradients are None.
    """
    try:
        grads, variables = zip(*pairs, strict=True)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "grads_and_vars must be pairs of a gradient and a variable"
        ) from None
    if type(None) in map(type, grads):
        grads, variables = _without_none(grads, variables)
    taken = as_taken(list(grads), variables)
    if len(variables) > 1:
        taken = apart_from(taken, variables)
    return tuple(taken), variables


def as_taken(grads: list[Any], variables: Iterable[Any]) -> list[Any]:
    """Return gradients of a caller as steps take them: arrays and `IndexedSlices`, or lists."""
    if are_arrays(grads):
        return grads
    return list(map(_of_caller, each_as_slices(grads), variables))


def apart_from(grads: Iterable[Any], variables: Iterable[Any]) -> list[Any]:
    """Return gradients of which none shares memory with a variable.

    A step may update one variable before it reads the gradient of another one.
    """
    occupied = Occupied(host_arrays(variables))

    def apart(array: Any) -> Any:
        return array.copy() if shares(array) else array

    def shares(array: Any) -> bool:
        return isinstance(array, np.ndarray) and occupied.touches(array)

    return [
        apart(grad)
        if not isinstance(grad, IndexedSlices)
        else IndexedSlices(grad.values.copy(), grad.indices, grad.dense_shape)
        if shares(grad._memory)
        else grad
        for grad in grads
    ]


def host_arrays(variables: Iterable[Any]) -> list[np.ndarray]:
    """Return the arrays of variables that are in host memory, some of which may be arrays."""
    wrapped = map(as_variable, variables)
    return [variable.numpy() for variable in wrapped if variable.device == "cpu"]


def _why_none(variables: tuple[Any, ...]) -> str:
    """Return the likely reason why a tape has found no gradients, as the end of an error."""
    dtypes = [getattr(variable, "dtype", None) for variable in variables]
    whole = sorted({str(dtype) for dtype in dtypes if getattr(dtype, "kind", "") in [*"iub"]})
    if whole:
        return f" Variables of {' and '.join(whole)} have none: convert them to floats"
    return " Is the loss computed from them, inside the tape?"


def _without_none(
    grads: tuple[Any, ...], variables: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    kept = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
    missing = [_name(v) for g, v in zip(grads, variables, strict=True) if g is None]
    if not kept:
        raise InvalidArgumentError(
            f"No gradients provided for any variable: {missing}.{_why_none(variables)}"
        )
    message = f"Gradients do not exist for variables {missing}."
    warnings.warn(message, stacklevel=stacklevel())
    grads, variables = zip(*kept, strict=True)
    return grads, variables


def _of_caller(grad: Any, variable: Any) -> Any:
    """Return a gradient of a caller as the package takes it."""
    if isinstance(grad, np.ndarray) or is_device_array(grad):
        return grad
    try:
        array = of_torch(grad, "grad")
    except InvalidTypeError as error:
        raise of_variable(error, variable) from None
    return as_gradient(grad) if array is None else array


def as_gradient(grad: Any) -> Any:
    """Return a gradient with tensors replaced by their arrays."""
    if isinstance(grad, Tensor):
        return raw(grad)
    return grad._concrete() if isinstance(grad, IndexedSlices) else grad


def of_variable(error: InvalidArgumentError, variable: Variable) -> InvalidArgumentError:
    """Return an error prefixed with the name of its variable, if that has one."""
    name = _name(variable)
    if name == _UNNAMED or str(error).startswith(f"{name}: "):
        return error
    return type(error)(f"{name}: {error}")


def checked_gradient(grad: Any, variable: Variable) -> Any:
    """Return a gradient as an array or IndexedSlices; raise if it does not match a variable."""
    try:
        return _checked_gradient(grad, variable)
    except InvalidArgumentError as error:
        raise of_variable(error, variable) from None


def _checked_gradient(grad: Any, variable: Variable) -> Any:
    if variable.device == "gpu":
        backend_of(variable).check_gradient(variable.value(), grad)
        return grad
    array = variable.numpy()
    simplest, lr = kernels["gradient_descent"], (0.0,)  # only used for its checks
    if isinstance(grad, IndexedSlices):
        sparse_call(simplest, (array, grad.values), grad.indices, lr, 0, 1.0)
        return grad
    grad = as_array(grad, array.dtype)
    dense_call(simplest, (array, grad), lr, 0, 1.0)
    return np.asarray(grad)


def are_finite(grads: Iterable[Any], known: KnownNorms | None = None) -> bool:
    """Whether all elements of checked gradients are finite; waits for those on a GPU.

    Those of which it is known are not read, and a known norm must be finite, too.
    """
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    on_device = [array for array in arrays if not isinstance(array, np.ndarray)]
    if on_device and not backend_of(on_device).are_finite(on_device):
        return False
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    if known is not None:
        finite, arrays = known.split(arrays)
        if not finite:
            return False
    complex_ones = [array for array in arrays if array.dtype.kind == "c"]
    real = [array for array in arrays if array.dtype.kind != "c"]
    return all_finite(real) and all(np.isfinite(array).all() for array in complex_ones)


def refuse_rows(variable: Variable) -> None:
    """Raise if a variable, which has a sparse gradient, has a constraint."""
    if variable.constraint is not None:
        raise RuntimeError(
            f"Cannot use a constraint function on a sparse variable: {variable.name}"
        )


def _name(var: Any) -> str:
    return var.name if isinstance(var, Variable) else "Variable"
