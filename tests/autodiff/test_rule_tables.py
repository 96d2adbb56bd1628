"""The tables: each function in them is called by a case, with NumPy's values and keywords."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from common.cases import TRIED, same_bits
from vjp_cases import CASES, STEPS, Case

import tfopt
import tfopt_ref
from tfopt.autodiff import ops
from tfopt.autodiff.vjps.without_gradients import PLAIN_FUNCTIONS, TYPE_FUNCTIONS, WRITERS
from tfopt.core import engine
from tfopt_ref.autodiff.tensor import TABLE

#: What gives no tensor, or writes: the twin has no entries for it.
QUERIES = {
    np.shape, np.ndim, np.size, *PLAIN_FUNCTIONS, *TYPE_FUNCTIONS, *WRITERS,
} - {np.array_equal, np.allclose}  # fmt: skip


def named(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"{owner.__name__}.{function.__name__}"
    return f"{getattr(function, '__module__', None)}.{function.__name__}"


def of_numpy(function: Any) -> bool:
    """Whether it is NumPy's, and not a part of another rule, nor SciPy's, found while tests run."""
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return True
    if isinstance(function, np.ufunc):
        return getattr(np, function.__name__, None) is function or function is np.divmod
    return str(getattr(function, "__module__", "")).startswith("numpy")


def entries(package: ModuleType) -> set[str]:
    if package is tfopt_ref:
        return {named(f) for f in TABLE if callable(f) and of_numpy(f)}
    reduced = [f.reduce for f in ops.REDUCTIONS] + [f.accumulate for f in ops.ACCUMULATIONS]
    reduced += [f.reduceat for f in ops.SEGMENTS]
    return {
        named(f) for f in (*ops.UFUNCS, *ops.FUNCTIONS, *reduced)
        if f not in QUERIES and of_numpy(f)
    }  # fmt: skip


def test_the_specification_has_rules_of_these_functions() -> None:
    assert len(entries(tfopt_ref)) > 150 and entries(tfopt_ref) < entries(tfopt)


# ---- every entry is called by a case


@contextlib.contextmanager
def watched(seen: set[str]) -> Iterator[None]:
    """Note which of NumPy's functions a case itself applies to the twin's tensors."""
    operand = tfopt_ref.Tensor.__mro__[1]
    before = operand.__array_ufunc__, operand.__array_function__
    depth = [0]

    def noted(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if not depth[0]:
            seen.add(name)
        depth[0] += 1
        try:
            return call(*args, **kwargs)
        finally:
            depth[0] -= 1

    def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = named(ufunc if method == "__call__" else getattr(ufunc, method))
        return noted(name, before[0], self, ufunc, method, *inputs, **kwargs)

    def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return noted(named(function), before[1], self, function, types, args, kwargs)

    operand.__array_ufunc__, operand.__array_function__ = array_ufunc, array_function
    try:
        yield
    finally:
        operand.__array_ufunc__, operand.__array_function__ = before


def test_every_function_of_the_tables_is_called_by_a_case() -> None:
    seen: set[str] = set()
    with watched(seen):
        for case in (*CASES, *STEPS):
            case.function(*map(tfopt_ref.constant, case.args))
    assert entries(tfopt) - seen == set()


# ---- values


def parts(value: Any) -> list[np.ndarray]:
    listed = value if isinstance(value, (list, tuple)) else [value]
    return [np.asarray(part) for part in listed]


def with_some(args: Any, values: list[float]) -> list[np.ndarray]:
    """Return arrays with a third of their elements replaced."""
    random = np.random.default_rng(0)
    made = [np.array(a) for a in args]
    for a in made:
        chosen = random.permutation(a.size)[: max(1, a.size // 3)]
        a.reshape(-1)[chosen] = random.choice(values, size=chosen.size)
    return made


VARIANTS: dict[str, Any] = {
    "as they are": list,
    "NaN": lambda args: with_some(args, [np.nan]),
    "infinite": lambda args: with_some(args, [np.inf, -np.inf]),
    "both zeros": lambda args: with_some(args, [0.0, -0.0]),
    "ties": lambda args: [np.round(a) for a in args],
    "float32": lambda args: [a.astype(np.float32) for a in args],
    "complex": lambda args: [a + 1j * a[::-1] for a in args],
    "Fortran order": lambda args: [np.asfortranarray(a) for a in args],
    "views": lambda args: [np.repeat(a, 2, 0)[::-2] for a in args],
    "empty": lambda args: [a[:0] for a in args],
}


def outcome(case: Case, args: list[Any]) -> Any:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parts(case.function(*args))
    except Exception as error:
        return error


#: LAPACK may not come back from infinite numbers.
DECOMPOSED = ("svd", "pinv", "norm", "cond", "lstsq", "eig", "qr")
#: What tensors can do and arrays cannot.
MORE_THAN_NUMPY = {"round"}
#: What NumPy returns uninitialised, of nothing.
UNDEFINED_IF_EMPTY = {"irfft, odd", "hfft, odd"}


def difference(case: Case, ours: np.ndarray, numpys: np.ndarray) -> str:
    if (ours.shape, ours.dtype) != (numpys.shape, numpys.dtype):
        return f"{ours.dtype}{ours.shape}, not {numpys.dtype}{numpys.shape}"
    if ours.dtype.kind == "c":  # loops over complex ones round as they lie
        near = np.allclose(ours, numpys, 1e-12, 1e-12, equal_nan=True)
        return "" if near else f"{ours}, not {numpys}"
    same = same_bits if ours.dtype.char in "fd" else np.equal
    return "" if np.all(same(ours, numpys)) else f"{ours}, not {numpys}, bit for bit"


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_are_numpys(variant: str) -> None:
    """In every bit; what NumPy refuses is an error in tfopt, too."""
    problems = []
    for case in (*CASES, *STEPS):
        if any(a.dtype.kind != "f" for a in case.args) and variant != "as they are":
            continue
        if variant in ("NaN", "infinite") and any(word in case.name for word in DECOMPOSED):
            continue
        if variant == "empty" and case.name in UNDEFINED_IF_EMPTY:
            continue
        args = VARIANTS[variant](case.args)
        wanted, found = outcome(case, args), outcome(case, list(map(engine.wrapped, args)))
        if isinstance(wanted, Exception) or isinstance(found, Exception):
            refused = isinstance(wanted, Exception)
            if not (refused and isinstance(found, Exception)):
                problems.append((case.name, f"{found!r}, not {wanted!r}"[:200]))
            continue
        for ours, numpys in zip(found, wanted, strict=True):
            problems.append((case.name, difference(case, ours, numpys)))
    assert [(name, what) for name, what in problems if what and name not in MORE_THAN_NUMPY] == []


# ---- keywords

A, B = CASES[0].args[0], CASES[0].args[0][::-1] * 0.5
#: What functions may be called with, and what their further arguments may be given.
OPERANDS: list[list[Any]] = [[A], [A, B], [A[:, :3]], [[A, B]], [A, 1], [A, (0,)], [[0, 1], A]]
POOL: list[Any] = [
    0, 1, -1, 7, -5, np.int64(1), True, False, None, "F", "stable", "wrap", "clip", "no", "U",
    "same", np.float32, np.complex128, (0,), (0, 1), [0], [1, 0], [True, False, True], A > 0, 0.5,
]  # fmt: skip
#: Arrays that there are, too: without elements, and without axes.
ODD = [A[:, :0], A[:0], np.array(A[0, 0])]
#: Results are not written into operands: `laws.numpy_calls` leaves the same out.
WRITE = {"overwrite_input", "copy"}


def keywords_of(function: Any, count: int) -> list[str]:
    """Return what may be given by name: what a function takes, and what it does not take.

    The names of its operands are among them, which are given twice then.
    """
    parameters = list(inspect.signature(function).parameters.values())
    names = [
        p.name for p in parameters
        if p.name not in ("out", "like", *WRITE)
        and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return [*names[:1], *(name for name in names[1:] if name in names[count:]), "bogus"]


def tensors(given: list[Any]) -> list[Any]:
    return [
        engine.wrapped(x) if isinstance(x, np.ndarray)
        else tensors(x) if isinstance(x, list) else x
        for x in given
    ]  # fmt: skip


FUNCTIONS = sorted(
    {f for f in ops.FUNCTIONS if of_numpy(f) and not isinstance(f, np.ufunc)}
    - {*QUERIES, np.empty_like},
    key=named,
)


def refusal(found: Any, wanted: Any) -> str:
    """Return how exceptions differ."""
    if isinstance(wanted, Exception) and isinstance(found, Exception):
        if "Attempt to convert a value (None)" in str(found):  # as TensorFlow, whatever for
            return ""
        return "" if type(found) is type(wanted) else f"{found!r}, not {wanted!r}"
    if isinstance(wanted, Exception):
        return f"{found}, not {wanted!r}"
    objects = any(part.dtype == object for part in wanted)
    return "" if objects else f"{found!r}, not {wanted}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=named)
def test_keywords_mean_the_same_as_in_numpy(function: Any) -> None:
    """Each that NumPy takes gives NumPy's value; each that it refuses is refused, as it does."""
    fitting = next(
        (each for each in OPERANDS
         if not isinstance(outcome(Case("", function, ()), each), Exception)), OPERANDS[0],
    )  # fmt: skip
    given = [fitting, *([x, *fitting[1:]] for x in ODD if isinstance(fitting[0], np.ndarray))]
    problems, tried = [], Counter[str]()
    for operands in given:
        for name in keywords_of(function, len(operands)):
            for value in POOL:
                case = Case(name, functools.partial(function, **{name: value}), ())
                wanted, found = outcome(case, operands), outcome(case, tensors(operands))
                if isinstance(wanted, Exception) or isinstance(found, Exception):
                    tried["refused"] += 1
                    problems.append((name, value, refusal(found, wanted)))
                    continue
                tried["taken"] += 1
                for ours, numpys in zip(found, wanted, strict=True):
                    problems.append((name, value, difference(case, ours, numpys)))
    assert [each for each in problems if each[2]] == []
    assert tried["refused"] >= len(POOL) * len(given)  # of "bogus"
    TRIED[named(function), "tfopt", "refused", ""] += tried["refused"]
    TRIED[named(function), "tfopt", "taken", ""] += tried["taken"]


def stated(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_signatures_that_are_stated_are_numpys() -> None:
    """Names, kinds and defaults; ``**others`` are what NumPy is asked about."""
    different, compared = [], 0
    for function in FUNCTIONS:
        ours = stated(ops.FUNCTIONS[function])
        kinds = {kind for _, kind, _ in ours}
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            continue
        compared += 1
        try:
            numpys = stated(function)
        except ValueError:  # before NumPy 2.4
            continue
        if inspect.Parameter.VAR_KEYWORD in kinds:
            ours.pop()
            numpys = numpys[: len(ours)]
        if repr(ours) != repr(numpys):  # of defaults that are equal to nothing
            different.append((named(function), ours, numpys))
    assert different == [] and compared > 30
