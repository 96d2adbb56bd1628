"""``scipy.special``: logarithms of sums of exponentials, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.operands import array_operand
from tfopt.autodiff.tensor import stop_gradient
from tfopt.autodiff.vjps.arguments import axes_of, known
from tfopt.scipy.functions import Function, composed

__all__ = ["log_softmax", "logsumexp", "softmax"]


def _kept(y: Any, a: Any, axis: Any, keepdims: Any) -> Any:
    """Return a reduction's result with the axes that were reduced, so that it broadcasts."""
    if keepdims or not a.ndim:
        return y
    axes = axes_of(a, axis)
    return np.reshape(y, [1 if k in axes else n for k, n in enumerate(a.shape)])


def _logsumexp_rule(g: Any, y: Any, a: Any, axis: Any, keepdims: Any) -> Any:
    """Return the softmax, of which each sum has its own upstream gradient."""
    g, y = (_kept(part, a, axis, keepdims) for part in (g, y))
    return np.reshape(g * conj(np.exp(a - y)), a.shape)


_LOGSUMEXP = Function("special.logsumexp", (_logsumexp_rule, "ay"))


def _weighted(a: Any, axis: Any, b: Any, keepdims: Any, return_sign: Any) -> Any:
    """Return the logarithm of a weighted sum of exponentials, and the sign of the sum."""
    a, axis = array_operand(a), known(axis)
    if axis is not None:  # of nothing SciPy takes lists and booleans, too
        axis = tuple(map(int, np.atleast_1d(axis)))
    b = np.ones((), a.dtype) if b is None else array_operand(b)
    left_out = np.logical_and(b == 0, np.logical_not(np.isfinite(a)))  # adds nothing
    top = np.where(b == 0, -np.inf, np.real(a))
    top = np.max(np.atleast_1d(stop_gradient(top)), axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    terms = np.atleast_1d(b * np.exp(np.where(left_out, -np.inf, a) - top))
    total = np.sum(terms, axis=axis, keepdims=True)
    if return_sign:
        made = [np.log(np.abs(total)) + top, np.sign(total)]
    else:
        negative = not np.iscomplexobj(total) and total < 0
        made = [np.log(np.where(negative, np.nan, total)) + top]
    if not keepdims:
        made = [np.reshape(y, ()) if axis is None else np.squeeze(y, axis) for y in made]
    return tuple(made) if return_sign else made[0]


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Return the logarithm of a sum of exponentials, without overflow.

    Parameters
    ----------
    a : array_like, Tensor or Variable
    axis : int or tuple of int, optional
        The axes to sum over: all of them, by default.
    b : array_like, Tensor or Variable, optional
        Factors of the exponentials. Where one is 0, its element adds nothing, even if it is NaN.
    keepdims : bool, default False
        Whether the axes stay, with length 1.
    return_sign : bool, default False
        Whether to return the logarithm of the sum's size, and its sign: else the logarithm of a
        negative sum is NaN.

    Returns
    -------
    Tensor, or a pair of them; of arrays alone, what SciPy returns

    Notes
    -----
    ``scipy.special.logsumexp``, which computes the values. The gradient by `a` is the softmax; it
    is NaN where the sum is 0 or infinite.

    Examples
    --------
    >>> import tfopt
    >>> from tfopt.scipy.special import logsumexp
    >>> x = tfopt.constant([0.0, 0.0, 1000.0])
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = logsumexp(x)
    >>> float(y), tape.gradient(y, x).tolist()
    (1000.0, [0.0, 0.0, 1.0])
    """
    if b is None and not return_sign:
        return _LOGSUMEXP(a, axis=axis, keepdims=keepdims)
    return composed(
        "special.logsumexp", _weighted, a, axis=axis, b=b, keepdims=keepdims,
        return_sign=return_sign,
    )  # fmt: skip


def _softmax_rule(g: Any, y: Any, x: Any, axis: Any) -> Any:
    inner = g * conj(y)
    return inner - conj(y) * np.sum(inner, axis=axis, keepdims=True)


_SOFTMAX = Function("special.softmax", (_softmax_rule, "y"))


def softmax(x: Any, axis: Any = None) -> Any:
    """Return exponentials as shares of their sum.

    Parameters
    ----------
    x : array_like, Tensor or Variable
    axis : int or tuple of int, optional
        The axes to sum over: all of them, by default.

    Returns
    -------
    Tensor of the shape of `x`; of an array, what SciPy returns

    Notes
    -----
    ``scipy.special.softmax``, which computes the values.

    Examples
    --------
    >>> import tfopt
    >>> from tfopt.scipy.special import softmax
    >>> softmax(tfopt.constant([1000.0, 1000.0]))
    <Tensor shape=(2,) dtype=float64 [0.5 0.5]>
    """
    return _SOFTMAX(x, axis=axis)


_LOG_SOFTMAX = Function(
    "special.log_softmax",
    (lambda g, y, x, axis: g - conj(np.exp(y)) * np.sum(g, axis=axis, keepdims=True), "y"),
)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """Return the logarithms of `softmax`, of shares that are too small for it, too.

    Parameters
    ----------
    x : array_like, Tensor or Variable
    axis : int or tuple of int, optional
        The axes to sum over: all of them, by default.

    Returns
    -------
    Tensor of the shape of `x`; of an array, what SciPy returns

    Notes
    -----
    ``scipy.special.log_softmax``, which computes the values.

    Examples
    --------
    >>> import tfopt
    >>> from tfopt.scipy.special import log_softmax
    >>> log_softmax(tfopt.constant([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """
    return _LOG_SOFTMAX(x, axis=axis)
