"""Products of tensors with SciPy's sparse matrices: ``A @ x`` and ``x @ A``.

SciPy is not imported. Whoever multiplies by one of its matrices has done so.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt.autodiff.operands import as_tensor
from tfopt.core import engine
from tfopt.core.engine import Op, Operand, apply


class Matrix:
    """A sparse matrix as an operation's keyword, which is compared by identity alone."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of


def _rule(g: Any, y: Any, x: Any, matrix: Matrix) -> Any:
    of = matrix.of
    if of.ndim > 2:
        raise LookupError("no gradient of a product with a sparse array of more than two axes")
    if of.ndim == 1:
        of, g = of.reshape((1, -1)), np.reshape(g, (1, *g.shape))
    return of.conj().T @ g


PRODUCT = Op("sparse_matmul", lambda x, matrix: matrix.of @ x, label="the product with a sparse A")
PRODUCT.define(_rule)


def _product(left: Any, right: Any, of_arrays: bool) -> Any:
    """Multiply a tensor by a sparse matrix; by a sparse array, too, if `of_arrays`."""
    first = isinstance(left, Operand)
    x, matrix = (left, right) if first else (right, left)
    module: Any = sys.modules.get("scipy.sparse")
    if module is None or not module.issparse(matrix) or not x.ndim:
        return NotImplemented
    if not of_arrays and not isinstance(matrix, module.spmatrix):
        return NotImplemented
    if first:
        return as_tensor(_product(matrix.T, as_tensor(x).T, True)).T
    kept = matrix.copy() if engine.recorders() else matrix  # whose owner may change it
    return apply(PRODUCT, (x,), {"matrix": Matrix(kept)})


engine.set_sparse_product(_product)
