"""Functions that bring their own gradient."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.ops import Op, fitted
from tfopt_ref.autodiff.tensor import (
    STATE,
    Node,
    Operand,
    Slot,
    Tensor,
    as_tensor,
    record,
    setting,
)
from tfopt_ref.autodiff.variable import Variable

__all__ = ["Bind", "custom_gradient", "stop_gradient"]

stop_gradient_op = Op(lambda x: x, None, name="stop_gradient")
identity = Op(lambda x: x, lambda g, y, x: g, name="identity", reads="")


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Return a tensor as a new one, through which no gradient goes back."""
    return stop_gradient_op(as_tensor(input))


class Bind:
    """A function with another one that calls it, also as a method."""

    def __init__(self, f: Callable[..., Any], d: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self._f, self._d = f, d

    @classmethod
    def decorator(cls, d: Callable[..., Any]) -> Callable[..., Bind]:
        """Return the decorator that lets d call what is decorated: ``d(f, args, kwargs)``."""
        return lambda f: cls(f, d)

    def __get__(self, instance: Any, owner: Any = None) -> Bind:
        if instance is None:
            return self
        return type(self)(self._f.__get__(instance, owner), self._d)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._d(self._f, args, kwargs)


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Decorate a function that returns its result and the function that makes its gradients."""
    return Bind.decorator(_called)(f) if f is not None else custom_gradient


class Custom:
    """The operation of a call: forward the identity, backward the user's function."""

    def __init__(self, name: str, grad_fn: Callable[..., Any], inputs: int, variables: Any) -> None:
        self.name, self.grad_fn, self.inputs, self.variables = name, grad_fn, inputs, variables

    def function(self, *arrays: np.ndarray) -> Any:
        """Return arrays as they are."""
        return list(arrays)

    def kept(self, node: Node) -> Node:
        """Return a node with nothing but shapes."""
        return node.keeping(set(), False)

    def overridden(self, name: str) -> Custom:
        """Return itself: its gradient is its own."""
        return self

    def gradients(self, node: Node, upstreams: list[Any], needed: list[bool]) -> list[Any]:
        """Return what the user's function returns, one gradient for each input."""
        if not self.variables:
            grads = flatten(self.grad_fn(*upstreams))
        else:
            grads, of_variables = _pair(self.grad_fn(*upstreams, variables=list(self.variables)))
            grads = flatten(grads)
            if of_variables is None or len(of_variables) != len(self.variables):
                raise ValueError(
                    "Must return gradient for each variable from @custom_gradient grad_fn."
                )
        if len(grads) != self.inputs:
            raise ValueError(
                f"custom_gradient function expected to return {self.inputs} gradients, "
                f"but returned {len(grads)} instead."
            )
        if self.variables:
            grads += of_variables
        return [
            self._checked(grad, x, place) if need and grad is not None else None
            for place, (grad, x, need) in enumerate(zip(grads, node.inputs, needed, strict=True))
        ]

    def _checked(self, grad: Any, x: Tensor, place: int) -> Any:
        if isinstance(grad, IndexedSlices):
            return grad
        grad = as_tensor(grad)
        if grad.shape != x.shape:
            raise ValueError(
                f"gradient {place} of {self.name} has shape {grad.shape}, its input {x.shape}"
            )
        return fitted(grad, x)


def _pair(returned: Any) -> tuple[Any, Any]:
    if isinstance(returned, Operand) or not hasattr(returned, "__iter__"):
        raise TypeError(
            "grad_fn must return a pair, gradients of inputs and of variables, since the function "
            "uses variables"
        )
    grads, of_variables = returned
    if isinstance(of_variables, Operand):
        raise TypeError("the gradients of variables must be a list")
    return grads, of_variables


def _called(f: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function, and record the call as one operation."""
    inputs = flatten(inputs_of(f, args, kwargs))
    for x in inputs:
        as_tensor(x)  # refuses what is none
    read: list[Variable] = []
    with setting(watchers=(*STATE.watchers, read)):
        result, grad_fn = f(*args, **kwargs)
    if not callable(grad_fn):
        raise TypeError("unsupported callable")
    given = [*map(id, inputs), *map(id, flatten(kwargs))]
    used = {v.key: v for v in read if v.trainable and id(v) not in given}
    variables = [used[key] for key in sorted(used)]
    if variables and not _takes_variables(grad_fn):
        raise TypeError(
            "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function "
            f"uses variables: {variables}"
        )
    sources = [as_tensor(leaf) for leaf in flatten(result)]
    outputs = [Tensor(tensor.array, tensor.scope, tensor.lent) for tensor in sources]
    name = getattr(f, "__name__", type(f).__name__)
    node = Node(
        Custom(name, grad_fn, len(inputs), variables),
        ([Slot(i) for i in range(len(sources))], {}),
        map(as_tensor, [*inputs, *variables]),
        outputs,
        outputs,
        sources,
    )
    for tensor in outputs:
        if tensor.lent is not None:
            tensor.lent.add(tensor)
    record(node)
    return pack(result, outputs)


def inputs_of(f: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that have gradients, in their order.

    They are those given by position, and those given by name that hold a tensor or a variable.
    """
    held = {name for name, value in kwargs.items() if _holds_tensors(value)}
    if not held:
        return list(args)
    signature = inspect.signature(f)
    bound = signature.bind(*args, **kwargs).arguments
    inputs: list[Any] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind == parameter.VAR_POSITIONAL:
            inputs += bound.get(name, ())
        elif parameter.kind == parameter.VAR_KEYWORD and _watched(bound.get(name)):
            raise ValueError(
                f"a tensor in **{name} that a tape watches would have no gradient; name it in the "
                "signature"
            )
        elif parameter.kind in (parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        elif name in held or (name in bound and name not in kwargs):
            inputs.append(bound[name])
    return inputs


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, Operand) for leaf in flatten(value))


def _watched(value: Any) -> bool:
    tensors = [leaf for leaf in flatten(value) if isinstance(leaf, Tensor)]
    return any(recorder.knows(tensor) for recorder in STATE.recorders for tensor in tensors)


def _takes_variables(grad_fn: Callable[..., Any]) -> bool:
    parameters = inspect.signature(grad_fn).parameters.values()
    return any(
        p.kind == p.VAR_KEYWORD or (p.name == "variables" and p.kind != p.VAR_POSITIONAL)
        for p in parameters
    )
