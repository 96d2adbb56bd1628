"""The result of a call of a NumPy function: on arrays, on tensors, on tapes, in a trace."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tfopt
from tfopt.core import engine
from tfopt.core.nest import flatten
from tfopt.indexed_slices import IndexedSlices

__all__ = ["BY_FUNCTION", "TRIED", "agrees", "made"]

#: How often something was compared in this process, by its name; and of each function.
TRIED: Counter[str] = Counter()
BY_FUNCTION: Counter[tuple[str, str]] = Counter()

# ---- operands

VALUES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "apart": lambda random, n: random.permutation(n) * 0.37 - 0.31 * n / 2 + 0.113,
    "positive": lambda random, n: random.uniform(0.3, 0.9, n),
    "tiny": lambda random, n: random.choice([1, -1], n) * 10.0 ** -random.integers(5, 300, n),
    "ties": lambda random, n: random.integers(-1, 2, n) * 1.0,
    "zeros": lambda random, n: random.choice([0.0, -0.0], n),
    "special": lambda random, n: random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], n),
}


def made(dtype: str, shape: tuple[int, ...], layout: str, values: str, seed: int) -> np.ndarray:
    """Return an array of drawn numbers, which lies in memory as asked for."""
    random = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    n = int(np.prod(shape, dtype=int))
    with np.errstate(all="ignore"):
        flat = VALUES[values](random, n)
        if kind.kind == "c":
            flat = flat + 1j * VALUES[values](random, n)
        if kind.kind in "iub":
            flat = np.nan_to_num(flat, posinf=2, neginf=0) * (1 if values == "ties" else 3)
            flat = np.abs(flat) if kind.kind == "u" else flat
        array = flat.reshape(shape).astype(kind)
    if layout == "F":
        return np.asfortranarray(array) if array.ndim else array
    if layout == "strided" and array.ndim:
        return np.repeat(array, 2, -1)[..., ::2]
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "broadcast" and array.ndim and array.shape[0]:
        return np.broadcast_to(array[:1], array.shape)
    return array


# ---- outcomes


def outcome(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return what a call gives, or the exception that it raises."""
    try:
        return call(*args)
    except Exception as error:
        return error


def parts(value: Any) -> list[Any]:
    return [None if x is None else np.asarray(x) for x in flatten(value)]


def same(found: np.ndarray, wanted: np.ndarray, exact: bool) -> bool:
    if found.dtype.kind in "biuOSUM":
        return bool(np.array_equal(found, wanted))
    if exact and found.dtype.kind == "f":
        with np.errstate(all="ignore"):
            equal = (found == wanted) & (np.signbit(found) == np.signbit(wanted))
        return bool(np.all(equal | ((found != found) & (wanted != wanted))))
    wide = complex if found.dtype.kind == "c" else float
    eps = 1e-12 if found.dtype.itemsize >= 8 and found.dtype.char not in "F" else 1e-5
    eps = 2e-2 if found.dtype.itemsize == 2 else eps
    return bool(np.allclose(found.astype(wide), wanted.astype(wide), eps, eps, equal_nan=True))


