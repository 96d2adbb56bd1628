"""Rules of functions of single elements, with TensorFlow's subgradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj, kept
from tfopt.autodiff.expressions import Call
from tfopt.autodiff.operands import operand
from tfopt.autodiff.ops import elementwise, implements, method
from tfopt.autodiff.vjps.arguments import is_operation, known, only_read
from tfopt.autodiff.vjps.composed import composed, constant_of, with_gradients_of
from tfopt.core.engine import CUT, Op, Tensor, apply

LN2, LN10 = float(np.log(2.0)), float(np.log(10.0))

# ---- arithmetic

elementwise(np.add, lambda g, y, a, b: g, lambda g, y, a, b: g)
elementwise(np.subtract, lambda g, y, a, b: g, lambda g, y, a, b: -g)
elementwise(
    np.multiply, (lambda g, y, a, b: g * conj(b), "b"), (lambda g, y, a, b: g * conj(a), "a")
)
elementwise(
    np.divide,
    (lambda g, y, a, b: g / conj(b), "b"),
    (lambda g, y, a, b: -g * conj(a) / conj(b) / conj(b), "ab"),
)
elementwise(np.negative, lambda g, y, a: -g)
elementwise(np.positive, lambda g, y, a: g)
elementwise(np.floor_divide, CUT, CUT)
_ufunc: Any
for _ufunc, _whole in ((np.remainder, np.floor), (np.fmod, np.trunc)):
    elementwise(
        _ufunc,
        lambda g, y, a, b: g,
        (lambda g, y, a, b, whole=_whole: -g * whole(a / b), "ab"),
    )


def power_base(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of x in x ** y: 0 where y is 0, also at x = 0."""
    if isinstance(b, (int, float)):
        if b == 2:
            return g * (2 * conj(a))
        return g * (b * conj(a) ** (b - 1)) if b else g * 0
    slope = conj(b * a ** np.where(b == 0, 1, b - 1))
    return g * np.where(b == 0, 0, slope)


