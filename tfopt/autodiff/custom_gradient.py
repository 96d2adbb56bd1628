"""Functions with a gradient of one's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.backward import as_tensor as as_gradient
from tfopt.autodiff.ops import as_tensor
from tfopt.core import engine
from tfopt.core.engine import Node, Operand, Readable, Tensor
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["Bind", "custom_gradient", "grad_pass_through"]

Decorated = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Bind:
    """A function whose calls go through another one, also as a method.

    Parameters
    ----------
    f : callable
        As a method it is bound first, so that `self` is not one of the arguments.
    d : callable
        Called as ``d(f, args, kwargs)``.

    Notes
    -----
    TensorFlow's class of the same name (tensorflow/python/ops/custom_gradient.py).

    Examples
    --------
    >>> from tfopt import Bind
    >>> @Bind.decorator
    ... def twice(f, args, kwargs):
    ...     return 2 * f(*args, **kwargs)
    >>> @twice
    ... def three():
    ...     return 3
    >>> three()
    6
    """

    def __init__(self, f: Callable[..., Any], d: Decorated) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._d = d

    @classmethod
    def decorator(cls, d: Decorated) -> Callable[[Callable[..., Any]], Bind]:
        """Return a decorator whose functions are called through `d`."""
        return lambda f: cls(f, d)

    def __get__(self, instance: Any, owner: Any) -> Bind:
        if instance is None:
            return self
        bound = self._f.__get__(instance, owner) if hasattr(self._f, "__get__") else self._f
        return type(self)(bound, self._d)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._d(self._f, args, kwargs)


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Give a function a gradient of its own.

    Parameters
    ----------
    f : callable, optional
        Returns a pair: its result, a tensor or a nested structure of them, and ``grad_fn``. That
        gets the gradient of each tensor of the result, and returns the gradient of each positional
        argument, in the order in which they are flattened: lists and tuples by position, dicts by
        sorted keys. None is no gradient. Tensors given by keyword count, too, in the order of the
        signature; those that have a keyword alone do not.

        Where f reads or assigns trainable variables that are not among its arguments, ``grad_fn``
        gets them as a list, `variables`, in the order in which they were made, and returns a pair:
        the gradients of the arguments, and a list of those of the variables.

    Returns
    -------
    callable
        Returns the result of f. Without f: a decorator.

    Raises
    ------
    TypeError
        By a call: if f returns no pair, ``grad_fn`` cannot be called, or does not accept
        `variables` although f uses some.
    ValueError
        By a call, if an argument or a result cannot be a tensor; by ``GradientTape.gradient``, if
        there are more or fewer gradients than arguments or variables, or one has another shape.

    See Also
    --------
    tfopt.RegisterGradient : a gradient for one operation, wherever it occurs.

    Notes
    -----
    TensorFlow's ``tf.custom_gradient``. ``grad_fn`` is ordinary code: what it computes from the
    arguments is what is differentiated for the second order. Gradients are cast to the dtype of
    their argument. Rows (`IndexedSlices`) come to ``grad_fn`` densified; it may return them.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> @tfopt.custom_gradient
    ... def log1pexp(x):
    ...     e = np.exp(x)
    ...     def grad_fn(upstream):
    ...         return upstream * (1 - 1 / (1 + e))
    ...     return np.log(1 + e), grad_fn
    >>> x = tfopt.constant(100.0)
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = log1pexp(x)
    >>> float(tape.gradient(y, x))
    1.0
    """
    if f is None:
        return custom_gradient
    return Bind(f, _call)


# ---- the call


