"""A step of all variables at once: its calls, checked before the first is carried out."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.optimizers.base.gradients import as_array, of_variable
from tfopt.optimizers.execution.clipping import Checked, clipped_calls
from tfopt.optimizers.execution.rule_steps import Steps
from tfopt.optimizers.execution.step_plan import Dense, Plan, Rows

__all__ = ["gpu_updates", "host_calls"]

Limits = tuple[float | None, float | None, float | None]  # of values, norms, the global norm
NO_LIMITS: Limits = (None, None, None)


def host_calls(
    plan: Plan, steps: Steps, grads: tuple[Any, ...], limits: Limits, merge: str, finite: bool
) -> tuple[list[Call], bool]:
    """Check a step of the host; return its calls, one for each part of the plan.

    And whether they make any gradient's norm smaller. If norms are to be `finite`, `NotFinite` is
    raised for one that is not.
    """
    clips = limits != NO_LIMITS
    calls: list[Call] = []
    checked: list[Checked] = []
    for part in plan.parts:
        try:
            _add_calls(part, steps, grads, clips, merge, calls, checked)
        except InvalidArgumentError as error:
            raise _said_of(part, error) from None
    if not clips:
        return calls, False
    return clipped_calls(checked, *limits, steps.scale, finite)


def _add_calls(
    part: Dense | Rows,
    steps: Steps,
    grads: tuple[Any, ...],
    clips: bool,
    merge: str,
    calls: list[Call],
    checked: list[Checked],
) -> None:
    """Check the call of a part, which is added to the calls, or to what can be clipped."""
    if isinstance(part, Rows):
        some, rows = steps.of_rows(part.decays), (part.arrays, grads[part.place], part.workspace)
        if clips:
            checked.append(some.clipped_rows(*rows, part.place, merge))
        else:
            calls.append(some.rows(*rows))
        return
    whole = steps.whole(part.decays)
    dense = [grads[place] for place in part.places]
    if part.dtype is not None:
        dense = [as_array(grad, part.dtype) for grad in dense]
    calls.append(whole.dense(part.operands, dense))
    if clips:
        remake = partial(whole.dense, part.operands)
        checked.append(Checked(calls[-1], gradients_of(calls[-1]), part.places, remake, None))


def _said_of(part: Dense | Rows, error: InvalidArgumentError) -> InvalidArgumentError:
    """Return an error with the name of the variable that it is about, or its place in the step."""
    if isinstance(part, Rows):
        return of_variable(error, part.variable)
    numbered = re.match(r"variable (\d+): ", str(error))
    if numbered is None:
        return error
    place, text = int(numbered[1]), str(error)[numbered.end() :]
    told = of_variable(type(error)(text), part.variables[place])
    return told if str(told) != text else type(error)(f"variable {part.places[place]}: {text}")


def gpu_updates(
    plan: Plan, steps: Steps, grads: tuple[Any, ...], limits: Limits, merge: str
) -> list[Any]:
    """Check a step on a GPU; return its updates."""
    clips, (*_, global_norm) = limits != NO_LIMITS, limits
    if plan.parts and global_norm is not None:
        raise InvalidArgumentError("global_clipnorm needs all variables on one device")
    if clips and merge == "before":
        raise InvalidArgumentError('on a GPU merge must be "after"')
    if clips and steps.scale != 1:
        raise InvalidArgumentError("on a GPU gradients that are scaled cannot be clipped, too")
    return backend_of(plan.there[0].variables).checked_updates(plan.there, grads, steps)
