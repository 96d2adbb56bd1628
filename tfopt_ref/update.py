"""One update of a variable and its slots, by a gradient of the whole or of some rows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.arithmetic import operand
from tfopt_ref.training_op import TrainingOp

__all__ = ["Gradient", "Rows", "summed", "updated"]


class Rows(NamedTuple):
    """Gradients of some rows: `values[i]` is one of row `indices[i]`."""

    values: np.ndarray
    indices: np.ndarray


Gradient = np.ndarray | Rows


def summed(rows: Rows) -> Rows:
    """Return rows in which those of one index are added, in order, at the place of the first.

    Sums of 16 bits are computed in float32, and rounded once.
    """
    dtype = rows.values.dtype
    computed = np.float32 if dtype.itemsize == 2 else dtype
    distinct = list(dict.fromkeys(rows.indices.tolist()))
    values = np.empty((len(distinct), *rows.values.shape[1:]), dtype)
    with np.errstate(all="ignore"):
        for place, index in enumerate(distinct):
            total = operand(np.zeros(rows.values.shape[1:]), computed)
            for row in rows.values[rows.indices == index]:
                total = total + operand(row, computed)
            values[place] = total
    return Rows(values, np.array(distinct, rows.indices.dtype))


def updated(
    rule: TrainingOp,
    arrays: Sequence[np.ndarray],
    grad: Gradient,
    hypers: dict[str, Any],
    *,
    duplicates: str = "sum",
    grad_scale: float = 1.0,
    var_scale: float = 1.0,
) -> list[np.ndarray]:
    """Return what a rule makes of a variable and its slots.

    Parameters
    ----------
    rule : TrainingOp
    arrays : sequence of ndarray
        The variable, then the slots, in the rule's order.
    grad : ndarray or Rows
    hypers : dict
        The rule's hyperparameters and flags.
    duplicates : {"sum", "sequential", "error"}
        Whether rows of one index are added before they are used, or used one after another; or that
        there are none.
    grad_scale, var_scale : float
        What multiplies the gradient, and the variable before it is updated.
    """
    new = [array.copy("K") for array in arrays]
    options = {**hypers, "grad_scale": grad_scale, "var_scale": var_scale}
    if isinstance(grad, Rows):
        rule(*new, grad.values, **options, indices=grad.indices, duplicates=duplicates)
    else:
        rule(*new, grad, **options)
    return new
