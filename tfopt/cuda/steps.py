"""An optimizer's step of variables on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.cuda.calls import dense_update, rows_update
from tfopt.cuda.clipping import run_clipped
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import RowsUpdate, Update
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.execution.rule_steps import Step, Steps
from tfopt.optimizers.execution.step_plan import Dense, Rows

__all__ = ["checked_updates", "run_clipped"]


def checked_updates(
    parts: Sequence[Dense | Rows],
    grads: Sequence[Any],
    steps: Steps,
) -> list[Update]:
    """Return the updates of the parts of a step, which can be carried out.

    Waits for the GPU if there are indices, which have to be looked at.

    Parameters
    ----------
    parts : sequence of Dense and Rows
    grads : sequence
        The gradients of the step.
    steps : Steps
    """
    updates: list[Update] = []
    for part in parts:
        if isinstance(part, Dense):
            whole = steps.whole(part.decays)
            operands = (*part.operands, [grads[place] for place in part.places])
            update = dense_update(whole.kernel, operands, whole.hypers, whole.flags, *whole.scales)
            assert update is not None  # there are variables
            updates.append(update)
        else:
            updates.append(_rows(part, grads[part.place], steps.of_rows(part.decays)))
    return [
        _without_outside(update) if isinstance(update, RowsUpdate) else update for update in updates
    ]


def _rows(part: Rows, slices: IndexedSlices, step: Step) -> RowsUpdate:
    if step.lazy and step.kernel.rule.absent is not None:
        raise InvalidArgumentError(
            f'on a GPU {step.kernel.name} is a step of all rows: sparse must be "tensorflow"'
        )
    operands = (*part.arrays, slices.values)
    rows = operands, step.hypers, step.flags, slices.indices, step.duplicates
    return rows_update(step.kernel, *rows, step.grad_scale, True, step.var_scale)


def _without_outside(update: RowsUpdate) -> RowsUpdate:
    """Wait until the indices have been looked at; the update need not do so again."""
    with in_order(update.library, update.device, update.arrays) as stream:
        update.check_indices(stream)
    return update._replace(check_range=False)
