"""Rules of SciPy's special functions, which are looked up when a ufunc is first applied.

SciPy is not imported. Whoever applies ``scipy.special.expit`` to a tensor has done so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.ops import LATER, elementwise
from tfopt.core.engine import CUT, REGISTERED, Op

Slope = Callable[..., Any]
_ROOT_PI = math.sqrt(math.pi)


def _of(name: str) -> Any:
    return getattr(sys.modules["scipy.special"], name)


#: What the powers of x have as factors in the derivative of exprel, (exp(x) - 1) / x.
_EXPREL = [(n + 1) / math.factorial(n + 2) for n in range(18)]


def _exprel(y: Any, x: Any) -> Any:
    """Return the derivative of exprel: near 0, where the other formulas cancel, by its series."""
    near, right = abs(x) < 1, np.real(x) > 0
    close, far = np.where(near, x, 0), np.where(near, 1, x)
    series: Any = 0.0
    for factor in reversed(_EXPREL):
        series = series * close + factor
    above, below = y * (1 - 1 / far) + 1 / far, (np.exp(np.where(right, 0, far)) - y) / far
    return np.where(near, series, np.where(right, above, below))


def _rgamma(y: Any, x: Any) -> Any:
    """Return the derivative of 1 / gamma: left of 1/2 that of gamma(1 - x) * sin(pi * x) / pi."""
    left = np.real(x) < 0.5
    whole = np.rint(np.real(x))
    angle = math.pi * (x - whole)
    other = np.where(left, 1 - x, 1)
    turned = np.cos(angle) - _of("psi")(other) * np.sin(angle) / math.pi
    of_left = (1 - 2 * np.remainder(whole, 2)) * _of("gamma")(other) * turned
    return np.where(left, of_left, -y * _of("psi")(np.where(left, 1, x)))


def _psi(y: Any, x: Any) -> Any:
    """Return the trigamma function: left of 1/2, where zeta is not defined, by its reflection."""
    if np.iscomplexobj(x):
        raise LookupError(
            "scipy.special.psi has no gradient by a complex argument: SciPy has no trigamma "
            "function of complex numbers"
        )
    left = x < 0.5
    sine = np.sin(math.pi * np.where(left, x - np.rint(x), 0.5)) / math.pi
    zeta = _of("zeta")(2.0, np.where(left, 1 - x, x))
    return np.where(left, 1 / (sine * sine) - zeta, zeta)


def _i1e(y: Any, x: Any) -> Any:
    """Return the derivative of exp(-abs(x)) * i1(x): near 0 without a quotient of the two."""
    near = abs(x) < 1
    close, far = np.where(near, x, 0), np.where(near, 1, x)
    mean = np.exp(-abs(close)) * (_of("i0")(close) + _of("iv")(2, close)) / 2
    return np.where(near, mean, _of("i0e")(far) - _of("i1e")(far) / far) - np.sign(x) * y


def _density(a: Any, x: Any) -> Any:
    """Return the density of the gamma distribution, also at 0."""
    return np.exp(_of("xlogy")(a - 1, x) - x - _of("gammaln")(a))


def _between(order: Any, x: Any, function: Any) -> Any:
    return (function(order - 1.0, x) - function(order + 1, x)) / 2


def _sum_beside(order: Any, x: Any, function: Any) -> Any:
    return (function(order - 1.0, x) + function(order + 1, x)) / 2


#: The derivative by each argument, of the result and the arguments; CUT: there is none here.
SLOPES: dict[str, tuple[Any, ...]] = {
    "expit": (lambda y, x: y * (1 - y),),
    "logit": (lambda y, x: 1 / (x * (1 - x)),),
    "log_expit": (lambda y, x: _of("expit")(-x),),
    "erf": (lambda y, x: 2 / _ROOT_PI * np.exp(-x * x),),
    "erfc": (lambda y, x: -2 / _ROOT_PI * np.exp(-x * x),),
    "erfcx": (lambda y, x: 2 * x * y - 2 / _ROOT_PI,),
    "erfi": (lambda y, x: 2 / _ROOT_PI * np.exp(x * x),),
    "dawsn": (lambda y, x: 1 - 2 * x * y,),
    "erfinv": (lambda y, x: _ROOT_PI / 2 * np.exp(y * y),),
    "erfcinv": (lambda y, x: -_ROOT_PI / 2 * np.exp(y * y),),
    "ndtr": (lambda y, x: np.exp(-x * x / 2) / math.sqrt(2 * math.pi),),
    "ndtri": (lambda y, x: math.sqrt(2 * math.pi) * np.exp(y * y / 2),),
    "log_ndtr": (lambda y, x: math.sqrt(2 / math.pi) / _of("erfcx")(x * -math.sqrt(0.5)),),
    "gamma": (lambda y, x: y * _of("psi")(x),),
    "rgamma": (_rgamma,),
    "gammaln": (lambda y, x: _of("psi")(x),),
    "loggamma": (lambda y, x: _of("psi")(x),),
    "psi": (_psi,),
    "_zeta": (CUT, lambda y, s, q: -s * _of("zeta")(s + 1, q)),
    "beta": (
        lambda y, a, b: y * (_of("psi")(a) - _of("psi")(a + b)),
        lambda y, a, b: y * (_of("psi")(b) - _of("psi")(a + b)),
    ),
    "betaln": (
        lambda y, a, b: _of("psi")(a) - _of("psi")(a + b),
        lambda y, a, b: _of("psi")(b) - _of("psi")(a + b),
    ),
    "xlogy": (
        lambda y, x, z: _of("xlogy")(x != 0, y.dtype.type(1) * z),
        lambda y, x, z: np.where(x == 0, 0, x / np.where(x == 0, 1, z)),
    ),
    "xlog1py": (
        lambda y, x, z: _of("xlog1py")(x != 0, y.dtype.type(1) * z),
        lambda y, x, z: np.where(x == 0, 0, x / np.where(x == 0, 1, 1 + z)),
    ),
    "entr": (lambda y, x: -np.log(x) - 1,),
    "rel_entr": (lambda y, x, z: np.log(x / z) + 1, lambda y, x, z: -x / z),
    "kl_div": (lambda y, x, z: np.log(x / z), lambda y, x, z: 1 - x / z),
    "log1p": (lambda y, x: 1 / (1 + x),),
    "expm1": (lambda y, x: y + 1,),
    "exp2": (lambda y, x: y * math.log(2),),
    "exp10": (lambda y, x: y * math.log(10),),
    "cbrt": (lambda y, x: 1 / (3 * y * y),),
    "cosm1": (lambda y, x: -np.sin(x),),
    "exprel": (_exprel,),
    "i0": (lambda y, x: _of("i1")(x),),
    "i0e": (lambda y, x: _of("i1e")(x) - np.sign(x) * y,),
    "i1": (lambda y, x: (_of("i0")(x) + _of("iv")(2, x)) / 2,),
    "i1e": (_i1e,),
    "j0": (lambda y, x: -_of("j1")(x),),
    "j1": (lambda y, x: (_of("j0")(x) - _of("jv")(2, x)) / 2,),
    "y0": (lambda y, x: -_of("y1")(x),),
    "y1": (lambda y, x: (_of("y0")(x) - _of("yv")(2, x)) / 2,),
    "k0": (lambda y, x: -_of("k1")(x),),
    "k1": (lambda y, x: -(_of("k0")(x) + _of("kv")(2, x)) / 2,),
    "jv": (CUT, lambda y, v, x: _between(v, x, _of("jv"))),
    "yv": (CUT, lambda y, v, x: _between(v, x, _of("yv"))),
    "iv": (CUT, lambda y, v, x: _sum_beside(v, x, _of("iv"))),
    "kv": (CUT, lambda y, v, x: -_sum_beside(v, x, _of("kv"))),
    "gammainc": (CUT, lambda y, a, x: _density(a, x)),
    "gammaincc": (CUT, lambda y, a, x: -_density(a, x)),
    "huber": (CUT, lambda y, delta, r: np.clip(r, -1.0 * delta, delta)),
}


def _rule(slope: Slope, name: str, place: int) -> Slope:
    if slope is CUT:
        return _refusal(name, place)

    def rule(g: Any, y: Any, *inputs: Any) -> Any:
        return g * conj(slope(y, *inputs))

    return rule


def _refusal(name: str, place: int) -> Slope:
    def rule(g: Any, y: Any, *inputs: Any) -> Any:
        raise LookupError(f"scipy.special.{name} has no gradient by its argument {place} here")

    return rule


def _rules_of(ufunc: np.ufunc) -> Op | None:
    """Put a ufunc of SciPy's into the table, if it has rules."""
    name = ufunc.__name__
    module = sys.modules.get("scipy.special._ufuncs")
    if name not in SLOPES or name in REGISTERED or ufunc is not getattr(module, name, None):
        return None
    rules = [_rule(slope, name, place) for place, slope in enumerate(SLOPES[name])]
    return elementwise(ufunc, *((rule, "aby") for rule in rules))


LATER.append(_rules_of)
