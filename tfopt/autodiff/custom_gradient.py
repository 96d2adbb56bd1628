"""Functions with custom gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from tfopt.autodiff.backward import as_gradient
from tfopt.autodiff.bind import Bind
from tfopt.autodiff.conversion import is_recorded
from tfopt.autodiff.fitting import fitted
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.parameters import Parameters
from tfopt.core import engine
from tfopt.core.engine import Node, Operand, Readable, Tensor
from tfopt.core.nest import flatten, pack
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import densify

__all__ = ["Custom", "call_with_gradient", "custom_gradient", "grad_pass_through"]


P = ParamSpec("P")
R = TypeVar("R")


@overload
def custom_gradient(f: Callable[P, tuple[R, Callable[..., Any]]]) -> Bind[P, R]: ...
@overload
def custom_gradient(
    f: None = None,
) -> Callable[[Callable[P, tuple[R, Callable[..., Any]]]], Bind[P, R]]: ...
def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Give a function a custom gradient.

    Parameters
    ----------
    f : callable, optional
        Returns a pair: its result, a tensor or a nested structure of tensors, and ``grad_fn``.
        ``grad_fn`` takes the gradient of each tensor of the result (the upstream gradients) and
        returns the gradient of each positional argument, in the order in which they are flattened:
        lists and tuples by position, dicts by sorted keys. None means no gradient. Tensors passed
        by keyword count, too, in the order of the signature; keyword-only arguments do not.

        If f reads or assigns trainable variables that are not among its arguments, ``grad_fn`` is
        called with them as a list, `variables`, in the order in which they were created, and
        returns a pair: the gradients of the arguments, and a list of those of the variables.

    Returns
    -------
    callable
        Returns the result of f. Without f: a decorator.

    Raises
    ------
    TypeError
        By a call: if f does not return a pair, or ``grad_fn`` is not callable or does not accept
        `variables` although f uses some.
    ValueError
        By a call: if an argument or a result cannot be converted to a tensor. By
        ``GradientTape.gradient``: if the number of gradients is not that of the arguments or
        variables, or a gradient has the wrong shape.

    See Also
    --------
    tfopt.RegisterGradient : a gradient for one operation, wherever it occurs.

    Notes
    -----
    TensorFlow's ``tf.custom_gradient``. ``grad_fn`` is ordinary code: second derivatives are those
    of what it computes from the arguments. Gradients are cast to the dtype of their argument.
    Upstream gradients that are `IndexedSlices` are densified; ``grad_fn`` may return slices.

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
    return Bind(f, call_with_gradient)


# ---- the call


def call_with_gradient(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature_of: Callable[..., Any] | None = None,
) -> Any:
    """Call a function that returns its result and a ``grad_fn``, and return the result.

    Parameters
    ----------
    f : callable
    args : tuple
    kwargs : dict
    signature_of : callable, optional
        The function that f stands for, which has the name and the parameters.
    """
    used: dict[Any, None] = {}
    before = engine.watchers()
    engine.set_watchers((*before, used))
    try:
        returned = f(*args, **kwargs)
    finally:
        engine.set_watchers(before)
    result, grad_fn = _result_and_gradient(f, returned)
    variables = _variables_among(used, args, kwargs, grad_fn) if used else []
    f = f if signature_of is None else signature_of
    if not engine.recorders():  # nobody will ask for a gradient
        _check_inputs(f, args, kwargs)
        if not isinstance(result, (dict, list, tuple)):
            return _output(result)
        return pack(result, [_output(leaf) for leaf in flatten(result)])
    inner = [as_tensor(leaf) for leaf in flatten(result)]
    outs = [engine.renamed(tensor) for tensor in inner]
    inputs = _inputs(f, args, kwargs)
    ins = [*map(_input, inputs), *(variable._read() for variable in variables)]
    name = getattr(f, "__name__", type(f).__name__)
    engine.record(Custom(name, grad_fn, len(inputs), variables, inner), tuple(ins), tuple(outs))
    return pack(result, outs)


def _result_and_gradient(f: Callable[..., Any], returned: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the pair that a function has returned.

    Raises
    ------
    InvalidTypeError
        If it is none.
    """
    is_pair = isinstance(returned, (list, tuple)) and len(returned) == 2
    if is_pair and callable(returned[1]):
        return returned[0], returned[1]
    name, what = getattr(f, "__name__", type(f).__name__), type(returned).__name__
    if is_pair:
        what = f"a pair whose second part is a {type(returned[1]).__name__}: unsupported callable"
    elif isinstance(returned, (list, tuple)):
        what = f"a {what} of {len(returned)}"
    raise InvalidTypeError(
        f"{name} must return a pair, its result and a function grad_fn, which maps the gradient of "
        f"the result to those of the arguments; it returned {what}"
    )


