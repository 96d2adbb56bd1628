"""A call of every function that has a rule, with arrays at which it is smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from vjp_further_cases import further, steps

import tfopt
import tfopt_ref

__all__ = ["CASES", "SPECIFIED", "STEPS", "Case", "in_both"]


class Case(NamedTuple):
    name: str
    function: Callable[..., Any]
    args: tuple[np.ndarray, ...]


def _drawn(shape: tuple[int, ...], seed: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


A, B, C = _drawn((3, 4), 0), _drawn((3, 4), 1), _drawn((4,), 2)
POSITIVE, UNIT = _drawn((3, 4), 3, 0.3, 3.0), _drawn((3, 4), 4, -0.9, 0.9)
V, W, M = _drawn((3,), 5), _drawn((4,), 6), _drawn((4, 3), 7)
CUBE = _drawn((2, 3, 4), 8)
TURNED = CUBE.swapaxes(1, 2)
SQUARE = _drawn((2, 3, 3), 9) + 3 * np.eye(3)
DEFINITE = SQUARE @ np.swapaxes(SQUARE, -1, -2)
MASK = A > 0


def _unary() -> list[Case]:
    real = (
        np.negative, np.positive, np.exp, np.expm1, np.exp2, np.square, np.absolute, np.fabs,
        np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.arctan, np.arcsinh, np.deg2rad,
        np.rad2deg, np.degrees, np.radians, np.nan_to_num, np.cbrt, np.real_if_close,
    )  # fmt: skip
    positive = (np.log, np.log2, np.log10, np.log1p, np.sqrt, np.reciprocal)
    unit = (np.arcsin, np.arccos, np.arctanh)
    return [
        *(Case(f.__name__, f, (A,)) for f in real),
        *(Case(f.__name__, f, (POSITIVE,)) for f in positive),
        *(Case(f.__name__, f, (UNIT,)) for f in unit),
        Case("arccosh", np.arccosh, (POSITIVE + 1,)),
        Case("sign", lambda x: np.sign(x) * x, (A,)),
    ]


def _binary() -> list[Case]:
    both = (
        np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.arctan2,
        np.hypot, np.logaddexp, np.logaddexp2,
    )  # fmt: skip
    over_positive = (np.divide, np.remainder, np.fmod)
    return [
        *(Case(f.__name__, f, (A, B)) for f in both),
        *(Case(f"{f.__name__}, broadcast", f, (A, C)) for f in both),
        *(Case(f.__name__, f, (A, POSITIVE)) for f in over_positive),
        Case("copysign", lambda x: np.copysign(x, B) * x, (A,)),
        Case("power", np.power, (POSITIVE, B)),
        Case("power of a number", lambda x: x**3, (A,)),
        Case("number to a power", lambda x: 2.0**x, (A,)),
        Case("float_power", np.float_power, (POSITIVE, B)),
        Case("where", lambda x, y: np.where(MASK, x * x, y * y), (A, C)),
        Case("clip", lambda x, a, b: np.clip(x * x, a, b), (A, V[:1] - 1, V[:1] + 1.5)),
        Case("clip below", lambda x: np.clip(x * x, 1.0, None), (A,)),
        Case("clip by name", lambda x: np.clip(x * x, max=1.0), (A,)),
        Case("operators", lambda x, y: (2 - x) * y / 3 - (1 / (x * x + 1)) % 0.4 + -y, (A, B)),
    ]


def _reductions() -> list[Case]:
    cases = []
    for f in (np.sum, np.mean, np.prod, np.max, np.min, np.var, np.std, np.median, np.ptp):
        name = f.__name__
        cases += [
            Case(name, f, (A,)),
            Case(f"{name}, axis", lambda x, f=f: f(x, axis=1), (A,)),
            Case(f"{name}, axes", lambda x, f=f: f(x, axis=(0, -1), keepdims=True), (CUBE,)),
        ]
    return [
        *cases,
        Case("amax", lambda x: np.amax(x, 0), (A,)),
        Case("amin", lambda x: np.amin(x, 0), (A,)),
        Case("var, ddof", lambda x: np.var(x, 0, ddof=1), (A,)),
        Case("std, ddof", lambda x: np.std(x, 0, ddof=1), (A,)),
        Case("prod of zeros", lambda x: np.prod(x * np.array([0.0, 1.0, 1.0]) + x[0] * 0), (V,)),
        Case("logaddexp.reduce", lambda x: np.logaddexp.reduce(x, axis=1), (A,)),
        Case("add.reduce", lambda x: np.add.reduce(x * x, axis=1), (A,)),
        Case("add.reduceat", lambda x: np.add.reduceat(x * x, [0, 2], axis=1), (A,)),
        Case(
            "add.reduceat by name", lambda x: np.add.reduceat(x * x, indices=[0, 2], axis=1), (A,)
        ),
        Case("add.reduceat, later", lambda x: np.add.reduceat(x, np.array([1, 2])) ** 2, (A,)),
        Case(
            "add.reduceat, in any order",
            lambda x: np.add.reduceat(x, [2, 2, 0, 3, 1], 1, np.float64) ** 2,
            (A,),
        ),
        Case("maximum.reduce", lambda x: np.maximum.reduce(x, axis=0), (A,)),
        Case("cumsum", lambda x: np.cumsum(x * x), (A,)),
        Case("cumsum, axis", lambda x: np.cumsum(x * x, axis=1), (A,)),
        Case("cumprod", np.cumprod, (V,)),
        Case("cumprod, axis", lambda x: np.cumprod(x, axis=0), (A,)),
        Case("sort", lambda x: np.sort(x) * np.arange(4.0), (A,)),
        Case("sort, axis", lambda x: np.sort(x, axis=0) ** 2, (A,)),
        Case("partition", lambda x: np.partition(x, 2, axis=1)[:, 2] ** 2, (A,)),
        Case("norm", lambda x: np.linalg.norm(x, axis=1), (A,)),
        Case("norm of a matrix", np.linalg.norm, (A,)),
        Case("norm 1", lambda x: np.linalg.norm(x, 1, axis=1), (A,)),
        Case("norm 3", lambda x: np.linalg.norm(x, 3, axis=0, keepdims=True), (A,)),
        Case("norm inf", lambda x: np.linalg.norm(x, np.inf, axis=1), (A,)),
        Case("methods", lambda x: x.sum(1) * x.mean(1) + x.max(1) - x.min(1) * x.prod(1), (A,)),
    ]


def _shapes() -> list[Case]:
    moving: list[Callable[[Any], Any]] = [
        lambda x: np.reshape(x, (4, -1)), lambda x: x.reshape(2, 6), np.ravel, np.transpose,
        lambda x: x.T, lambda x: np.expand_dims(x, (0, 2)), lambda x: np.squeeze(x[:, :1], 1),
        lambda x: np.swapaxes(x, 0, 1), lambda x: np.moveaxis(x, 0, -1), lambda x: np.flip(x, 1),
        np.fliplr, np.flipud, np.rot90, lambda x: np.roll(x, 5), lambda x: np.roll(x, 1, axis=1),
        lambda x: np.tile(x, (2, 3)), lambda x: np.repeat(x, 2), lambda x: np.repeat(x, 3, axis=0),
        lambda x: np.pad(x, 1), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=5.0),
        lambda x: np.pad(x, 1, mode="reflect"), lambda x: np.pad(x, 2, mode="edge"),
        lambda x: np.pad(x, 1, mode="symmetric"), lambda x: np.pad(x, 1, mode="wrap"),
        lambda x: np.diag(x), lambda x: np.diag(x[0], 1), lambda x: np.diagonal(x, 1),
        lambda x: np.tril(x, 1), lambda x: np.triu(x), np.trace, np.atleast_3d, np.copy,
        lambda x: np.broadcast_to(x, (2, 3, 4)), lambda x: np.concatenate([x, x * x], axis=1),
        lambda x: np.stack([x, x * x], axis=1), lambda x: np.vstack([x, x[0] ** 2]),
        lambda x: np.hstack([x, x]), lambda x: np.dstack([x, x * x]),
        lambda x: np.column_stack([x[0], x[1]]), lambda x: np.split(x, 2, axis=1)[0],
        lambda x: np.concatenate(np.split(x, [1, 3], axis=1)[::2], axis=1),
        lambda x: np.array_split(x, 2)[1], lambda x: np.hsplit(x, 2)[1],
        lambda x: np.vsplit(x, 3)[1],
        lambda x: np.diff(x, axis=0), lambda x: np.matrix_transpose(x), lambda x: x.mT,
        lambda x: np.outer(x[0], x[1]), lambda x: np.rollaxis(x, 1), lambda x: x.flatten(),
        np.diagflat, lambda x: np.delete(x, 1, axis=1),
        lambda x: x.astype(np.longdouble).astype(float),
        lambda x: np.real(x) + x.real - x.imag + np.conj(x) + x.conj() * x,
    ]  # fmt: skip
    return [
        Case(f"moving {i}", lambda x, f=f: f(x) * f(x) + f(x), (A,)) for i, f in enumerate(moving)
    ]


def _indices() -> list[Case]:
    rows = np.array([2, 0, 2, -1])
    getting: list[Callable[[Any], Any]] = [
        lambda x: x[1], lambda x: x[-1, 2], lambda x: x[1:, ::2], lambda x: x[..., None, 1],
        lambda x: x[::-1, ::-2], lambda x: x[MASK], lambda x: x[[0, 2, 2]], lambda x: x[rows],
        lambda x: x[rows, 1], lambda x: x[:, [1, 1, 3]], lambda x: x[rows[:, None], [1, 3]],
        lambda x: np.take(x, rows, axis=0), lambda x: np.take(x, [[0, 1], [3, 3]], axis=1),
        lambda x: np.take(x, [0, 11, 5]), lambda x: np.take(x.ravel(), [3, 3], axis=0),
        lambda x: np.take_along_axis(x, np.array([[0], [3], [1]]), axis=1),
        lambda x: np.take(x, np.array([[0, 1], [2, 2]]), axis=0), lambda x: x[0][1:] * x[2, 1],
    ]  # fmt: skip
    return [Case(f"indexing {i}", lambda x, f=f: f(x) * f(x), (A,)) for i, f in enumerate(getting)]


def _linear() -> list[Case]:
    pairs = [(A, M), (V, A), (A, W), (V, V), (CUBE, M), (CUBE, TURNED), (A, TURNED)]
    cases = [Case(f"matmul {i}", np.matmul, pair) for i, pair in enumerate(pairs)]
    cases += [Case(f"dot {i}", np.dot, pair) for i, pair in enumerate(pairs[:6])]
    einsums = [
        ("ij,jk->ik", A, M), ("ij,kj", A, B), ("i,j->ij", V, W), ("bij,bjk->bik", CUBE, TURNED),
        ("...ij,jk->...ik", CUBE, M), ("ii->i", SQUARE[0]), ("ii", SQUARE[0]), ("ij->", A),
        ("ij->j", A), ("ijk->kji", CUBE), ("i,ij,j->", V, A, W), ("...j,j->...", A, W),
    ]  # fmt: skip
    for word, *operands in einsums:
        cases.append(
            Case(f"einsum {word}", lambda *x, word=word: np.einsum(word, *x) ** 2, tuple(operands))
        )
    return [
        *cases,
        Case("inner", np.inner, (A, B)),
        Case("kron", np.kron, (M, V)),
        Case("vecdot", np.vecdot, (A, C)),
        Case("linalg.vecdot", lambda a, b: np.linalg.vecdot(a, b, axis=0), (A, B)),
        Case("linalg.outer", np.linalg.outer, (V, W)),
        Case("linalg.matmul", np.linalg.matmul, (A, M)),
        Case("linalg.tensordot", lambda a, b: np.linalg.tensordot(a, b, axes=1), (A, M)),
        Case("linalg.trace", lambda a: np.linalg.trace(a) ** 2, (SQUARE,)),
        Case("linalg.diagonal", lambda a: np.linalg.diagonal(a, offset=1) ** 2, (SQUARE,)),
        Case("matrix_power", lambda a: np.linalg.matrix_power(a, 3), (SQUARE,)),
        Case("matrix_power, negative", lambda a: np.linalg.matrix_power(a, -2), (SQUARE,)),
        Case("multi_dot", lambda a, b, c: np.linalg.multi_dot([a, b, c]), (A, M, V)),
        Case("vector_norm", lambda x: np.linalg.vector_norm(x, axis=1), (A,)),
        Case("vector_norm of all", np.linalg.vector_norm, (A,)),
        Case("average", lambda a, w: np.average(a, axis=1, weights=w * w), (A, W)),
        Case("average of all", np.average, (A,)),
        Case("append", lambda a, b: np.append(a, b) ** 2, (A, V)),
        Case("compress", lambda a: np.compress([True, False, True], a, axis=0) ** 2, (A,)),
        Case("extract", lambda a: np.extract(MASK, a) ** 2, (A,)),
        Case("select", lambda a, b: np.select([MASK, B > 0], [a * a, b * b], 1.0), (A, B)),
        Case("vdot", np.vdot, (A, B)),
        Case("tensordot", lambda a, b: np.tensordot(a, b, 1), (A, M)),
        Case(
            "tensordot, axes",
            lambda a, b: np.tensordot(a, b, ([2, 0], [1, 0])),
            (CUBE, _drawn((2, 4, 2), 10)),
        ),
        Case("inv", np.linalg.inv, (SQUARE,)),
        Case("det", np.linalg.det, (SQUARE,)),
        Case("slogdet", lambda a: np.linalg.slogdet(a)[1], (SQUARE,)),
        Case("solve", np.linalg.solve, (SQUARE, _drawn((2, 3, 2), 11))),
        Case("solve for a vector", np.linalg.solve, (SQUARE[0], V)),
        Case(
            "cholesky", lambda a: np.linalg.cholesky((a + np.swapaxes(a, -1, -2)) / 2), (DEFINITE,)
        ),
        Case("trace of a stack", lambda a: np.trace(a, axis1=-2, axis2=-1) ** 2, (SQUARE,)),
    ]


CASES = [
    *_unary(), *_binary(), *_reductions(), *_shapes(), *_indices(), *_linear(),
    *(Case(*each) for each in further()),
]  # fmt: skip
#: What has no gradient.
STEPS = [Case(*each) for each in steps()]


def _is_specified(case: Case) -> bool:
    """Whether the specification has gradients of a case."""
    inputs = [tfopt_ref.constant(x) for x in case.args]
    try:
        with tfopt_ref.GradientTape() as tape:
            tape.watch(inputs)
            y = case.function(*inputs)
        tape.gradient(y, inputs)
    except (LookupError, TypeError):  # SciPy's functions know nothing of its tensors
        return False
    return True


SPECIFIED = [case for case in CASES if _is_specified(case)]


def in_both(cases: list[Case]) -> Any:
    """Give a test each case in tfopt, and in the specification those that it has rules for."""
    known = {case.name for case in SPECIFIED}
    pairs = [(tfopt, case) for case in cases]
    pairs += [(tfopt_ref, case) for case in cases if case.name in known]
    return pytest.mark.parametrize(
        ("impl", "case"),
        [pytest.param(*pair, id=f"{pair[0].__name__}-{pair[1].name}") for pair in pairs],
    )
