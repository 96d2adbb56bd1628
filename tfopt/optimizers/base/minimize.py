"""The gradients of a loss, found by a tape or given along with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.tape import GradientTape
from tfopt.core.engine import Operand, tracing
from tfopt.core.nest import flatten
from tfopt.core.sparse_conversion import each_as_slices
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.variable import Variable

__all__ = ["pairs_of_loss", "product", "times"]


def pairs_of_loss(
    loss: Any,
    var_list: Any,
    grad_loss: Any,
    tape: GradientTape | None,
    scales_of: Callable[[Any], tuple[Variable, ...]],
) -> list[tuple[Any, Any]]:
    """Return the gradients of a loss with their variables: arguments as in `Optimizer.minimize`.

    They are those of the loss times the scales that `scales_of` returns for each variable. Where
    variables have different ones, the tape goes back with the least, so that nothing overflows
    which would not have done so with its own.

    Raises
    ------
    InvalidArgumentError
        If the loss is a tensor and no tape is given, or it returns something else.
    InvalidTypeError
        If an array is among the variables, and gradients are to be found.
    """
    if not callable(loss) and tape is None:
        raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
    recorder = GradientTape() if tape is None else tape
    made = loss
    if callable(loss):
        with recorder:
            if not callable(var_list):
                recorder.watch([v for v in flatten(var_list) if isinstance(v, Variable)])
            made = loss()
    variables = var_list() if callable(var_list) else var_list
    if isinstance(variables, (Variable, np.ndarray)):
        variables = [variables]
    kinds = [scales_of(variable) for variable in variables]
    scales = {own: product(own) for own in kinds}
    carried: Any = 1.0
    if isinstance(made, tuple):
        grads = _given(made, variables)
    else:
        if any(kinds):
            carried = functools.reduce(np.minimum, scales.values())
            grad_loss = _upstream(made, grad_loss, carried)
        grads = _found(recorder, made, variables, grad_loss)
    if any(kinds) and (isinstance(made, tuple) or len(scales) > 1):
        grads = [
            times(_as_array(grad, variable), scales[own] / carried)
            for grad, variable, own in zip(each_as_slices(grads), variables, kinds, strict=True)
        ]
    return list(zip(grads, variables, strict=True))


def product(scales: tuple[Variable, ...]) -> Any:
    """Return the product of scales; in a function that is traced, a tensor of each call's."""
    return math.prod(map(float, scales)) if tracing() is None else math.prod(scales, start=1.0)


def times(value: Any, scale: Any) -> Any:
    """Return a number, an array, a tensor or slices times a scale, of the same dtype; or None."""
    if value is None:
        return None
    if isinstance(value, IndexedSlices):
        return IndexedSlices(times(value.values, scale), value.indices, value.dense_shape)
    with np.errstate(over="ignore", invalid="ignore"):  # a step that is not finite is left out
        if not hasattr(value, "dtype"):
            return value * scale
        return (value * np.float64(1) * scale).astype(value.dtype)


def _given(made: tuple[Any, ...], variables: Any) -> Any:
    """Return the gradients that a loss has returned."""
    if len(made) != 2:
        raise InvalidArgumentError("the loss must return a pair, the loss and its gradients")
    _, grads = made
    if len(grads) != len(variables):
        raise InvalidArgumentError(f"{len(variables)} variables, but {len(grads)} gradients")
    return grads


def _found(recorder: GradientTape, made: Any, variables: Any, grad_loss: Any) -> Any:
    """Return the gradients that a tape finds."""
    if not isinstance(made, Operand):
        raise InvalidArgumentError(
            "the loss must return a pair, the loss and its gradients, or a tensor, "
            f"not {type(made).__name__}"
        )
    if any(not isinstance(variable, Variable) for variable in variables):
        raise InvalidTypeError("minimize needs Variables: wrap the arrays in tfopt.Variable")
    return recorder.gradient(made, list(variables), grad_loss)


def _upstream(loss: Any, grad_loss: Any, scale: Any) -> Any:
    """Return what a tape carries back for the gradients of a loss times a scale."""
    if not isinstance(loss, Operand):
        return grad_loss  # and `_found` refuses the loss
    given = np.ones(loss.shape, loss.dtype) if grad_loss is None else np.asanyarray(grad_loss)
    return times(given, scale)


def _as_array(grad: Any, variable: Any) -> Any:
    """Return a gradient as it is if it has a dtype; a list gets the variable's."""
    known = grad is None or isinstance(grad, IndexedSlices) or hasattr(grad, "dtype")
    return grad if known else np.asarray(grad, variable.dtype)
