"""Discrete Fourier transforms: linear, each the adjoint of its inverse up to a factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import call
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements
from tfopt.autodiff.vjps.arguments import axis_of, known
from tfopt.autodiff.vjps.composed import composed
from tfopt.core.engine import Op, apply

#: What the inverse, or the adjoint, takes in the place of a norm.
_TURNED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _to_length(a: Any, n: int, axis: int) -> Any:
    """Cut, or add zeros, at the end of an axis."""
    axis = axis_of(a, int(axis))
    lead = (slice(None),) * axis
    if n <= a.shape[axis]:
        return a[(*lead, slice(n))]
    widths = [(0, n - a.shape[axis] if k == axis else 0) for k in range(a.ndim)]
    return np.pad(a, widths)


def _transform(function: Any) -> tuple[Op, Any]:
    """Return the operation of a transform along an axis, and its handler."""
    op = Op(function.__name__, lambda a, n, axis, norm: function(a, n, axis, norm))

    def handler(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: None = None) -> Any:
        return apply(op, (operand(a),), {"n": known(n), "axis": known(axis), "norm": known(norm)})

    return op, implements(function)(handler)


def _adjoint(other: Op) -> Any:
    def rule(g: Any, y: Any, a: Any, n: Any, axis: int, norm: Any) -> Any:
        made = call(other, (g,), {"n": None, "axis": axis, "norm": _TURNED[norm]})
        return _to_length(made, a.shape[axis], axis)

    return rule


(FFT, fft), (IFFT, ifft) = _transform(np.fft.fft), _transform(np.fft.ifft)
FFT.define(_adjoint(IFFT))
IFFT.define(_adjoint(FFT))

# ---- of real numbers, and to them


def _rfft(a: Any, n: Any, axis: Any, norm: Any) -> Any:
    n = operand(a).shape[axis] if n is None else int(n)
    return _to_length(fft(a, n, axis, norm), n // 2 + 1, axis)


def _irfft(a: Any, n: Any, axis: Any, norm: Any) -> Any:
    """Transform the first half back: to the real part of what it would be alone, twice."""
    a = operand(a)
    n = 2 * (a.shape[axis] - 1) if n is None else int(n)
    half = np.moveaxis(_to_length(a, n // 2 + 1, axis), axis, -1)
    once = np.zeros(n // 2 + 1, bool)  # what has no counterpart in the other half
    once[[0, -1] if n % 2 == 0 else [0]] = True
    twice = np.where(once, half, 2 * half)
    return np.real(ifft(np.moveaxis(_to_length(twice, n, -1), -1, axis), n, axis, norm))


composed(np.fft.rfft, _rfft)
composed(np.fft.irfft, _irfft)
composed(np.fft.hfft, lambda a, n, axis, norm: _irfft(np.conj(a), n, axis, _TURNED[norm]))
composed(np.fft.ihfft, lambda a, n, axis, norm: np.conj(_rfft(a, n, axis, _TURNED[norm])))

# ---- along several axes


def _pairs(a: Any, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    """Return lengths and axes: no length, or one of -1, is that of the array.

    So an axis that occurs twice has its first length, also after a transform that has halved it.
    """
    a = operand(a)
    if axes is None:
        axes = range(a.ndim) if s is None else range(-len(s), 0)
    if s is None:
        return [(a.shape[k], int(k)) for k in axes]
    return [
        (n if n is None else a.shape[k] if n == -1 else int(n), int(k))
        for n, k in zip(s, axes, strict=True)
    ]


def _along_axes(transform: Any) -> Any:
    def composition(a: Any, s: Any, axes: Any, norm: Any) -> Any:
        for n, axis in reversed(_pairs(a, s, axes)):
            a = transform(a, n, axis, norm)
        return a

    return composition


def _rfftn(a: Any, s: Any, axes: Any, norm: Any) -> Any:
    *others, (n, axis) = _pairs(a, s, axes)
    a = _rfft(a, n, axis, norm)
    for length, other in reversed(others):
        a = fft(a, length, other, norm)
    return a


def _irfftn(a: Any, s: Any, axes: Any, norm: Any) -> Any:
    *others, (n, axis) = _pairs(a, s, axes)
    for length, other in others:
        a = ifft(a, length, other, norm)
    return _irfft(a, None if s is None else n, axis, norm)


for _functions, _composition in {
    (np.fft.fft2, np.fft.fftn): _along_axes(fft), (np.fft.ifft2, np.fft.ifftn): _along_axes(ifft),
    (np.fft.rfft2, np.fft.rfftn): _rfftn, (np.fft.irfft2, np.fft.irfftn): _irfftn,
}.items():  # fmt: skip
    for _function in _functions:
        composed(_function, _composition)


def _shifter(odd: int) -> Any:
    """Return what moves by half the lengths of axes, rounded up if `odd`."""

    def shifted(x: Any, axes: Any) -> Any:
        x = operand(x)
        axes = range(x.ndim) if axes is None else [int(k) for k in np.atleast_1d(axes)]
        return np.roll(x, tuple((x.shape[k] + odd) // 2 for k in axes), tuple(axes))

    return shifted


composed(np.fft.fftshift, _shifter(0))
composed(np.fft.ifftshift, _shifter(1))
