"""The slopes of SciPy's functions are those of their definitions, which mpmath differentiates."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tfopt
from tfopt.autodiff.vjps.special import SLOPES

mp = pytest.importorskip("mpmath")
scipy_special = pytest.importorskip("scipy.special")


def _ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _beta_log(a: Any, b: Any) -> Any:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


#: Places: all of the line, far from 0 and close to it; between 0 and 1; right of 0.
LINE = (-30.0, -3.5, -0.7, -1e-5, 1e-8, 0.3, 1.0, 2.5, 12.0)
UNIT, RIGHT = (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6), (1e-5, 0.3, 0.5, 1.0, 2.5, 12.0)
PLANE = ((0.3, 0.5), (1.0, 2.5), (2.5, 1.0), (12.0, 0.1))
#: The definition of each function, and the places at which it is differentiated.
DEFINITIONS: dict[str, tuple[Any, Any]] = {
    "expit": (lambda x: 1 / (1 + mp.exp(-x)), LINE),
    "logit": (lambda p: mp.log(p / (1 - p)), UNIT),
    "log_expit": (lambda x: -mp.log(1 + mp.exp(-x)), LINE),
    "erf": (mp.erf, LINE), "erfc": (mp.erfc, LINE), "erfi": (mp.erfi, LINE[1:]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), LINE[1:]),
    "dawsn": (lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x), LINE),
    "erfinv": (mp.erfinv, (-0.9, *UNIT)), "erfcinv": (lambda p: mp.erfinv(1 - p), (*UNIT, 1.5)),
    "ndtr": (_ndtr, LINE), "ndtri": (lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), UNIT),
    "log_ndtr": (lambda x: mp.log(_ndtr(x)), LINE),
    "gamma": (mp.gamma, (-3.5, -0.7, *RIGHT)), "rgamma": (mp.rgamma, (*LINE, 0.0, -2.0, -10.0)),
    "gammaln": (mp.loggamma, RIGHT), "loggamma": (mp.loggamma, RIGHT),
    "psi": (mp.digamma, (-3.5, -0.7, *RIGHT)), "_zeta": (mp.zeta, ((2.0, 0.5), (3.5, 2.5))),
    "beta": (lambda a, b: mp.exp(_beta_log(a, b)), PLANE), "betaln": (_beta_log, PLANE),
    "xlogy": (lambda x, y: x * mp.log(y), PLANE), "xlog1py": (lambda x, y: x * mp.log1p(y), PLANE),
    "entr": (lambda x: -x * mp.log(x), RIGHT),
    "rel_entr": (lambda x, y: x * mp.log(x / y), PLANE),
    "kl_div": (lambda x, y: x * mp.log(x / y) - x + y, PLANE),
    "log1p": (mp.log1p, (-0.7, -1e-5, *RIGHT)), "expm1": (mp.expm1, LINE),
    "exp2": (lambda x: mp.mpf(2) ** x, LINE), "exp10": (lambda x: mp.mpf(10) ** x, LINE),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), LINE), "cosm1": (mp.cos, LINE),
    "exprel": (lambda x: mp.quad(lambda t: mp.exp(t * x), [0, 1]),
               (*LINE, 0.0, 1e-300, -1e-12)),
    "i0": (lambda x: mp.besseli(0, x), LINE), "i1": (lambda x: mp.besseli(1, x), LINE),
    "i0e": (lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), LINE),
    "i1e": (lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), LINE),
    "j0": (mp.j0, LINE), "j1": (mp.j1, LINE),
    "y0": (lambda x: mp.bessely(0, x), RIGHT), "y1": (lambda x: mp.bessely(1, x), RIGHT),
    "k0": (lambda x: mp.besselk(0, x), RIGHT), "k1": (lambda x: mp.besselk(1, x), RIGHT),
    "jv": (mp.besselj, PLANE), "yv": (mp.bessely, PLANE),
    "iv": (mp.besseli, PLANE), "kv": (mp.besselk, PLANE),
    "gammainc": (lambda a, x: mp.gammainc(a, 0, x, regularized=True), PLANE),
    "gammaincc": (lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), PLANE),
    "huber": (lambda d, r: r * r / 2 if abs(r) <= d else d * (abs(r) - d / 2),
              (*PLANE, (1.0, -2.5))),
}  # fmt: skip


def test_no_function_is_without_a_definition() -> None:
    assert {*DEFINITIONS} == {*SLOPES}


def test_the_slope_of_the_gamma_distribution_at_0() -> None:
    """From the right, where alone there is one."""
    for function, sign in ((scipy_special.gammainc, 1), (scipy_special.gammaincc, -1)):
        assert slopes(function, (1.0, 0.0), 1) == (sign, -sign)


def slopes(function: Any, at: tuple[float, ...], place: int) -> tuple[float, float]:
    """Return the first and the second derivative by one of the arguments."""
    x = tfopt.constant(at[place])
    args = [x if k == place else value for k, value in enumerate(at)]
    with tfopt.GradientTape() as outer:
        outer.watch(x)
        with tfopt.GradientTape() as inner:
            inner.watch(x)
            y = function(*args)
        slope = inner.gradient(y, x)
    return float(slope), float(outer.gradient(slope, x, unconnected_gradients="zero"))


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_those_of_the_definition(name: str) -> None:
    definition, places = DEFINITIONS[name]
    function = getattr(importlib.import_module("scipy.special._ufuncs"), name)
    tried = 0
    for at in places:
        at = at if isinstance(at, tuple) else (at,)
        for place in range(len(at)):
            try:
                found = slopes(function, at, place)
            except LookupError:
                assert place == 0 and len(at) == 2  # by an order, or a parameter
                continue
            with mp.workdps(50):
                order = tuple(int(k == place) for k in range(len(at)))
                for times, value, near in zip((1, 2), found, (1e-12, 1e-8), strict=True):
                    wanted = mp.diff(definition, tuple(map(mp.mpf, at)), tuple(
                        times * k for k in order))  # fmt: skip
                    assert value == pytest.approx(float(mp.re(wanted)), near, 1e-14), (at, times)
            tried += 1
    assert tried >= len(places)
