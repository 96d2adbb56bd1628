"""A function that is traced is the one that is not: every rule, every dtype, special values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from vjp_cases import CASES, Case

import tfopt
from tfopt.autodiff.tracing import liveness
from tfopt.core.nest import flatten

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e300, 5e-324]

#: Of what asks for values, or sizes that values decide, which a traced function has not.
REFUSED = "refused"

#: Whose gradients outside of the function may need other sizes than when they were traced: the
#: number of elements for which each condition holds.
SIZED_BY_VALUES = {"piecewise", "piecewise, numbers", "piecewise, nowhere"}

#: Decompositions, which LAPACK may never finish for infinities.
ENDLESS = ("svd", "pinv", "eig", "lstsq", "cond", "norm", "rank", "qr", "inv", "solve", "det")


@pytest.fixture
def no_array_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the generated programs write over and drop arrays of any size."""
    monkeypatch.setattr(liveness, "_LARGE", 0)


def with_special_values(array: np.ndarray, first: int) -> np.ndarray:
    made = array.copy().reshape(-1)
    for k in range(0, made.size, 3):
        with np.errstate(over="ignore"):
            made[k] = np.asarray(SPECIAL[(first + k // 3) % len(SPECIAL)]).astype(made.dtype)
    return made.reshape(array.shape)


def results(f: Any, args: list[Any]) -> list[Any]:
    """Return arrays; or the name of the exception."""
    try:
        return [None if part is None else np.asarray(part) for part in flatten(f(*args))]
    except (AttributeError, NotImplementedError) as error:
        assert "being traced" in str(error)
        return [REFUSED]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        refused = "being traced" in str(error) or "the gradient was traced" in str(error)
        return [REFUSED if refused else type(error).__name__]


def assert_alike(found: list[Any], expected: list[Any], what: str, exact: bool) -> None:
    """Say that results are those without a trace, or refused since sizes are others."""
    if len(found) == 1 and found[0] is REFUSED:
        assert what.partition(", float")[0].partition(", complex")[0] in SIZED_BY_VALUES
        return
    assert len(found) == len(expected), (what, found, expected)
    for ours, theirs in zip(found, expected, strict=True):
        if not isinstance(theirs, np.ndarray):
            assert type(ours) is type(theirs) and ours == theirs, (what, ours, theirs)
            continue
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, what
        if exact:
            np.testing.assert_array_equal(ours, theirs, what)
            for part in ("real", "imag") if ours.dtype.kind == "c" else ("real",):
                one, other = getattr(ours, part), getattr(theirs, part)
                if one.dtype.kind == "f":
                    zeros = one == 0
                    assert (np.signbit(one[zeros]) == np.signbit(other[zeros])).all(), what
        else:
            limit = 200 * np.finfo(ours.dtype).eps if ours.dtype.kind in "fc" else 0
            np.testing.assert_allclose(ours, theirs, limit, limit, err_msg=what)


def check(case: Case, dtype: str) -> None:
    arrays = [array.astype(dtype) for array in case.args]
    if dtype.startswith("complex"):
        arrays = [array + 0.5j * np.flip(array).astype(dtype) for array in arrays]

    def gradients(*inputs: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(list(inputs))
            y = case.function(*inputs)
        grads = tape.gradient(y, list(inputs), None, "zero")
        return [y, *(tfopt.indexed_slices.densify(g) for g in grads)]

    def from_outside(*inputs: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(list(inputs))
            y = traced(*inputs)
        return [y, *tape.gradient(y, list(inputs), None, "zero")]

    traced, whole = tfopt.function(lambda *x: case.function(*x)), tfopt.function(gradients)
    # what einsum multiplies first decides whether infinity times 0 is in it
    many = case.name.startswith("einsum") and len(case.args) > 2
    many = many or any(word in case.name for word in ENDLESS)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results(traced, [tfopt.constant(np.flip(array).copy()) for array in arrays])
        results(whole, [tfopt.constant(np.flip(array).copy()) for array in arrays])
        special = 4 if dtype == "float32" else 0  # other places of other dtypes
        for first in (None,) if many else (None, special):
            given = [
                tfopt.constant(a if first is None else with_special_values(a, first + 2 * k))
                for k, a in enumerate(arrays)
            ]
            expected = results(gradients, given)
            what = f"{case.name}, {dtype}, special values from {first}"
            inside = results(whole, given)
            assert inside[0] is not REFUSED
            assert_alike(inside, expected, what, False)
            assert_alike(results(from_outside, given), expected, what, False)
            value = results(case.function, given)
            assert_alike(results(traced, given), value, what, True)
            if not isinstance(expected[0], str):
                assert_alike(results(traced, [x.numpy() for x in given]), value, what, True)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.usefixtures("no_array_is_small")
def test_every_rule(case: Case) -> None:
    for dtype in ("float64", "float32", "complex128")[: 3 if CASES.index(case) % 2 else 2]:
        check(case, dtype)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.usefixtures("no_array_is_small")
def test_second_gradients(case: Case) -> None:
    """Of every rule, inside of a traced function."""

    def second(*inputs: Any) -> Any:
        xs = list(inputs)
        with tfopt.GradientTape() as outer:
            outer.watch(xs)
            with tfopt.GradientTape() as tape:
                tape.watch(xs)
                y = case.function(*xs)
            first = tape.gradient(y, xs, None, "zero")
            total = sum(np.sum(tfopt.indexed_slices.densify(g) ** 2) for g in first)
        return [tfopt.indexed_slices.densify(g) for g in outer.gradient(total, xs, None, "zero")]

    traced = tfopt.function(second)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results(traced, [tfopt.constant(np.flip(array).copy()) for array in case.args])
        found = results(traced, [tfopt.constant(array) for array in case.args])
        expected = results(second, [tfopt.constant(array) for array in case.args])
    assert found[0] is not REFUSED
    assert_alike(found, expected, case.name, False)
