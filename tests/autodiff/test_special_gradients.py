"""Gradients of both packages where functions are not smooth: NaN, infinities, ties and zeros."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from test_rule_tables import DECOMPOSED, VARIANTS
from vjp_cases import CASES, Case

import tfopt
import tfopt_ref

#: The first words of the cases whose gradients are not alike, and rightly so.
NOT_ALIKE: dict[str, tuple[str, ...]] = {
    "NaN": (
        # The twin finds what a unit adds to the result by the difference of two results, in which
        # the other arguments' NaN is.
        "cross", "linalg.cross", "further moving 24", "linspace", "trapezoid, ",
        # The twin multiplies by masks.
        "einsum ii", "further moving 22",
        # Here its slope is composed of those on both sides of an element, which NaN is in.
        "gradient",
    ),
    "infinite": (
        "cross", "linalg.cross", "linspace", "trapezoid, ", "convolve", "correlate", "einsum ii",
        "gradient",
        # The mean has a share in the variance: that is 0 for finite numbers, and left out by the
        # twin.
        "var, ", "nanvar, ",
        # Infinity times 0 is in products of all elements but one, however they are found.
        "cumprod, ", "nancumprod", "multiply.accumulate", "moving 53",
        # Here it is composed of two steps, and the first one's gradient is NaN.
        "logaddexp.reduce, initial",
    ),
    "both zeros": (),
    "ties": (),
}  # fmt: skip


def gradients(package: ModuleType, case: Case, args: list[np.ndarray]) -> list[Any]:
    """Return the arguments' gradients; or the type of the exception."""
    inputs = [package.constant(x) for x in args]
    try:
        with package.GradientTape() as tape:
            tape.watch(inputs)
            made = case.function(*inputs)
        ys = list(made) if isinstance(made, (list, tuple)) else [made]
        places = [np.arange(y.size).reshape(y.shape) for y in ys]
        seeds = [(1 + np.cos(k) / 2).astype(y.dtype) for k, y in zip(places, ys, strict=True)]
        return [np.asarray(g) for g in tape.gradient(ys, inputs, seeds, "zero")]
    except Exception as error:
        return [type(error).__name__]


def alike(found: list[Any], wanted: list[Any]) -> bool:
    if isinstance(found[0], str) or isinstance(wanted[0], str):
        return repr(found) == repr(wanted)
    pairs = zip(found, wanted, strict=True)
    return all(
        a.shape == b.shape and np.allclose(a, b, 1e-10, 1e-12, equal_nan=True) for a, b in pairs
    )


@pytest.mark.parametrize("variant", NOT_ALIKE)
def test_gradients_are_alike(variant: str) -> None:
    """Equal, or NaN in both; each exception is one, lest it hide another difference."""
    different = []
    for case in CASES:
        if variant in ("NaN", "infinite") and any(word in case.name for word in DECOMPOSED):
            continue
        args = VARIANTS[variant](case.args)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found, wanted = (gradients(package, case, args) for package in (tfopt, tfopt_ref))
        if not alike(found, wanted):
            different.append(case.name)
    known = NOT_ALIKE[variant]
    assert [name for name in different if not name.startswith(known or "-")] == []
    assert [start for start in known if not any(n.startswith(start) for n in different)] == []


# ---- SciPy's functions, where formulas cancel or divide 0 by 0


#: The derivatives of the first and of the second order, by 60 digits of mpmath.
SLOPES = {
    ("exprel", ()): {0.0: (1 / 2, 1 / 3), 1e-300: (1 / 2, 1 / 3), 1e-16: (1 / 2, 1 / 3),
                     -1e-12: (0.49999999999966666, 0.33333333333308333),
                     1.0: (1.0, 0.7182818284590452), -50.0: (4e-4, 1.6e-5)},
    ("rgamma", ()): {0.0: (1.0, 1.1544313298030657), -1.0: (-1.0, 0.8455686701969343),
                     -2.0: (2.0, -3.6911373403938685), -10.0: (3628800.0, -17068079.590410635)},
    ("psi", ()): {-0.5: (8.934802200544679, -0.8287966442343199),
                  0.25: (17.197329154507111, -129.32773993753692)},
    ("gammainc", (1.0,)): {0.0: (1.0, -1.0)},
    ("gammaincc", (1.0,)): {0.0: (-1.0, 1.0)},
    ("i1", ()): {1e-8: (1 / 2, 3.75e-9)}, ("j1", ()): {1e-8: (1 / 2, -3.75e-9)},
}  # fmt: skip


@pytest.mark.parametrize(("name", "first"), SLOPES)
def test_slopes_of_special_functions(impl: ModuleType, name: str, first: tuple[float, ...]) -> None:
    function = getattr(pytest.importorskip("scipy.special"), name)
    for at, wanted in SLOPES[name, first].items():
        x = impl.constant(at)
        with impl.GradientTape() as outer:
            outer.watch(x)
            with impl.GradientTape() as inner:
                inner.watch(x)
                y = function(*first, x)
            slope = inner.gradient(y, x)
        assert np.isclose(float(slope), wanted[0], 1e-12), (at, float(slope))
        assert np.isclose(float(outer.gradient(slope, x)), wanted[1], 1e-9), at


@pytest.mark.parametrize("function", [np.power, np.float_power, lambda a, b: a**b])
def test_complex_exponents_of_any_base(impl: ModuleType, function: Any) -> None:
    """On the principal branch; a base of 0 has no logarithm, and 0 is what it has."""
    base, exponent = np.array([-2.0, 3.0, 0.0]), np.array([0.3 + 0.2j, 1 - 1j, 2 + 0j])
    b = impl.constant(exponent)
    with impl.GradientTape() as tape:
        tape.watch(b)
        y = function(base, b)
    wanted = np.conj((base + 0j) ** exponent * np.log(np.array([-2, 3, 1]) + 0j))
    np.testing.assert_allclose(np.asarray(tape.gradient(y, b)), wanted, 1e-13, 1e-13)
