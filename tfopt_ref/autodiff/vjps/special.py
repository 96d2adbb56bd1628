"""Rules of SciPy's special functions, found when one is first applied to a tensor.

SciPy is not imported here: who applies one of its functions has imported it. A slope takes the
arguments alone, and follows from the function's definition, its differential equation, or that of
its inverse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.ops import Op
from tfopt_ref.autodiff.tensor import LATER, as_tensor
from tfopt_ref.autodiff.vjps.elementwise import conj

__all__: list[str] = []


class _Functions:
    """SciPy's special functions."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["scipy.special"], name)


sp = _Functions()

# ---- densities, and their integrals' inverses


def _bell(x: Any) -> Any:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _erf(x: Any) -> Any:
    return math.sqrt(2) * 2 * _bell(math.sqrt(2) * x)


def _expit(x: Any) -> Any:
    return sp.expit(x) * sp.expit(-x)


def _gamma_density(a: Any, x: Any) -> Any:
    return x ** (a - 1) * np.exp(-x) * sp.rgamma(a)


# ---- gamma's relatives, from the right, by their recurrence


def _steps(x: Any) -> int:
    """Return how often to add 1 to bring all numbers beyond 1."""
    real = np.real(as_tensor(x).array)
    lowest = float(np.min(real, initial=1.0, where=np.isfinite(real)))
    return max(0, math.ceil(1 - lowest))


def _rgamma(x: Any) -> Any:
    """Differentiate rgamma(x) = x * (x + 1) * ... * (x + n - 1) * rgamma(x + n)."""
    product, slope, n = 1.0, 0.0, _steps(x)
    for k in range(n):
        product, slope = product * (x + k), slope * (x + k) + product
    return (slope - product * sp.psi(x + n)) * sp.rgamma(x + n)


def _trigamma(x: Any) -> Any:
    """Sum 1 / (x + k) ** 2 for all k."""
    n = _steps(x)
    last = np.where(x == -np.inf, np.nan, x + n)
    return sum(1 / ((x + k) * (x + k)) for k in range(n)) + sp.zeta(2.0, last)


# ---- exprel(x), which is the integral of exp(t * x) for t from 0 to 1


def _exprel(order: int, x: Any) -> Any:
    """Return a derivative: the integral of t ** order * exp(t * x)."""

    def value(x: np.ndarray) -> Any:
        finite = np.isfinite(x)  # of others hyp1f1 may not return
        integral = sp.hyp1f1(order + 1, order + 2, np.where(finite, x, 0)) / (order + 1)
        return np.where(finite, integral, np.exp(x))

    derivative = Op(
        value,
        lambda g, y, x: g * _exprel(order + 1, x),
        name="exprel",
    )
    return derivative(x)


# ---- the slopes by each argument; None: there is none here


def _betaln(a: Any, b: Any) -> Any:
    return sp.psi(a) - sp.psi(a + b)


def _beta(a: Any, b: Any) -> Any:
    return sp.beta(a, b) * _betaln(a, b)


def _i1e(x: Any) -> Any:
    """Differentiate exp(-abs(x)) * i1(x); i1(x) / x is 1/2 at 0."""
    part = np.where(x == 0, 0.5, sp.i1e(x) / np.where(x == 0, 1, x))
    return sp.i0e(x) - part - np.sign(x) * sp.i1e(x)


def _where_not_0(x: Any, function: Callable[..., Any], z: Any) -> Any:
    return np.where(x == 0, 0, function(np.where(x == 0, 1, z)))