def power_exponent(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of y in x ** y: 0 where it has none, unless x ** y is infinite or NaN.

    That is where x is not positive; of complex powers, where it is 0.
    """
    usable = a != 0 if np.iscomplexobj(y) else a > 0
    logarithm = np.where(usable, np.log(np.where(usable, a, 1).astype(y.dtype)), 0)
    return g * conj(y * logarithm)


elementwise(np.power, (power_base, "ab"), (power_exponent, "aby"))
elementwise(np.float_power, (power_base, "ab"), (power_exponent, "aby"))
elementwise(np.square, (lambda g, y, x: g * (2 * conj(x)), "a"))
elementwise(np.reciprocal, (lambda g, y, x: -g * conj(y) * conj(y), "y"))

# ---- exponentials and roots


def root(g: Any, y: Any, x: Any) -> Any:
    """Gradient of a root: 0 where nothing comes from above, also at 0.

    The mask is on the divisor, so that the rule stays linear in g for second derivatives.
    """
    return g * 0.5 / conj(np.where((g == 0) & (y == 0), 1, y))


elementwise(np.sqrt, (root, "y"))
elementwise(np.cbrt, (lambda g, y, x: g / (3 * y * y), "y"))
elementwise(np.exp, (lambda g, y, x: g * conj(y), "y"))
elementwise(np.expm1, (lambda g, y, x: g * conj(y + 1), "y"))
elementwise(np.exp2, (lambda g, y, x: g * conj(y * LN2), "y"))
elementwise(np.log, (lambda g, y, x: g / conj(x), "a"))
elementwise(np.log2, (lambda g, y, x: g / conj(x * LN2), "a"))
elementwise(np.log10, (lambda g, y, x: g / conj(x * LN10), "a"))
elementwise(np.log1p, (lambda g, y, x: g / conj(1 + x), "a"))
for _ufunc, _power in ((np.logaddexp, np.exp), (np.logaddexp2, np.exp2)):
    elementwise(
        _ufunc,
        (lambda g, y, a, b, power=_power: g * power(a - y), "ay"),
        (lambda g, y, a, b, power=_power: g * power(b - y), "by"),
    )

# ---- trigonometry

elementwise(np.sin, (lambda g, y, x: g * conj(np.cos(x)), "a"))
elementwise(np.cos, (lambda g, y, x: -g * conj(np.sin(x)), "a"))
elementwise(np.tan, (lambda g, y, x: g * conj(1 + y * y), "y"))
elementwise(np.sinh, (lambda g, y, x: g * conj(np.cosh(x)), "a"))
elementwise(np.cosh, (lambda g, y, x: g * conj(np.sinh(x)), "a"))
elementwise(np.tanh, (lambda g, y, x: g * conj(1 - y * y), "y"))
elementwise(np.arcsin, (lambda g, y, x: g / conj(np.sqrt(1 - x * x)), "a"))
elementwise(np.arccos, (lambda g, y, x: -g / conj(np.sqrt(1 - x * x)), "a"))
elementwise(np.arctan, (lambda g, y, x: g / conj(1 + x * x), "a"))
elementwise(np.arcsinh, (lambda g, y, x: g / conj(np.sqrt(x * x + 1)), "a"))
elementwise(np.arccosh, (lambda g, y, x: g / conj(np.sqrt(x - 1) * np.sqrt(x + 1)), "a"))
elementwise(np.arctanh, (lambda g, y, x: g / conj(1 - x * x), "a"))
elementwise(
    np.arctan2,
    (lambda g, y, a, b: g * b / (a * a + b * b), "ab"),
    (lambda g, y, a, b: -g * a / (a * a + b * b), "ab"),
)


def _hypot(g: Any, y: Any, leg: Any) -> Any:
    return g * np.where(y == 0, 0, leg / np.where(y == 0, 1, y))


elementwise(
    np.hypot,
    (lambda g, y, a, b: _hypot(g, y, a), "ay"),
    (lambda g, y, a, b: _hypot(g, y, b), "by"),
)
for _ufunc, _factor in ((np.deg2rad, np.pi / 180), (np.radians, np.pi / 180),
                        (np.rad2deg, 180 / np.pi), (np.degrees, 180 / np.pi)):  # fmt: skip
    elementwise(_ufunc, lambda g, y, x, factor=_factor: g * factor)

# ---- kinks and steps


def absolute(g: Any, y: Any, x: Any) -> Any:
    """Gradient of abs: 0 at 0; of a complex number, its direction."""
    if np.iscomplexobj(x):
        return g * np.where(y == 0, 0, x / np.where(y == 0, 1, y))
    return g * np.sign(x)


elementwise(np.absolute, (absolute, "ay"))
elementwise(np.fabs, (absolute, "ay"))


def sign(g: Any, y: Any, x: Any) -> Any:
    """Gradient of the sign: 0; of a complex number's direction, the part across it."""
    if not np.iscomplexobj(x):
        return np.zeros_like(x)
    size = np.absolute(x)
    across = g - y * np.real(conj(g) * y)
    return np.where(size == 0, 0, across / np.where(size == 0, 1, size))


elementwise(np.sign, (sign, "ay"))
_wins: Any
for _ufunc, _wins in (
    (np.maximum, np.greater_equal), (np.fmax, lambda a, b: (a >= b) | np.isnan(b)),
    (np.minimum, np.less_equal), (np.fmin, lambda a, b: (a <= b) | np.isnan(b)),
):  # fmt: skip
    elementwise(
        _ufunc,
        (lambda g, y, a, b, wins=_wins: kept(g, wins(a, b)), "ab"),
        (lambda g, y, a, b, wins=_wins: kept(g, ~wins(a, b)), "ab"),
        out_by_name=_ufunc in (np.maximum, np.minimum),
    )
elementwise(
    np.copysign, (lambda g, y, a, b: np.where(np.signbit(a) == np.signbit(b), g, -g), "ab"), CUT
)
elementwise(np.heaviside, CUT, (lambda g, y, a, b: np.where(a == 0, g, 0), "a"))
for _ufunc in (
    np.spacing, np.floor, np.ceil, np.rint, np.trunc, np.isnan, np.isinf, np.isfinite, np.signbit,
    np.logical_not, np.invert,
):  # fmt: skip
    elementwise(_ufunc, CUT)
for _of_two in (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.logical_and,
    np.logical_or, np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift,
    np.right_shift, np.gcd, np.lcm,
):  # fmt: skip
    elementwise(_of_two, CUT, CUT)

elementwise(np.nextafter, lambda g, y, a, b: g, CUT)

# ---- parts and multiples of numbers

elementwise(np.ldexp, (lambda g, y, a, b: np.ldexp(g, b), "b"), CUT)


composed(np.modf, lambda x: (x - np.trunc(x), np.trunc(x)))
composed(np.frexp, lambda x: (np.ldexp(x, -constant_of(np.frexp, x)[1]), None))
composed(np.divmod, lambda x1, x2: (np.floor_divide(x1, x2), np.remainder(x1, x2)))


def _sinc(g: Any, y: Any, x: Any) -> Any:
    """Gradient of sinc, near 0 by its series, whose derivatives are right there, too."""
    angle, near = np.pi * x, np.absolute(x) < 1e-3
    series = -(np.pi**2) / 3 * x * (1 - angle * angle / 10)
    slope = (np.cos(angle) - np.sinc(x)) / np.where(near, 1, x)
    return g * conj(np.where(near, series, slope))


SINC = Op("sinc", np.sinc)
SINC.define((_sinc, "a"))
is_operation(np.sinc, SINC)

# ---- dtype, choice, limits


def _as_type(a: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        if a.dtype.kind == "c" and np.dtype(dtype).kind not in "bc":
            a = a.real
        return a.astype(dtype)


CAST = Op("Cast", _as_type)
CAST.define(lambda g, y, a, dtype: g if a.dtype.kind in "fcV" else None)


@method("astype")
def astype(x: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
           copy: bool = True) -> Any:  # fmt: skip
    """Convert to a dtype; the gradient is converted back."""
    x, dtype = operand(x), np.dtype(known(dtype))
    if not np.can_cast(x.dtype, dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast array from {x.dtype!r} to {dtype!r} according to {casting!r}")
    return apply(CAST, (x,), {"dtype": dtype})


@implements(np.astype)
def _np_astype(x: Any, dtype: Any, /, **others: Any) -> Any:
    np.astype(np.empty(0), known(dtype), **others)  # which raises what NumPy raises
    return astype(x, dtype)


def _where_expression(call: Call) -> str | None:
    condition, a, _ = call.node.ins
    fits = isinstance(condition, Tensor) and isinstance(a, Tensor)
    if fits and call.args[2] == "0" and condition.shape == a.shape == call.node.outs[0].shape:
        return f"{call.constant(kept, 'kept')}({call.args[1]}, {call.args[0]})"
    return None


WHERE = Op("Select", np.where, expression=_where_expression)
WHERE.define(
    CUT,
    (lambda g, y, c, a, b: np.where(c, g, 0), "a"),
    (lambda g, y, c, a, b: np.where(c, 0, g), "a"),
)


@implements(np.where)
def where(condition: Any, *choices: Any) -> Any:
    """Choose between two values; the one that is not chosen gets a gradient of exactly 0."""
    if not choices:
        return np.nonzero(condition)
    if len(choices) != 2:
        raise ValueError("either both or neither of x and y should be given")
    return apply(WHERE, (operand(condition), operand(choices[0]), operand(choices[1])))


def _inside(x: Any, low: Any, high: Any) -> Any:
    inside = x >= low if low is not None else x == x
    return inside & (x <= high) if high is not None else inside


def _above(x: Any, low: Any, high: Any) -> Any:
    """Where the upper limit is the result: also where it is below the lower one."""
    return x > high if low is None else (x > high) | (low > high)


def _below(x: Any, low: Any, high: Any) -> Any:
    return x < low if high is None else (x < low) & (low <= high)


CLIP = Op("clip", np.clip)
CLIP.define(
    (lambda g, y, x, low, high: kept(g, _inside(x, low, high)), "abc"),
    (lambda g, y, x, low, high: kept(g, _below(x, low, high)), "abc"),
    (lambda g, y, x, low, high: kept(g, _above(x, low, high)), "abc"),
)


_LIMITS_OF: Any = np.clip.__wrapped__  # type: ignore[attr-defined]


class _Limits:
    """What `np.clip` is told to clip, to have it say what the limits are."""

    def clip(self, low: Any, high: Any, out: Any = None, **others: Any) -> Any:
        return low, high, others


@implements(np.clip)
def clip(a: Any, *limits: Any, **named: Any) -> Any:
    """Limit to an interval; at its ends, which belong to it, the gradient passes."""
    low, high, others = _LIMITS_OF(_Limits(), *limits, **named)
    if others:
        return with_gradients_of(_converted, np.clip, (operand(a), low, high), others)
    given = [x if x is None else operand(x) for x in (low, high)]
    if any(x is not None and np.result_type(x).hasobject for x in given):
        return constant_of(np.clip, a, low, high)  # which raises what NumPy raises
    return apply(CLIP, (operand(a), *given))


def _converted(a: Any, low: Any, high: Any, *, dtype: Any = None, **others: Any) -> Any:
    if others:
        raise LookupError(f"no gradient of clip with {', '.join(others)}")
    return np.clip(a if dtype is None else a.astype(dtype), low, high)


method("clip")(lambda a, min=None, max=None, **others: clip(a, min, max, **others))


def _finite(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    """Return the finite elements; the numbers that replace others have no gradient."""
    x = operand(x)
    if np.iscomplexobj(x):
        return _finite(x.real, nan, posinf, neginf) + 1j * _finite(x.imag, nan, posinf, neginf)
    return np.where(np.isfinite(x), x, 0)


composed(np.nan_to_num, _finite)
only_read(np.nan_to_num, "copy", True)

method("round")(lambda x, decimals=0: np.round(x, decimals))
