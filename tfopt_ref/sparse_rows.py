"""Products of sparse rows with weights, and the gradient of the weights.

Denormal numbers are kept here, independently of the setting for steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfopt_ref.update import Rows

# The columns of a row's entries, and their values.
Row = tuple[Sequence[int], np.ndarray]


def dot(rows: Sequence[Row], w: np.ndarray) -> np.ndarray:
    """Return the product of each row with the weights, in their dtype.

    Parameters
    ----------
    rows : sequence of (columns, values)
    w : ndarray, shape (n_columns,) or (n_columns, k)
    """
    products = np.zeros((len(rows), *w.shape[1:]), w.dtype)
    with np.errstate(all="ignore"):
        for i, (columns, values) in enumerate(rows):
            for column, value in zip(columns, values.astype(w.dtype), strict=True):
                products[i] = products[i] + value * w[column]
    return products


def gradient(rows: Sequence[Row], slopes: np.ndarray) -> Rows:
    """Return the gradient of the weights, with a row for each entry.

    Parameters
    ----------
    rows : sequence of (columns, values)
    slopes : ndarray, shape (n_rows,) or (n_rows, k)
        The derivatives with respect to the products.
    """
    indices: list[int] = []
    terms = np.zeros((0, *slopes.shape[1:]), slopes.dtype)
    with np.errstate(all="ignore"):
        for (columns, values), slope in zip(rows, slopes, strict=True):
            for column, value in zip(columns, values.astype(slopes.dtype), strict=True):
                indices.append(column)
                terms = np.concatenate([terms, [value * slope]])
    return Rows(terms, np.array(indices, np.int64))
