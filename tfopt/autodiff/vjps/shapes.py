"""Rules of functions that move elements, and change none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.backward import unbroadcast
from tfopt.autodiff.dispatch import without_rule
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements, method
from tfopt.autodiff.vjps.composed import composed, constant_of, moved, with_gradients_of
from tfopt.core.engine import Op, apply

# ---- one array in another shape

RESHAPE = Op(
    "reshape", lambda a, shape: a.reshape(shape), views=True,
    expression=lambda call: f"{call.args[0]}.reshape({call.keyword('shape')})",
)  # fmt: skip
RESHAPE.define(lambda g, y, a, shape: g.reshape(a.shape))


@implements(np.reshape)
def reshape(a: Any, /, shape: Any = None, order: str = "C", **others: Any) -> Any:
    """Give another shape."""
    shape = others.pop("newshape", shape)
    if order != "C" or others:
        kwargs = {"order": order, **others}
        return with_gradients_of(_reordered, np.reshape, (operand(a), shape), kwargs)
    shape = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
    return apply(RESHAPE, (operand(a),), {"shape": shape})


def _reordered(a: Any, shape: Any, order: str = "C", copy: Any = None) -> Any:
    return moved(np.reshape, a, shape, order=order)


@method("reshape")
def _reshape(a: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    kwargs = {} if copy is None else {"copy": copy}
    return reshape(a, shape[0] if len(shape) == 1 else shape, order, **kwargs)


@implements(np.ravel)
@method("ravel", "flatten")
def ravel(a: Any, order: str = "C") -> Any:
    """Give one axis."""
    if order == "C":
        return reshape(a, (-1,))
    return with_gradients_of(_raveled, np.ravel, (operand(a), order), {})


def _raveled(a: Any, order: str) -> Any:
    return moved(np.ravel, a, order)


@implements(np.squeeze)
@method("squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    """Drop axes of length 1."""
    a = operand(a)
    return apply(RESHAPE, (a,), {"shape": np.squeeze(_shell(a), axis).shape})


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    """Add axes of length 1."""
    a = operand(a)
    return apply(RESHAPE, (a,), {"shape": np.expand_dims(_shell(a), axis).shape})


def _shell(a: Any) -> Any:
    """Return an array of a's shape that takes no memory."""
    return np.broadcast_to(np.False_, a.shape)


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """Give at least one axis."""
    return _each(np.atleast_1d, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """Give at least two axes."""
    return _each(np.atleast_2d, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """Give at least three axes."""
    return _each(np.atleast_3d, arys)


def _each(function: Any, arrays: Sequence[Any]) -> Any:
    made = [
        apply(RESHAPE, (a,), {"shape": function(_shell(a)).shape}) for a in map(operand, arrays)
    ]
    return made[0] if len(made) == 1 else tuple(made)


# ---- axes


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.argsort([k % len(axes) for k in axes]))


TRANSPOSE = Op(
    "transpose", lambda a, axes=None: a.transpose(axes), views=True,
    expression=lambda call: (
        f"{call.args[0]}.transpose({call.keyword('axes')})" if call.kw else f"{call.args[0]}.T"
    ),
)  # fmt: skip
TRANSPOSE.define(lambda g, y, a, axes=None: g.transpose(None if axes is None else _inverse(axes)))


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Any:
    """Reorder the axes."""
    kw = None if axes is None else {"axes": tuple(map(int, axes))}
    return apply(TRANSPOSE, (operand(a),), kw)


@method("transpose")
def _transpose(a: Any, *axes: Any) -> Any:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = axes[0]
    return transpose(a, axes or None)


@implements(np.swapaxes)
@method("swapaxes")
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Swap two axes."""
    a = operand(a)
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(a, order)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> Any:
    """Swap the last two axes."""
    return swapaxes(x, -1, -2)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Move axes to other places."""
    a = operand(a)
    sources = [k % a.ndim for k in np.atleast_1d(source).tolist()]
    places = [k % a.ndim for k in np.atleast_1d(destination).tolist()]
    order = [k for k in range(a.ndim) if k not in sources]
    for place, k in sorted(zip(places, sources, strict=True)):
        order.insert(place, k)
    return transpose(a, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Move one axis in front of another."""
    a = operand(a)
    axis, start = axis % a.ndim, start + a.ndim if start < 0 else start
    return moveaxis(a, axis, start - 1 if axis < start else start)


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """Reverse the order along axes."""
    m = operand(m)
    axes = range(m.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    key: list[Any] = [slice(None)] * m.ndim
    for k in axes:
        key[k] = slice(None, None, -1)
    return m[tuple(key)]


@implements(np.flipud)
def flipud(m: Any) -> Any:
    """Reverse the first axis."""
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Any:
    """Reverse the second axis."""
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turn by 90 degrees in a plane."""
    first, second = axes
    for _ in range(k % 4):
        m = flip(swapaxes(m, first, second), first)
    return operand(m)


ROLL = Op("roll", lambda a, shift, axis: np.roll(a, shift, axis))
ROLL.define(lambda g, y, a, shift, axis: np.roll(g, _negated(shift), axis))


def _negated(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, tuple) else -shift


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift along axes; what leaves at one end comes in at the other."""
    shift = tuple(int(k) for k in shift) if np.ndim(shift) else int(shift)
    return apply(ROLL, (operand(a),), {"shift": shift, "axis": axis})


# ---- copies of elements

BROADCAST = Op(
    "broadcast_to", lambda a, shape: np.broadcast_to(a, shape), views=True, broadcasts=True
)
BROADCAST.define(lambda g, y, a, shape: unbroadcast(g, a))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Broadcast to a shape."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    return apply(BROADCAST, (operand(array),), {"shape": shape})


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcast against each other."""
    arrays = list(map(operand, args))
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return tuple(broadcast_to(a, shape) for a in arrays)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """Repeat the whole."""
    a, reps = operand(A), tuple(np.atleast_1d(reps).tolist())
    ndim = max(a.ndim, len(reps))
    shape, reps = (1,) * (ndim - a.ndim) + a.shape, (1,) * (ndim - len(reps)) + reps
    between = np.reshape(a, [n for pair in zip((1,) * ndim, shape, strict=True) for n in pair])
    full = broadcast_to(between, [n for pair in zip(reps, shape, strict=True) for n in pair])
    return np.reshape(full, [r * n for r, n in zip(reps, shape, strict=True)])


@composed(np.repeat, methods=["repeat"], sized_by=(1, "repeats"))
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Repeat each element."""
    a = operand(a)
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis % a.ndim)
    places = constant_of(np.repeat, np.arange(a.shape[axis]), repeats)
    return a[(*(slice(None),) * axis, places)]


COPY = Op("copy", lambda a: a, identity=True)
COPY.define(lambda g, y, a: g)


@implements(np.copy)
@method("copy")
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """Return the same values as another tensor."""
    return apply(COPY, (operand(a),))


# ---- borders


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in np.broadcast_to(pad_width, (ndim, 2))]


PAD = Op("pad", lambda a, widths, value: np.pad(a, widths, constant_values=value))
PAD.define(
    lambda g, y, a, widths, value: g[
        tuple(slice(low, low + n) for (low, _), n in zip(widths, a.shape, strict=True))
    ]
)


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Add a border: of a number, or of elements as in NumPy's modes that copy them."""
    a = operand(array)
    values = kwargs.get("constant_values", 0)
    if mode == "constant" and isinstance(values, (int, float, complex)):
        kw = {"widths": tuple(_widths(pad_width, a.ndim)), "value": values}
        return apply(PAD, (a,), kw)
    if mode not in ("edge", "reflect", "symmetric", "wrap") or kwargs:
        return without_rule("pad", np.pad, (a, pad_width, mode), kwargs)
    for axis, widths in enumerate(_widths(pad_width, a.ndim)):
        places = np.pad(np.arange(a.shape[axis]), widths, mode)
        a = np.take_along_axis(a, _along(places, axis, a.ndim), axis)
    return a


def _along(places: Any, axis: int, ndim: int) -> Any:
    return places.reshape([-1 if k == axis else 1 for k in range(ndim)])
