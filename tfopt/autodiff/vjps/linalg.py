"""Rules of products, and of linear algebra."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import elementwise, implements, method
from tfopt.autodiff.vjps.arguments import frozen, is_operation
from tfopt.autodiff.vjps.composed import composed
from tfopt.core.engine import Op, apply


def adjoint(a: Any) -> Any:
    """Return the transposed conjugate."""
    return conj(a.T if a.ndim == 2 else np.swapaxes(a, -1, -2))


# ---- products


def matmul_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of a in a @ b."""
    if a.ndim == 2 == b.ndim:
        return g @ conj(b.T)
    if b.ndim == 1:
        return np.expand_dims(g, -1) * conj(b) if a.ndim > 1 else g * conj(b)
    if a.ndim == 1:
        return (np.expand_dims(g, -2) @ adjoint(b))[..., 0, :]
    return g @ adjoint(b)


def matmul_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of b in a @ b."""
    if a.ndim == 2 == b.ndim:
        return conj(a.T) @ g
    if a.ndim == 1:
        outer = np.expand_dims(conj(a), -1) * np.expand_dims(g, -2) if b.ndim > 1 else conj(a) * g
        return outer
    if b.ndim == 1:
        return (adjoint(a) @ np.expand_dims(g, -1))[..., 0]
    return adjoint(a) @ g


elementwise(np.matmul, (matmul_left, "b"), (matmul_right, "a"))


# ---- over other axes

DOT, INNER = Op("dot", np.dot), Op("inner", np.inner)
TENSORDOT = Op("tensordot", lambda a, b, axes: np.tensordot(a, b, axes))


def _split(a: Any, b: Any, axes: Any) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the axes that are summed over, and the others, of both."""
    if np.ndim(axes) == 0:
        axes = range(a.ndim - axes, a.ndim), range(axes)
    left, right = ([int(k) % x.ndim for k in np.atleast_1d(given)]
                   for given, x in zip(axes, (a, b), strict=True))  # fmt: skip
    return (left, right, [k for k in range(a.ndim) if k not in left],
            [k for k in range(b.ndim) if k not in right])  # fmt: skip


def tensordot_left(g: Any, y: Any, a: Any, b: Any, axes: Any) -> Any:
    """Gradient of a in a product over axes."""
    left, right, rows, columns = _split(a, b, axes)
    made = np.tensordot(g, conj(b), (range(len(rows), g.ndim), columns))
    order = rows + [left[k] for k in np.argsort(right)]
    return np.transpose(made, np.argsort(order))


def tensordot_right(g: Any, y: Any, a: Any, b: Any, axes: Any) -> Any:
    """Gradient of b in a product over axes."""
    left, right, rows, columns = _split(a, b, axes)
    made = np.tensordot(conj(a), g, (rows, range(len(rows))))
    order = [right[k] for k in np.argsort(left)] + columns
    return np.transpose(made, np.argsort(order))


TENSORDOT.define((tensordot_left, "b"), (tensordot_right, "a"))


def _with_scalar(rule: Any, axes: Any) -> Any:
    """Return the rule of a product over axes that scalars, which have none, only multiply."""

    def scaled(g: Any, y: Any, a: Any, b: Any) -> Any:
        if a.ndim and b.ndim:
            return rule(g, y, a, b, axes)
        return g * conj(b if rule is tensordot_left else a)

    return scaled


def _dot_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    if b.ndim <= 2 and a.ndim * b.ndim:
        return matmul_left(g, y, a, b)
    return _with_scalar(tensordot_left, (-1, -2))(g, y, a, b)


def _dot_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    if b.ndim <= 2 and a.ndim * b.ndim:
        return matmul_right(g, y, a, b)
    return _with_scalar(tensordot_right, (-1, -2))(g, y, a, b)


DOT.define((_dot_left, "b"), (_dot_right, "a"))
INNER.define(
    (_with_scalar(tensordot_left, (-1, -1)), "b"), (_with_scalar(tensordot_right, (-1, -1)), "a")
)


@implements(np.dot)
@method("dot")
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Sum over the last axis of one and the last but one of the other."""
    return apply(DOT, (operand(a), operand(b)))


is_operation(np.inner, INNER)


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum products over several axes."""
    return apply(TENSORDOT, (operand(a), operand(b)), {"axes": frozen(axes)})


implements(np.linalg.tensordot)(lambda x1, x2, /, *, axes=2: tensordot(x1, x2, axes))


def _vecdot(x1: Any, x2: Any, axis: Any) -> Any:
    return np.sum(conj(operand(x1)) * operand(x2), axis=axis)


def _vecmat(x1: Any, x2: Any) -> Any:
    return np.matmul(np.expand_dims(conj(operand(x1)), -2), x2)[..., 0, :]


