"""The gradients of a loss, found by a tape or given along with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.core import Operand
from tfopt.autodiff.nest import flatten
from tfopt.autodiff.tape import GradientTape
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.variable import Variable

__all__ = ["pairs_of_loss"]


def pairs_of_loss(
    loss: Any, var_list: Any, grad_loss: Any, tape: GradientTape | None
) -> list[tuple[Any, Any]]:
    """Return the gradients of a loss with their variables: arguments as in `Optimizer.minimize`.

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
    if isinstance(made, tuple):
        grads = _given(made, variables)
    else:
        grads = _found(recorder, made, variables, grad_loss)
    return list(zip(grads, variables, strict=True))


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
        raise InvalidTypeError("gradients are found for Variables: wrap the arrays")
    return recorder.gradient(made, list(variables), grad_loss)
