"""Gradients that compute a function again, and gradients that pass it by."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.custom_gradient import custom_gradient, identity, inputs_of
from tfopt_ref.autodiff.indexed_slices import densified
from tfopt_ref.autodiff.nest import flatten, map_leaves, pack
from tfopt_ref.autodiff.tape import GradientTape, tapes_stopped
from tfopt_ref.autodiff.tensor import Operand, as_tensor, differentiable

__all__ = ["grad_pass_through", "recompute_grad"]


def recompute_grad(f: Callable[..., Any]) -> Any:
    """Return a function that keeps its inputs alone, and is computed again on the way back."""

    @functools.wraps(f)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        with tapes_stopped():
            result = f(*args, **kwargs)

        def grad_fn(*upstream: Any, variables: Any = ()) -> Any:
            def fresh(leaf: Any) -> Any:
                return identity(leaf) if isinstance(leaf, Operand) and not _variable(leaf) else leaf

            again, named = map_leaves(fresh, (list(args), kwargs))
            inputs = flatten(inputs_of(f, again, named))
            watched = [x for x in inputs if isinstance(x, Operand) and differentiable(x)]
            with GradientTape() as tape:
                tape.watch([*watched, *variables])
                y = f(*again, **named)
            y = pack(y, map(as_tensor, flatten(y)))
            found = tape.gradient(y, [*watched, *variables], upstream, "zero")
            grads = iter(map(densified, found))
            of_inputs = [next(grads) if any(x is w for w in watched) else None for x in inputs]
            return (of_inputs, list(grads)) if variables else of_inputs

        return result, grad_fn

    return custom_gradient(recomputed)


def _variable(leaf: Any) -> bool:
    return hasattr(leaf, "assign")


def grad_pass_through(f: Callable[..., Any]) -> Any:
    """Return a function whose gradient is its upstream gradient, unchanged."""

    @functools.wraps(f)
    def passed(*args: Any, **kwargs: Any) -> Any:
        inputs = flatten(inputs_of(f, args, kwargs))

        def grad_fn(*upstream: Any, variables: Any = ()) -> Any:
            grads = list(upstream)
            if len(grads) == len(inputs):
                grads = [_stretched(g, x) for g, x in zip(grads, inputs, strict=True)]
            return (grads, [None] * len(variables)) if variables else grads

        return f(*args, **kwargs), grad_fn

    return custom_gradient(passed)


def _stretched(grad: Any, x: Any) -> Any:
    """Return an upstream in the shape of an input, if it can be broadcast to that."""
    shape = np.shape(x)
    return grad if grad.shape == shape else np.broadcast_to(grad, shape)
