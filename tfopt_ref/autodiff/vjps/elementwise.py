"""Rules of functions that are applied to each element.

A gradient's shape may be the result's: it is summed to its argument's afterwards. For complex
numbers it is the conjugate of the derivative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.autodiff.ops import Op, define, no_gradients
from tfopt_ref.autodiff.tensor import TABLE

__all__ = ["conj"]


def conj(x: Any) -> Any:
    """Return the complex conjugate of a number, a real one as it is."""
    return np.conj(x) if np.iscomplexobj(x) else x


# ---- arithmetic

define(np.add, lambda g, y, a, b: g, lambda g, y, a, b: g)
define(np.subtract, lambda g, y, a, b: g, lambda g, y, a, b: -g)
define(np.negative, lambda g, y, x: -g)
define(np.positive, lambda g, y, x: g)
define(np.multiply, lambda g, y, a, b: g * conj(b), lambda g, y, a, b: g * conj(a))
define(
    np.divide, lambda g, y, a, b: g / conj(b), lambda g, y, a, b: -g * conj(a) / conj(b) / conj(b)
)
define(np.reciprocal, lambda g, y, x: -g * conj(y) * conj(y))
define(np.square, lambda g, y, x: 2 * g * conj(x))
define(np.remainder, lambda g, y, a, b: g, lambda g, y, a, b: -g * np.floor(a / b))
define(np.fmod, lambda g, y, a, b: g, lambda g, y, a, b: -g * np.trunc(a / b))


def _to_base(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, g * conj(b) * conj(a ** np.where(b == 0, 1, b - 1)))


def _to_exponent(g: Any, y: Any, a: Any, b: Any) -> Any:
    if np.iscomplexobj(y):  # the principal branch, also of a negative real base
        return g * conj(y * np.log(np.where(a == 0, 1, a) + 0j))
    return g * y * np.log(np.where(a > 0, a, 1))


define(np.power, _to_base, _to_exponent)
define(np.float_power, _to_base, _to_exponent)

# ---- exponentials and roots


def _over_root(g: Any, y: Any, x: Any) -> Any:
    """Return 0 where g is 0, also at 0; elsewhere it has to be linear in g, for second orders."""
    return g * 0.5 / conj(np.where((g == 0) & (y == 0), 1, y))


define(np.exp, lambda g, y, x: g * conj(y))
define(np.expm1, lambda g, y, x: g * (conj(y) + 1))
define(np.exp2, lambda g, y, x: g * conj(y) * math.log(2))
define(np.log, lambda g, y, x: g / conj(x))
define(np.log2, lambda g, y, x: g / (conj(x) * math.log(2)))
define(np.log10, lambda g, y, x: g / (conj(x) * math.log(10)))
define(np.log1p, lambda g, y, x: g / (1 + conj(x)))
define(np.sqrt, _over_root)
define(np.cbrt, lambda g, y, x: g / (3 * y * y))
define(
    np.logaddexp,
    lambda g, y, a, b: g * np.exp(a - y),
    lambda g, y, a, b: g * np.exp(b - y),
)
define(
    np.logaddexp2,
    lambda g, y, a, b: g * np.exp2(a - y),
    lambda g, y, a, b: g * np.exp2(b - y),
)

# ---- circles

define(np.sin, lambda g, y, x: g * conj(np.cos(x)))
define(np.cos, lambda g, y, x: -g * conj(np.sin(x)))
define(np.tan, lambda g, y, x: g * (1 + conj(y) * conj(y)))
define(np.sinh, lambda g, y, x: g * conj(np.cosh(x)))
define(np.cosh, lambda g, y, x: g * conj(np.sinh(x)))
define(np.tanh, lambda g, y, x: g * (1 - conj(y) * conj(y)))
define(np.arcsin, lambda g, y, x: g / np.sqrt(1 - conj(x) * conj(x)))
define(np.arccos, lambda g, y, x: -g / np.sqrt(1 - conj(x) * conj(x)))
define(np.arctan, lambda g, y, x: g / (1 + conj(x) * conj(x)))
define(np.arcsinh, lambda g, y, x: g / np.sqrt(1 + conj(x) * conj(x)))
define(np.arccosh, lambda g, y, x: g / conj(np.sqrt(x - 1) * np.sqrt(x + 1)))
define(np.arctanh, lambda g, y, x: g / (1 - conj(x) * conj(x)))
define(
    np.arctan2,
    lambda g, y, a, b: g * b / (a * a + b * b),
    lambda g, y, a, b: -g * a / (a * a + b * b),
)
define(
    np.hypot,
    lambda g, y, a, b: np.where(y == 0, 0, g * a / np.where(y == 0, 1, y)),
    lambda g, y, a, b: np.where(y == 0, 0, g * b / np.where(y == 0, 1, y)),
)
for degrees in (np.deg2rad, np.radians):
    define(degrees, lambda g, y, x: g * (math.pi / 180))
for radians in (np.rad2deg, np.degrees):
    define(radians, lambda g, y, x: g * (180 / math.pi))

# ---- choices


def _absolute(g: Any, y: Any, x: Any) -> Any:
    return g * np.sign(x)


def _sign(g: Any, y: Any, x: Any) -> Any:
    """Return 0; of a complex number's direction, what of the gradient is across it."""
    if not np.iscomplexobj(x):
        return np.zeros_like(x)
    across = g - np.real(conj(y) * g) * y
    return np.where(x == 0, 0, across / np.where(x == 0, 1, np.abs(x)))


