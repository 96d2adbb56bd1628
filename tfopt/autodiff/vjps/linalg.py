"""Rules of products, and of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj, unbroadcast
from tfopt.autodiff.core import Op, apply
from tfopt.autodiff.ops import array_operand as operand
from tfopt.autodiff.ops import elementwise, implements, method, without_rule


def _adjoint(a: Any) -> Any:
    return conj(a.T if a.ndim == 2 else np.swapaxes(a, -1, -2))


# ---- products


def matmul_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of a in a @ b."""
    if a.ndim == 2 == b.ndim:
        return g @ conj(b.T)
    if b.ndim == 1:
        return unbroadcast(np.expand_dims(g, -1) * conj(b) if a.ndim > 1 else g * conj(b), a)
    if a.ndim == 1:
        return unbroadcast((np.expand_dims(g, -2) @ _adjoint(b))[..., 0, :], a)
    return unbroadcast(g @ _adjoint(b), a)


def matmul_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Gradient of b in a @ b."""
    if a.ndim == 2 == b.ndim:
        return conj(a.T) @ g
    if a.ndim == 1:
        outer = np.expand_dims(conj(a), -1) * np.expand_dims(g, -2) if b.ndim > 1 else conj(a) * g
        return unbroadcast(outer, b)
    if b.ndim == 1:
        return unbroadcast((_adjoint(a) @ np.expand_dims(g, -1))[..., 0], b)
    return unbroadcast(_adjoint(a) @ g, b)


elementwise(np.matmul, (matmul_left, "b"), (matmul_right, "a"))


@implements(np.dot)
@method("dot")
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Sum over the last axis of one and the last but one of the other."""
    a, b = operand(a), operand(b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return np.multiply(a, b)
    if b.ndim <= 2:
        return np.matmul(a, b)
    return tensordot(a, b, axes=(-1, -2))


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    """Sum over the last axes of both."""
    a, b = operand(a), operand(b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return np.multiply(a, b)
    return tensordot(a, b, axes=(-1, -1))


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    """Sum the products of all elements, those of the first conjugated."""
    return np.matmul(np.ravel(conj(operand(a))), np.ravel(operand(b)))


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sum products along an axis, those of the first conjugated."""
    return np.sum(conj(operand(x1)) * operand(x2), axis=axis)


@implements(getattr(np, "matvec", None))  # of NumPy 2.2
def matvec(x1: Any, x2: Any, /) -> Any:
    """Multiply matrices by vectors."""
    return np.matmul(x1, np.expand_dims(x2, -1))[..., 0]


@implements(getattr(np, "vecmat", None))
def vecmat(x1: Any, x2: Any, /) -> Any:
    """Multiply vectors, conjugated, by matrices."""
    return np.matmul(np.expand_dims(conj(operand(x1)), -2), x2)[..., 0, :]


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply each element by each."""
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum products over several axes."""
    a, b = operand(a), operand(b)
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (list(np.atleast_1d(k) % x.ndim) for k, x in zip(axes, (a, b), strict=True))
    rows = [k for k in range(a.ndim) if k not in left]
    columns = [k for k in range(b.ndim) if k not in right]
    n = int(np.prod([a.shape[k] for k in left]))
    if n != int(np.prod([b.shape[k] for k in right])):
        raise ValueError("shape-mismatch for sum")
    shape = [a.shape[k] for k in rows] + [b.shape[k] for k in columns]
    flat_a = np.reshape(np.transpose(a, rows + left), (-1, n))
    flat_b = np.reshape(np.transpose(b, right + columns), (n, -1))
    return np.reshape(flat_a @ flat_b, shape)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    """Multiply each element of one by the whole of the other."""
    a, b = operand(a), operand(b)
    ndim = max(a.ndim, b.ndim)
    shapes = [(1,) * (ndim - x.ndim) + x.shape for x in (a, b)]
    left = np.reshape(a, [n for m in shapes[0] for n in (m, 1)])
    right = np.reshape(b, [n for m in shapes[1] for n in (1, m)])
    return np.reshape(left * right, [m * n for m, n in zip(*shapes, strict=True)])


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Multiply matrices in turn."""
    first, *rest = arrays
    for each in rest:
        first = np.dot(first, each)
    return first


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """Multiply a matrix by itself."""
    a = operand(a)
    if n < 0:
        a, n = np.linalg.inv(a), -n
    made = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    for _ in range(n):
        made = made @ a
    return operand(made)


@implements(np.linalg.matmul)
def _linalg_matmul(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, x2)


# ---- einsum

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _einsum(*arrays: Any, inputs: tuple[str, ...], output: str) -> Any:
    return np.einsum(f"{','.join(inputs)}->{output}", *arrays, optimize=len(arrays) > 2)


def _einsum_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    return [
        _einsum_one(g, ins, kw["inputs"], kw["output"], k) if wanted else None
        for k, wanted in enumerate(need)
    ]


def _einsum_one(g: Any, ins: Any, inputs: tuple[str, ...], output: str, place: int) -> Any:
    """Contract the gradient with the other operands; put axes that were summed alone back."""
    own, target = inputs[place], ins[place]
    sizes = dict(zip(own, target.shape, strict=True))
    others = [k for k in range(len(ins)) if k != place]
    known = set(output).union(*(inputs[k] for k in others))
    distinct = "".join(dict.fromkeys(own))
    reached = "".join(letter for letter in distinct if letter in known)
    subscripts = ",".join([output, *(inputs[k] for k in others)])
    made = np.einsum(f"{subscripts}->{reached}", g, *(conj(ins[k]) for k in others))
    if reached != distinct or len(own) != len(distinct):
        shape = [sizes[c] if c in reached else 1 for c in distinct]
        made = np.broadcast_to(np.reshape(made, shape), [sizes[c] for c in distinct])
    if len(own) != len(distinct):  # a diagonal: its elements go back where they were
        on = np.einsum(
            f"{','.join(distinct)}->{distinct}", *(np.ones(sizes[c], bool) for c in distinct)
        )
        grids = np.nonzero(on)
        key = tuple(grids[distinct.index(c)] for c in own)
        made = _put(made.reshape(-1), key, target.shape)
    return unbroadcast(made, target)


def _put(values: Any, key: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    from tfopt.autodiff.backward import call
    from tfopt.autodiff.vjps.indexing import ADD_AT, SLOT

    return call(ADD_AT, (values, *key), {"key": (SLOT,) * len(key), "shape": shape})


EINSUM = Op("einsum", _einsum)
EINSUM.define_jointly(_einsum_rule, "*")


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **others: Any) -> Any:
    """Sum products as subscripts say."""
    if not isinstance(operands[0], str) or out is not None or others:
        if out is not None:
            others["out"] = out
        return without_rule("einsum", np.einsum, operands, others)
    arrays = [operand(a) for a in operands[1:]]
    inputs, output = _explicit(operands[0].replace(" ", ""), [np.ndim(a) for a in arrays])
    return apply(EINSUM, tuple(arrays), {"inputs": inputs, "output": output})


def _explicit(subscripts: str, ndims: list[int]) -> tuple[tuple[str, ...], str]:
    """Return subscripts with letters in the place of an ellipsis, and an output."""
    left, arrow, output = subscripts.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise ValueError("einsum: as many subscripts as operands are needed")
    free = [c for c in _LETTERS if c not in subscripts]
    lengths = [n - len(p.replace("...", "")) if "..." in p else 0
               for p, n in zip(parts, ndims, strict=True)]  # fmt: skip
    hidden = "".join(free[: max(lengths)])
    inputs = tuple(p.replace("...", hidden[len(hidden) - n :])
                   for p, n in zip(parts, lengths, strict=True))  # fmt: skip
    if not arrow:
        joined = left.replace(",", "").replace("...", "")
        output = hidden + "".join(c for c in sorted(set(joined)) if joined.count(c) == 1)
    return inputs, output.replace("...", hidden)


# ---- matrices

INV = Op("inv", np.linalg.inv)
INV.define((lambda g, y, a: -(_adjoint(y) @ g @ _adjoint(y)), "y"))
DET = Op("det", np.linalg.det)
DET.define(
    (lambda g, y, a: _over_matrix(g * conj(y)) * _adjoint(np.linalg.inv(a)), "ay"),
)
LOGDET = Op("logabsdet", lambda a: np.linalg.slogdet(a)[1])
LOGDET.define((lambda g, y, a: _over_matrix(g) * _adjoint(np.linalg.inv(a)), "a"))


def _over_matrix(g: Any) -> Any:
    return np.reshape(g, (*np.shape(g), 1, 1))


@implements(np.linalg.inv)
def inv(a: Any) -> Any:
    """Invert matrices."""
    return apply(INV, (operand(a),))


@implements(np.linalg.det)
def det(a: Any) -> Any:
    """Return determinants."""
    return apply(DET, (operand(a),))


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """Return the signs of determinants, without a gradient, and the logarithms of their sizes."""
    a = operand(a)
    sign = np.sign(without_rule("slogdet", lambda x: np.linalg.slogdet(x)[0], (a,), {}))
    return type(np.linalg.slogdet(np.eye(1)))(sign, apply(LOGDET, (a,)))


def _solve_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    return unbroadcast(_solved(_adjoint(a), g, b.ndim == 1), b)


def _solve_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    s = _solved(_adjoint(a), g, b.ndim == 1)
    if b.ndim == 1:
        return unbroadcast(-np.expand_dims(s, -1) * np.expand_dims(conj(y), -2), a)
    return unbroadcast(-(s @ _adjoint(y)), a)


def _solved(a: Any, g: Any, vector: bool) -> Any:
    if not vector:
        return np.linalg.solve(a, g)
    return np.linalg.solve(a, np.expand_dims(g, -1))[..., 0]


SOLVE = Op("solve", np.linalg.solve)
SOLVE.define((_solve_left, "aby"), (_solve_right, "ab"))


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    """Solve linear equations."""
    return apply(SOLVE, (operand(a), operand(b)))


def _cholesky_rule(g: Any, y: Any, a: Any) -> Any:
    """Murray (2016), Differentiation of the Cholesky decomposition, equation 9, symmetric."""
    inner = np.tril(_adjoint(y) @ np.tril(g))
    n = a.shape[-1]
    inner = inner - 0.5 * np.where(np.eye(n, dtype=bool), inner, 0)
    inverse = np.linalg.inv(y)
    full = _adjoint(inverse) @ inner @ inverse
    return 0.5 * (full + _adjoint(full))


CHOLESKY = Op("cholesky", np.linalg.cholesky)
CHOLESKY.define((_cholesky_rule, "y"))


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Return triangular roots of symmetric matrices."""
    lower = apply(CHOLESKY, (operand(a),))
    return _adjoint(lower) if upper else lower


# ---- norms


def _two_norm(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return (
        np.linalg.norm(a, axis=axis, keepdims=keepdims) if axis is not None else _whole(a, keepdims)
    )


def _whole(a: Any, keepdims: bool) -> Any:
    value = np.linalg.norm(a.reshape(-1))
    return np.reshape(value, (1,) * a.ndim) if keepdims else value


def _norm_rule(g: Any, y: Any, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Point along the vector; 0 where it is 0."""
    from tfopt.autodiff.backward import spread

    scale = np.where(y == 0, 0, g / np.where(y == 0, 1, y))
    return a * spread(scale, a, axis, keepdims)


NORM = Op("norm", _two_norm)
NORM.define((_norm_rule, "ay"))


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return vector norms, and Frobenius' of matrices."""
    x = operand(x)
    axes = axis if isinstance(axis, tuple) else None if axis is None else (axis,)
    ndim = x.ndim if axes is None else len(axes)
    if ord is None or (ord == "fro" and ndim == 2) or (ord == 2 and ndim == 1):
        return apply(NORM, (x,), {"axis": axis, "keepdims": keepdims})
    if ndim != 1 or ord == 0:
        return without_rule("norm", np.linalg.norm, (x, ord, axis, keepdims), {})
    sizes = np.abs(x)
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(sizes, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(sizes, axis=axis, keepdims=keepdims)
    return np.sum(sizes**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return vector norms."""
    x = operand(x)
    if axis is None and x.ndim > 1:
        made = norm(np.ravel(x), ord)
        return np.reshape(made, (1,) * x.ndim) if keepdims else made
    return norm(x, ord, axis, keepdims)
