"""Optimizer steps of variables on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.cuda.calls import dense_update, rows_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import RowsUpdate, Update
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.updates.rule_steps import DenseBucket, RuleStep, SparseUpdate

__all__ = ["checked_updates", "run_clipped"]


def checked_updates(
    parts: Sequence[DenseBucket | SparseUpdate],
    steps: Sequence[RuleStep],
    grads: Sequence[Any],
) -> list[Update]:
    """Check the updates of the parts of a step and return them.

    If there are indices, this waits until the GPU has checked them.

    Parameters
    ----------
    parts : sequence of DenseBucket and SparseUpdate
    steps : sequence of RuleStep
        Of each part.
    grads : sequence
        The gradients of the step.
    """
    updates: list[Update] = []
    for part, step in zip(parts, steps, strict=True):
        if step.decay or step.rounding is not None:
            raise InvalidArgumentError(
                "a step on a GPU has no cautious weight decay and no stochastic rounding: keep the "
                "variables in host memory"
            )
        if isinstance(part, DenseBucket):
            operands = (*part.operands, [grads[place] for place in part.places])
            scales = step.grad_scale, step.var_scale
            update = dense_update(step.kernel, operands, step.hypers, step.flags, *scales)
            assert update is not None  # there are variables
            updates.append(update)
        else:
            updates.append(_rows(part, grads[part.place], step))
    return [
        _without_outside(update) if isinstance(update, RowsUpdate) else update for update in updates
    ]


def _rows(part: SparseUpdate, slices: IndexedSlices, step: RuleStep) -> RowsUpdate:
    if step.lazy and step.kernel.rule.absent is not None:
        raise InvalidArgumentError(
            f'on a GPU sparse must be "tensorflow" for {step.kernel.name}, which steps all rows'
        )
    operands = (*part.arrays, slices.values)
    rows = operands, step.hypers, step.flags, slices.indices, step.duplicates
    return rows_update(step.kernel, *rows, step.grad_scale, True, step.var_scale)


def _without_outside(update: RowsUpdate) -> RowsUpdate:
    """Wait until the indices have been checked; return the update without that check."""
    with in_order(update.library, update.device, update.arrays) as stream:
        update.check_indices(stream)
    return update._replace(check_range=False)
