"""Rules of functions that only move elements."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements, method
from tfopt.autodiff.vjps.arguments import axis_of, frozen, into_zeros, known, order_of, shell
from tfopt.autodiff.vjps.composed import (
    by_name,
    composed,
    constant_of,
    moved,
    with_gradients_of,
)
from tfopt.core.engine import Op, Operand, apply
from tfopt.core.nest import flatten

# ---- one array in another shape

RESHAPE = Op(
    "reshape", lambda a, shape: a.reshape(shape), views=True,
    expression=lambda call: f"{call.args[0]}.reshape({call.keyword('shape')})",
)  # fmt: skip
RESHAPE.define(lambda g, y, a, shape: g.reshape(a.shape))


@implements(np.reshape)
def reshape(a: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Give another shape."""
    shape = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(shape, (int, tuple, list)):
        return apply(RESHAPE, (operand(a),), {"shape": frozen(shape)})
    return with_gradients_of(_reordered, np.reshape, (operand(a), *args), kwargs)


_reordered = by_name(np.reshape, lambda a, shape, order: moved(np.reshape, a, shape, order=order))


@method("reshape")
def _reshape(a: Any, *shape: Any, **kwargs: Any) -> Any:
    return reshape(a, shape[0] if len(shape) == 1 else shape, **kwargs)


@implements(np.ravel)
@method("ravel", "flatten")
def ravel(a: Any, order: str = "C") -> Any:
    """Give one axis."""
    if type(order) is str and order == "C":
        return reshape(a, (-1,))
    return with_gradients_of(partial(moved, np.ravel), np.ravel, (operand(a), order), {})


def _reshaper(function: Any) -> Any:
    """Return the handler of a function that gives an array another shape: that of no memory."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        a, *others = args or (kwargs.pop("a", None),)
        a = operand(a)
        return apply(RESHAPE, (a,), {"shape": function(shell(a), *others, **kwargs).shape})

    return implements(function)(handler)


squeeze, expand_dims = _reshaper(np.squeeze), _reshaper(np.expand_dims)
method("squeeze")(squeeze)


def _at_least(function: Any) -> Any:
    one = _reshaper(function)
    several: Any = lambda *arys: one(arys[0]) if len(arys) == 1 else tuple(map(one, arys))  # noqa: E731
    return implements(function)(several)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (np.atleast_1d, np.atleast_2d, np.atleast_3d))

# ---- axes


def _inverse(axes: Any, ndim: int) -> tuple[int, ...]:
    order = order_of(np.transpose, ndim, axes)
    return tuple(int(k) for k in np.argsort(order))


TRANSPOSE = Op(
    "transpose", lambda a, axes=None: a.transpose(axes), views=True,
    expression=lambda call: (
        f"{call.args[0]}.transpose({call.keyword('axes')})" if call.kw else f"{call.args[0]}.T"
    ),
)  # fmt: skip
TRANSPOSE.define(
    lambda g, y, a, axes=None: g.transpose(None if axes is None else _inverse(axes, g.ndim))
)


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Any:
    """Reorder the axes."""
    if isinstance(axes, (np.ndarray, Operand)):
        axes = axes.tolist()
    kw = None if axes is None else {"axes": frozen(axes)}
    return apply(TRANSPOSE, (operand(a),), kw)


@method("transpose")
def _transpose(a: Any, *axes: Any) -> Any:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = axes[0]
    return transpose(a, axes or None)


def _mover(function: Any) -> Any:
    """Return the handler of a function that reorders axes: asked for the order of numbered ones."""
    name = next(iter(signature(function).parameters))

    def handler(*args: Any, **kwargs: Any) -> Any:
        a, *others = args or (kwargs.pop(name, None),)
        a = operand(a)
        return transpose(a, order_of(function, a.ndim, *others, **kwargs))

    return implements(function)(handler)


swapaxes, moveaxis = _mover(np.swapaxes), _mover(np.moveaxis)
method("swapaxes")(swapaxes)
for _function in (np.rollaxis, np.matrix_transpose, np.linalg.matrix_transpose):
    _mover(_function)


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """Reverse the order along axes."""
    m = operand(m)
    key = [slice(None)] * m.ndim
    for k in range(m.ndim) if axis is None else normalize_axis_tuple(known(axis), m.ndim):
        key[k] = slice(None, None, -1)
    return m[tuple(key)]


composed(np.flipud, lambda m: flip(m, 0))
composed(np.fliplr, lambda m: flip(m, 1))


@implements(np.rot90)
def rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Any:
    """Turn by 90 degrees in a plane."""
    k = np.array(k) if isinstance(k, Operand) else k  # which NumPy writes into
    return with_gradients_of(partial(moved, np.rot90), np.rot90, (operand(m), k, axes), {})


ROLL = Op("roll", lambda a, shift, axis: np.roll(a, shift, axis))
ROLL.define(lambda g, y, a, shift, axis: np.roll(g, [-k for k in shift], axis))


def _roll(a: Any, shift: Any, axis: Any) -> Any:
    a, shifts = operand(a), tuple(int(k) for k in np.atleast_1d(shift))
    if axis is None:
        return np.reshape(apply(ROLL, (np.ravel(a),), {"shift": shifts, "axis": 0}), a.shape)
    return apply(ROLL, (a,), {"shift": shifts, "axis": frozen(axis)})


composed(np.roll, _roll)


# ---- copies of elements

BROADCAST = Op(
    "broadcast_to", lambda a, shape: np.broadcast_to(a, shape), views=True, broadcasts=True
)
BROADCAST.define(lambda g, y, a, shape: g)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Broadcast to a shape."""
    if isinstance(shape, (int, tuple, list)) and subok is False:
        return apply(BROADCAST, (operand(array),), {"shape": frozen(shape)})
    return with_gradients_of(_broadcast, np.broadcast_to, (operand(array), shape, subok), {})


