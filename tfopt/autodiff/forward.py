"""Forward derivatives: those of results along a direction of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.differentiate import zeros_like
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.tape import GradientTape
from tfopt.core import engine
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import densify

__all__ = ["jvp"]


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return a function's value and its derivative along a direction.

    Parameters
    ----------
    f : callable
        Of tensors; returns a tensor, or a nested structure of them.
    primals : list or tuple
        The arguments: tensors, variables, arrays, or nested structures of them.
    tangents
        The direction, in the structure of the primals; None for an argument that is constant.

    Returns
    -------
    value
        What f returns.
    derivative
        The same structure; zeros for what does not depend on the primals.

    Raises
    ------
    ValueError
        If a tangent has another shape than its primal, or there are not as many.
    LookupError
        If an operation on the way has no gradient.

    Notes
    -----
    The derivative is that of the gradient with respect to its upstream gradient, in which it is
    linear: so it supports all functions with second-order gradients. In a traced function it
    takes the time of a gradient.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> y, dy = tfopt.jvp(np.square, [np.array([1.0, 2.0])], [np.array([1.0, 0.5])])
    >>> y.tolist(), dy.tolist()
    ([1.0, 4.0], [2.0, 2.0])
    """
    given, directions = list(map(as_tensor, flatten(primals))), flatten(tangents)
    if len(directions) != len(given):
        raise ValueError(f"{len(directions)} tangents for {len(given)} primals")
    moving = [(x, d) for x, d in zip(given, directions, strict=True) if d is not None]
    for k, (x, d) in enumerate(moving):
        if np.shape(d) != x.shape:
            raise ValueError(f"tangent {k} has shape {np.shape(d)}, its primal {x.shape}")
    sources = [x for x, _ in moving]
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        value = f(*pack(primals, given))
    results = list(map(as_tensor, flatten(value)))
    seeds = [engine.wrapped(np.ones(y.shape, y.dtype)) for y in results]
    made: Any = [None] * len(seeds)
    with GradientTape() as back:
        back.watch([seed for seed in seeds if engine.is_differentiable(seed)])
        grads = map(densify, tape.gradient(results, sources, seeds) or ())
        reached = [(g, d) for g, (_, d) in zip(grads, moving, strict=False) if g is not None]
    if reached:
        made = back.gradient([g for g, _ in reached], seeds, [d for _, d in reached])
    directed = [
        zeros_like(y) if dy is None else as_tensor(densify(dy))
        for y, dy in zip(results, made, strict=True)
    ]
    return value, pack(value, directed)