def _variables_among(
    used: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any], grad_fn: Callable[..., Any]
) -> list[Any]:
    """Return the variables that a function used and that are not among its arguments."""
    arguments = {id(leaf) for leaf in flatten((args, kwargs))}
    variables = sorted((v for v in used if id(v) not in arguments), key=lambda v: v._serial)
    if variables:
        parameters = Parameters.of(grad_fn)
        if not parameters.var_keyword and "variables" not in parameters.by_name:
            raise TypeError(
                "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since "
                f"function uses variables: {variables}"
            )
    return variables


def _inputs(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the leaves that gradients are asked for.

    These are what is in the positional arguments, and in the keywords that hold tensors and could
    have been positional.
    """
    leaves = flatten(args)
    held_by = {name: flatten(value) for name, value in kwargs.items()}
    with_tensors = [
        name for name, held in held_by.items() if any(isinstance(leaf, Operand) for leaf in held)
    ]
    if not with_tensors:
        return leaves
    parameters = Parameters.of(f)
    order = {name: k for k, name in enumerate(parameters.by_name)}
    for name in sorted(with_tensors, key=lambda name: order.get(name, 0)):
        held = held_by[name]
        if name not in parameters.by_name:
            if any(map(is_recorded, held)):
                raise ValueError(
                    f"the keyword {name!r} holds a tensor that a tape watches, but only as part of "
                    "**kwargs: it would get no gradient; name it in the signature"
                )
        elif name not in parameters.keyword_only:
            leaves += held
    return leaves


def _input(leaf: Any) -> Any:
    """Return an argument as a node has it: a tensor, or what has no gradient.

    Raises
    ------
    ValueError
        If it cannot be a tensor.
    """
    if isinstance(leaf, (Tensor, str, bytes, bool, int, float, complex)):
        return leaf
    return as_tensor(leaf)


def _check_inputs(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ValueError if an argument cannot be a tensor; an array can, and is not copied."""
    for leaf in _inputs(f, args, kwargs) if kwargs else args:
        if type(leaf) is not Tensor and (type(leaf) is not np.ndarray or leaf.dtype.hasobject):
            for each in flatten(leaf):
                _input(each)


def _output(leaf: Any) -> Tensor:
    """Return a result as a tensor of its own, not the one that an argument may be."""
    return engine.renamed(as_tensor(leaf)) if isinstance(leaf, Operand) else as_tensor(leaf)


# ---- the gradient


class Custom:
    """A call's data in its node: ``grad_fn``, and the gradients that it must return.

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
        filled = [
            engine.zeros(y) if g is None else as_gradient(g)
            for g, y in zip(upstreams, node.outs, strict=True)
        ]
        if self.variables:
            returned = self.grad_fn(*filled, variables=list(self.variables))
            input_grads, variable_grads = self._pair(returned)
        else:
            input_grads, variable_grads = self.grad_fn(*filled), []
        grads = flatten(input_grads)
        if len(grads) != self.n_inputs:
            raise ValueError(
                f"custom_gradient function expected to return {self.n_inputs} gradients, but "
                f"returned {len(grads)} instead."
            )
        grads += variable_grads
        pairs = enumerate(zip(grads, node.ins, strict=True))
        return [fitted(self.name, k, g, x) for k, (g, x) in pairs]

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


def grad_pass_through(f: Callable[P, R]) -> Bind[P, R]:
    """Pass gradients through a function as if it returned its arguments.

    Parameters
    ----------
    f : callable
        Returns as many results as it takes arguments. Variables that it uses get no gradient.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        By ``GradientTape.gradient``: if there are more arguments than results, or the shape of a
        result does not broadcast to that of its argument.

    Notes
    -----
    TensorFlow's ``tf.grad_pass_through``: a straight-through estimator.

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

        leaves = flatten(args)
        return call_with_gradient(body, args, kwargs, f)

    return Bind(f, decorated)


def _passed(g: Any, x: Any) -> Any:
    """Return an upstream gradient in its argument's shape, if it broadcasts to it."""
    shape = np.shape(engine.raw(x) if isinstance(x, Readable) else x)
    if np.shape(densify(g)) == shape:
        return g
    return np.broadcast_to(g, shape)
