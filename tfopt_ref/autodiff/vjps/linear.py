"""Rules of functions that are linear or affine in each of some arguments, such as products.

The gradient of such an argument is the adjoint: the contribution of each unit to the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.nest import flatten
from tfopt_ref.autodiff.ops import Op, broadcast_like, define
from tfopt_ref.autodiff.tensor import TABLE, Operand, differentiable
from tfopt_ref.autodiff.vjps.elementwise import conj


class Affine:
    """A function that is affine in each of some arguments, and its calls with other arguments."""

    def __init__(self, function: Callable[..., Any], names: str) -> None:
        self.function, self.names = function, names.split()
        self.signature = inspect.signature(function)
        self.op = Op(self.value, self._back, name=function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs).arguments
        others = {name: x for name, x in given.items() if name not in self.names}
        if any(isinstance(x, Operand) and differentiable(x) for x in flatten(others)):
            return Op(self.function)(*args, **kwargs)  # not affine in these arguments
        return self.op([given.get(name, np._NoValue) for name in self.names], others)

    def value(self, args: list[Any], others: dict[str, Any]) -> Any:
        """Apply the function to its affine arguments and the others."""
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
        # elements that a unit does not reach have no part in it, NaN or not
        return sum(
            np.sum(np.where(y == zero, 0, np.conj(h) * (y - zero))).real for h, y, zero in parts
        )

    units = np.eye(x.size, dtype=x.dtype)
    found = np.array([share(unit) for unit in units])
    if x.dtype.kind == "c":
        found = found + 1j * np.array([share(1j * unit) for unit in units])
    return found.reshape(x.shape).astype(x.dtype)


def _of_g(gg: Any, y: Any, g: Any, args: list[Any], f: Affine, place: int, others: Any) -> Any:
    """Return the contribution of an upstream gradient to the result, in place of the argument."""
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

for names, functions in {
    "a": (
        np.fft.fft, np.fft.ifft, np.fft.fft2, np.fft.ifft2, np.fft.fftn, np.fft.ifftn,
        np.fft.rfft, np.fft.irfft, np.fft.rfft2, np.fft.irfft2, np.fft.rfftn, np.fft.irfftn,
        np.fft.hfft, np.fft.ihfft, np.cumsum, np.trace,
    ),
    "x": (np.fft.fftshift, np.fft.ifftshift, np.cumulative_sum, np.linalg.trace),
    "f": (np.gradient,), "a v": (np.convolve, np.correlate), "a prepend append": (np.diff,),
    "ary to_end to_begin": (np.ediff1d,), "y x dx": (np.trapezoid,), "start stop": (np.linspace,),
    "a b": (np.kron, np.outer, np.cross, np.tensordot),
    "x1 x2": (np.linalg.outer, np.linalg.cross, np.linalg.vecdot, np.linalg.tensordot),
}.items():  # fmt: skip
    for function in functions:
        TABLE[function] = Affine(function, names)


def _plain(function: Any) -> Affine:
    """Return the operation of a function without a signature, as before NumPy 2.4."""
    of_two: Any = lambda a, b: function(a, b)  # noqa: E731
    of_two.__name__ = function.__name__
    return Affine(of_two, "a b")


TABLE.update({function: _plain(function) for function in (np.dot, np.inner, np.vdot)})


def _sums(array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    return np.add.reduceat(array, indices, axis, dtype)


TABLE[np.add.reduceat] = Affine(_sums, "array")


class _Sum(Affine):
    """A sum of products, given by subscripts."""

    def __call__(self, *args: Any, optimize: Any = False) -> Any:
        if not isinstance(args[0], str):
            return Op(np.einsum)(*args)
        arrays = [x if isinstance(x, Operand) else np.asarray(x) for x in args[1:]]
        return self.op(arrays, args[0])

    def value(self, args: list[Any], others: Any) -> Any:
        return np.einsum(others, *args)


TABLE[np.einsum] = _Sum(np.einsum, "")

# ---- functions of every network


def _as_matrices(g: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return the operands of a product and its gradient as matrices, if some are vectors."""
    if b.ndim == 1:
        g, b = g[..., None], b[:, None]
    if a.ndim == 1:
        g, a = g[..., None, :], a[None, :]
    return g, a, b


def _to_first(g: Any, y: Any, a: Any, b: Any) -> Any:
    g, _, two = _as_matrices(g, a, b)
    product = g @ conj(np.swapaxes(two, -1, -2))
    return product[..., 0, :] if a.ndim == 1 else product


def _to_second(g: Any, y: Any, a: Any, b: Any) -> Any:
    g, one, _ = _as_matrices(g, a, b)
    product = conj(np.swapaxes(one, -1, -2)) @ g
    return product[..., 0] if b.ndim == 1 else product


define(np.matmul, _to_first, _to_second)


def kept(reduced: Any, a: Any, axis: Any, keepdims: bool = False) -> Any:
    """Return a reduction along axes of a, with these axes kept at length 1."""
    if keepdims or not reduced.shape:
        return reduced
    axes = range(a.ndim) if axis is None else normalize_axis_tuple(axis, a.ndim)
    return np.expand_dims(reduced, tuple(axes))


def _sum(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None,
         keepdims: bool = False) -> Any:  # fmt: skip
    return broadcast_like(kept(g, a, axis, keepdims), a)


def _mean(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None,
          keepdims: bool = False) -> Any:  # fmt: skip
    return _sum(g / (float(a.size) / y.size if y.size else np.nan), y, a, axis, keepdims=keepdims)


define(np.sum, _sum)
define(np.mean, _mean)


def _extreme(g: Any, y: Any, a: Any, axis: Any = None, out: None = None, keepdims: bool = False,
             ) -> Any:  # fmt: skip
    """Share the gradient between equal elements."""
    chosen = a == kept(y, a, axis, keepdims)
    return kept(g, a, axis, keepdims) * chosen / np.sum(chosen, axis=axis, keepdims=True)


for extreme in (np.max, np.min):
    define(extreme, _extreme)
