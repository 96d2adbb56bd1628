"""Arguments for calls of any rule, generated from its row of the table."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tfopt.rules import DTYPES, ELEMENTWISE, RULES, Rule, checks_of

__all__ = [
    "DTYPES",
    "ELEMENTWISE",
    "LAYOUTS",
    "RULES",
    "EXACT",
    "TRIED",
    "WITH_ROWS",
    "arrays_for",
    "assert_same_bits",
    "edge_values",
    "hypers",
    "lay_out",
    "numbers",
    "ordinary_hypers",
    "stocked",
    "whole",
]

#: How many property cases this process has tried, by (rule, dtype, kind, layout); see conftest.py.
TRIED: Counter[tuple[str, str, str, str]] = Counter()

#: An ordinary value of each hyperparameter, by name; rules with a new one add it here.
ORDINARY = {
    "alpha": 0.1,
    "lr": 0.1,
    "momentum": 0.9,
    "rho": 0.9,
    "beta": 0.9,
    "sign_decay": 0.7,
    "logbase": 0.0,  # whose power is 1 exactly
    "global_step": 3,
    "beta2_power": 0.9801,
    "beta1_power": 0.81,
    "beta1": 0.9,
    "beta2": 0.99,
    "epsilon": 1e-3,
    "l1": 0.05,
    "l2": 0.02,
    "l2_shrinkage": 0.03,
    "lr_power": -0.5,
    "mu": 0.88,
    "mu_next": 0.885,
    "mu_product": 0.7,
    "mu_product_next": 0.62,
    "rectifier": 0.5,
    "limit": 1.5,
    "beta3": 0.999,
    "share": 0.125,
    "weight_decay": 0.25,
    "trust": 0.5,
}


#: The rules that have sparse updates: those that need no norm of a whole variable.
WITH_ROWS = tuple(rule for rule in RULES if rule.reduction != "tensor")

#: With these values no rule calls pow or exp, or the call is exact.
EXACT = ("lr_power", "logbase")


def ordinary_hypers(rule: Rule) -> dict[str, float]:
    return {name: ORDINARY[name] for name in rule.hypers}


def edge_values(dtype: Any) -> list[float]:
    """Zeros, infinities, NaN, and numbers next to 1 and to the denormal range."""
    info = np.finfo(dtype)
    positive = [
        0.0,
        info.smallest_subnormal,
        info.tiny / 2,
        info.tiny,
        info.tiny * (1 + info.eps),
        2 * info.tiny,
        math.sqrt(info.tiny),
        1 - info.epsneg,
        1.0,
        1 + info.eps,
        info.max,
        math.inf,
    ]
    return [float(x) for x in positive] + [-float(x) for x in positive] + [math.nan]


@cache
def _stock(dtype: np.dtype[Any]) -> np.ndarray:
    """Return edge values, numbers with random bits and small ones, equally many of each."""
    random = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        edges = np.resize(np.array(edge_values(dtype)).astype(dtype), _SO_MANY)
    any_bits = np.frombuffer(random.bytes(_SO_MANY * dtype.itemsize), dtype)
    small = random.uniform(-4, 4, _SO_MANY).astype(np.float16).astype(dtype)
    return np.concatenate([edges, any_bits, small])


_SO_MANY = 10_000
_PARTS = [(0, 3), (0, 1), (1, 2), (2, 3)]


@st.composite
def numbers(draw: Any, dtype: Any, shape: Any) -> np.ndarray:
    """Return an array of mixed numbers, of edge values, of random bits, or of small numbers.

    Hypothesis draws a seed and NumPy the elements, which take most of a test's time one by one.
    """
    part = draw(st.sampled_from(_PARTS))
    return stocked(np.random.default_rng(draw(st.integers(0, 2**32))), dtype, shape, part)


def stocked(random: Any, dtype: Any, shape: Any, part: tuple[int, int] | None = None) -> np.ndarray:
    """Return an array of mixed numbers, or of those of a part of the stock."""
    first, last = part or _PARTS[int(random.integers(len(_PARTS)))]
    places = random.integers(_SO_MANY * first, _SO_MANY * last, shape)
    return np.asarray(_stock(np.dtype(dtype))[places])


@st.composite
def hypers(draw: Any, rule: Rule, dtype: Any) -> dict[str, Any]:
    """Hyperparameters, flags and gradient scale; those that go through pow or exp stay exact."""
    usual = draw(st.booleans())
    info = np.finfo(dtype)
    odd = st.sampled_from(
        [0.0, 1.0, 2.0, -0.5, float(info.tiny), float(info.tiny) / 4, 1 - float(info.epsneg),
         math.inf, math.nan, 1e-3]
    )  # fmt: skip
    limits = checks_of(rule).limits
    chosen = {
        name: value if usual or name in EXACT or name in limits else draw(odd | st.just(value))
        for name, value in ordinary_hypers(rule).items()
    }
    flags = {name: draw(st.booleans()) for name in rule.flags}
    tiny = float(info.tiny)
    scale, keep = draw(
        st.sampled_from(
            [(1.0, 1.0), (0.5, 0.999), (-3.0, 1.0), (1e-3, -0.5), (tiny, 0.0), (0.0, tiny)]
        )
    )
    return {**chosen, **flags, "grad_scale": scale, "var_scale": keep}


# ---- layouts: an array with given values that lies in memory in some way

_PADDING = 7.0  # between the elements of strided arrays, and never to be touched


def _strided(values: np.ndarray) -> np.ndarray:
    base = np.full([2 * n + 1 for n in values.shape], _PADDING, values.dtype)
    return base[(*(slice(0, 2 * n, 2) for n in values.shape), ...)]


def _reversed(values: np.ndarray) -> np.ndarray:
    return np.empty_like(values, order="C")[(*(slice(None, None, -1) for _ in values.shape), ...)]


def _transposed(values: np.ndarray) -> np.ndarray:
    return np.empty(values.shape[::-1], values.dtype).T


def _columns(values: np.ndarray) -> np.ndarray:
    """Contiguous rows with gaps between them."""
    if values.ndim == 0:
        return np.empty_like(values)
    *outer, n = values.shape
    return np.full([*outer, n + 3], _PADDING, values.dtype)[..., 1 : n + 1]


def _shifted(values: np.ndarray) -> np.ndarray:
    """Aligned to the item size only."""
    flat = np.full(values.size + 1, _PADDING, values.dtype)
    return flat[1:].reshape(values.shape)


LAYOUTS = {
    "contiguous": lambda values: np.empty_like(values, order="C"),
    "fortran": lambda values: np.empty_like(values, order="F"),
    "strided": _strided,
    "reversed": _reversed,
    "transposed": _transposed,
    "columns": _columns,
    "shifted": _shifted,
}


def lay_out(values: np.ndarray, layout: str) -> np.ndarray:
    array = LAYOUTS[layout](values)
    array[...] = values
    return array


def whole(array: np.ndarray) -> np.ndarray:
    """Return the base of a view, including padding."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def arrays_for(rule: Rule, shape: Any, dtype: Any, seed: int = 0) -> list[np.ndarray]:
    """Return ordinary values for the variable, its slots and the gradient, slots positive."""
    shape = (shape,) if isinstance(shape, int) else shape
    random = np.random.default_rng(seed)
    values = [
        np.asarray(random.standard_normal(rule.shape_of(name, shape))).astype(dtype)
        for name in rule.operands
    ]
    for slot in values[1:-1]:
        np.abs(slot, out=slot)
    return values


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two float arrays agree bit for bit, or both are NaN."""
    bits = f"u{a.itemsize}"
    with np.errstate(invalid="ignore"):
        return (np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | (
            np.isnan(a) & np.isnan(b)
        ).reshape(np.ascontiguousarray(a).shape)


def assert_same_bits(a: np.ndarray, b: np.ndarray, what: str) -> None:
    same = same_bits(a, b)
    if not same.all():
        where = tuple(int(i) for i in np.argwhere(~same)[0])
        left, right = np.ascontiguousarray(a)[where], np.ascontiguousarray(b)[where]
        raise AssertionError(
            f"{what} differs at {where}: tfopt {left!r} ({float(left).hex()}), "
            f"tfopt_ref {right!r} ({float(right).hex()})"
        )
