"""Decompositions of matrices, and functions of singular values.

Equal eigenvalues or singular values do not determine their vectors: terms that divide by their
difference are left out, as in TensorFlow. Further vectors of full matrices have no gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements
from tfopt.autodiff.vjps.composed import composed, constant_of, with_gradients_of
from tfopt.autodiff.vjps.linalg import adjoint
from tfopt.core.engine import Op, apply


def _inverse_gaps(values: Any) -> Any:
    """Return 1 / (values[j] - values[i]), and 0 where they are equal."""
    gaps = np.expand_dims(values, -2) - np.expand_dims(values, -1)
    return np.where(gaps == 0, 0, 1 / np.where(gaps == 0, 1, gaps))


def _diagonal(values: Any) -> Any:
    """Return matrices with a diagonal."""
    return np.expand_dims(values, -1) * np.eye(values.shape[-1], dtype=values.dtype)


# ---- eigenvalues of symmetric matrices

_EIGH_RESULT: Any = type(np.linalg.eigh(np.eye(1)))
EIGH = Op("eigh", lambda a, uplo: tuple(np.linalg.eigh(a, uplo)), many=True)


def _eigh_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """Return the gradient, to the triangle that is read."""
    (w, v), (gw, gv) = y, g
    inner: Any = 0
    if gw is not None:
        inner = _diagonal(gw)
    if gv is not None:
        inner = inner + _inverse_gaps(w) * (adjoint(v) @ gv)
    full = v @ inner @ adjoint(v)
    twice = full + adjoint(full)
    triangle = np.tril(twice, -1) if kw["uplo"] == "L" else np.triu(twice, 1)
    half_diagonal = np.where(np.eye(w.shape[-1], dtype=bool), 0.5 * twice, 0)
    return [triangle + half_diagonal]


EIGH.define_jointly(_eigh_rule, "ay")


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Return the eigenvalues and eigenvectors of a symmetric matrix."""
    return _EIGH_RESULT(*apply(EIGH, (operand(a),), {"uplo": UPLO.upper()}))


composed(np.linalg.eigvalsh, lambda a, UPLO: eigh(a, UPLO)[0])


# ---- singular values

_SVD_RESULT: Any = type(np.linalg.svd(np.eye(1)))
SVD = Op("svd", lambda a: tuple(np.linalg.svd(a, full_matrices=False)), many=True)


def _svd_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """Townsend (2016), Differentiating the singular value decomposition; complex ones, too."""
    (u, s, vh), (gu, gs, gvh) = y, g
    v, over = adjoint(vh), np.where(s == 0, 0, 1 / np.where(s == 0, 1, s))
    gaps = _inverse_gaps(s * s)
    inner: Any = 0 if gs is None else _diagonal(gs)
    outer: Any = 0
    if gu is not None:
        turned = adjoint(u) @ gu
        skew = turned - adjoint(turned)
        inner = inner + gaps * skew * s[..., None, :]
        if np.iscomplexobj(skew):  # a phase, which vh turns against
            inner = inner + np.where(np.eye(s.shape[-1], dtype=bool), skew, 0) * _half(over)
        outer = outer + (gu - u @ turned) * over[..., None, :] @ vh
    if gvh is not None:
        turned = adjoint(v) @ adjoint(gvh)
        inner = inner + s[..., :, None] * (gaps * (turned - adjoint(turned)))
        outer = outer + (u * over[..., None, :]) @ (gvh - adjoint(turned) @ vh)
    return [u @ inner @ vh + outer]


def _half(over: Any) -> Any:
    return 0.5 * over[..., None, :]


SVD.define_jointly(_svd_rule, "ay")


def _svd(a: Any, full_matrices: Any, compute_uv: Any, hermitian: Any) -> Any:
    a = operand(a)
    u, s, vh = _of_hermitian(a) if hermitian else apply(SVD, (a,))
    if not compute_uv:
        return s
    rows, columns = a.shape[-2:]
    if full_matrices and rows != columns:  # one of the two has further vectors
        u, vh = (u, None) if rows < columns else (None, vh)
    return _SVD_RESULT(u, s, vh)


def _of_hermitian(a: Any) -> tuple[Any, Any, Any]:
    """Return what NumPy makes of eigenvalues: their sizes in order, and their signs in vh."""
    values, vectors = eigh(a)
    order = np.argsort(np.abs(values))[..., ::-1]
    values = np.take_along_axis(values, order, -1)
    u = np.take_along_axis(vectors, order[..., None, :], -1)
    return u, np.abs(values), adjoint(u * np.sign(values)[..., None, :])


