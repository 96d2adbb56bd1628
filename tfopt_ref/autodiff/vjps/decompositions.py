"""Rules of decompositions of matrices.

Equal eigenvalues or singular values do not determine their vectors: what would be divided by their
difference is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.autodiff.ops import Op, define
from tfopt_ref.autodiff.vjps.derived import derived
from tfopt_ref.autodiff.vjps.linalg import transposed

__all__: list[str] = []


def _over(x: Any) -> Any:
    return np.where(x == 0, 0, 1 / np.where(x == 0, 1, x))


def _diagonal(values: Any) -> Any:
    return values[..., None] * np.eye(values.shape[-1])


# ---- eigenvalues


def _eigh(g: Any, y: Any, a: Any, UPLO: str = "L") -> Any:
    """Return the gradient to the triangle that is read."""
    values, v = y
    gaps = _over(values[..., None, :] - values[..., :, None])
    whole = v @ (_diagonal(g[0]) + gaps * (transposed(v) @ g[1])) @ transposed(v)
    n = a.shape[-1]
    strict = np.tril(np.ones((n, n)), -1)
    strict = strict if UPLO.upper() == "L" else strict.T
    return (whole + transposed(whole)) * (strict + np.eye(n) / 2)


define(np.linalg.eigh, _eigh)
derived(np.linalg.eigvalsh)(lambda a, UPLO="L": np.linalg.eigh(a, UPLO)[0])

# ---- singular values


def _svd_back(g: Any, y: Any, a: Any) -> Any:
    """Differentiate U^H dA V = (U^H dU) S + dS + S (dV^H V), U^H dU and V^H dV being skew."""
    (u, s, vh), (gu, gs, gvh) = y, g
    v, gv = transposed(vh), transposed(gvh)
    columns, rows = s[..., None, :], s[..., :, None]
    gaps = _over(columns * columns - rows * rows)
    of_u, of_v = transposed(u) @ gu, transposed(v) @ gv
    skew_u, skew_v = of_u - transposed(of_u), of_v - transposed(of_v)
    core = _diagonal(gs) + gaps * skew_u * columns + rows * gaps * skew_v
    if np.iscomplexobj(skew_u):  # the phases
        core = core + skew_u * np.eye(s.shape[-1]) * _over(columns) / 2
    beside_u = (gu - u @ of_u) * _over(columns) @ vh
    beside_v = u * _over(columns) @ transposed(gv - v @ of_v)
    return u @ core @ vh + beside_u + beside_v


_thin = Op(lambda a: tuple(np.linalg.svd(a, full_matrices=False)), _svd_back, name="svd")


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
         ) -> Any:  # fmt: skip
    u, s, vh = _thin(a)
    if not compute_uv:
        return s
    m, n = a.shape[-2:]
    return (None if full_matrices and m > n else u), s, (None if full_matrices and m < n else vh)


derived(np.linalg.svd)(_svd)
derived(np.linalg.svdvals)(lambda x, /: _thin(x)[1])

# ---- pseudo-inverses


def _pinv(g: Any, y: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the gradient where the rank stays as it is."""
    g, p = transposed(g), transposed(y)
    m, n = a.shape[-2:]
    beside = (np.eye(m) - a @ y) @ g @ (y @ p) + (p @ y) @ g @ (np.eye(n) - y @ a)
    return beside - p @ transposed(g) @ p


define(np.linalg.pinv, _pinv)


@derived(np.linalg.lstsq)
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x = np.linalg.pinv(a) @ b
    residuals = np.atleast_1d(np.sum(np.abs(b - a @ x) ** 2, 0))
    return x, residuals, None, np.linalg.svdvals(a)


# ---- orthogonal times triangular


def _tall(q: Any, r: Any, gq: Any, gr: Any) -> Any:
    upper = np.triu(gr @ transposed(r) - transposed(q) @ gq)
    n = r.shape[-1]
    symmetric = (upper + transposed(upper)) * (1 - np.eye(n) / 2)
    return (gq + q @ symmetric) @ transposed(np.linalg.inv(r))


def _qr_back(g: Any, y: Any, a: Any) -> Any:
    (q, r), (gq, gr) = y, g
    k = q.shape[-1]
    gq = gq + a[..., k:] @ transposed(gr[..., k:])
    first = _tall(q, r[..., :k], gq, gr[..., :k])
    return np.concatenate([first, q @ gr[..., k:]], -1)


_reduced = Op(lambda a: tuple(np.linalg.qr(a)), _qr_back, name="qr")


def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "r") and not (mode == "complete" and a.shape[-2] <= a.shape[-1]):
        raise LookupError(f"no gradient of qr with mode={mode!r} of a matrix of shape {a.shape}")
    q, r = _reduced(a)
    return r if mode == "r" else (q, r)


derived(np.linalg.qr)(_qr)
