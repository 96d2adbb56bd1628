"""Calls of the functions whose values are NumPy's and whose gradients are composed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["further", "steps"]


def _drawn(shape: tuple[int, ...], seed: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


A, B, CUBE = _drawn((3, 4), 0), _drawn((3, 4), 1), _drawn((2, 3, 4), 8)
V, W, M = _drawn((3,), 5), _drawn((4,), 6), _drawn((4, 3), 7)
POSITIVE = _drawn((3, 4), 3, 0.3, 3.0)
MASK = A > 0
GRID = np.array([0.5, 1.0, 2.5, 4.0])
SQUARE = _drawn((2, 3, 3), 9) + 3 * np.eye(3)
SYMMETRIC = SQUARE[0] + SQUARE[0].T
KNOWN = np.arange(12).reshape(3, 4) % 5 > 0


def _reductions() -> list[tuple[str, Callable[..., Any], Any]]:
    cases: list[tuple[str, Callable[..., Any], Any]] = []
    for f in (np.sum, np.mean, np.prod, np.var, np.std):
        name = f.__name__
        cases += [
            (f"{name}, where", lambda x, f=f: f(x, where=MASK), (A,)),
            (f"{name}, where, axis",
             lambda x, f=f: f(x, axis=1, where=np.arange(4) < 3, keepdims=True), (A,)),
            (f"{name}, dtype", lambda x, f=f: f(x, axis=0, dtype=np.float64), (A,)),
        ]  # fmt: skip
    for f in (np.max, np.min):
        cases += [
            (f"{f.__name__}, initial", lambda x, f=f: f(x, axis=0, initial=0.1), (A,)),
            (f"{f.__name__}, where", lambda x, f=f: f(x, 1, where=MASK, initial=0.5), (A,)),
        ]
    nan_functions = (np.nansum, np.nanmean, np.nanprod, np.nanmax, np.nanmin, np.nanvar, np.nanstd)
    for f in nan_functions:
        name = f.__name__
        cases += [
            (name, lambda x, f=f: f(np.where(KNOWN, x, np.nan)), (A,)),
            (f"{name}, axis", lambda x, f=f: f(np.where(KNOWN, x, np.nan), 0, keepdims=True), (A,)),
        ]
    for f in (np.var, np.std, np.nanvar, np.nanstd):
        cases.append((f"{f.__name__}, correction", lambda x, f=f: f(x, 0, correction=1), (A,)))
    return [
        *cases,
        ("sum, initial", lambda x: np.sum(x, 0, initial=2.0) ** 2, (A,)),
        ("prod, initial", lambda x: np.prod(x, 0, initial=2.0), (A,)),
        ("logaddexp.reduce, initial", lambda x: np.logaddexp.reduce(x, 1, initial=0.3), (A,)),
        ("logaddexp.reduce, where", lambda x: np.logaddexp.reduce(x, 1, where=x < 1.5), (A,)),
        ("average, returned", lambda x: np.average(x, 1, returned=True)[0] ** 2, (A,)),
        ("average, two axes", lambda x, w: np.average(x, (0, 2), w * w), (CUBE, _drawn((2, 4), 3))),
        ("cumsum, dtype", lambda x: np.cumsum(x * x, 0, dtype=np.float64), (A,)),
        ("cumprod, dtype", lambda x: np.cumprod(x, 0, dtype=np.float64), (A,)),
        ("nancumsum", lambda x: np.nancumsum(np.where(KNOWN, x * x, np.nan)), (A,)),
        ("nancumprod", lambda x: np.nancumprod(np.where(KNOWN, x, np.nan), 1), (A,)),
        ("cumulative_sum", lambda x: np.cumulative_sum(x * x, axis=1, include_initial=True), (A,)),
        ("cumulative_prod", lambda x: np.cumulative_prod(x, include_initial=True), (V,)),
        ("minimum.reduce", lambda x: np.minimum.reduce(x, axis=1), (A,)),
        ("multiply.reduce", lambda x: np.multiply.reduce(x, axis=0), (A,)),
        ("angle", lambda x: np.angle(x + 1j * x * x, deg=True), (A,)),
        ("add.accumulate", lambda x: np.add.accumulate(x * x), (A,)),
        ("multiply.accumulate", lambda x: np.multiply.accumulate(x, axis=1), (A,)),
        ("maximum.accumulate", lambda x: np.maximum.accumulate(x, axis=1) ** 2, (A,)),
        ("minimum.accumulate", lambda x: np.minimum.accumulate(x) ** 2, (A,)),
        ("maximum.accumulate of a vector", lambda x: np.maximum.accumulate(x) ** 2, (V,)),
        ("minimum.accumulate of a cube", lambda x: np.minimum.accumulate(x, 2) ** 2, (CUBE,)),
        ("nanmedian", lambda x: np.nanmedian(np.where(KNOWN, x * x, np.nan), 1), (A,)),
        ("nanmedian, axes", lambda x: np.nanmedian(x, (0, 2), keepdims=True), (CUBE,)),
        ("median of even many", lambda x: np.median(x, 1, keepdims=True), (A,)),
        ("quantile", lambda x: np.quantile(x, [0.1, 0.5, 1.0], axis=1), (A,)),
        ("quantile, midpoint", lambda x: np.quantile(x, 0.3, method="midpoint"), (A,)),
        ("quantile, lower", lambda x: np.quantile(x, 0.3, axis=0, method="lower") ** 2, (A,)),
        ("quantile, higher", lambda x: np.quantile(x, 0.3, axis=0, method="higher") ** 2, (A,)),
        ("percentile",
         lambda x: np.percentile(x, [[20], [75]], axis=(0, 2), keepdims=True), (CUBE,)),
        ("cov", np.cov, (A,)),
        ("cov of two", lambda x, y: np.cov(x, y, rowvar=False, bias=True), (A, B)),
        ("cov, weights", lambda x, w: np.cov(x, aweights=w * w, ddof=1), (A, W)),
        ("cov, counts", lambda x: np.cov(x, fweights=[1, 2, 1, 3]), (A,)),
        ("corrcoef", lambda x: np.corrcoef(x) ** 2, (A,)),
        ("partition, kinds", lambda x: np.partition(x, 1, 0) ** 2, (A,)),
        ("bincount", lambda w: np.bincount([0, 2, 2], w, minlength=4) ** 2, (V,)),
    ]  # fmt: skip


def _elements() -> list[tuple[str, Callable[..., Any], Any]]:
    return [
        ("sinc", np.sinc, (A,)),
        ("sinc at 0", lambda x: np.sinc(x - x[0]), (V,)),
        ("heaviside", lambda x, h: np.heaviside(0 * x, h) * x, (A, W)),
        ("ldexp", lambda x: np.ldexp(x, [1, 2, -1, 0]) ** 2, (A,)),
        ("copysign alone", lambda x: np.copysign(x, B), (A,)),
        ("max, where and initial", lambda x: np.max(x, axis=1, where=B > 0, initial=1.0), (A,)),
        ("min, where and initial", lambda x: np.min(x, axis=1, where=B > 0, initial=-1.0), (A,)),
        ("nextafter", lambda x: np.nextafter(x, B) ** 2, (A,)),
        ("modf", lambda x: np.modf(x)[0] ** 2, (A,)),
        ("frexp", lambda x: np.frexp(x)[0] ** 2, (A,)),
        ("divmod", lambda x, y: divmod(x, y)[1], (A, POSITIVE)),
        ("exp, dtype", lambda x: np.exp(x, dtype=np.float64), (A,)),
        ("multiply, dtype", lambda x, y: np.multiply(x, y, dtype=np.float64), (A, B)),
        ("multiply.outer", np.multiply.outer, (A, W)),
        ("power.outer", lambda x, y: np.power.outer(x * x + 1, y), (V, W)),
        ("choose", lambda x, y: np.choose([0, 1, 1, 0], [x, y]) ** 2, (A, W)),
        ("piecewise",
         lambda x: np.piecewise(x, [x < -1, x > 1], [np.square, lambda t: t**3, np.exp]), (A,)),
        ("piecewise, nowhere",
         lambda x: np.piecewise(x, [x > 9, x < 0], [np.exp, np.square, np.sin]), (A,)),
        ("piecewise, numbers", lambda x: np.piecewise(x, [x < 0], [2.0, lambda t: t * t]), (V,)),
        ("apply_along_axis", lambda x: np.apply_along_axis(lambda v: np.cumsum(v * v), 0, x), (A,)),
        ("apply_along_axis to numbers", lambda x: np.apply_along_axis(np.prod, 1, x), (CUBE,)),
        ("polyval", np.polyval, (V, A)),
        ("unwrap", lambda x: np.unwrap(4 * x) ** 2, (A,)),
    ]  # fmt: skip


def _shapes() -> list[tuple[str, Callable[..., Any], Any]]:
    moving: list[Callable[[Any], Any]] = [
        lambda x: np.reshape(x, (2, 6), order="F"), lambda x: np.ravel(x, "F"),
        lambda x: np.reshape(x.T, (2, 6), order="A"), lambda x: np.ravel(x.T, order="K"),
        lambda x: x.flatten("F"), lambda x: x.reshape(6, 2, order="F"),
        lambda x: np.linalg.matrix_transpose(x), lambda x: np.resize(x, (5, 3)),
        lambda x: np.block([[x, x[:, :1]], [x[:1], np.ones((1, 1))]]),
        lambda x: np.insert(x, 1, x[:, 0], axis=1), lambda x: np.insert(x, [1, 5], 2.0 * x[0, :2]),
        lambda x: np.meshgrid(x[0], x[1])[1],
        lambda x: np.meshgrid(x[0], x[:, 0], indexing="ij")[0],
        lambda x: np.meshgrid(x[0], x[1], sparse=True)[0],
        lambda x: np.full_like(x, x[0, 1]), lambda x: np.full_like(x, x[0], shape=(2, 4)),
        lambda x: np.delete(x, [0, 2], axis=0), lambda x: np.delete(x, np.argmax(x)),
        lambda x: np.repeat(x, [1, 0, 2], axis=0), lambda x: np.trace(x, 1, dtype=np.float64),
        lambda x: np.linalg.trace(x, dtype=np.float64),
        lambda x: np.concatenate([x, x], axis=1, dtype=np.float64),
        lambda x: np.diff(x, prepend=x[:, -1:]), lambda x: np.diff(x, 2, 0, append=1.0),
        lambda x: np.ediff1d(x, to_end=x[0, :2], to_begin=1.0),
        lambda x: np.broadcast_arrays(x, x[0])[1], lambda x: np.atleast_1d(x[0, 0]),
        lambda x: np.atleast_2d(x[0]), lambda x: np.unstack(x, axis=1)[2],
        lambda x: np.dsplit(x[None], 2)[1], lambda x: np.roll(x, (1, 2), axis=(0, 1)),
        lambda x: np.astype(x, np.float64), lambda x: np.partition(x, 2, axis=None),
    ]  # fmt: skip
    return [
        (f"further moving {i}", lambda x, f=f: f(x) * f(x) + f(x), (A,))
        for i, f in enumerate(moving)
    ]


def _samples() -> list[tuple[str, Callable[..., Any], Any]]:
    convolutions: list[tuple[str, Callable[..., Any], Any]] = [
        (f"{f.__name__}, {mode}, {a.size} {b.size}", lambda x, y, f=f, mode=mode: f(x, y, mode),
         (a, b))
        for f in (np.convolve, np.correlate)
        for mode in ("full", "same", "valid")
        for a, b in ((W, V), (V, W))
    ]  # fmt: skip
    return [
        *convolutions,
        ("gradient", lambda x: np.gradient(x)[1] ** 2, (A,)),
        ("gradient along one axis", lambda x: np.gradient(x, 0.5, axis=1, edge_order=2) ** 2, (A,)),
        ("gradient, places", lambda x: np.gradient(x, GRID, axis=1) ** 2, (A,)),
        ("trapezoid", lambda y: np.trapezoid(y * y), (A,)),
        ("trapezoid, places", np.trapezoid, (A, GRID)),
        ("trapezoid, distances",
         lambda y, d: np.trapezoid(y, dx=d, axis=0), (A, _drawn((2, 1), 4))),
        ("interp", np.interp, (POSITIVE, GRID, W)),
        ("interp beyond", lambda x, y: np.interp(3 * x, GRID, y, left=-1.0), (A, W)),
        ("interp of a point", lambda y: np.interp([0.1, 0.5, 2.0], [0.5], y) ** 2, (W[:1],)),
        ("interp, period", lambda x, y: np.interp(x, GRID, y, period=5.0), (A, W)),
        ("linspace", lambda a, b: np.linspace(a, b, 5) ** 2, (V, V[::-1])),
        ("linspace of one", lambda a, b: np.linspace(a, b, 1) ** 2, (V, V[::-1])),
        ("linspace, step", lambda a: np.linspace(a, 3.0, 4, False, True, axis=-1)[1] ** 2, (V,)),
    ]  # fmt: skip


def _fourier() -> list[tuple[str, Callable[..., Any], Any]]:
    fft = np.fft
    cases: list[tuple[str, Callable[..., Any], Any]] = []
    for f in (fft.fft, fft.ifft, fft.rfft, fft.ihfft):
        cases += [
            (f.__name__, lambda x, f=f: np.abs(f(x)) ** 2, (A,)),
            (f"{f.__name__}, longer", lambda x, f=f: f(x, 6, 0, "ortho").imag ** 2, (A,)),
            (f"{f.__name__}, shorter", lambda x, f=f: f(x, 3, norm="forward").real ** 2, (A,)),
        ]
    for f in (fft.irfft, fft.hfft):
        cases += [
            (f.__name__, lambda x, f=f: f(x + 1j * x * x), (A,)),
            (f"{f.__name__}, odd", lambda x, f=f: f(x * x - 1j * x, 5, 0, "ortho"), (A,)),
            (f"{f.__name__}, shorter", lambda x, f=f: f(x * x, 3, norm="forward"), (A,)),
        ]
    for f in (fft.fft2, fft.ifft2, fft.fftn, fft.ifftn, fft.rfft2, fft.rfftn):
        cases += [
            (f.__name__, lambda x, f=f: np.abs(f(x)) ** 2, (CUBE,)),
            (f"{f.__name__}, s", lambda x, f=f: f(x, (2, 5), (0, 2), "ortho").imag, (CUBE,)),
        ]
    for f in (fft.irfft2, fft.irfftn):
        cases.append((f.__name__, lambda x, f=f: f(x * (1 + 0.5j)) ** 2, (CUBE,)))
    for f in (fft.fftshift, fft.ifftshift):
        cases += [
            (f.__name__, lambda x, f=f: f(x) ** 2, (CUBE,)),
            (f"{f.__name__}, axes", lambda x, f=f: f(x, 1) ** 2, (CUBE,)),
        ]
    return cases


def _matrices() -> list[tuple[str, Callable[..., Any], Any]]:
    linalg = np.linalg
    tall, wide = _drawn((2, 4, 3), 12), _drawn((2, 3, 5), 13)
    cases: list[tuple[str, Callable[..., Any], Any]] = []
    for name, a in (("tall", tall), ("wide", wide), ("square", SQUARE)):
        cases += [
            (f"svd of {name}", lambda x: linalg.svd(x, compute_uv=False), (a,)),
            (f"svd of {name}, u", lambda x: np.abs(linalg.svd(x, False)[0]) ** 2, (a,)),
            (f"svd of {name}, vh", lambda x: np.abs(linalg.svd(x, False)[2]) ** 2, (a,)),
            (f"svd of {name}, u or vh of full matrices",
             lambda x: np.abs(linalg.svd(x)[0 if x.shape[-2] <= x.shape[-1] else 2]) ** 2, (a,)),
            (f"svd of {name}, both",
             lambda x: linalg.svd(x, False).U[..., :2] @ linalg.svd(x, False).Vh[..., :2, :],
             (a,)),
            (f"pinv of {name}", linalg.pinv, (a,)),
            (f"qr of {name}", lambda x: linalg.qr(x)[0] ** 2, (a,)),
            (f"qr of {name}, r", lambda x: linalg.qr(x, mode="r") ** 2, (a,)),
        ]  # fmt: skip
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        cases += [
            (f"norm {ord} of matrices",
             lambda x, ord=ord: linalg.norm(x, ord, axis=(2, 0), keepdims=True), (CUBE,)),
            (f"matrix_norm {ord}", lambda x, ord=ord: linalg.matrix_norm(x, ord=ord), (tall,)),
        ]  # fmt: skip
    for p in (None, 2, -2, 1, "fro"):
        cases.append((f"cond {p}", lambda x, p=p: linalg.cond(x, p), (SQUARE,)))
    return [
        *cases,
        ("svdvals", linalg.svdvals, (wide,)),
        ("svd, full matrices", lambda x: linalg.svd(x).S ** 2, (wide,)),
        ("eigh", lambda x: linalg.eigh(x)[0] ** 2, (SYMMETRIC,)),
        ("eigh, vectors", lambda x: np.abs(linalg.eigh(x).eigenvectors) ** 2, (SYMMETRIC,)),
        ("eigh, upper", lambda x: np.abs(linalg.eigh(x, "U")[1]) ** 2, (SQUARE,)),
        ("eigvalsh", linalg.eigvalsh, (SQUARE,)),
        ("qr, complete", lambda x: linalg.qr(x, "complete")[1] ** 2, (wide,)),
        ("lstsq", lambda a, b: linalg.lstsq(a, b)[0], (tall[0], W)),
        ("lstsq, residuals", lambda a, b: linalg.lstsq(a, b)[1], (tall[0], _drawn((4, 2), 3))),
        ("cross", np.cross, (M, V)),
        ("cross, axes", lambda a, b: np.cross(a, b, axisa=0, axisc=0), (A, M)),
        ("linalg.cross", lambda a, b: linalg.cross(a, b, axis=0), (A, B)),
        ("norm 0.5", lambda x: linalg.norm(x, 0.5, axis=1), (A,)),
        ("norm -inf", lambda x: linalg.norm(x, -np.inf, axis=1), (A,)),
        ("norm 0", lambda x: linalg.norm(x, 0, axis=1) * x[:, 0], (A,)),
        ("vector_norm, axes", lambda x: linalg.vector_norm(x, axis=(0, 2), ord=3), (CUBE,)),
        ("slogdet of complex numbers",
         lambda a: np.linalg.slogdet(a * (1 + 0.3j))[0].real, (SQUARE,)),
        ("einsum of lists", lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), (A, M)),
        ("einsum, a summed length of 1", lambda a, b: np.einsum("ij,ij->", a, b), (A, A[:1])),
        ("einsum, lengths of 1",
         lambda a, b: np.einsum("cij,cjk->cik", a, b), (CUBE, tall[:1, :1])),
        ("einsum of lists, ...", lambda a: np.einsum(a, [..., 0]) ** 2, (A,)),
        ("einsum, optimize",
         lambda a, b: np.einsum("ij,jk,ki->", a, b, a @ b, optimize=True), (A, M)),
        ("dot of many", np.dot, (A, _drawn((2, 4, 3), 4))),
        ("inner of many", np.inner, (CUBE, A)),
        ("dot of a scalar", lambda a, b: np.dot(a, b[0]) * np.dot(b[1], a), (A, V)),
        ("inner of a scalar", lambda a, b: np.inner(b[0], a), (A, V)),
        ("matrix_power 0", lambda a: np.linalg.matrix_power(a, 0) * a, (SQUARE,)),
        ("matvec", getattr(np, "matvec", np.dot), (A, W)),
        ("vecmat", getattr(np, "vecmat", np.dot), (V, A)),
    ]  # fmt: skip


def _special() -> list[tuple[str, Callable[..., Any], Any]]:
    """SciPy's functions, if it is installed."""
    try:
        import scipy.special as sp
    except ImportError:
        return []
    unit = _drawn((3, 4), 4, 0.1, 0.9)
    of_any = (
        sp.expit, sp.log_expit, sp.erf, sp.erfc, sp.erfcx, sp.erfi, sp.dawsn, sp.ndtr, sp.log_ndtr,
        sp.rgamma, sp.log1p, sp.expm1, sp.exp2, sp.exp10, sp.cbrt, sp.cosm1, sp.exprel, sp.i0,
        sp.i0e, sp.i1, sp.i1e, sp.j0, sp.j1,
    )  # fmt: skip
    of_unit = (sp.logit, sp.erfinv, sp.erfcinv, sp.ndtri)
    of_positive = (
        sp.gamma, sp.gammaln, sp.loggamma, sp.psi, sp.entr, sp.y0, sp.y1, sp.k0, sp.k1,
    )  # fmt: skip
    of_two = (sp.beta, sp.betaln, sp.xlogy, sp.xlog1py, sp.rel_entr, sp.kl_div)
    of_order = (sp.jv, sp.yv, sp.iv, sp.kv, sp.gammainc, sp.gammaincc, sp.huber)
    return [
        *((f"scipy {f.__name__}", f, (unit if f is sp.log1p else A,)) for f in of_any),
        *((f"scipy {f.__name__}", f, (unit,)) for f in of_unit),
        *((f"scipy {f.__name__}", f, (POSITIVE,)) for f in of_positive),
        *((f"scipy {f.__name__}", f, (POSITIVE, unit[0])) for f in of_two),
        *((f"scipy {f.__name__}", lambda x, f=f: f(1.5, x), (POSITIVE,)) for f in of_order),
        ("scipy polygamma", lambda x: sp.zeta(2.0, x), (POSITIVE,)),
        ("scipy xlogy at 0", lambda y: sp.xlogy(np.array([0.0, 1.0, 2.0, 0.0]), y), (POSITIVE,)),
        (
            "scipy i1 and j1 at 0",
            lambda x: sp.i1(x - x[0]) + sp.j1(x - x[0]) + sp.exprel(x - x[0]),
            (V,),
        ),
    ]