_OF_ONE: dict[str, Callable[..., Any]] = {
    "ndtr": _bell, "ndtri": lambda p: 1 / _bell(sp.ndtri(p)),
    "log_ndtr": lambda x: math.sqrt(2 / math.pi) / sp.erfcx(-x / math.sqrt(2)),
    "erf": _erf, "erfc": lambda x: -_erf(x), "erfi": lambda x: _erf(0.0) * np.exp(x * x),
    "erfinv": lambda p: 1 / _erf(sp.erfinv(p)), "erfcinv": lambda p: -1 / _erf(sp.erfcinv(p)),
    "erfcx": lambda x: 2 * x * sp.erfcx(x) - _erf(0.0), "dawsn": lambda x: 1 - 2 * x * sp.dawsn(x),
    "expit": _expit, "logit": lambda p: 1 / p + 1 / (1 - p), "log_expit": lambda x: sp.expit(-x),
    "gamma": lambda x: sp.gamma(x) * sp.psi(x), "rgamma": _rgamma, "psi": _trigamma,
    "gammaln": lambda x: sp.psi(x), "loggamma": lambda x: sp.psi(x),
    "exprel": lambda x: _exprel(1, x), "expm1": np.exp, "log1p": lambda x: 1 / (x + 1),
    "exp2": lambda x: math.log(2) * sp.exp2(x), "exp10": lambda x: math.log(10) * sp.exp10(x),
    "cbrt": lambda x: 1 / (3 * sp.cbrt(x) * sp.cbrt(x)), "cosm1": lambda x: -np.sin(x),
    "entr": lambda x: -(1 + np.log(x)),
    "i0": lambda x: sp.i1(x), "i1": lambda x: (sp.i0(x) + sp.iv(2, x)) / 2,
    "i0e": lambda x: sp.i1e(x) - np.sign(x) * sp.i0e(x),
    "i1e": _i1e,
    "j0": lambda x: -sp.j1(x), "j1": lambda x: (sp.j0(x) - sp.jv(2, x)) / 2,
    "y0": lambda x: -sp.y1(x), "y1": lambda x: (sp.y0(x) - sp.yv(2, x)) / 2,
    "k0": lambda x: -sp.k1(x), "k1": lambda x: -(sp.k0(x) + sp.kv(2, x)) / 2,
}  # fmt: skip
_OF_TWO: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any]]] = {
    "beta": (_beta, lambda a, b: _beta(b, a)), "betaln": (_betaln, lambda a, b: _betaln(b, a)),
    "xlogy": (lambda x, z: _where_not_0(x, np.log, z),
              lambda x, z: x * _where_not_0(x, np.reciprocal, z)),
    "xlog1py": (lambda x, z: _where_not_0(x, np.log1p, z),
                lambda x, z: x * _where_not_0(x, np.reciprocal, 1 + z)),
    "rel_entr": (lambda x, z: 1 + np.log(x / z), lambda x, z: -(x / z)),
    "kl_div": (lambda x, z: np.log(x / z), lambda x, z: (z - x) / z),
    "huber": (None, lambda limit, r: np.where(abs(r) <= limit, r, limit * np.sign(r))),
    "gammainc": (None, _gamma_density), "gammaincc": (None, lambda a, x: -_gamma_density(a, x)),
    "_zeta": (None, lambda s, q: -s * sp.zeta(1 + s, q)),
    "jv": (None, lambda v, x: sp.jv(v - 1.0, x) / 2 - sp.jv(v + 1, x) / 2),
    "yv": (None, lambda v, x: sp.yv(v - 1.0, x) / 2 - sp.yv(v + 1, x) / 2),
    "iv": (None, lambda v, x: sp.iv(v - 1.0, x) / 2 + sp.iv(v + 1, x) / 2),
    "kv": (None, lambda v, x: -sp.kv(v - 1.0, x) / 2 - sp.kv(v + 1, x) / 2),
}  # fmt: skip


def _first(name: str, of_first: Any) -> Callable[..., Any]:
    """Return the rule of the first of two arguments, or one that says that there is none."""

    def rule(g: Any, y: Any, a: Any, b: Any) -> Any:
        if of_first is None:
            raise LookupError(f"scipy.special.{name} has no gradient by its argument 0 here")
        return g * conj(of_first(a, b))

    return rule


def _special(ufunc: Any) -> Op | None:
    """Return the operation of one of SciPy's functions, if there are rules for it."""
    name = getattr(ufunc, "__name__", "")
    known: Any = getattr(sys.modules.get("scipy.special._ufuncs"), name, None)
    if known is not ufunc:
        return None
    if name in _OF_ONE:
        return Op(ufunc, lambda g, y, x: g * conj(_OF_ONE[name](x)))
    if name in _OF_TWO:
        first, second = _OF_TWO[name]
        return Op(ufunc, _first(name, first), lambda g, y, a, b: g * conj(second(a, b)))
    return None


LATER.append(_special)