composed(np.linalg.svd, _svd)
composed(np.linalg.svdvals, lambda x: apply(SVD, (operand(x),))[1])


# ---- pseudo-inverses

PINV = Op("pinv", np.linalg.pinv)


def _pinv_rule(g: Any, y: Any, a: Any, **kw: Any) -> Any:
    """Golub and Pereyra (1973): where the rank stays as it is."""
    yh, gh = adjoint(y), adjoint(g)
    left, right = np.eye(a.shape[-2]) - a @ y, np.eye(a.shape[-1]) - y @ a
    return left @ gh @ y @ yh + yh @ y @ gh @ right - yh @ g @ yh


PINV.define((_pinv_rule, "ay"))


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    """Return the pseudo-inverse."""
    if hermitian is False and rcond is None and rtol is np._NoValue:
        return apply(PINV, (operand(a),))
    kwargs = {"rcond": rcond, "hermitian": hermitian, "rtol": rtol}
    return with_gradients_of(_pinv, np.linalg.pinv, (operand(a),), kwargs)


def _pinv(a: Any, rcond: Any, hermitian: Any, rtol: Any) -> Any:
    """Invert the singular values that are not cut off; a Hermitian matrix has a lower triangle."""
    if not a.size:
        return apply(PINV, (a,))
    if hermitian:
        lower = np.tril(a, -1)
        a = np.where(np.eye(a.shape[-1], dtype=bool), np.real(a), lower + adjoint(lower))
    rcond = rtol if rcond is None else rcond
    if rcond is None or rcond is np._NoValue:
        return apply(PINV, (a,))
    u, s, vh = apply(SVD, (a,))
    kept = s > np.asarray(rcond)[..., None] * np.max(s, axis=-1, keepdims=True)
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0)
    return (adjoint(vh) * inverse[..., None, :]) @ adjoint(u)


def _lstsq(a: Any, b: Any, rcond: Any) -> Any:
    """Return the least-squares solution, its squared residuals, the rank, singular values."""
    a, b = operand(a), operand(b)
    if np.ndim(rcond):
        raise LookupError("no gradient of lstsq with an rcond of several numbers")
    residuals, rank = constant_of(np.linalg.lstsq, a, b, rcond)[1:3]
    u, s, vh = apply(SVD, (a,))
    kept = np.arange(s.shape[-1]) < rank
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0)
    x = np.linalg.pinv(a) @ b if rcond is None else (adjoint(vh) * inverse) @ (adjoint(u) @ b)
    away = b - a @ x
    if residuals.size:  # else there are none
        residuals = np.atleast_1d(np.sum(np.real(away * conj(away)), axis=0))
    return x, residuals, None, s


composed(np.linalg.lstsq, _lstsq)


# ---- orthogonal times triangular

_QR_RESULT: Any = type(np.linalg.qr(np.eye(1)))
QR = Op("qr", lambda a: tuple(np.linalg.qr(a)), many=True)


def _qr_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """Walter and Lehmann (2018), Algorithmic differentiation of linear algebra functions."""
    (q, r), (gq, gr) = y, g
    (a,) = ins
    gq = 0 * q if gq is None else gq
    gr = 0 * r if gr is None else gr
    n = q.shape[-1]
    if r.shape[-1] == n:
        return [_tall_qr(q, r, gq, gr)]
    gq = gq + a[..., n:] @ adjoint(gr[..., n:])  # the further columns of r are q's times those of a
    first = _tall_qr(q, r[..., :n], gq, gr[..., :n])
    return [np.concatenate([first, q @ gr[..., n:]], axis=-1)]


def _tall_qr(q: Any, r: Any, gq: Any, gr: Any) -> Any:
    upper = np.triu(gr @ adjoint(r) - adjoint(q) @ gq)
    whole = upper + adjoint(upper)
    half = np.where(np.eye(r.shape[-1], dtype=bool), 0.5, 1.0)
    return adjoint(np.linalg.solve(r, adjoint(gq + q @ (whole * half))))


QR.define_jointly(_qr_rule, "ay")


def _qr(a: Any, mode: Any) -> Any:
    a = operand(a)
    square = a.shape[-2] <= a.shape[-1]
    if mode not in ("reduced", "r") and not (mode == "complete" and square):
        raise LookupError(f"no gradient of qr with mode={mode!r} of a matrix of shape {a.shape}")
    q, r = apply(QR, (a,))
    return r if mode == "r" else _QR_RESULT(q, r)


composed(np.linalg.qr, _qr)
