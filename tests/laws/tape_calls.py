"""Calls of all functions that accept tensors, drawn from the package's tables.

A call is text, of `x`, which is differentiated, and of values from outside. NumPy decides which
calls there are: those that it carries out on arrays.
"""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy import special

import tfopt
from laws.numpy_calls import SCIPYS
from tfopt.autodiff import ops
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.vjps.without_gradients import PLAIN_FUNCTIONS, TYPE_FUNCTIONS, WRITERS
from tfopt.core.nest import flatten

__all__ = ["OUTSIDE", "SHAPES", "calls", "functions", "groups", "names_in", "outside", "start"]

#: The shapes of x.
SHAPES = {"matrix": (3, 3), "vector": (4,), "wide": (2, 4), "scalar": ()}
#: What comes from outside: numbers of the shape of x, a mask, places along the first axis, one
#: number, numbers along the last axis, and a list of places.
OUTSIDE = ("w", "m", "i", "s", "v", "l")
_SKIPPED = {*PLAIN_FUNCTIONS, *TYPE_FUNCTIONS, *WRITERS, np.empty_like, np.shape, np.ndim, np.size}
_POSITIONAL = (
    "x", "x, w", "w, x", "x, i", "x, m", "m, x", "[x, w]", "[w, x]", "m, x, w", "m, w, x",
    "x, w, w", "w, w, x", "x, v", "v, x", "[m], [x], w", "[m], [w], x", "m, [x, w]", "x, s",
    "s, x", "x, w, s", "x, l", "x, 1", "x, 2", "1, x", "x, (1, -1)", "x, i, 0", "x, x.shape",
    "x, x", "[x, w, x]", "x, [m], [w]", "x, [m], [np.negative], s", "'i,i', x, w", "'ij,ij', x, w",
    "'ij->j', x", "w, x, v", "x, v, w", "2, x, w", "x, w, 1",
    "(x, True), w",
)  # fmt: skip
_KEYWORDS = ("w", "m", "i", "s", "v", "l", "0", "(0,)", "True", "'wrap'")
#: What NumPy rounds to an integer.
_WHOLE = {"axis", "axes", "n", "k", "offset", "axis1", "axis2", "shift", "edge_order", "decimals"}
_OPERATIONS = (
    "x + w", "w - x", "x * w", "s * x", "x / w", "w ** x", "x ** w", "x @ w", "w @ x", "w % x",
    "x[i]", "x[m]", "x[l]", "x[i, ...]", "x[..., i]", "x[m[0]]", "x > w", "w // x", "-x", "abs(x)",
    "x[0]", "x[::-1]", "x[1:, None]", "x.T", "x[..., ::2]",
)  # fmt: skip


def start(shape: str, seed: int) -> np.ndarray:
    """Return numbers in (0.2, 0.9), where most functions are smooth."""
    return np.random.default_rng([seed, 1]).uniform(0.2, 0.9, SHAPES[shape])


def outside(shape: str, seed: int) -> dict[str, Any]:
    """Return values from outside."""
    random, of = np.random.default_rng([seed, 2]), SHAPES[shape]
    n, last = (2, of[-1]) if of else (1, 1)
    return {
        "w": random.uniform(0.2, 0.9, of),
        "m": np.array(np.arange(int(np.prod(of))).reshape(of) % 3 != 1),
        "i": random.integers(0, n, 2),
        "s": np.array(random.uniform(0.2, 0.9)),
        "v": random.uniform(0.2, 0.9, last),
        "l": random.integers(0, n, 2).tolist(),
    }


@cache
def functions() -> dict[str, Any]:
    """Return the functions of the tables by their public names."""
    for ufunc in vars(special).values():
        if isinstance(ufunc, np.ufunc):
            for find in ops.LATER:
                find(ufunc)
    known = {f for f in (*ops.UFUNCS, *ops.FUNCTIONS) if f not in _SKIPPED}
    spaces = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft, "special": special}
    found: dict[Any, str] = {}
    for space, module in spaces.items():
        for name in sorted(vars(module)):
            f = vars(module)[name]
            if not name.startswith("_") and callable(f) and f in known:
                found.setdefault(f, f"{space}.{name}")
    named = {name: f for f, name in found.items()}
    for ufunc in (*ops.REDUCTIONS, *ops.ACCUMULATIONS):
        for method in ("reduce", "accumulate", "outer"):
            named[f"np.{ufunc.__name__}.{method}"] = getattr(ufunc, method)
    named |= {f"np.{ufunc.__name__}.reduceat": ufunc.reduceat for ufunc in ops.SEGMENTS}
    named |= SCIPYS | {f"x.{name}": None for name in ops.METHODS if not name.startswith("_")}
    return dict(sorted(named.items()))


