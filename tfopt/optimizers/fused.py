"""A step of all variables at once: its calls, checked before the first is carried out."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tfopt.devices import gpu_steps
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.optimizers.chain import Chain, around
from tfopt.optimizers.clipping import Checked, clipped_calls
from tfopt.optimizers.pairs import as_array
from tfopt.optimizers.plan import Dense, Plan
from tfopt.optimizers.route import Route
from tfopt.optimizers.steps import Steps

__all__ = ["Clip", "Fused", "fused"]


class Clip(NamedTuple):
    """How gradients are clipped: limits, and when rows of one index are summed."""

    limits: tuple[float | None, float | None, float | None]  # value, norm, global norm
    merge: str

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.limits != (None, None, None)


class Fused(NamedTuple):
    """A step that has been checked."""

    plan: Plan
    steps: Steps
    grads: tuple[Any, ...]
    calls: list[Call]  # those of the host, one for each part of the plan
    chains: list[Chain]  # the same with what a route asks for
    updates: list[Any]  # those on a GPU
    clips: bool  # whether a norm is made smaller


def fused(plan: Plan, steps: Steps, grads: tuple[Any, ...], route: Route, clip: Clip) -> Fused:
    """Check a step."""
    calls, clips = _calls(plan, steps, grads, clip, route.finite)
    updates = _updates(plan, steps, grads, clip) if plan.there else []
    chains = [around(part, call, route) for part, call in zip(plan.parts, calls, strict=True)]
    return Fused(plan, steps, grads, calls, chains, updates, clips)


def _calls(
    plan: Plan, steps: Steps, grads: tuple[Any, ...], clip: Clip, finite: bool
) -> tuple[list[Call], bool]:
    """Return the calls of the host, and whether they make any gradient's norm smaller."""
    calls: list[Call] = []
    checked: list[Checked] = []
    for part in plan.parts:
        if isinstance(part, Dense):
            whole = steps.whole(part.decays)
            dense = [grads[place] for place in part.places]
            if part.dtype is not None:
                dense = [as_array(grad, part.dtype) for grad in dense]
            calls.append(whole.dense(part.operands, dense))
            if clip.is_on:
                remake = partial(whole.dense, part.operands)
                checked.append(Checked(calls[-1], gradients_of(calls[-1]), remake, None))
            continue
        some, rows = steps.of_rows(part.decays), (part.arrays, grads[part.place], part.room)
        if clip.is_on:
            checked.append(some.clipped_rows(*rows, clip.merge))
        else:
            calls.append(some.rows(*rows))
    if not clip.is_on:
        return calls, False
    return clipped_calls(checked, *clip.limits, steps.scale, finite)


def _updates(plan: Plan, steps: Steps, grads: tuple[Any, ...], clip: Clip) -> list[Any]:
    """Return the updates on a GPU."""
    *_, global_norm = clip.limits
    if plan.parts and global_norm is not None:
        raise InvalidArgumentError("global_clipnorm is one of variables on one device")
    if clip.is_on and clip.merge == "before":
        raise InvalidArgumentError('on a GPU merge must be "after"')
    if clip.is_on and steps.scale != 1:
        raise InvalidArgumentError("on a GPU gradients that are scaled cannot be clipped, too")
    updates: list[Any] = gpu_steps().checked_updates(plan.there, grads, steps)
    return updates
