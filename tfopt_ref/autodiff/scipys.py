"""SciPy's functions without a ufunc, by their definitions from NumPy's functions of tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import Operand
from tfopt_ref.autodiff.vjps.elementwise import conj


def _array(x: Any) -> Any:
    """Return the value of a tensor, without a gradient."""
    return x.read().array if isinstance(x, Operand) else np.asarray(x)


# ---- special


def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: bool = False) -> Any:
    """Return the logarithm of the sum of ``b * exp(a)``; `top` keeps it from overflowing."""
    top = np.max(_array(a), axis=axis, keepdims=True)
    total = np.log(np.sum(b * np.exp(a - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.sum(total, axis=axis)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """Return the logarithm of each exponential's share in their sum."""
    return x - logsumexp(x, axis, keepdims=True)


def softmax(x: Any, axis: Any = None) -> Any:
    """Return each exponential's share in their sum."""
    return np.exp(log_softmax(x, axis))


# ---- stats


def norm_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Return the logarithm of the normal distribution's density."""
    return -(((x - loc) / scale) ** 2) / 2 - np.log(scale * math.sqrt(2 * math.pi))


# ---- linalg


def solve_triangular(
    a: Any, b: Any, trans: str = "N", lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """Solve by substitution: each equation has one unknown that is not yet solved."""
    if trans != "N":
        a, lower = np.swapaxes(conj(a) if trans == "C" else a, -1, -2), not lower
    n, vector = a.shape[-1], b.ndim == 1
    b = b[:, None] if vector else b
    solved: dict[int, Any] = {}
    for i in range(n) if lower else reversed(range(n)):
        rest = b[..., i, :]
        for j, known in solved.items():
            rest = rest - a[..., i, j, None] * known
        solved[i] = rest if unit_diagonal else rest / a[..., i, i, None]
    x = np.stack([solved[i] for i in range(n)], axis=-2)
    return x[..., 0] if vector else x


def cho_solve(c: Any, lower: bool, b: Any) -> Any:
    """Solve with the matrix ``c @ adjoint(c)``, or ``adjoint(c) @ c`` if c is upper triangular."""
    first, second = ("N", "C") if lower else ("C", "N")
    return solve_triangular(c, solve_triangular(c, b, first, lower), second, lower)


def expm(A: Any) -> Any:
    """Return the exponential: the power series for a small part of A, squared repeatedly."""
    squarings = max(0, math.ceil(math.log2(1e-300 + float(np.max(np.abs(_array(A)))) * len(A))) + 2)
    small = A / 2.0**squarings
    power = total = small * 0 + np.eye(A.shape[-1])
    for k in range(1, 20):
        power = power @ small / k
        total = total + power
    for _ in range(squarings):
        total = total @ total
    return total
