"""Gradients of both packages where functions are not smooth: NaN, infinities, ties and zeros."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from test_rule_tables import VARIANTS
from vjp_cases import SPECIFIED, Case

import tfopt
import tfopt_ref
from tfopt_ref.autodiff.tensor import TABLE
from tfopt_ref.autodiff.vjps.linear import Affine

#: The first words of the cases whose gradients are not alike, and rightly so.
NOT_ALIKE: dict[str, tuple[str, ...]] = {
    "NaN": (), "both zeros": (), "ties": (),
    # Infinity times 0 is in the gradient of the imaginary part.
    "infinite": ("moving 53",),
}  # fmt: skip
_ADJOINTS = {function.op for function in TABLE.values() if isinstance(function, Affine)}


def by_differences(case: Case) -> bool:
    """Whether the specification finds an adjoint by the differences that units make.

    In these is what is not finite of the other arguments, wherever a unit stands.
    """
    inputs = list(map(tfopt_ref.constant, case.args))
    with tfopt_ref.GradientTape() as tape:
        tape.watch(inputs)
        case.function(*inputs)
    return any(node.op in _ADJOINTS for node in tape._nodes)


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
    for case in SPECIFIED:
        if variant in ("NaN", "infinite") and by_differences(case):
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


# ---- functions that others make up, which the specification has no rules of

#: What leaves NaN out, and the same function of other elements.
WITHOUT_NAN: dict[Any, Any] = {
    np.nansum: np.sum, np.nanprod: np.prod, np.nanmean: np.mean, np.nanvar: np.var,
    np.nanstd: np.std, np.nanmax: np.max, np.nanmin: np.min, np.nanmedian: np.median,
    np.nancumsum: np.cumsum, np.nancumprod: np.cumprod,
}  # fmt: skip
#: Elements in any order, tied, of both signs, alone, infinite.
ELEMENTS = ([3.0, -1.0, 2.0, 5.0], [2.0, 2.0, 1.0, 2.0], [0.0, -0.0, 4.0], [0.0, 0.0], [7.0],
            [np.inf, 1.0, 2.0])  # fmt: skip


def slopes(function: Any, elements: Any, upstream: Any = None) -> np.ndarray:
    x = tfopt.constant(elements)
    with tfopt.GradientTape() as tape, np.errstate(all="ignore"):
        tape.watch(x)
        y = function(x)
    return np.asarray(tape.gradient(y, x, upstream))


@pytest.mark.parametrize("elements", ELEMENTS, ids=str)
@pytest.mark.parametrize("function", WITHOUT_NAN, ids=lambda function: function.__name__)
def test_nan_functions_equal_functions_of_the_other_elements(function: Any, elements: Any) -> None:
    """NaN has the gradient 0, wherever it stands."""
    random = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        shape = np.shape(WITHOUT_NAN[function](elements))
        upstream = np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)
        wanted = slopes(WITHOUT_NAN[function], elements, upstream)
    for _ in range(3):
        known = random.permutation(np.arange(len(elements) + 3) < len(elements))
        mixed = np.full(known.shape, np.nan)
        mixed[known] = elements
        seed = upstream
        if shape:  # of a scan
            seed = np.zeros(known.shape)
            seed[known] = upstream
        with np.errstate(all="ignore"):
            found = slopes(function, mixed, seed)
        np.testing.assert_allclose(found[known], wanted, 1e-13, 1e-14)
        assert not found[~known].any()


@pytest.mark.parametrize("function", [
    np.max, np.min, np.amax, np.amin, np.nanmax, np.nanmin, np.maximum.reduce, np.minimum.reduce,
], ids=lambda function: function.__name__)  # fmt: skip
def test_equal_extremes_share(function: Any) -> None:
    """But `initial` has no share, and leaves none if it is more extreme."""
    sign = 1 if function(np.array([1.0, 2.0])) == 2 else -1
    elements = sign * np.array([5.0, 1.0, 5.0, 5.0, 2.0])
    third = np.array([1, 0, 1, 1, 0]) / 3
    for options, wanted in (
        ({}, third), ({"initial": sign * 4.0}, third), ({"initial": sign * 5.0}, third),
        ({"initial": sign * 6.0}, 0 * third),
        ({"where": elements * sign < 5, "initial": sign * 0.0}, [0, 0, 0, 0, 1]),
    ):  # fmt: skip
        assert slopes(lambda x, kw=options: function(x, **kw), elements).tolist() == list(wanted)


@pytest.mark.parametrize("function", [
    np.linalg.norm, np.linalg.vector_norm, np.std, np.nanstd,
    lambda x: np.linalg.norm(x, 3), lambda x: np.linalg.vector_norm(x, ord=2),
])  # fmt: skip
def test_lengths_have_no_slope_at_0(function: Any) -> None:
    assert slopes(function, np.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("function", [np.median, lambda x: np.quantile(x, 0.5)])
def test_the_middle_of_nan_is_the_nan(function: Any) -> None:
    """Of ties, the shares add up to 1: what is added to all elements is added to the middle."""
    assert slopes(function, [1.0, np.nan, 2.0]).tolist() == [0, 1, 0]
    assert slopes(function, [2.0, 1.0, 2.0, 2.0]).sum() == 1


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


def test_no_sums_of_segments_have_no_gradient() -> None:
    assert slopes(lambda x: np.add.reduceat(x, np.zeros(0, int)), [1.0, 2.0]).tolist() == [0, 0]