def further() -> list[tuple[str, Callable[..., Any], Any]]:
    """Return names, functions and arguments."""
    return [*_reductions(), *_elements(), *_shapes(), *_samples(), *_fourier(), *_matrices(),
            *_special()]  # fmt: skip


def steps() -> list[tuple[str, Callable[..., Any], Any]]:
    """Return calls of what has no gradient, and rightly so."""
    whole = np.array([[5, 2, 7, 1], [0, 3, 3, 9], [4, 4, 8, 6]])
    of_one = (
        np.all, np.any, np.argmin, np.argmax, np.argsort, np.argwhere, np.ceil, np.count_nonzero,
        np.fix, np.flatnonzero, np.floor, np.iscomplex, np.isfinite, np.isinf, np.isnan,
        np.isneginf, np.isposinf, np.isreal, np.lexsort, np.linalg.matrix_rank, np.logical_not,
        np.nanargmax, np.nanargmin, np.nonzero, np.ones_like, np.rint, np.round, np.signbit,
        np.spacing, np.trunc, np.zeros_like, np.around, np.where,
        np.logical_and.reduce, np.logical_or.reduce,
    )  # fmt: skip
    of_two = (
        np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
        np.logical_and, np.logical_or, np.logical_xor, np.floor_divide, np.isclose,
        np.isin,
    )  # fmt: skip
    of_whole_numbers = (
        np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.gcd, np.lcm, np.left_shift,
        np.right_shift,
    )  # fmt: skip
    return [
        *((f"{f.__name__} of one", f, (A,)) for f in of_one),
        *((f.__name__, f, (A, B)) for f in of_two),
        *((f.__name__, f, (whole, whole[::-1])) for f in of_whole_numbers),
        ("invert", np.invert, (whole,)),
        ("bincount of one", lambda x: np.bincount(x.ravel(), minlength=3), (whole,)),
        ("argpartition", lambda x: np.argpartition(x, 1), (A,)),
        ("searchsorted", lambda x: np.searchsorted(np.sort(x, None), [0.0, 1.0]), (A,)),
        ("digitize", lambda x: np.digitize(x, [-1.0, 0.0, 1.0]), (A,)),
        ("empty_like", lambda x: np.empty_like(x).shape[0] * np.ones_like(x), (A,)),
        ("allclose", lambda x: np.float64(np.allclose(x, x)), (A,)),
        ("array_equal", lambda x: np.float64(np.array_equal(x, x)), (A,)),
        ("round to digits", lambda x: np.round(x, 1), (A,)),
        ("round", lambda x: round(x, 1), (A,)),
    ]
