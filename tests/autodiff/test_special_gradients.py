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