def _call(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inputs = [*flatten(args), *_keyword_inputs(f, kwargs)] if kwargs else flatten(args)
    used: dict[Any, None] = {}
    before = engine.watchers()
    engine.set_watchers((*before, used))
    try:
        result, grad_fn = f(*args, **kwargs)
    finally:
        engine.set_watchers(before)
    if not callable(grad_fn):
        raise TypeError("unsupported callable")
    given = {id(leaf) for leaf in flatten((args, kwargs))}
    variables = sorted((v for v in used if id(v) not in given), key=lambda v: v._serial)
    if variables:
        _check_accepts_variables(grad_fn, variables)
    inner = [as_tensor(leaf) for leaf in flatten(result)]
    outs = [engine.renamed(tensor) for tensor in inner]
    ins = [_input(leaf) for leaf in inputs]
    if engine.recorders():
        ins += [variable._read() for variable in variables]
        op = Custom(
            getattr(f, "__name__", type(f).__name__), grad_fn, len(inputs), variables, inner
        )
        engine.record(op, tuple(ins), tuple(outs))
    return pack(result, outs)


def _keyword_inputs(f: Callable[..., Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return what is in the keywords that hold tensors and could have been positional."""
    parameters = inspect.signature(f).parameters
    leaves: list[Any] = []
    for name in sorted(kwargs, key=lambda n: [*parameters].index(n) if n in parameters else 0):
        held = flatten(kwargs[name])
        if not any(isinstance(leaf, Operand) for leaf in held):
            continue
        if name not in parameters:
            if any(_is_watched(leaf) for leaf in held):
                raise ValueError(
                    f"the keyword {name!r} holds a tensor that a tape watches, but only as part of "
                    "**kwargs: it would get no gradient; name it in the signature"
                )
        elif parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY:
            leaves += held
    return leaves


def _is_watched(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and any(
        isinstance(recorder, engine.Tape) and recorder.knows(leaf)
        for recorder in engine.recorders()
    )


def _input(leaf: Any) -> Any:
    """Return an argument as a node has it: a tensor, or what has no gradient.

    Raises
    ------
    ValueError
        If it cannot be a tensor.
    """
    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, (str, bytes, bool, int, float, complex)):
        return leaf
    return as_tensor(leaf)


def _check_accepts_variables(grad_fn: Callable[..., Any], variables: list[Any]) -> None:
    kinds = inspect.Parameter
    parameters = inspect.signature(grad_fn).parameters
    named = parameters.get("variables")
    if named is not None and named.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
        return
    if not any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters.values()):
        raise TypeError(
            "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function "
            f"uses variables: {variables}"
        )


# ---- the gradient


class Custom:
    """What a node holds of a call: its ``grad_fn``, and what that must return.

    Parameters
    ----------
    name : str
    grad_fn : callable
    n_inputs : int
        How many of the node's inputs are arguments; the others are variables.
    variables : list of Variable
    inner : list of Tensor
        What the function itself returned.
    """

    __slots__ = ("grad_fn", "inner", "n_inputs", "name", "variables")

    def __init__(
        self,
        name: str,
        grad_fn: Callable[..., Any],
        n_inputs: int,
        variables: list[Any],
        inner: list[Tensor],
    ) -> None:
        self.name = name
        self.grad_fn = grad_fn
        self.n_inputs = n_inputs
        self.variables = variables
        self.inner = inner if engine.tracing() is not None else []

    def grad(self, node: Node, upstreams: list[Any], need: list[bool]) -> list[Any]:
        """Return the gradients of a node's inputs."""
        given = [
            engine.wrapped(np.zeros(y.shape, y.dtype)) if g is None else as_gradient(g)
            for g, y in zip(upstreams, node.outs, strict=True)
        ]
        if self.variables:
            returned = self.grad_fn(*given, variables=list(self.variables))
            input_grads, variable_grads = self._pair(returned)
        else:
            input_grads, variable_grads = self.grad_fn(*given), []
        grads = flatten(input_grads)
        if len(grads) != self.n_inputs:
            raise ValueError(
                f"custom_gradient function expected to return {self.n_inputs} gradients, but "
                f"returned {len(grads)} instead."
            )
        grads += variable_grads
        return [
            self._fitting(g, x, k) for k, (g, x) in enumerate(zip(grads, node.ins, strict=True))
        ]

    def _pair(self, returned: Any) -> tuple[Any, list[Any]]:
        """Return the gradients of the arguments and of the variables."""
        if isinstance(returned, Operand) or not isinstance(returned, (list, tuple)):
            raise TypeError(
                f"{self.name} uses variables, so its grad_fn must return a pair, the gradients of "
                f"the arguments and a list of those of {len(self.variables)} variables, not "
                f"{type(returned).__name__}"
            )
        input_grads, variable_grads = returned
        if (
            not isinstance(variable_grads, (list, tuple))
            or len(variable_grads) != len(self.variables)
        ):  # fmt: skip
            raise ValueError(
                "Must return gradient for each variable from @custom_gradient grad_fn."
            )
        return input_grads, list(variable_grads)

    def _fitting(self, g: Any, x: Any, place: int) -> Any:
        """Return a gradient of the shape and dtype of what it is for."""
        if g is None or not isinstance(x, Tensor):
            return None
        if isinstance(g, IndexedSlices):
            return g
        made = as_tensor(g)
        if made.shape != x.shape:
            raise ValueError(
                f"{self.name}: gradient {place} has shape {made.shape}, its input {x.shape}"
            )
        if made.dtype != x.dtype and engine.is_differentiable(x):
            made = made.astype(x.dtype)
        return made


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Let gradients pass a function as if it returned its arguments.

    Parameters
    ----------
    f : callable
        With as many results as arguments. Variables it uses get no gradient.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        By ``GradientTape.gradient``, if there are more arguments than results, or a result's shape
        does not broadcast to its argument's.

    Notes
    -----
    TensorFlow's ``tf.grad_pass_through``. A straight-through estimator is that of a rounding.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> x = tfopt.constant([0.2, 1.8])
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tfopt.grad_pass_through(np.round)(x) ** 2
    >>> tape.gradient(y, x)
    <Tensor shape=(2,) dtype=float64 [0. 4.]>
    """

    def decorated(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def body(*args: Any, **kwargs: Any) -> Any:
            result = f(*args, **kwargs)

            def grad_fn(*upstream: Any, variables: Any = None) -> Any:
                grads = [
                    _passed(g, x) for g, x in zip(upstream, leaves, strict=False)
                ] + list(upstream[len(leaves) :])  # fmt: skip
                return (grads, [None] * len(variables)) if variables else grads

            return result, grad_fn

        functools.update_wrapper(body, f)
        leaves = flatten(args)
        return _call(body, args, kwargs)

    return Bind(f, decorated)


def _passed(g: Any, x: Any) -> Any:
    """Return an upstream gradient in its argument's shape, if it broadcasts to it."""
    shape = np.shape(engine.raw(x) if isinstance(x, Readable) else x)
    if np.shape(densify(g)) == shape:
        return g
    return np.broadcast_to(g, shape)