def _broadcast(array: Any, shape: Any, subok: bool) -> Any:
    return apply(BROADCAST, (array,), {"shape": tuple(int(n) for n in np.atleast_1d(shape))})


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcast against each other."""
    arrays = list(map(operand, args))
    shells = np.broadcast_arrays(*map(shell, arrays), subok=subok)
    shape = shells[0].shape if shells else ()
    return tuple(broadcast_to(a, shape) for a in arrays)


def _tile(A: Any, reps: Any) -> Any:
    a, reps = operand(A), tuple(max(int(n), 0) for n in np.atleast_1d(reps))
    ndim = max(a.ndim, len(reps))
    shape, reps = (1,) * (ndim - a.ndim) + a.shape, (1,) * (ndim - len(reps)) + reps
    between = np.reshape(a, [n for pair in zip((1,) * ndim, shape, strict=True) for n in pair])
    full = broadcast_to(between, [n for pair in zip(reps, shape, strict=True) for n in pair])
    return np.reshape(full, [r * n for r, n in zip(reps, shape, strict=True)])


def _repeat(a: Any, repeats: Any, axis: Any) -> Any:
    a = operand(a)
    a, axis = (np.ravel(a), 0) if axis is None or not a.ndim else (a, axis_of(a, axis))
    places = constant_of(np.repeat, np.arange(a.shape[axis]), repeats)
    return a[(*(slice(None),) * axis, places)]


composed(np.tile, _tile)
composed(np.repeat, _repeat, methods=["repeat"], sized_by="repeats")

_NOTHING = np.empty(0)
_COPY: Any = np.copy  # typed for the orders that there are
COPY = Op("copy", lambda a: a, identity=True)
COPY.define(lambda g, y, a: g)


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return the same values as another tensor."""
    if subok is not False or type(order) is not str or order != "K":
        _COPY(_NOTHING, order, subok)  # which says what orders there are
    return apply(COPY, (operand(a),))


method("copy")(lambda a, order="C": copy(a, order))

# ---- borders


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in np.broadcast_to(pad_width, (ndim, 2))]


def _middle(g: Any, y: Any, a: Any, widths: Any, value: Any) -> Any:
    starts = [low for low, _ in _widths(widths, a.ndim)]
    return g[tuple(slice(low, low + n) for low, n in zip(starts, a.shape, strict=True))]


PAD = Op("pad", lambda a, widths, value: np.pad(a, widths, constant_values=value))
PAD.define(_middle)


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Add a border: of a number, or of elements as in NumPy's modes that copy them."""
    value = kwargs.get("constant_values", 0)
    plain = type(mode) is str and mode == "constant" and isinstance(value, (int, float, complex))
    plain = plain and isinstance(pad_width, (int, tuple, list))
    if plain and not kwargs.keys() - {"constant_values"}:
        return apply(PAD, (operand(array),), {"widths": frozen(pad_width), "value": value})
    return with_gradients_of(_padded, np.pad, (operand(array), pad_width, mode), kwargs)


def _padded(a: Any, pad_width: Any, mode: Any, **kwargs: Any) -> Any:
    copies = mode in ("constant", "edge", "reflect", "symmetric", "wrap")
    tensors = any(isinstance(leaf, Operand) for leaf in flatten(kwargs))
    if not copies or kwargs.get("reflect_type", "even") != "even" or tensors:
        raise LookupError(f"no gradient of pad with mode={mode!r} with these arguments")
    return into_zeros(np.pad, a, pad_width, mode)