def as_numpys(found: Any, wanted: Any, what: str, exact: bool = True) -> bool:
    """Assert that an outcome is NumPy's; return whether it is a value."""
    TRIED["raised" if isinstance(wanted, Exception) else "values"] += 1
    if isinstance(found, ValueError) and "Attempt to convert a value" in str(found):
        return False  # None, or objects, are no arrays, whatever NumPy makes of them
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted), f"{what}: NumPy raises {wanted!r}, tfopt " + (
            f"raises {found!r}" if isinstance(found, Exception) else f"returns {found!r}"
        )
        return False
    if isinstance(found, Exception) and any(
        x is not None and x.dtype.kind == "O" for x in parts(wanted)
    ):
        return False  # objects are no tensors
    if isinstance(found, Exception):
        raise AssertionError(f"{what}: tfopt raises {found!r}, NumPy does not") from found
    ours, numpys = parts(found), parts(wanted)
    if any(x is not None and x.dtype.kind == "O" for x in numpys):
        return False
    assert len(ours) == len(numpys), f"{what}: {len(ours)} results, not {len(numpys)}"
    for a, b in zip(ours, numpys, strict=True):
        if a is None or b is None:
            assert a is b, f"{what}: {a}, not {b}"
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype), (
            f"{what}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        )
        assert same(a, b, exact), f"{what}: {a}, not {b}"
    return True


# ---- gradients


def differentiable(x: Any) -> bool:
    return x.dtype.kind in "fc" or x.dtype.name == "bfloat16"


def dense(grad: Any) -> np.ndarray:
    return np.asarray(tfopt.indexed_slices.densify(grad))


def weights(like: Any, seed: int) -> np.ndarray:
    """Return numbers of an array's shape and dtype: upstream gradients, or a direction."""
    random = np.random.default_rng([seed, *like.shape])
    numbers = random.uniform(0.5, 1.5, like.shape)
    if like.dtype.kind == "c":
        numbers = numbers + 1j * random.uniform(0.5, 1.5, like.shape)
    return numbers.astype(like.dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """Return an array in a dtype of which differences say something."""
    return x.astype(complex if x.dtype.kind == "c" else float) if differentiable(x) else x


class Refused(Exception):
    """A gradient that tfopt says it does not have."""


def gradients(call: Callable[..., Any], tensors: list[Any]) -> list[Any]:
    """Return the gradients of a weighted sum of the results, by all differentiable tensors."""
    with tfopt.GradientTape() as tape:
        tape.watch([x for x in tensors if differentiable(x)])
        results = [y for y in flatten(call(*tensors)) if isinstance(y, tfopt.Tensor)]
    results = [y for y in results if differentiable(y)]
    if not results:
        return [np.zeros(x.shape, x.dtype) for x in tensors]
    seeds = [weights(y, 1) for y in results]
    try:
        return tape.gradient(results, tensors, seeds, "zero")
    except (LookupError, np.linalg.LinAlgError) as error:
        raise Refused(str(error)) from error


def total(call: Callable[..., Any], arrays: Sequence[Any]) -> float:
    """Return the weighted sum that `gradients` differentiates."""
    results = parts(call(*arrays))
    found = [y for y in results if y is not None and differentiable(y)]
    return float(sum(np.sum(np.conj(weights(y, 1)) * y).real for y in found))


def slope(at: Callable[[float], float], sided: bool = False) -> float | None:
    """Return a derivative at 0 by differences; None if it has none there, or they do not say.

    `sided` says that one side is enough, where there is nothing on the other one.
    """
    middle = at(0.0)
    if not np.isfinite(middle):
        return None
    found = []
    for h in (1e-4, 1e-5):
        up, down = at(h) - middle, at(-h) - middle
        if sided and np.isfinite(up) != np.isfinite(down):  # at the end of where it is defined
            h = h if np.isfinite(up) else -h
            near, far = at(h) - middle, at(2 * h) - middle
            found.append((4 * near - far) / (2 * h))
            continue
        if not np.isfinite([up, down]).all() or abs(up + down) > 1e2 * h * (abs(up) + h):
            return None
        found.append((up - down) / (2 * h))
    if not np.isfinite(found).all():
        return None
    near = abs(found[0] - found[1]) <= 1e-5 * (1 + abs(found[1]) + abs(middle))
    return found[1] if near else None


def moved(arrays: Sequence[Any], directions: Sequence[Any], h: float) -> list[Any]:
    pairs = zip(arrays, directions, strict=True)
    return [x if d is None else np.asarray(x + h * d) for x, d in pairs]


def along(grads: Sequence[Any], directions: Sequence[Any]) -> float:
    pairs = zip(grads, directions, strict=True)
    return float(sum(np.sum(np.conj(dense(g)) * d).real for g, d in pairs if d is not None))


def fits(grads: Sequence[Any], arrays: Sequence[Any], what: str) -> None:
    """Assert that gradients have the shape and the dtype of what they are gradients by."""
    for k, (g, x) in enumerate(zip(grads, arrays, strict=True)):
        TRIED["gradients"] += 1
        if isinstance(g, IndexedSlices):
            assert g.values.dtype == x.dtype, f"{what}: rows of {g.values.dtype}, not {x.dtype}"
        g = dense(g)
        assert (g.shape, g.dtype) == (x.shape, x.dtype), (
            f"{what}: the gradient by operand {k} is {g.dtype}{g.shape}, not {x.dtype}{x.shape}"
        )


def close(found: float, wanted: float | None, what: str, arrays: Sequence[Any]) -> None:
    if wanted is None:
        return
    TRIED["slopes"] += 1
    assert abs(found - wanted) <= 2e-4 * (1 + abs(wanted)), (
        f"{what}: slope {found}, by differences {wanted}, at {arrays}"
    )


def as_differences(call: Callable[..., Any], arrays: list[Any], what: str, order: int) -> None:
    """Assert that gradients are what differences say, where the function is smooth."""
    if isinstance(outcome(call, arrays), Exception):
        return  # of other dtypes it was asked for something else
    directions = [weights(x, 2 + k) if differentiable(x) else None for k, x in enumerate(arrays)]
    tensors = [engine.wrapped(x) for x in arrays]
    if order == 1:
        found = along(gradients(call, tensors), directions)
        sided = sum(d is not None for d in directions) == 1
        wanted = slope(lambda h: total(call, moved(arrays, directions, h)), sided)
        close(found, wanted, what, arrays)
        return
    others = [None if d is None else d[..., ::-1] if d.ndim else d for d in directions]

    def first(h: float) -> float:
        given = [engine.wrapped(x) for x in moved(arrays, directions, h)]
        return along(gradients(call, given), others)

    with tfopt.GradientTape() as tape:
        watched = [x for x in tensors if differentiable(x)]
        tape.watch(watched)
        grads = gradients(call, tensors)
        y: Any = sum(
            np.sum(np.real(np.conj(g) * d))
            for g, d in zip(grads, others, strict=True) if d is not None
        )  # fmt: skip
    if not isinstance(y, tfopt.Tensor):
        return
    try:
        second = tape.gradient(y, tensors, None, "zero")
    except (LookupError, np.linalg.LinAlgError) as error:
        raise Refused(str(error)) from error
    fits(second, arrays, f"{what}, second order")
    close(along(second, directions), slope(first), f"{what}, second order", arrays)


# ---- the law


def agrees(
    call: Callable[..., Any], arrays: list[np.ndarray], how: str, smooth: bool = True,
    refused: tuple[str, ...] = (), name: str = "",
) -> None:  # fmt: skip
    """Assert that a call does with tensors what it does with arrays, and has its gradient.

    Parameters
    ----------
    call : callable
        Of the operands.
    arrays : list of array
    how : str
        What is compared.
    smooth : bool
        Whether to compare with differences: where elements are equal they may say something else.
    refused : tuple of str
        Why there may be no gradient: words of the `LookupError`.
    name : str
        Of the function, to count what was compared.
    """
    what, before = getattr(call, "text", "the call"), TRIED.copy()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _agrees(call, arrays, how, smooth, refused, what)
    for kind in TRIED - before:
        BY_FUNCTION[name, kind] += 1
        BY_FUNCTION[name, f"{kind}, {how}"] += 1


def _agrees(
    call: Callable[..., Any], arrays: list[np.ndarray], how: str, smooth: bool,
    refused: tuple[str, ...], what: str,
) -> None:  # fmt: skip
    wanted = outcome(call, arrays)
    tensors = [engine.wrapped(x) for x in arrays]
    if how == "traced":
        found = outcome(tfopt.function(call), tensors)
        if isinstance(found, (NotImplementedError, TypeError, ValueError)) and "traced" in str(
            found
        ):
            TRIED["not traced"] += 1
            return
    else:
        found = outcome(call, tensors)
    if not as_numpys(found, wanted, what, exact=how != "traced"):
        return
    if not any(map(differentiable, arrays)):
        return
    try:
        grads = gradients(call, tensors)
        if how == "traced":
            again = outcome(tfopt.function(lambda *xs: gradients(call, list(xs))), tensors)
            pairs = zip(grads, again, strict=True) if not isinstance(again, Exception) else ()
            assert all(same(dense(a), dense(b), False) for a, b in pairs), f"{what}: traced"
        fits(grads, arrays, what)
        if smooth and all(np.isfinite(x).all() for x in arrays):
            as_differences(call, [wide(x) for x in arrays], what, 2 if how == "twice" else 1)
    except Refused as error:
        TRIED["refused"] += 1
        assert any(words in str(error) for words in refused), f"{what}: {error}"
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: the gradient raises {error!r}") from error
