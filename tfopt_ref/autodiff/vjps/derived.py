"""Functions of NumPy's whose gradients follow from something simpler than a rule.

Either from a composition of other functions, which is differentiated in the function's place, or
from what affine functions have in common.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import densified
from tfopt_ref.autodiff.nest import flatten
from tfopt_ref.autodiff.ops import Op, fitted
from tfopt_ref.autodiff.tape import GradientTape
from tfopt_ref.autodiff.tensor import TABLE, Node, Operand, as_tensor, differentiable

__all__ = ["Affine", "Derived", "affine", "array", "constant_of", "derived"]

_same: Op = Op(lambda x: x, lambda g, y, x: g, name="same")


class Derived(Op):
    """A function with the gradients of a composition, which takes the same arguments."""

    def __init__(
        self, function: Callable[..., Any], composition: Callable[..., Any], name: str = ""
    ) -> None:
        super().__init__(function, name=name)
        self.composition = composition

    def gradients(self, node: Node, upstreams: list[Any], needed: list[bool]) -> list[Any]:
        inputs = [_same(x) for x in node.inputs]
        wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
        args, kwargs = node.call(inputs)
        try:
            inspect.signature(self.composition).bind(*args, **kwargs)
        except TypeError as error:
            raise LookupError(f"no gradient of {self.name} when it is called so: {error}") from None
        with GradientTape() as tape:
            tape.watch(wanted)
            results = flatten(self.composition(*args, **kwargs))
        targets, seeds = [], []
        for y, g in zip(results, upstreams, strict=True):
            if y is not None and g.size:  # lstsq may have no residuals
                targets.append(as_tensor(y))
                seeds.append(fitted(g, targets[-1]))
            elif y is None and np.any(g.array):
                raise LookupError(f"no gradient of a result of {self.name}, called so")
        found = iter(tape.gradient(targets, wanted, seeds))
        grads = [next(found) if need else None for need in needed]
        return [None if grad is None else densified(grad) for grad in grads]


def derived(*functions: Any, name: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Make a composition what functions are differentiated as."""

    def decorator(composition: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            TABLE[function] = Derived(function, composition, name)
        return composition

    return decorator


def array(x: Any) -> Any:
    """Return what is no tensor as an array."""
    return x if isinstance(x, Operand) else np.asarray(x)


def constant_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function gives, without a gradient."""
    return Op(function, None)(*args, **kwargs)


# ---- affine functions


class Affine:
    """A function that is affine in each of some arguments, and how to call it with others.

    Its gradient is the adjoint: what each unit of an argument adds to the result.
    """

    def __init__(
        self, function: Callable[..., Any], names: str, like: Callable[..., Any] | None = None
    ) -> None:
        self.function, self.names = function, names.split()
        self.signature = inspect.signature(like or function)
        self.op = Op(self.value, self._back, name=function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs).arguments
        others = {name: x for name, x in given.items() if name not in self.names}
        if any(isinstance(x, Operand) and differentiable(x) for x in flatten(others)):
            return Op(self.function)(*args, **kwargs)  # in which it is not affine
        return self.op([given.get(name, np._NoValue) for name in self.names], others)

    def value(self, args: list[Any], others: dict[str, Any]) -> Any:
        """Return what the function gives for its affine arguments, and the others."""
        bound = self.signature.bind_partial()
        named = zip(self.names, args, strict=True)
        bound.arguments = {name: x for name, x in named if x is not np._NoValue}
        bound.arguments.update(others)
        return self.function(*bound.args, **bound.kwargs)

    def _back(self, g: Any, y: Any, args: list[Any], others: dict[str, Any]) -> list[Any]:
        return [
            adjoint(g, args, self, place, others) if isinstance(x, Operand) else None
            for place, x in enumerate(args)
        ]


def _with(args: list[Any], place: int, value: Any) -> list[Any]:
    return [value if k == place else x for k, x in enumerate(args)]


def _adjoint(g: Any, args: list[Any], f: Affine, place: int, others: dict[str, Any]) -> Any:
    x = args[place]
    nothing = flatten(f.value(_with(args, place, np.zeros_like(x)), others))

    def share(unit: Any) -> Any:
        result = flatten(f.value(_with(args, place, unit.reshape(x.shape)), others))
        parts = zip(flatten(g), result, nothing, strict=True)
        # what a unit does not reach has no part in it, NaN or not
        return sum(
            np.sum(np.where(y == zero, 0, np.conj(h) * (y - zero))).real for h, y, zero in parts
        )

    units = np.eye(x.size, dtype=x.dtype)
    found = np.array([share(unit) for unit in units])
    if x.dtype.kind == "c":
        found = found + 1j * np.array([share(1j * unit) for unit in units])
    return found.reshape(x.shape).astype(x.dtype)


def _of_g(gg: Any, y: Any, g: Any, args: list[Any], f: Affine, place: int, others: Any) -> Any:
    """Return what an upstream gradient would add to the result in the argument's place."""
    moved, nothing = (
        flatten(f.op(_with(args, place, x), others)) for x in (gg, np.zeros(gg.shape, gg.dtype))
    )
    return [a - b for a, b in zip(moved, nothing, strict=True)]


def _of_args(gg: Any, y: Any, g: Any, args: list[Any], f: Affine, place: int, others: Any) -> Any:
    nothing = np.zeros(gg.shape, gg.dtype)

    def share(k: int) -> Any:
        moved, still = (_with(args, place, value) for value in (gg, nothing))
        return adjoint(g, moved, f, k, others) - adjoint(g, still, f, k, others)

    return [
        share(k) if isinstance(x, Operand) and k != place else np.zeros(np.shape(x))
        for k, x in enumerate(args)
    ]


adjoint: Op = Op(_adjoint, _of_g, _of_args, name="adjoint")


def affine(
    function: Callable[..., Any], names: str, like: Callable[..., Any] | None = None
) -> None:
    """Say in which arguments a function is affine; another may say which it has."""
    TABLE[function] = Affine(function, names, like)
