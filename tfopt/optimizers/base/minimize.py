"""The gradients of a loss, computed by a tape or by torch, or returned with the loss."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
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
        If the loss is a tensor and there is no tape, or if the loss returns anything else; or if
        the loss or a variable is a tensor of torch that requires no gradient.
    InvalidTypeError
        If an array is among the variables and the loss does not return gradients.
    """
    if not callable(loss) and tape is None and not _is_torchs(loss):
        raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
    recorder = GradientTape() if tape is None else tape
    result = loss
    if isinstance(var_list, Iterator):
        var_list = list(var_list)
    if callable(loss):
        with recorder:
            if not callable(var_list):
                given = [v for v in flatten(var_list) if isinstance(v, Variable)]
                recorder.watch([v for v in given if v.device == "cpu"])
            result = loss()
    variables = var_list() if callable(var_list) else var_list
    if hasattr(variables, "dtype"):
        variables = [variables]
    variable_scales = [scales_of(variable) for variable in variables]
    totals = {scales: product(scales) for scales in variable_scales}
    common: Any = 1.0
    if isinstance(result, tuple):
        grads = _returned(result, variables)
    else:
        if any(variable_scales):
            common = functools.reduce(np.minimum, totals.values())
        if _is_torchs(result):
            if tape is not None or tracing() is not None:
                who = "a traced function" if tape is None else "a tape"
                raise InvalidArgumentError(f"{who} does not record the tensors of torch")
            grads = _from_torch(result, variables, grad_loss, common)
        else:
            if any(variable_scales):
                grad_loss = _upstream(result, grad_loss, common)
            grads = _from_tape(recorder, result, variables, grad_loss)
    if any(variable_scales) and (isinstance(result, tuple) or len(totals) > 1):
        grads = [
            times(_as_array(grad, variable), totals[scales] / common)
            for grad, variable, scales in zip(
                each_as_slices(grads), variables, variable_scales, strict=True
            )
        ]
    return list(zip(grads, map(_taken, variables), strict=True))


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


def _is_torchs(value: Any) -> bool:
    """Whether a value is a tensor of torch, which is not imported for it."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def _from_torch(loss: Any, variables: Any, grad_loss: Any, scale: Any) -> Any:
    """Return the gradients that torch computes of its loss times a scale."""
    torch = sys.modules["torch"]
    tensors = [each.value() if isinstance(each, Variable) else each for each in variables]
    for name, tensor in ("the loss", loss), *((f"variable {k}", t) for k, t in enumerate(tensors)):
        if not _is_torchs(tensor):
            raise InvalidTypeError(
                f"the loss is a tensor of torch, so {name} must be one, too, not "
                f"{type(tensor).__name__}"
            )
        if not tensor.requires_grad:
            raise InvalidArgumentError(
                f"{name} requires no gradient in torch: call requires_grad_() of the variables "
                "before the loss is computed"
            )
    upstream = torch.ones_like(loss)
    if grad_loss is not None:
        upstream = torch.as_tensor(grad_loss, dtype=loss.dtype).to(device=loss.device)
    return torch.autograd.grad(loss, tensors, upstream * scale, allow_unused=True)


def _taken(variable: Any) -> Any:
    """Return a variable for a step, detached from torch's graph."""
    on_host = _is_torchs(variable) and variable.device.type == "cpu"
    return variable.detach() if on_host else variable


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
