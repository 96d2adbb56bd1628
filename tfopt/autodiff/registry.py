"""Registries: gradients by the name of an operation, and variables by their name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tfopt.autodiff.backward import as_gradient
from tfopt.autodiff.fitting import fitted
from tfopt.autodiff.operands import as_tensor
from tfopt.core import engine
from tfopt.core.engine import NAMED, REGISTERED, RULED, Node, Op
from tfopt.core.nest import flatten

__all__ = [
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "get_variable_by_name",
    "gradient_override_map",
    "no_gradient",
]

Function = TypeVar("Function", bound=Callable[..., Any])
_LOCK = threading.Lock()
_PLACES: dict[str, str] = {}


class RegisterGradient:
    """Register a gradient under the name of an operation, or under a new name.

    The decorated function is called as ``fn(op, *upstream)`` and returns one gradient for each of
    ``op.inputs``, as a list if there are several; None means no gradient. ``op`` has `inputs`,
    `outputs`, `type` and `get_attr`.

    Parameters
    ----------
    op_type : str
        The name of a NumPy function that has no gradient, which then has one, or any other name,
        for `gradient_override_map`.

    Raises
    ------
    TypeError
        If it is not a string.
    KeyError
        By the decorator: if the name has a gradient already.
    ValueError
        By ``GradientTape.gradient``: if the number of gradients is not that of the inputs, or a
        gradient has the wrong shape.

    See Also
    --------
    tfopt.custom_gradient : defines the gradient of a function of yours.

    Notes
    -----
    TensorFlow's ``tf.RegisterGradient``.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> @tfopt.RegisterGradient("vander")
    ... def vander_gradient(op, g):
    ...     (x,) = op.inputs
    ...     slopes = np.vander(x)[:, 1:] * np.arange(len(x) - 1, 0, -1)
    ...     return np.sum(g[:, :-1] * slopes, axis=1)
    >>> x = tfopt.constant([1.0, 2.0, 3.0])
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = np.vander(x)
    >>> tape.gradient(y, x)
    <Tensor shape=(3,) dtype=float64 [3. 5. 7.]>
    """

    def __init__(self, op_type: str) -> None:
        _check_name(op_type)
        self._op_type = op_type

    def __call__(self, f: Function) -> Function:
        _register(self._op_type, f)
        return f


def no_gradient(op_type: str) -> None:
    """Register an operation as not differentiable: no gradient passes it, without an error.

    Parameters
    ----------
    op_type : str

    Raises
    ------
    TypeError
        If it is not a string.
    KeyError
        If the name has a gradient already.

    Notes
    -----
    TensorFlow's ``tf.no_gradient``, also named ``NoGradient`` and ``NotDifferentiable``.
    """
    _check_name(op_type)
    _register(op_type, None)


NoGradient = NotDifferentiable = no_gradient


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError("op_type must be a string")


def _register(name: str, f: Callable[..., Any] | None) -> None:
    frame = sys._getframe(2)
    with _LOCK:
        if name in REGISTERED or name in RULED:
            where = _PLACES.get(name, "tfopt")
            raise KeyError(
                f"Registering two gradient with name '{name}'! (Previous registration was in "
                f"{where})"
            )
        REGISTERED[name] = None if f is None else Registered(name, f)
        _PLACES[name] = f"{frame.f_code.co_name} {frame.f_code.co_filename}:{frame.f_lineno}"


class Registered:
    """A registered gradient, which replaces the rules of an operation.

    Parameters
    ----------
    name : str
        Under which it is registered.
    f : callable
    """

    def __init__(self, name: str, f: Callable[..., Any]) -> None:
        self.name = name
        self.f = f

    def grad(self, node: Node, upstreams: list[Any], need: list[bool]) -> list[Any]:
        """Return the gradients of a node's inputs."""
        given = [
            as_gradient(engine.zeros(y)) if g is None else as_gradient(g)
            for g, y in zip(upstreams, node.outs, strict=True)
        ]
        grads = flatten(self.f(Operation(node), *given))
        if len(grads) != len(node.ins):
            raise ValueError(
                f"Num gradients {len(grads)} generated for op {self.name} do not match num inputs "
                f"{len(node.ins)}"
            )
        pairs = enumerate(zip(grads, node.ins, strict=True))
        return [fitted(self.name, k, g, x) for k, (g, x) in pairs]


