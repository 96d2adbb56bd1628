"""Functions with custom gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.ops import Op, fitted
from tfopt_ref.autodiff.tensor import STATE, Node, Operand, Slot, Tensor, as_tensor, record
from tfopt_ref.autodiff.variable import Variable

_stop_gradient = Op(lambda x: x, None, name="stop_gradient")


def stop_gradient(input: Any) -> Any:
    """Return a copy of a tensor through which no gradient flows back."""
    return _stop_gradient(as_tensor(input))


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function f that returns its result and a gradient function.

    The gradient function takes the upstream gradients and returns those of the inputs. If f reads
    variables, it also takes the keyword `variables`, and returns a pair: the gradients of inputs
    and of variables.
    """

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        inputs, read = flatten(inputs_of(f, args, kwargs)), list[Variable]()
        before, STATE.readers = STATE.readers, (*STATE.readers, read)
        try:
            result, grad_fn = f(*args, **kwargs)
        finally:
            STATE.readers = before
        given = {id(x) for x in (*inputs, *flatten(kwargs))}
        used = {v.key: v for v in read if v.trainable and id(v) not in given}
        variables = [used[key] for key in sorted(used)]
        sources = [as_tensor(leaf) for leaf in flatten(result)]
        outputs = [Tensor(tensor.array) for tensor in sources]
        op = Custom(f.__name__, grad_fn, variables)
        call: Any = ([Slot(i) for i in range(len(sources))], {})
        record(Node(op, call, map(as_tensor, [*inputs, *variables]), outputs, outputs, sources))
        return pack(result, outputs)

    return called


class Custom:
    """The operation of a call: forward the identity, backward the user's gradient function."""

    def __init__(self, name: str, grad_fn: Callable[..., Any], variables: list[Variable]) -> None:
        self.name, self.grad_fn, self.variables = name, grad_fn, variables

    def gradients(self, node: Node, upstreams: list[Any], needed: list[bool]) -> list[Any]:
        """Return the results of the user's function, one gradient for each input."""
        if self.variables:
            of_inputs, of_variables = self.grad_fn(*upstreams, variables=self.variables)
            grads = [*flatten(of_inputs), *of_variables]
        else:
            grads = flatten(self.grad_fn(*upstreams))
        return [
            _fitted(grad, x) if need and grad is not None else None
            for grad, x, need in zip(grads, node.inputs, needed, strict=True)
        ]


def _fitted(grad: Any, x: Tensor) -> Any:
    return grad if isinstance(grad, IndexedSlices) else fitted(as_tensor(grad), x)


def inputs_of(f: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that have gradients, in the order of the signature.

    They are all positional arguments, and the keywords that contain a tensor or a variable.
    """
    held = {k for k, x in kwargs.items() if any(isinstance(y, Operand) for y in flatten(x))}
    if not held:
        return list(args)
    signature = inspect.signature(f)
    bound = signature.bind(*args, **kwargs).arguments
    inputs: list[Any] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind == parameter.VAR_POSITIONAL:
            inputs += bound.get(name, ())
        elif parameter.kind == parameter.POSITIONAL_OR_KEYWORD:
            taken = name in held or (name in bound and name not in kwargs)
            inputs += [bound[name]] if taken else []
    return inputs
