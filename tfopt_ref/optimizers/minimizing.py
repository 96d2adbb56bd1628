"""The gradients of a loss, of which some may have to be those of the loss times a scale."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.nest import flatten
from tfopt_ref.autodiff.tape import GradientTape
from tfopt_ref.autodiff.tensor import Tensor
from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.foreign import each_as_slices
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.pairs import as_gradient, as_variable
from tfopt_ref.variable import Variable

__all__ = ["pairs_of_loss", "product", "times"]

Scales = tuple[Variable, ...]


def pairs_of_loss(
    loss: Any,
    var_list: Any,
    grad_loss: Any,
    tape: GradientTape | None,
    scales_of: Callable[[Any], Scales],
) -> list[tuple[Any, Any]]:
    """Return the gradients of a loss times the scales of each variable, with the variables."""
    if not callable(loss) and tape is None:
        raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
    tape = GradientTape() if tape is None else tape
    if callable(loss):
        with tape:
            if not callable(var_list):
                tape.watch([v for v in flatten(var_list) if isinstance(v, Variable)])
            loss = loss()
    variables = flatten(var_list() if callable(var_list) else var_list)
    kinds = [scales_of(variable) for variable in variables]
    if isinstance(loss, tuple) and len(loss) == 2:
        grads, carried = loss[1], 1.0
    elif isinstance(loss, Tensor):
        carried = functools.reduce(np.minimum, map(product, kinds), product(kinds[0]))
        upstream = (
            np.ones(loss.shape, loss.dtype) if grad_loss is None else np.asanyarray(grad_loss)
        )
        sources = [as_variable(variable) for variable in variables]
        grads = tape.gradient(loss, sources, times(upstream, carried))
    else:
        raise InvalidArgumentError(
            "the loss must return a pair, the loss and its gradients, or a Tensor"
        )
    if len(grads) != len(variables):
        raise InvalidArgumentError(f"{len(variables)} variables, but {len(grads)} gradients")
    scaled = [
        times(grad if grad is None else as_gradient(grad, variable), product(own) / carried)
        for grad, variable, own in zip(each_as_slices(grads), variables, kinds, strict=True)
    ]
    return list(zip(scaled, variables, strict=True))


def product(scales: Scales) -> Any:
    """Return the product of scales: 1, or a tensor, which a traced function finds at each call."""
    return math.prod(scales, start=1.0)


def times(value: Any, scale: Any) -> Any:
    """Return a number, an array, a tensor or slices times a scale, of the same dtype; or None."""
    if value is None or (isinstance(scale, float) and scale == 1):
        return value
    if isinstance(value, IndexedSlices):
        return IndexedSlices(times(value.values, scale), value.indices, value.dense_shape)
    with np.errstate(over="ignore", invalid="ignore"):  # a step that is not finite is left out
        if not hasattr(value, "dtype"):
            return value * scale
        return (value * np.float64(1) * scale).astype(value.dtype)