class Overridden:
    """An operation recorded under a gradient override map.

    Parameters
    ----------
    op : Op
    name : str
        Of the gradient that replaces its rules, looked up when it is needed.
    """

    def __init__(self, op: Op, name: str) -> None:
        self.op = op
        self.name = op.name
        self.gradient = name

    def grad(self, node: Node, upstreams: list[Any], need: list[bool]) -> list[Any]:
        """Return the gradients of a node's inputs."""
        try:
            registered = REGISTERED[self.gradient]
        except KeyError:
            raise LookupError(f"gradient registry has no entry for: {self.gradient}") from None
        if registered is None:
            return [None] * len(node.ins)
        made: list[Any] = registered.grad(node, upstreams, need)
        return made


class Operation:
    """An operation, as registered gradients see it.

    Parameters
    ----------
    node : Node

    Attributes
    ----------
    type : str
    inputs, outputs : list of Tensor
    """

    def __init__(self, node: Node) -> None:
        self.type: str = node.op.name
        self.inputs = [as_tensor(x) for x in node.ins]
        self.outputs = list(node.outs)
        self._attributes = node.kw or {}

    def get_attr(self, name: str) -> Any:
        """Return a keyword that the operation was called with.

        Raises
        ------
        ValueError
            If there is none of this name.
        """
        if name not in self._attributes:
            raise ValueError(f"Operation {self.type!r} has no attr named {name!r}.")
        return self._attributes[name]


@contextmanager
def gradient_override_map(op_type_map: Mapping[str, str]) -> Iterator[None]:
    """Replace the gradients of operations that are recorded inside this ``with``.

    Parameters
    ----------
    op_type_map : dict of str to str
        The names of NumPy's operations, and the names of the registered gradients to use instead.

    Raises
    ------
    TypeError
        If it is something else.
    LookupError
        By ``GradientTape.gradient``: if a gradient is not registered.

    Notes
    -----
    TensorFlow's ``tf.Graph.gradient_override_map``; here it works in eager code, too, and for tapes
    inside a traced function.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> @tfopt.RegisterGradient("ClippedSquare")
    ... def clipped(op, g):
    ...     return np.clip(2 * g * op.inputs[0], -1, 1)
    >>> x = tfopt.constant(3.0)
    >>> with tfopt.GradientTape() as tape, tfopt.gradient_override_map({"square": "ClippedSquare"}):
    ...     tape.watch(x)
    ...     y = np.square(x)
    >>> float(tape.gradient(y, x))
    1.0
    """
    if not isinstance(op_type_map, Mapping) or not all(
        isinstance(name, str) for pair in op_type_map.items() for name in pair
    ):
        raise TypeError("op_type_map must be a dictionary mapping strings to strings")
    before = engine.overrides()
    chosen = {
        name: (lambda op, gradient=gradient: Overridden(op, gradient))
        for name, gradient in op_type_map.items()
    }
    engine.set_overrides({**before, **chosen})
    try:
        yield
    finally:
        engine.set_overrides(before)


def get_variable_by_name(var_name: str) -> Any:
    """Return the trainable variable with a name.

    Parameters
    ----------
    var_name : str
        The name that the variable was created with.

    Returns
    -------
    Variable or None
        None if the variable of this name is not trainable.

    Raises
    ------
    ValueError
        If there is no such variable, or more than one that is trainable.

    Notes
    -----
    TensorFlow's function of the same name (tensorflow/python/ops/custom_gradient.py) only works in
    graphs. Variables are found as long as something refers to them.

    Examples
    --------
    >>> import tfopt
    >>> slope = tfopt.Variable(1.0, name="slope")
    >>> tfopt.get_variable_by_name("slope") is slope
    True
    """
    alive = [reference() for reference in list(NAMED.values())]
    found = [variable for variable in alive if variable is not None and variable.name == var_name]
    if not found:
        raise ValueError(f"Unsuccessful at finding variable {var_name}.")
    candidates = sorted((v for v in found if v.trainable), key=lambda v: v._serial)
    if len(candidates) > 1:
        raise ValueError(
            f"Unsuccessful at finding trainable variable {var_name}. Number of candidates: "
            f"{len(candidates)}. Candidates: {candidates}"
        )
    return candidates[0] if candidates else None
