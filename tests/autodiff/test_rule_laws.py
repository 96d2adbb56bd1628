"""Laws of all rules: linear in the upstream gradient, conjugate for complex numbers, of the
source's dtype."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from vjp_cases import CASES, Case, in_both

#: cholesky's case makes its argument symmetric, not Hermitian; SciPy has no trigamma function of
#: complex numbers.
NOT_COMPLEX = {"cholesky", "scipy psi"}


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def drawn(like: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return numbers of the shape and the dtype of an array."""
    made = random.uniform(0.5, 1.5, like.shape)
    if like.dtype.kind == "c":
        made = made + 1j * random.uniform(0.5, 1.5, like.shape)
    return made.astype(like.dtype)


def total(grads: list[Any]) -> Any:
    return sum(np.sum(g.values if hasattr(g, "indices") else g) for g in grads)


def pullback(package: ModuleType, case: Case, args: list[Any], upstreams: list[Any]) -> list[Any]:
    """Return the gradients of a case's arguments for upstream gradients of its results."""
    with package.GradientTape() as tape:
        tape.watch(args)
        made = parts(case.function(*args))
    return tape.gradient(made, args, upstreams, "zero")


def results(case: Case, args: list[np.ndarray]) -> list[np.ndarray] | None:
    """Return NumPy's results; None if it has none for such arguments, or not finite ones."""
    try:
        with np.errstate(all="ignore"):
            made = [np.asarray(y) for y in parts(case.function(*args))]
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return None
    return made if all(np.isfinite(y).all() for y in made) else None


def made_complex(case: Case) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [a + 1j * random.uniform(-0.8, 0.8, a.shape) for a in case.args]


OF_COMPLEX = [
    case for case in CASES
    if case.name not in NOT_COMPLEX and results(case, made_complex(case)) is not None
]  # fmt: skip


@in_both(CASES)
def test_linear_in_the_upstream_gradient(impl: ModuleType, case: Case) -> None:
    """Also where that is 0, as it is at a minimum: second orders live on it there."""
    args = list(map(impl.constant, case.args))
    random = np.random.default_rng(0)
    made = results(case, list(case.args))
    assert made is not None
    given, found = [drawn(y, random) for y in made], []
    for scale in (0.0, 1.0):
        upstreams = [impl.constant(scale * g) for g in given]
        with impl.GradientTape() as tape:
            tape.watch(upstreams)
            y = total(pullback(impl, case, args, upstreams))
        found.append(tape.gradient(y, upstreams, None, "zero"))
    for at_zero, elsewhere in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(at_zero), np.asarray(elsewhere), 1e-12, 1e-12)


@in_both(OF_COMPLEX)
def test_complex_gradients_equal_finite_differences(impl: ModuleType, case: Case) -> None:
    """Along one direction: the real part of the conjugate gradient times it."""
    random, args = np.random.default_rng(6), made_complex(case)
    made = results(case, args)
    assert made is not None
    upstreams, directions = ([drawn(x, random) for x in each] for each in (made, args))
    step = 1e-6
    ends = [results(case, [a + s * step * d for a, d in zip(args, directions, strict=True)])
            for s in (1, -1)]  # fmt: skip
    slopes = [(a - b) / (2 * step) for a, b in zip(*ends, strict=True)]
    wanted = sum(np.sum(np.conj(g) * s).real for g, s in zip(upstreams, slopes, strict=True))
    with np.errstate(all="ignore"):
        grads = pullback(impl, case, list(map(impl.constant, args)), upstreams)
    pairs = zip(map(np.asarray, grads), directions, strict=True)
    found = sum(np.sum(np.conj(g) * d).real for g, d in pairs)
    np.testing.assert_allclose(found, wanted, 1e-6, 1e-6)


OF_SEVERAL = [case for case in CASES if len(case.args) > 1]


@in_both(OF_SEVERAL)
def test_gradients_of_real_sources_are_real(impl: ModuleType, case: Case) -> None:
    """Whatever they were computed with, of the first order and of the second."""
    for place in range(len(case.args)):
        args = [a + 0.5j * a if k == place else a for k, a in enumerate(case.args)]
        made = results(case, args)
        if made is None:
            continue
        tensors = list(map(impl.constant, args))
        random = np.random.default_rng(3)
        with impl.GradientTape() as tape, np.errstate(all="ignore"):
            tape.watch(tensors)
            first = pullback(impl, case, tensors, [drawn(y, random) for y in made])
            y = total(first)
        second = tape.gradient(y, tensors, None, "zero")
        assert [g.dtype for g in (*first, *second)] == [a.dtype for a in (*args, *args)]
