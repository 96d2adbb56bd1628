"""Rules of functions that are applied to each element.

A gradient has the shape of the result; it is then summed to the shape of its argument. For complex
numbers it is the conjugate of the derivative times the upstream gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.ops import Op, Rule, define, no_gradients
from tfopt_ref.autodiff.tensor import TABLE


def conj(x: Any) -> Any:
    """Return the complex conjugate; real numbers stay unchanged."""
    return np.conj(x) if np.iscomplexobj(x) else x


def _times(slope: Callable[..., Any]) -> Callable[..., Any]:
    return lambda g, y, *args: g * conj(slope(y, *args))


# ---- functions of one number, by their derivatives

_LN2, _LN10 = math.log(2), math.log(10)
SLOPES: dict[Any, Callable[[Any, Any], Any]] = {
    np.square: lambda y, x: 2 * x, np.reciprocal: lambda y, x: -(y * y),
    np.exp: lambda y, x: y, np.expm1: lambda y, x: y + 1, np.exp2: lambda y, x: y * _LN2,
    np.log: lambda y, x: 1 / x, np.log1p: lambda y, x: 1 / (1 + x),
    np.log2: lambda y, x: 1 / (x * _LN2), np.log10: lambda y, x: 1 / (x * _LN10),
    np.cbrt: lambda y, x: 1 / (3 * y * y),
    np.sin: lambda y, x: np.cos(x), np.cos: lambda y, x: -np.sin(x),
    np.tan: lambda y, x: 1 + y * y, np.sinh: lambda y, x: np.cosh(x),
    np.cosh: lambda y, x: np.sinh(x), np.tanh: lambda y, x: 1 - y * y,
    np.arcsin: lambda y, x: 1 / np.sqrt(1 - x * x),
    np.arccos: lambda y, x: -1 / np.sqrt(1 - x * x),
    np.arctan: lambda y, x: 1 / (1 + x * x), np.arctanh: lambda y, x: 1 / (1 - x * x),
    np.arcsinh: lambda y, x: 1 / np.sqrt(1 + x * x),
    np.arccosh: lambda y, x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    np.deg2rad: lambda y, x: math.pi / 180, np.radians: lambda y, x: math.pi / 180,
    np.rad2deg: lambda y, x: 180 / math.pi, np.degrees: lambda y, x: 180 / math.pi,
}  # fmt: skip
# ---- other functions, by a rule for each argument, which takes the upstream gradient


def _to_base(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, g * conj(b) * conj(a ** np.where(b == 0, 1, b - 1)))


def _to_exponent(g: Any, y: Any, a: Any, b: Any) -> Any:
    if np.iscomplexobj(y):  # the principal branch, also of a negative real base
        return g * conj(y * np.log(np.where(a == 0, 1, a) + 0j))
    return g * y * np.log(np.where(a > 0, a, 1))


def _over_root(g: Any, y: Any, x: Any) -> Any:
    """Return 0 where g is 0, even at x = 0; elsewhere be linear in g, for second derivatives."""
    return g * 0.5 / conj(np.where((g == 0) & (y == 0), 1, y))


def _sign(g: Any, y: Any, x: Any) -> Any:
    """Return 0; for a complex number, the part of the gradient orthogonal to its direction."""
    if not np.iscomplexobj(x):
        return np.zeros_like(x)
    across = g - np.real(conj(y) * g) * y
    return np.where(x == 0, 0, across / np.where(x == 0, 1, np.abs(x)))


def _first(wins: Callable[[Any, Any], Any]) -> tuple[Rule, Rule]:
    """Return the rules of a choice between two arguments; `wins` tells where it is the first."""
    return (lambda g, y, a, b: np.where(wins(a, b), g, 0),
            lambda g, y, a, b: np.where(wins(a, b), 0, g))  # fmt: skip


RULES: dict[Any, tuple[Rule, ...]] = {
    np.add: (lambda g, y, a, b: g, lambda g, y, a, b: g),
    np.subtract: (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    np.negative: (lambda g, y, x: -g,), np.positive: (lambda g, y, x: g,),
    np.multiply: (lambda g, y, a, b: g * conj(b), lambda g, y, a, b: g * conj(a)),
    np.divide: (lambda g, y, a, b: g / conj(b),
                lambda g, y, a, b: -g * conj(a) / conj(b) / conj(b)),
    np.remainder: (lambda g, y, a, b: g, lambda g, y, a, b: -g * np.floor(a / b)),
    np.fmod: (lambda g, y, a, b: g, lambda g, y, a, b: -g * np.trunc(a / b)),
    np.divmod: (lambda g, y, a, b: g[1], lambda g, y, a, b: -g[1] * np.floor(a / b)),
    np.power: (_to_base, _to_exponent), np.float_power: (_to_base, _to_exponent),
    np.sqrt: (_over_root,),
    np.logaddexp: (lambda g, y, a, b: g * np.exp(a - y), lambda g, y, a, b: g * np.exp(b - y)),
    np.logaddexp2: (lambda g, y, a, b: g * np.exp2(a - y), lambda g, y, a, b: g * np.exp2(b - y)),
    np.arctan2: (lambda g, y, a, b: g * b / (a * a + b * b),
                 lambda g, y, a, b: -g * a / (a * a + b * b)),
    np.hypot: (lambda g, y, a, b: np.where(y == 0, 0, g * a / np.where(y == 0, 1, y)),
               lambda g, y, a, b: np.where(y == 0, 0, g * b / np.where(y == 0, 1, y))),
    np.absolute: (lambda g, y, x: g * np.sign(x),), np.fabs: (lambda g, y, x: g * np.sign(x),),
    np.sign: (_sign,),
    np.copysign: (lambda g, y, a, b: np.where(np.signbit(a) == np.signbit(b), g, -g), None),
    np.maximum: _first(lambda a, b: a >= b), np.minimum: _first(lambda a, b: a <= b),
    np.fmax: _first(lambda a, b: (a >= b) | np.isnan(b)),
    np.fmin: _first(lambda a, b: (a <= b) | np.isnan(b)),
    np.heaviside: (None, lambda g, y, a, b: np.where(a == 0, g, 0)),
    np.nextafter: (lambda g, y, a, b: g, None),
    np.modf: (lambda g, y, x: g[0],), np.frexp: (lambda g, y, x: np.ldexp(g[0], -y[1]),),
    np.ldexp: (lambda g, y, a, b: np.ldexp(g, b), None),
    np.real: (lambda g, y, x: g,), np.imag: (lambda g, y, x: g * 1j,),
    np.conjugate: (lambda g, y, x: conj(g),),
}  # fmt: skip
for _function, _slope in SLOPES.items():
    define(_function, _times(_slope))
for function, rules in RULES.items():
    define(function, *rules)
no_gradients(
    np.floor, np.ceil, np.rint, np.round, np.trunc, np.floor_divide, np.spacing, np.signbit,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.logical_and, np.logical_or, np.logical_not, np.logical_xor,
    np.isnan, np.isinf, np.isfinite, np.zeros_like, np.ones_like, np.all, np.any,
    np.argmax, np.argmin, np.argsort, np.nonzero, np.flatnonzero, np.searchsorted,
)  # fmt: skip

# ---- choices by conditions and limits

_where = Op(
    np.where,
    None,
    lambda g, y, condition, a, b: np.where(condition, g, 0),
    lambda g, y, condition, a, b: np.where(condition, 0, g),
)
_places = Op(np.where, None)
TABLE[np.where] = lambda condition, *choices: (_where if choices else _places)(condition, *choices)
_clipped = Op(
    lambda x, low, high: np.clip(x, low, high),
    lambda g, y, x, low, high: np.where((x >= low) & (x <= high), g, 0),
    lambda g, y, x, low, high: np.where((x < low) & (low <= high), g, 0),
    lambda g, y, x, low, high: np.where(np.maximum(x, low) > high, g, 0),
    name="clip",
)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    return _clipped(a, -np.inf if low is None else low, np.inf if high is None else high)


TABLE[np.clip] = _clip
