"""Torch's gradients of functions that others make up, and of decompositions, are ours.

Skipped where torch is not installed, unless TFOPT_REQUIRE_TORCH is set.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None and not os.environ.get("TFOPT_REQUIRE_TORCH"):
    pytest.skip("torch is not installed (TFOPT_REQUIRE_TORCH=1)", allow_module_level=True)

import torch

import tfopt

la, tla, fft, tfft = np.linalg, torch.linalg, np.fft, torch.fft
R = np.random.default_rng(0)
A, V, W, LONG = R.normal(size=(3, 4)), R.normal(size=4), R.normal(size=3), R.normal(size=(4, 9))
SQUARE, TALL, WIDE = R.normal(size=(2, 3, 3)), R.normal(size=(2, 4, 3)), R.normal(size=(2, 3, 5))
NORMAL = SQUARE @ np.swapaxes(SQUARE, -1, -2) + np.eye(3)
SOME = A.copy()
SOME[1, 2] = SOME[2, 0] = np.nan
TIES = np.array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]])
ZEROS = np.array([[2.0, 0.0, 4.0], [0.0, 0.0, 3.0]])


def _symmetric(x: Any) -> Any:
    return (x + x.mT) / 2


#: What is called here, what in torch, and with what.
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "var": (lambda x: np.var(x, 1, ddof=1), lambda x: torch.var(x, 1), (A,)),
    "std": (lambda x: np.std(x, 0), lambda x: torch.std(x, 0, correction=0), (A,)),
    "prod": (lambda x: np.prod(x, 1), lambda x: torch.prod(x, 1), (A,)),
    "prod of zeros": (lambda x: np.prod(x, 1), lambda x: torch.prod(x, 1), (ZEROS,)),
    "cumprod": (lambda x: np.cumprod(x, 1), lambda x: torch.cumprod(x, 1), (A,)),
    "cumprod of zeros": (lambda x: np.cumprod(x, 1), lambda x: torch.cumprod(x, 1), (ZEROS,)),
    "max of ties": (lambda x: np.max(x, 1), lambda x: torch.amax(x, 1), (TIES,)),
    "min of ties": (lambda x: np.min(x, 1), lambda x: torch.amin(x, 1), (TIES,)),
    "logaddexp.reduce": (lambda x: np.logaddexp.reduce(x, axis=1),
                         lambda x: torch.logsumexp(x, 1), (A,)),
    "nansum": (lambda x: np.nansum(x, 1), lambda x: torch.nansum(x, 1), (SOME,)),
    "nanmean": (lambda x: np.nanmean(x, 1), lambda x: torch.nanmean(x, 1), (SOME,)),
    "nanmedian": (lambda x: np.nanmedian(x[0]), lambda x: torch.nanmedian(x[0]),
                  (np.array([[1.0, np.nan, 3.0, 2.0]]),)),
    "median": (lambda x: np.median(x, 1), lambda x: torch.median(x, 1).values, (LONG,)),
    "quantile": (lambda x: np.quantile(x, [0.1, 0.77], 1),
                 lambda x: torch.quantile(x, torch.tensor([0.1, 0.77], dtype=torch.float64), 1),
                 (A,)),
    "maximum.accumulate": (lambda x: np.maximum.accumulate(x, 1),
                           lambda x: torch.cummax(x, 1).values, (A,)),
    "cov": (np.cov, torch.cov, (A,)), "corrcoef": (np.corrcoef, torch.corrcoef, (A,)),
    "gradient": (lambda x: np.stack(np.gradient(x, edge_order=2)),
                 lambda x: torch.stack(torch.gradient(x, edge_order=2)), (LONG,)),
    "trapezoid": (np.trapezoid, torch.trapezoid, (A, np.array([0.5, 1.0, 2.5, 4.0]))),
    "pad, reflect": (lambda x: np.pad(x, ((0, 0), (2, 1)), "reflect"),
                     lambda x: torch.nn.functional.pad(x, (2, 1), "reflect"), (A,)),
    "pad, edge": (lambda x: np.pad(x, ((0, 0), (2, 1)), "edge"),
                  lambda x: torch.nn.functional.pad(x, (2, 1), "replicate"), (A,)),
    "pad, wrap": (lambda x: np.pad(x, ((0, 0), (2, 1)), "wrap"),
                  lambda x: torch.nn.functional.pad(x, (2, 1), "circular"), (A,)),
    "vdot": (np.vdot, torch.vdot, (V, V[::-1].copy())), "kron": (np.kron, torch.kron, (A, W)),
    "cross": (np.cross, torch.linalg.cross, (R.normal(size=(4, 3)), R.normal(size=(4, 3)))),
    "einsum": (lambda a, b: np.einsum("bij,bkj->ik", a, b),
               lambda a, b: torch.einsum("bij,bkj->ik", a, b), (TALL, SQUARE)),
    "sinc": (np.sinc, torch.sinc, (np.array([0.0, 1e-5, 0.3, -2.5]),)),
    "angle": (lambda x: np.angle(x + 1j * x * x), lambda x: torch.angle(x + 1j * x * x), (A,)),
    "norm": (lambda x: la.norm(x, axis=1), lambda x: tla.norm(x, dim=1), (A,)),
    "norm 3": (lambda x: la.norm(x, 3, axis=1), lambda x: tla.vector_norm(x, 3, 1), (A,)),
    "norm inf of ties": (lambda x: la.norm(x, np.inf, axis=1),
                         lambda x: tla.vector_norm(x, np.inf, 1), (TIES,)),
    "norm of zeros": (lambda x: la.norm(0 * x, axis=1), lambda x: tla.norm(0 * x, dim=1), (A,)),
    **{f"matrix_norm {ord}": (lambda x, ord=ord: la.matrix_norm(x, ord=ord),
                              lambda x, ord=ord: tla.matrix_norm(x, ord=ord), (TALL,))
       for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)},
    "cond": (la.cond, tla.cond, (SQUARE,)), "inv": (la.inv, tla.inv, (SQUARE,)),
    "det": (la.det, tla.det, (SQUARE,)), "pinv": (la.pinv, tla.pinv, (TALL,)),
    "slogdet": (lambda x: la.slogdet(x)[1], lambda x: tla.slogdet(x)[1], (SQUARE,)),
    "solve": (la.solve, tla.solve, (SQUARE, TALL[:, :3])),
    "lstsq": (lambda a, b: la.lstsq(a, b)[0],
              lambda a, b: tla.lstsq(a, b[:, None]).solution[:, 0], (TALL[0], V)),
    "matrix_power": (lambda x: la.matrix_power(x, -3), lambda x: tla.matrix_power(x, -3),
                     (SQUARE,)),
    "multi_dot": (lambda a, b, c: la.multi_dot([a, b, c]), lambda a, b, c: tla.multi_dot([a, b, c]),
                  (A, TALL[0], SQUARE[0])),
    "cholesky": (lambda x: la.cholesky(_symmetric(x)), lambda x: tla.cholesky(_symmetric(x)),
                 (NORMAL,)),
    "cholesky, upper": (lambda x: la.cholesky(_symmetric(x), upper=True),
                        lambda x: tla.cholesky(_symmetric(x), upper=True), (NORMAL,)),
    "eigvalsh": (lambda x: la.eigvalsh(_symmetric(x)), lambda x: tla.eigvalsh(_symmetric(x)),
                 (NORMAL,)),
    "eigh": (lambda x: la.eigh(_symmetric(x))[1] ** 2, lambda x: tla.eigh(_symmetric(x))[1] ** 2,
             (NORMAL,)),
    **{f"svd of {x.shape}, {k}": (lambda x, k=k: la.svd(x, full_matrices=False)[k] ** 2,
                                  lambda x, k=k: tla.svd(x, full_matrices=False)[k] ** 2, (x,))
       for x in (SQUARE, TALL, WIDE) for k in range(3)},
    **{f"qr of {x.shape}, {k}": (lambda x, k=k: la.qr(x)[k] ** 2, lambda x, k=k: tla.qr(x)[k] ** 2,
                                 (x,)) for x in (SQUARE, TALL) for k in range(2)},
    **{f"{name}, {norm}": (lambda x, name=name, norm=norm: np.abs(getattr(fft, name)(x, 5, 0, norm))
                           ** 2,
                           lambda x, name=name, norm=norm: getattr(tfft, name)(x, 5, 0, norm).abs()
                           ** 2, (A,))
       for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
       for norm in ("backward", "ortho", "forward")},
}  # fmt: skip
#: Of which torch has one order, or NaN where it has a second one.
ONE_ORDER = ("quantile", "norm of zeros", "sinc")


def ours(function: Any, args: Any, seed: Any, directions: Any) -> tuple[Any, Any, Any]:
    inputs = list(map(tfopt.constant, args))
    with tfopt.GradientTape() as outer:
        outer.watch(inputs)
        with tfopt.GradientTape() as inner:
            inner.watch(inputs)
            y = function(*inputs)
        grads = inner.gradient(y, inputs, seed(y.shape))
        total = sum(np.sum(g * d) for g, d in zip(grads, directions, strict=True))
    return y, grads, outer.gradient(total, inputs, unconnected_gradients="zero")


def torchs(function: Any, args: Any, seed: Any, directions: Any) -> tuple[Any, Any, Any]:
    inputs = [torch.tensor(x, requires_grad=True) for x in args]
    y = function(*inputs)
    grads = torch.autograd.grad(y, inputs, torch.tensor(seed(y.shape)), create_graph=True)
    total = sum((g * torch.tensor(d)).sum() for g, d in zip(grads, directions, strict=True))
    second = [torch.zeros_like(x) for x in inputs]
    if total.requires_grad:
        found = torch.autograd.grad(total, inputs, allow_unused=True)
        second = [z if g is None else g for g, z in zip(found, second, strict=True)]
    return y, grads, second


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_torchs(name: str) -> None:
    function, of_torch, args = PAIRS[name]
    directions = [np.cos(np.arange(x.size)).reshape(x.shape) for x in args]

    def seed(shape: Any) -> Any:
        return 1 + np.sin(np.arange(int(np.prod(shape)))).reshape(tuple(shape)) / 2

    y, first, second = ours(function, args, seed, directions)
    wanted_y, wanted_first, wanted_second = torchs(of_torch, args, seed, directions)
    pairs = [(y, wanted_y), *zip(first, wanted_first, strict=True)]
    if name not in ONE_ORDER:
        pairs += zip(second, wanted_second, strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(np.asarray(found), wanted.numpy(force=True), 1e-9, 1e-10)
