"""Operations, and the propagation of gradients back through them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import IndexedSlices, densified
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.tensor import TABLE, Node, Slot, run

Rule = Callable[..., Any] | None


class Op:
    """One of NumPy's functions with the rules of its gradients.

    Each argument has a rule. It takes the upstream gradient, the result and the arguments of the
    call, and returns the gradient of its argument: an array, or a list for a list. A rule None
    means that no gradient flows back; without rules there is no gradient.
    """

    def __init__(self, function: Callable[..., Any], *rules: Rule, name: str = "") -> None:
        self.function, self.rules = function, rules
        self.name = name or function.__name__
        first = next((rule for rule in rules if rule is not None), None)
        self.signature = inspect.signature(first) if first else None
        self.cut = bool(rules) and first is None  # no gradient flows back

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return run(self, *args, **kwargs)

    def gradients(self, node: Node, upstreams: list[Any], needed: list[bool]) -> list[Any]:
        """Return the gradients of the node's inputs that need one, and None for the others."""
        if not self.rules:
            raise LookupError(f"{self.name} has no gradient here")
        if self.signature is None:
            return [None] * len(needed)
        args, kwargs = node.call(node.inputs)
        y, g = pack(node.structure, node.outputs), pack(node.structure, upstreams)
        grads: list[Any] = [None] * len(needed)
        for rule, argument in self._arguments(node.template):
            slots = [leaf if isinstance(leaf, Slot) else None for leaf in flatten(argument)]
            if rule is None or not any(slot and needed[slot.number] for slot in slots):
                continue
            found = flatten(rule(g, y, *args, **kwargs))
            for slot, grad in zip(slots, found, strict=True):
                if slot and needed[slot.number]:
                    grads[slot.number] = fitted(grad, node.inputs[slot.number])
        return grads

    def _arguments(self, template: Any) -> Iterable[tuple[Rule, Any]]:
        """Return each argument of a call with its rule."""
        args, kwargs = template
        assert self.signature is not None
        try:
            bound = self.signature.bind(None, None, *args, **kwargs).arguments
        except TypeError as error:
            raise LookupError(f"no gradient of {self.name} with these arguments: {error}") from None
        names = list(self.signature.parameters)[2:]
        rules = dict(zip(names, self.rules, strict=False))
        return [(rules.get(name), bound[name]) for name in names if name in bound]


def define(function: Any, *rules: Rule) -> None:
    """Set the rules of one of NumPy's functions."""
    TABLE[function] = Op(function, *rules)


def no_gradients(*functions: Any) -> None:
    """Declare that no gradient flows back through functions."""
    for function in functions:
        TABLE[function] = Op(function, None)


TABLE[None] = Op  # a function that is not in the table


# ---- the parts of rules


def fitted(grad: Any, x: Any) -> Any:
    """Return a gradient in the shape and dtype of its tensor."""
    if isinstance(grad, IndexedSlices):
        return grad
    if grad.shape != x.shape:
        grad = sum_to(grad, x)
    if grad.dtype.kind == "c" and x.dtype.kind != "c":
        grad = np.real(grad)
    return grad if grad.dtype == x.dtype else TABLE["astype"](grad, x.dtype)


def _sum_to(g: np.ndarray, like: np.ndarray) -> np.ndarray:
    added = g.ndim - like.ndim
    stretched = (i + added for i, n in enumerate(like.shape) if n == 1 != g.shape[i + added])
    summed: np.ndarray = np.add.reduce(g, axis=(*range(added), *stretched), keepdims=True)
    return summed.reshape(like.shape)


def _broadcast_like(g: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.broadcast_to(g, like.shape)


#: Sum an array over the axes along which another one was broadcast to its shape.
sum_to: Op = Op(_sum_to, lambda g, y, x, like: broadcast_like(g, x))
broadcast_like: Op = Op(_broadcast_like, lambda g, y, x, like: sum_to(g, x))
reshape_like: Op = Op(
    lambda g, like: np.reshape(g, like.shape),
    lambda g, y, x, like: reshape_like(g, x),
    name="reshape_like",
)
TABLE["astype"] = Op(lambda x, dtype: x.astype(dtype), lambda g, y, x, dtype: g, name="astype")


def _densify(values: np.ndarray, indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    dense = np.zeros(shape, values.dtype)
    np.add.at(dense, indices, values)
    return dense


_densified: Op = Op(_densify, lambda g, y, values, indices, shape: rows(g, indices), name="densify")
rows: Op = Op(
    lambda x, indices: np.take(x, indices, axis=0),
    lambda g, y, x, indices: _densified(g, indices, x.shape),
    name="rows",
)
TABLE["densify"] = _densified


def added(a: Any, b: Any) -> Any:
    """Return the sum of two gradients; it has rows only if both have."""
    if isinstance(a, IndexedSlices) and isinstance(b, IndexedSlices):
        indices = [part.indices for part in (a, b)]
        if indices[0].dtype != indices[1].dtype:
            indices = [part.astype(np.int64) for part in indices]
        shape = b.dense_shape if a.dense_shape is None else a.dense_shape
        return IndexedSlices(np.concatenate([a.values, b.values]), np.concatenate(indices), shape)
    return densified(a) + densified(b)