define(np.absolute, _absolute)
define(np.fabs, _absolute)
define(np.sign, _sign)
define(np.copysign, lambda g, y, a, b: np.where(np.signbit(a) == np.signbit(b), g, -g), None)
define(
    np.maximum, lambda g, y, a, b: np.where(a >= b, g, 0), lambda g, y, a, b: np.where(a >= b, 0, g)
)
define(
    np.minimum, lambda g, y, a, b: np.where(a <= b, g, 0), lambda g, y, a, b: np.where(a <= b, 0, g)
)
define(
    np.fmax,
    lambda g, y, a, b: np.where((a >= b) | np.isnan(b), g, 0),
    lambda g, y, a, b: np.where((a >= b) | np.isnan(b), 0, g),
)
define(
    np.fmin,
    lambda g, y, a, b: np.where((a <= b) | np.isnan(b), g, 0),
    lambda g, y, a, b: np.where((a <= b) | np.isnan(b), 0, g),
)


def _finite(g: Any, y: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the gradient of what is finite: of complex numbers, part by part."""
    if not np.iscomplexobj(x):
        return np.where(np.isfinite(x), g, 0)
    real, imag = (np.where(np.isfinite(part), 1.0, 0.0) for part in (x.real, x.imag))
    return g.real * real + 1j * (g.imag * imag)


define(np.nan_to_num, _finite)

_where = Op(
    np.where,
    None,
    lambda g, y, condition, a, b: np.where(condition, g, 0),
    lambda g, y, condition, a, b: np.where(condition, 0, g),
)
_places = Op(np.where, None)
TABLE[np.where] = lambda condition, *choices: (_where if choices else _places)(condition, *choices)


def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


_clipped = Op(
    _clip,
    lambda g, y, x, low, high: np.where((x >= low) & (x <= high), g, 0),
    lambda g, y, x, low, high: np.where(x < low, g, 0),
    lambda g, y, x, low, high: np.where(x > high, g, 0),
    name="clip",
)


_UNSET: Any = np._NoValue


def _clip_with_names(
    a: Any, a_min: Any = _UNSET, a_max: Any = _UNSET, *, min: Any = _UNSET, max: Any = _UNSET
) -> Any:
    limits = {"a_min": a_min, "a_max": a_max, "min": min, "max": max}
    named = [name for name, limit in limits.items() if limit is not _UNSET]
    allowed: Any = dict.fromkeys(named, 0)
    np.clip(np.zeros(0), **allowed)  # which of them may be given
    low, high = (
        next((limits[name] for name in names if name in named), None)
        for names in (("a_min", "min"), ("a_max", "max"))
    )
    return _clipped(a, -np.inf if low is None else low, np.inf if high is None else high)


TABLE[np.clip] = _clip_with_names

define(np.nextafter, lambda g, y, a, b: g, None)
define(np.heaviside, None, lambda g, y, a, b: np.where(a == 0, g, 0))
define(np.ldexp, lambda g, y, a, b: np.ldexp(g, b), None)
define(np.modf, lambda g, y, x: g[0])
define(np.frexp, lambda g, y, x: np.ldexp(g[0], -y[1]))
define(np.divmod, lambda g, y, a, b: g[1], lambda g, y, a, b: -g[1] * np.floor(a / b))


def _sinc(g: Any, y: Any, x: Any) -> Any:
    """Return the derivative; near 0 that of the series 1 - t**2 / 6 + t**4 / 120, t = pi * x."""
    t, near = math.pi * x, np.abs(x) < 1e-3
    series = math.pi * (-t / 3 + t * t * t / 30)
    safe = np.where(near, 1, x)
    slope = np.where(near, series, (np.cos(t) - np.sin(t) / (math.pi * safe)) / safe)
    return g * conj(slope)


define(np.sinc, _sinc)

# ---- complex numbers

define(np.real, lambda g, y, x: g)
define(np.imag, lambda g, y, x: g * 1j)
define(np.real_if_close, lambda g, y, a, tol=100: g)
define(np.conjugate, lambda g, y, x: conj(g))


def _angle(g: Any, y: Any, x: Any, deg: bool = False) -> Any:
    turned = np.imag(x) + 1j * np.real(x)
    slope = np.where(x == 0, 0, -1 / np.where(x == 0, 1, turned))
    return g * (180 / math.pi if deg else 1) * slope


define(np.angle, _angle)

# ---- steps and questions

no_gradients(
    np.floor, np.ceil, np.rint, np.round, np.around, np.trunc, np.fix, np.floor_divide,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.spacing,
    np.isneginf, np.isposinf, np.iscomplex, np.isreal, np.isin, np.gcd, np.lcm,
    np.isnan, np.isinf, np.isfinite, np.signbit, np.isclose,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift,
    np.zeros_like, np.ones_like, np.empty_like,
)  # fmt: skip
