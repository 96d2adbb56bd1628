"""Forward derivatives: those of results along a direction of what they are computed from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Self

import numpy as np

from tfopt.autodiff.differentiate import zeros_like
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.tape import GradientTape
from tfopt.autodiff.tape_arguments import Unconnected, UnconnectedGradients, is_zero
from tfopt.core import engine
from tfopt.core.engine import Operand
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["ForwardAccumulator", "jvp"]


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
    moving = _moving(given, directions)
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([x for x, _ in moving])
        value = f(*pack(primals, given))
    results = list(map(as_tensor, flatten(value)))
    directed = [
        zeros_like(y) if dy is None else dy
        for y, dy in zip(results, _along(tape, results, moving), strict=True)
    ]
    return value, pack(value, directed)


class ForwardAccumulator:
    """Computes derivatives of what is computed in its context, along a direction of some variables.

    Parameters
    ----------
    primals : Tensor, Variable, or nested structure of them
        What moves.
    tangents
        The direction, in the structure of the primals; None for one that does not move.

    Raises
    ------
    ValueError
        If a tangent has another shape than its primal, there are not as many, or a primal is
        something else.

    See Also
    --------
    jvp : the same for a function.

    Notes
    -----
    TensorFlow's ``tf.autodiff.ForwardAccumulator``. What the context computes is recorded, and kept
    as long as the accumulator is. Contexts nest, with one another and with tapes: around a tape, an
    accumulator gives the product of a Hessian and a vector.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> w = tfopt.Variable(np.array([1.0, 2.0]))
    >>> with tfopt.ForwardAccumulator(w, np.array([1.0, 0.5])) as forward:
    ...     y = w * w
    >>> forward.jvp(y).tolist()
    [2.0, 2.0]
    """

    def __init__(self, primals: Any, tangents: Any) -> None:
        self._primals = flatten(primals)
        self._moving = _moving(self._primals, flatten(tangents))
        self._tape = GradientTape(persistent=True, watch_accessed_variables=False)

    def __enter__(self) -> Self:
        self._tape.__enter__()
        try:
            self._tape.watch(self._primals)
        except BaseException:
            self._tape.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.__exit__(*exception)

    def jvp(
        self, primals: Any, unconnected_gradients: Unconnected = UnconnectedGradients.NONE
    ) -> Any:
        """Return derivatives of what the context has computed, in it or after it.

        Parameters
        ----------
        primals : Tensor, Variable, or nested structure of them
        unconnected_gradients : UnconnectedGradients or {"none", "zero"}
            Whether there is None, or zeros, for what does not depend on what moves.

        Returns
        -------
        Tensor, IndexedSlices or None, in the structure of `primals`
            `IndexedSlices` for such gradients of tapes in the context.

        Raises
        ------
        RuntimeError
            If the context has not been entered.
        TypeError
            If there is something else among the primals.
        LookupError
            If an operation on the way has no gradient.
        ValueError
            If `unconnected_gradients` is something else.
        """
        zero, leaves = is_zero(unconnected_gradients), flatten(primals)
        if self._tape._record is None:
            raise RuntimeError(
                "the accumulator has not been entered: compute the primals inside `with forward:`"
            )
        results = [y.values if isinstance(y, IndexedSlices) else y for y in leaves]
        for k, y in enumerate(results):
            if not isinstance(y, Operand):
                raise TypeError(
                    f"primal {k} must be a Tensor or a Variable, not {type(y).__name__}: the "
                    "derivative of what is computed from other things is not known"
                )
        recording = self._tape._recording  # what follows is not a part of what is computed
        with self._tape.stop_recording() if recording else nullcontext():
            found = _along(self._tape, results, self._moving)
        made = [
            zeros_like(y) if dy is None and zero else dy
            for y, dy in zip(results, found, strict=True)
        ]
        return pack(primals, [_like(y, dy) for y, dy in zip(leaves, made, strict=True)])


def _like(y: Any, derivative: Any) -> Any:
    """Return the derivative of what may be rows."""
    if derivative is None or not isinstance(y, IndexedSlices):
        return derivative
    return IndexedSlices(derivative, y.indices, y.dense_shape)


def _moving(primals: list[Any], tangents: list[Any]) -> list[tuple[Any, Any]]:
    """Return the primals that move, and their directions."""
    if len(tangents) != len(primals):
        raise ValueError(f"{len(tangents)} tangents for {len(primals)} primals")
    moving = [(x, d) for x, d in zip(primals, tangents, strict=True) if d is not None]
    for k, (x, d) in enumerate(moving):
        if np.shape(d) != np.shape(x):
            raise ValueError(f"tangent {k} has shape {np.shape(d)}, its primal {np.shape(x)}")
    return moving


def _along(tape: GradientTape, results: list[Any], moving: list[tuple[Any, Any]]) -> list[Any]:
    """Return the derivative of each result, or None, by the gradient of the gradient's seeds."""
    seeds = [engine.wrapped(np.ones(y.shape, y.dtype)) for y in results]
    sources = [x for x, _ in moving]
    with GradientTape() as back:
        back.watch([seed for seed in seeds if engine.is_differentiable(seed)])
        grads = map(densify, tape.gradient(results, sources, seeds) or ())
        reached = [(g, d) for g, (_, d) in zip(grads, moving, strict=False) if g is not None]
    if not reached:
        return [None] * len(seeds)
    made = back.gradient([g for g, _ in reached], seeds, [d for _, d in reached])
    return [None if dy is None else as_tensor(densify(dy)) for dy in made]