composed(np.vdot, lambda a, b: np.matmul(np.ravel(conj(operand(a))), np.ravel(operand(b))))
composed(np.vecdot, _vecdot)
composed(np.linalg.vecdot, _vecdot)
if hasattr(np, "matvec"):  # of NumPy 2.2
    composed(np.matvec, lambda x1, x2: np.matmul(x1, np.expand_dims(x2, -1))[..., 0])
    composed(np.vecmat, _vecmat)


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply each element by each."""
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


def _kron(a: Any, b: Any) -> Any:
    """Multiply each element of one by the whole of the other."""
    a, b = operand(a), operand(b)
    ndim = max(a.ndim, b.ndim)
    shapes = [(1,) * (ndim - x.ndim) + x.shape for x in (a, b)]
    left = np.reshape(a, [n for m in shapes[0] for n in (m, 1)])
    right = np.reshape(b, [n for m in shapes[1] for n in (1, m)])
    return np.reshape(left * right, [m * n for m, n in zip(*shapes, strict=True)])


def _matrix_power(a: Any, n: Any) -> Any:
    a = np.linalg.inv(a) if n < 0 else operand(a)
    return functools.reduce(np.matmul, [a] * abs(n)) if n else 0 * a


def _cross(a: Any, b: Any, axisa: Any, axisb: Any, axisc: Any, axis: Any) -> Any:
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = np.moveaxis(operand(a), axisa, -1), np.moveaxis(operand(b), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise LookupError("no gradient of cross of vectors of two dimensions")
    after, before = [1, 2, 0], [2, 0, 1]
    made = a[..., after] * b[..., before] - a[..., before] * b[..., after]
    return np.moveaxis(made, -1, axisc)


implements(np.linalg.matmul)(lambda x1, x2, /: np.matmul(x1, x2))
for _function, _composition in {
    np.linalg.outer: lambda x1, x2: outer(x1, x2), np.kron: _kron,
    np.linalg.multi_dot: lambda arrays: functools.reduce(np.dot, arrays),
    np.linalg.matrix_power: _matrix_power, np.cross: _cross,
    np.linalg.cross: lambda x1, x2, axis: _cross(x1, x2, axis, axis, axis, None),
}.items():  # fmt: skip
    composed(_function, _composition)


# ---- matrices

INV = Op("inv", np.linalg.inv)
INV.define((lambda g, y, a: -(adjoint(y) @ g @ adjoint(y)), "y"))
DET = Op("det", np.linalg.det)
DET.define(
    (lambda g, y, a: _over_matrix(g * conj(y)) * adjoint(np.linalg.inv(a)), "ay"),
)
_SLOGDET_RESULT: Any = type(np.linalg.slogdet(np.eye(1)))
SLOGDET = Op("slogdet", lambda a: tuple(np.linalg.slogdet(a)), many=True)


def _slogdet_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """The logarithm's gradient; that of a complex sign turns it."""
    (sign, _), (gsign, glog) = y, g
    (a,) = ins
    slope: Any = 0 if glog is None else glog
    if gsign is not None and np.iscomplexobj(sign):
        slope = slope - 1j * np.imag(conj(gsign) * sign)
    return [_over_matrix(slope + 0 * sign) * adjoint(np.linalg.inv(a))]


SLOGDET.define_jointly(_slogdet_rule, "ay")


def _over_matrix(g: Any) -> Any:
    return np.reshape(g, (*np.shape(g), 1, 1))


is_operation(np.linalg.inv, INV)
is_operation(np.linalg.det, DET)


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """Return the signs of determinants, and the logarithms of their sizes."""
    return _SLOGDET_RESULT(*apply(SLOGDET, (operand(a),)))


def _solve_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    return _solved(adjoint(a), g, b.ndim == 1)


def _solve_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    s = _solved(adjoint(a), g, b.ndim == 1)
    if b.ndim == 1:
        return -np.expand_dims(s, -1) * np.expand_dims(conj(y), -2)
    return -(s @ adjoint(y))


def _solved(a: Any, g: Any, vector: bool) -> Any:
    if not vector:
        return np.linalg.solve(a, g)
    return np.linalg.solve(a, np.expand_dims(g, -1))[..., 0]


SOLVE = Op("solve", np.linalg.solve)
SOLVE.define((_solve_left, "aby"), (_solve_right, "ab"))


is_operation(np.linalg.solve, SOLVE)


def _cholesky_rule(g: Any, y: Any, a: Any, upper: bool = False) -> Any:
    """Murray (2016), Differentiation of the Cholesky decomposition, equation 9, symmetric."""
    lower, g = (adjoint(y), adjoint(g)) if upper else (y, g)
    inner = np.tril(adjoint(lower) @ np.tril(g))
    n = a.shape[-1]
    inner = inner - 0.5 * np.where(np.eye(n, dtype=bool), inner, 0)
    inverse = np.linalg.inv(lower)
    full = adjoint(inverse) @ inner @ inverse
    return 0.5 * (full + adjoint(full))


CHOLESKY = Op("cholesky", np.linalg.cholesky)
CHOLESKY.define((_cholesky_rule, "y"))


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Return triangular roots of symmetric matrices."""
    return apply(CHOLESKY, (operand(a),), {"upper": upper} if upper is not False else None)
