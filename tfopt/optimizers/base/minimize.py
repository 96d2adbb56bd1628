"""The gradients of a loss, computed by a tape or returned with the loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.tape import GradientTape
from tfopt.core.engine import Operand, tracing
from tfopt.core.nest import flatten
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.coerce import of_torch
from tfopt.sparse_conversion import each_as_slices
from tfopt.variable import Variable

__all__ = ["pairs_of_loss", "product", "times"]


def pairs_of_loss(
    loss: Any,
    var_list: Any,
    grad_loss: Any,
    tape: GradientTape | None,
    scales_of: Callable[[Any], tuple[Variable, ...]],
) -> list[tuple[Any, Any]]:
    """Return pairs of gradients and variables; the arguments are as in `Optimizer.minimize`.

    Each gradient is that of the loss multiplied by the scales that `scales_of` returns for its
    variable. If these differ between variables, the tape uses the smallest one, so that no gradient
    overflows that would not overflow with its own scale.

    Raises
    ------
    InvalidArgumentError
        If the loss is a tensor and there is no tape, or if the loss returns anything else.
    InvalidTypeError
        If an array is among the variables and the loss does not return gradients.
    """
    if not callable(loss) and tape is None:
        raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
    recorder = GradientTape() if tape is None else tape
    result = loss
    if callable(loss):
        with recorder:
            if not callable(var_list):
                recorder.watch([v for v in flatten(var_list) if isinstance(v, Variable)])
            result = loss()
    variables = var_list() if callable(var_list) else var_list
    if isinstance(variables, (Variable, np.ndarray)):
        variables = [variables]
    variable_scales = [scales_of(variable) for variable in variables]
    totals = {scales: product(scales) for scales in variable_scales}
    common: Any = 1.0
    if isinstance(result, tuple):
        grads = _returned(result, variables)
    else:
        if any(variable_scales):
            common = functools.reduce(np.minimum, totals.values())
            grad_loss = _upstream(result, grad_loss, common)
        grads = _from_tape(recorder, result, variables, grad_loss)
    if any(variable_scales) and (isinstance(result, tuple) or len(totals) > 1):
        grads = [
            times(_as_array(grad, variable), totals[scales] / common)
            for grad, variable, scales in zip(
                each_as_slices(grads), variables, variable_scales, strict=True
            )
        ]
    return list(zip(grads, variables, strict=True))


def product(scales: tuple[Variable, ...]) -> Any:
    """Return the product of scales; in a traced function, a tensor computed at each call."""
    return math.prod(map(float, scales)) if tracing() is None else math.prod(scales, start=1.0)


def times(value: Any, scale: Any) -> Any:
    """Return a number, an array, a tensor or slices times a scale, in the same dtype; or None."""
    if value is None:
        return None
    if isinstance(value, IndexedSlices):
        return IndexedSlices(times(value.values, scale), value.indices, value.dense_shape)
    with np.errstate(over="ignore", invalid="ignore"):  # nonfinite steps are skipped
        if not hasattr(value, "dtype"):
            return value * scale
        return (value * np.float64(1) * scale).astype(value.dtype)


def _returned(result: tuple[Any, ...], variables: Any) -> Any:
    """Return the gradients from the pair that a loss function has returned."""
    if len(result) != 2:
        raise InvalidArgumentError("the loss must return a pair, the loss and its gradients")
    _, grads = result
    if len(grads) != len(variables):
        raise InvalidArgumentError(f"{len(variables)} variables, but {len(grads)} gradients")
    return grads


def _from_tape(recorder: GradientTape, result: Any, variables: Any, grad_loss: Any) -> Any:
    """Return the gradients that a tape computes."""
    if not isinstance(result, Operand):
        raise InvalidArgumentError(
            "the loss must return a pair, the loss and its gradients, or a tensor, "
            f"not {type(result).__name__}"
        )
    if any(not isinstance(variable, Variable) for variable in variables):
        raise InvalidTypeError("minimize needs Variables: wrap the arrays in tfopt.Variable")
    return recorder.gradient(result, list(variables), grad_loss)


def _upstream(loss: Any, grad_loss: Any, scale: Any) -> Any:
    """Return the upstream gradient that yields the gradients of a loss times a scale."""
    if not isinstance(loss, Operand):
        return grad_loss  # and `_from_tape` rejects the loss
    upstream = np.ones(loss.shape, loss.dtype) if grad_loss is None else np.asanyarray(grad_loss)
    return times(upstream, scale)


def _as_array(grad: Any, variable: Any) -> Any:
    """Return a gradient unchanged if it has a dtype; convert a list to the variable's."""
    array = of_torch(grad, "grad")
    if array is not None:
        return array
    has_dtype = grad is None or isinstance(grad, IndexedSlices) or hasattr(grad, "dtype")
    return grad if has_dtype else np.asarray(grad, variable.dtype)