def _keywords(name: str, function: Any, args: str) -> Iterator[str]:
    """Return what calls with a keyword there might be."""
    try:
        parameters = [*inspect.signature(function).parameters] if function else ["axis", "where"]
    except (TypeError, ValueError):
        parameters = []
    for keyword, value in itertools.product(parameters, _KEYWORDS):
        # without a mask's other elements, results are not initialised
        masked = keyword == "where" and isinstance(function, np.ufunc)
        fraction = value == "s" and keyword in _WHOLE
        if keyword not in ("out", "like") and not masked and not fraction:
            yield f"{name}({args}, {keyword}={value})"


def value_of(text: str, x: Any, others: dict[str, Any]) -> Any:
    """Return what a call gives."""
    scope = {"np": np, "special": special, "tfopt": tfopt, **others, "x": x}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, scope)


@cache
def calls(name: str, shape: str) -> tuple[str, ...]:
    """Return the calls of a function that NumPy carries out on an x of a shape."""
    if name == "operators":
        return tuple(filter(_carried_out(shape), _OPERATIONS))
    of_x, function = name.startswith("x."), functions()[name]
    listed = ("", *_POSITIONAL) if of_x else _POSITIONAL
    if isinstance(function, np.ufunc):  # others would be written
        listed = [args for args in listed if _count(args) == function.nin]
    given = [args for args in listed if _carried_out(shape)(f"{name}({args})")]
    found = [f"{name}({args})" for args in given]
    for args in given[:1]:
        found += filter(_carried_out(shape), _keywords(name, function, args))
    return tuple(found)


def _count(args: str) -> int:
    """Return how many arguments there are in a text."""
    call = ast.parse(f"f({args})", mode="eval").body
    assert isinstance(call, ast.Call)
    return len(call.args)


@cache
def _carried_out(shape: str) -> Callable[[str], bool]:
    x, others, before = start(shape, 0), outside(shape, 0), outside(shape, 0)

    def carried_out(text: str) -> bool:
        given = x.copy()
        try:
            made = flatten(value_of(text, given, others))
        except Exception:
            return False
        written = [k for k in names_in(text) if np.any(others[k] != before[k])]
        if written:  # by an `out`
            others.update(copy.deepcopy({name: before[name] for name in written}))
        if written or not np.array_equal(given, x):
            return False
        arrays = [y for y in made if isinstance(y, np.ndarray | np.generic)]
        return bool(arrays) and 0 < max(y.size for y in arrays) < 5000

    return carried_out


def names_in(text: str) -> list[str]:
    """Return which values from outside a call has."""
    code = compile(text, "<call>", "eval")
    return [name for name in code.co_names if name in OUTSIDE]


def groups(count: int) -> dict[str, list[str]]:
    """Return the functions' names in groups, by the first and the last of each."""
    names = ["operators", *functions()]
    parts = [names[k::count] for k in range(count)]
    return {f"{k}: {part[0]} to {part[-1]}": part for k, part in enumerate(parts)}


def number(y: Any) -> Any:
    """Return one number that depends on all floating results of a call."""
    total = 0.0
    for part in flatten(y):
        if getattr(part, "dtype", None) is not None and part.dtype.kind in "fc" and part.size:
            total = total + np.mean(np.real(part))
    return total


@cache
def is_right(text: str, shape: str) -> bool:
    """Whether a call is smooth, and its gradient, by a rule, is what differences say.

    That all of them are is not the law of tapes, but of rules.
    """
    before = tfopt.autodiff.set_conversion("error")
    others = outside(shape, 0)
    try:  # a trace refuses to take a tensor for a number
        traced = tfopt.function(lambda x: number(value_of(text, x, others)))
        traced.get_concrete_function(tfopt.constant(start(shape, 0)))
        return all(_is_right_at(text, shape, seed) for seed in range(4))
    except Exception:
        return False
    finally:
        tfopt.autodiff.set_conversion(before)


def _is_right_at(text: str, shape: str, seed: int) -> bool:
    others = outside(shape, seed)
    x = tfopt.constant(start(shape, seed) - 0.05 * (seed % 3))
    direction = np.random.default_rng(5).uniform(0.5, 1.0, x.shape)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = as_tensor(number(value_of(text, x, others)))
    found = float(np.sum(tape.gradient(y, x, None, "zero") * direction))
    slopes = []
    for step in (1e-5, 3e-5):
        ends = [x.numpy() + s * direction for s in (step, -step)]
        above, below = (float(number(value_of(text, end, others))) for end in ends)
        slopes.append((above - below) / (2 * step))
    return abs(found) < 1e3 and all(abs(each - found) <= 1e-5 * (1 + abs(found)) for each in slopes)


def right_calls(name: str, shape: str) -> list[str]:
    """Return the calls of a function whose gradients are right."""
    return [text for text in calls(name, shape) if is_right(text, shape)]
