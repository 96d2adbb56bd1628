"""``scipy.linalg``: triangular systems, systems of a Cholesky root, exponentials of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.tensor import stop_gradient
from tfopt.autodiff.vjps.linalg import adjoint
from tfopt.scipy.functions import Function, composed

__all__ = ["cho_solve", "expm", "solve_triangular"]

# ---- triangular systems


def _turned(trans: Any) -> int:
    """Return what is done to the matrix: nothing (0), transposed (1) and conjugated (2)."""
    number = {"N": 0, "T": 1, "C": 2}.get(trans, trans)
    return 2 if number == 2 else int(bool(number))


def _back(g: Any, a: Any, vector: bool, trans: Any, lower: Any, unit_diagonal: Any) -> Any:
    """Return the gradient by the right-hand side, as columns: it solves the adjoint system."""
    turned = _turned(trans)
    if np.ndim(lower) or np.ndim(unit_diagonal):
        raise LookupError("no gradient of solve_triangular with options of several numbers")
    return solve_triangular(
        conj(a) if turned == 1 else a,
        np.expand_dims(g, -1) if vector else g,
        0 if turned else 2,
        bool(lower),
        bool(unit_diagonal),
        check_finite=False,
    )


def _right(g: Any, y: Any, a: Any, b: Any, trans: Any, lower: Any, unit_diagonal: Any,
           check_finite: Any) -> Any:  # fmt: skip
    found = _back(g, a, b.ndim == 1, trans, lower, unit_diagonal)
    return found[..., 0] if b.ndim == 1 else found


def _left(g: Any, y: Any, a: Any, b: Any, trans: Any, lower: Any, unit_diagonal: Any,
          check_finite: Any) -> Any:  # fmt: skip
    vector, turned = b.ndim == 1, _turned(trans)
    full = -(_back(g, a, vector, trans, lower, unit_diagonal)
             @ adjoint(np.expand_dims(y, -1) if vector else y))  # fmt: skip
    if turned:
        full = adjoint(full) if turned == 2 else np.swapaxes(full, -1, -2)
    k = 1 if unit_diagonal else 0
    return np.tril(full, -k) if lower else np.triu(full, k)


_SOLVE = Function("linalg.solve_triangular", (_left, "aby"), (_right, "ab"))


def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, check_finite: bool = True,
) -> Any:  # fmt: skip
    """Solve systems of equations of which a triangular matrix has the coefficients.

    Parameters
    ----------
    a : array_like, Tensor or Variable, shape (..., n, n)
        Its other triangle is not read.
    b : array_like, Tensor or Variable, shape (n,) or (..., n, k)
        The right-hand sides.
    trans : {0, 1, 2, "N", "T", "C"}, default 0
        Whether to solve with `a`, its transpose, or its transposed conjugate.
    lower : bool, default False
        Whether the lower triangle is read, instead of the upper one.
    unit_diagonal : bool, default False
        Whether the diagonal is all ones, and not read.
    overwrite_b : bool, default False
        Whether SciPy may write into an array `b`. Tensors are never written.
    check_finite : bool, default True
        Whether NaN and infinities in `a` and `b` are refused.

    Returns
    -------
    Tensor of the shape of `b`; of arrays alone, what SciPy returns

    Raises
    ------
    numpy.linalg.LinAlgError
        If a diagonal element is 0.
    ValueError
        If the shapes do not fit, or, with `check_finite`, there are NaN or infinities.

    Notes
    -----
    ``scipy.linalg.solve_triangular``, which computes the values. The gradient by `a` is that of
    the triangle that is read.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> from tfopt.scipy.linalg import solve_triangular
    >>> b = tfopt.constant([2.0, 4.0])
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(b)
    ...     x = solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), b)
    >>> x.tolist(), tape.gradient(x, b).tolist()
    ([0.5, 1.0], [0.5, 0.125])
    """
    return _SOLVE(
        a, b, trans=trans, lower=lower, unit_diagonal=unit_diagonal, overwrite_b=overwrite_b,
        check_finite=check_finite,
    )  # fmt: skip


# ---- systems of a root


def _by_root(c_and_lower: Any, b: Any, check_finite: Any) -> Any:
    root, lower = c_and_lower[0], bool(c_and_lower[1])
    first = solve_triangular(root, b, 0 if lower else 2, lower, check_finite=False)
    return solve_triangular(root, first, 2 if lower else 0, lower, check_finite=False)


def cho_solve(
    c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """Solve systems of equations whose matrix has a known Cholesky root.

    Parameters
    ----------
    c_and_lower : tuple of (array_like, Tensor or Variable of shape (..., n, n)) and bool
        The root, and whether it is the lower one: ``(np.linalg.cholesky(A), True)``. Its other
        triangle is not read.
    b : array_like, Tensor or Variable, shape (n,) or (..., n, k)
        The right-hand sides.
    overwrite_b : bool, default False
        Whether SciPy may write into an array `b`. Tensors are never written.
    check_finite : bool, default True
        Whether NaN and infinities are refused.

    Returns
    -------
    Tensor of the shape of `b`; of arrays alone, what SciPy returns

    Raises
    ------
    ValueError
        If the shapes do not fit, or, with `check_finite`, there are NaN or infinities.

    Notes
    -----
    ``scipy.linalg.cho_solve``, which computes the values. The gradient by the root is that of the
    triangle that is read; by the matrix it has passed ``np.linalg.cholesky``.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> from tfopt.scipy.linalg import cho_solve
    >>> A = tfopt.constant([[2.0, 1.0], [1.0, 2.0]])
    >>> cho_solve((np.linalg.cholesky(A), True), [3.0, 3.0]).numpy().round(12).tolist()
    [1.0, 1.0]
    """
    return composed(
        "linalg.cho_solve", _by_root, c_and_lower, b, overwrite_b=overwrite_b,
        check_finite=check_finite,
    )  # fmt: skip


# ---- exponentials


def _expm_rule(g: Any, y: Any, A: Any) -> Any:
    """Higham (2008), Functions of matrices, theorem 3.6: the derivative is a block of another.

    It is linear in `g`, which is scaled so that the other matrix is not larger than the adjoint.
    """
    if A.ndim < 2:  # of one number SciPy makes a matrix
        return np.reshape(g * conj(y), A.shape)
    size = np.max(np.abs(stop_gradient(g)), axis=(-2, -1), keepdims=True, initial=0)
    size = np.where(np.logical_and(size > 0, np.isfinite(size)), size, 1)
    turned = adjoint(A)
    above = np.concatenate([turned, g / size], -1)
    below = np.concatenate([np.zeros_like(turned), turned], -1)
    n = A.shape[-1]
    return expm(np.concatenate([above, below], -2))[..., :n, n:] * size


_EXPM = Function("linalg.expm", (_expm_rule, "ay"))


def expm(A: Any) -> Any:
    """Return the exponentials of matrices.

    Parameters
    ----------
    A : array_like, Tensor or Variable, shape (..., n, n)

    Returns
    -------
    Tensor of the shape of `A`; of an array, what SciPy returns

    Raises
    ------
    ValueError
        If the matrices are not square.

    Notes
    -----
    ``scipy.linalg.expm``, which computes the values. The gradient takes the exponential of a
    matrix of twice the width.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> from tfopt.scipy.linalg import expm
    >>> A = tfopt.constant([[0.0, 1.0], [0.0, 0.0]])
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(A)
    ...     y = expm(A)
    >>> y.tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    >>> tape.gradient(y, A).numpy().round(6).tolist()
    [[1.5, 1.0], [2.166667, 1.5]]
    """
    return _EXPM(A)
