"""Gradient checkpointing: recompute a function instead of storing its intermediate values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from tfopt.autodiff.bind import Bind
from tfopt.autodiff.custom_gradient import call_with_gradient
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.tape import GradientTape, UnconnectedGradients
from tfopt.core import engine
from tfopt.core.engine import CUT, Op, Operand, Trace, apply
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import densify

__all__ = ["recompute_grad"]

P = ParamSpec("P")
R = TypeVar("R")

#: The same value, but not before another one: what depends on it is computed as late.
AFTER = Op("after", lambda x, late: x, identity=True)
AFTER.define(lambda g, y, x, late: g, CUT)


def recompute_grad(f: Callable[P, R]) -> Bind[P, R]:
    """Store only the arguments of a function, and call it again for its gradient.

    Parameters
    ----------
    f : callable
        Returns a tensor or a nested structure of tensors, always the same for the same arguments.

    Returns
    -------
    callable

    Raises
    ------
    LookupError
        By ``GradientTape.gradient``, as for the function itself.

    Notes
    -----
    TensorFlow's ``tf.recompute_grad``: the gradient of an argument that is not used is zeros, not
    None. Unlike TensorFlow's, it supports second derivatives: those of the recomputation.

    References
    ----------
    Chen, Xu, Zhang, Guestrin: Training deep nets with sublinear memory cost, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> cube = tfopt.recompute_grad(lambda x: x * x * x)
    >>> x = tfopt.constant(2.0)
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = cube(x)
    >>> float(tape.gradient(y, x))
    12.0
    """

    def decorated(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if engine.recorders():
            args, kwargs = engine.owned((args, kwargs))  # the later call has to be the same

        def body(*args: Any, **kwargs: Any) -> Any:
            with _tapes_off():
                result = f(*args, **kwargs)

            def grad_fn(*upstream: Any, variables: Any = None) -> Any:
                grads = _recomputed(f, args, kwargs, upstream, list(variables or ()))
                n = len(grads) - len(variables or ())
                return (grads[:n], grads[n:]) if variables else grads

            return result, grad_fn

        return call_with_gradient(body, args, kwargs, f)

    return Bind(f, decorated)


@contextmanager
def _tapes_off() -> Iterator[None]:
    before = engine.recorders()
    engine.set_recorders(tuple(r for r in before if isinstance(r, Trace)))
    try:
        yield
    finally:
        engine.set_recorders(before)


def _recomputed(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    upstream: tuple[Any, ...],
    variables: list[Any],
) -> list[Any]:
    """Return the gradients of the arguments that are positional, and of the variables."""
    leaves = flatten((args, kwargs))
    late = upstream[0] if engine.tracing() is not None else None
    fresh = [_fresh(leaf, late) if isinstance(leaf, Operand) else leaf for leaf in leaves]
    given, named = pack((args, kwargs), fresh)
    tensors = [leaf for leaf in fresh if isinstance(leaf, Operand)]
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([x for x in (*tensors, *variables) if engine.is_differentiable(x)])
        result = f(*given, **named)
    inputs = flatten(given) + [
        leaf for name in named for leaf in flatten(named[name]) if isinstance(leaf, Operand)
    ]
    sources = [x for x in (*inputs, *variables) if isinstance(x, Operand)]
    found = iter(
        tape.gradient(result, sources, list(upstream), UnconnectedGradients.ZERO) if sources else ()
    )
    return [densify(next(found)) if isinstance(x, Operand) else None for x in (*inputs, *variables)]


def _fresh(x: Any, late: Any) -> Any:
    """Return the same value under another identity: a tensor that is given twice is two inputs."""
    return apply(AFTER, (as_tensor(x), late))
