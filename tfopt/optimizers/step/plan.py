"""Planning of a step of all variables, grouped into as few calls as possible.

A plan is bound to variables and slots. A training loop passes the same variables at each step, so
the plan only gets new gradients; it checks all calls of a step before it carries out the first.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.rule_steps import DenseBucket, RuleStep, RuleUpdate, SparseUpdate
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import carry_out
from tfopt.kernels.update.pipeline import Turns
from tfopt.optimizers.state.transaction import Work, Writes
from tfopt.optimizers.state.variable_set import VariableSet
from tfopt.optimizers.state.variables import any_overlap
from tfopt.optimizers.step.clipping import (
    NO_LIMITS,
    ClippedDense,
    ClippedRows,
    Limits,
    clipped_calls,
)
from tfopt.optimizers.step.deferred_tables import Deferral
from tfopt.optimizers.step.gradients import of_variable
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import Observer
from tfopt.optimizers.step.request import StepRequest
from tfopt.variable import Variable

__all__ = ["Part", "StepPlan", "in_turns"]

Part = DenseBucket | SparseUpdate


class StepPlan:
    """The calls of a step, without its gradients and hyperparameters.

    Parameters
    ----------
    rule : str
    types : tuple of type
        The types of the gradients.
    passed : tuple
        The variables as passed by the caller.
    variables : sequence of Variable
    operands : sequence of tuple
        For each variable, its array and those of its slots.
    exclusion : VariableSet
        The variables whose weights do not decay.
    settings : tuple
        The settings for which the variables have been checked.
    """

    def __init__(
        self,
        rule: str,
        types: tuple[type, ...],
        passed: tuple[Any, ...],
        variables: Sequence[Variable],
        operands: Sequence[tuple[Any, ...]],
        exclusion: VariableSet,
        settings: tuple[Any, ...],
    ) -> None:
        self.rule = rule
        self.settings = settings
        self.types = types
        self.passed = passed
        self.exclusion = exclusion
        decays = [variable not in exclusion for variable in variables]
        parts, self.overlapping = _parts_of(types, variables, operands, decays)
        self.parts = [part for part in parts if part.variables[0].device == "cpu"]
        self.on_device = [part for part in parts if part.variables[0].device == "gpu"]
        self.constrained = any(part.constrained for part in self.parts)
        self.has_rows = any(isinstance(part, SparseUpdate) for part in self.parts)
        self.by_elements = kernels[rule].rule.reduction is None
        #: Whether updates go through elements in order, so that they can be watched on the way.
        self.in_pieces = self.by_elements and not self.has_rows
        #: Whether nothing runs in Python between the calls, so that they can be repeated.
        self.repeats = not (self.on_device or self.constrained or self.overlapping)

    def fits(
        self,
        rule: str,
        types: tuple[type, ...],
        passed: tuple[Any, ...],
        exclusion: VariableSet,
        settings: tuple[Any, ...],
    ) -> bool:
        """Whether the plan applies to a step with these arguments."""
        return (
            self.rule == rule
            and self.settings == settings
            and self.types == types
            and self.exclusion is exclusion
            and all(map(operator.is_, self.passed, passed))
        )

    # ---- checks

    def calls(
        self,
        update: RuleUpdate,
        request: StepRequest,
        sparse: str,
        limits: Limits,
        merge: str,
        known: Sequence[Call | None] | None = None,
    ) -> tuple[list[Call], bool]:
        """Check the host part of a step.

        Return its calls, one for each part, and whether they clip any gradient by its norm. Calls
        that are `known` are checked already.

        Raises
        ------
        NotFinite
            If the request requires finite gradients and a norm computed for clipping is not finite.
        """
        grads, scale, clips = request.grads, request.scale, limits != NO_LIMITS
        checked: list[Any] = []
        for part, call in zip(self.parts, known or [None] * len(self.parts), strict=True):
            if call is not None and not clips:
                checked.append(call)
                continue
            try:
                step = partial(part.step, update, sparse, scale)
                checked.append(
                    _clippable(part, step, call, grads, merge)
                    if clips
                    else part.call(step(), grads)
                )
            except InvalidArgumentError as error:
                raise _naming(part, error) from None
        if clips:
            return clipped_calls(checked, *limits, scale, request.finite)
        return checked, False

    def add_launches(
        self,
        step: PreparedStep,
        update: RuleUpdate,
        request: StepRequest,
        sparse: str,
        limits: Limits,
        merge: str,
    ) -> None:
        """Check the updates on a GPU, and add them to the host step."""
        clips, (*_, global_norm) = limits != NO_LIMITS, limits
        if self.parts and global_norm is not None:
            raise InvalidArgumentError("global_clipnorm needs all variables on one device")
        if clips and merge == "before":
            raise InvalidArgumentError('on a GPU, merge must be "after"')
        if clips and request.scale != 1:
            raise InvalidArgumentError("on a GPU, scaled gradients cannot be clipped")
        steps = [part.step(update, sparse, request.scale) for part in self.on_device]
        backend = backend_of(self.on_device[0].variables)
        updates = backend.checked_updates(self.on_device, steps, request.grads)
        step.launches = True
        step.work.append(partial(_launch, self.on_device, updates, limits))

    # ---- order

    def arrange(
        self,
        calls: list[Call],
        request: StepRequest,
        observer: Observer | None,
        deferral: Deferral | None,
        everywhere: bool,
    ) -> PreparedStep:
        """Return a step that combines calls with the additional work of the request.

        Parameters
        ----------
        calls : list of Call
            As returned by `calls`.
        request : StepRequest
        observer : Observer, optional
            Watches the updates.
        deferral : Deferral, optional
            Handles deferred updates.
        everywhere : bool
            Whether steps of rows also change the rows without a gradient.
        """
        step = PreparedStep([])
        late = self.has_rows and deferral is not None and deferral.late
        looked_at = late if observer is None else not self.in_pieces
        pauses = self.overlapping and (self.constrained or looked_at)
        for part, call in zip(self.parts, calls, strict=True):
            first: list[Work] = []
            writes = in_turns(part, call, request, observer if self.by_elements else None)
            if isinstance(part, SparseUpdate):
                slices = request.grads[part.place]
                if deferral is not None and deferral.late:
                    first.append(deferral.before_rows(part, slices.indices, request.scale))
                if observer is not None:
                    first.append(observer.watch_rows(part, slices, everywhere))
            else:
                if deferral is not None:
                    first.append(deferral.before_all(part.variables))
                if observer is not None and not self.by_elements:
                    first.append(observer.watch_whole(part, request.grads))
            if part.constrained or pauses:
                step.work.append(partial(_carry_out_part, part, first, writes))
                step.kept += part.written
                if deferral is not None:
                    deferral.keep(step, part.variables)
            else:
                step.work += first
                step.writes += writes
        return step


def in_turns(
    part: Part, call: Call, request: StepRequest, observer: Observer | None = None
) -> Writes:
    """Return a part's update with the calls before and after it.

    Those of a dense one process the same elements in turn, while these are in the cache. The
    observer watches dense updates only.
    """
    following: Any = None
    if isinstance(part, SparseUpdate):
        if request.after_rows is not None:
            following = request.after_rows(part.variable, call)
        elif request.after is not None:
            following = request.after(part.variables)
        return [call] if following is None else [call, following]
    before, after = request.before, request.after
    if before is None and after is None and observer is None:
        return [call]
    calls = [call] if before is None else [before(part.places), call]
    if after is not None:
        following = after(part.variables)
    if following is not None:
        calls.append(following)
    if observer is not None:
        return [observer.watch(calls, calls.index(call))]
    return [Turns(calls)] if len(calls) > 1 else [call]


def _carry_out_part(part: Part, first: list[Work], part_writes: Writes, writes: Writes) -> None:
    """Carry out one part of a step, before the parts after it."""
    for work in first:
        work(part_writes)
    carry_out(part_writes)
    if part.constrained:
        for variable in part.variables:
            variable.constrain()


def _launch(parts: list[Part], updates: list[Any], limits: Limits, writes: Writes) -> None:
    backend_of(parts[0].variables).run_clipped(updates, *limits)
    for part in parts:
        for variable in part.variables:
            variable.constrain()


def _clippable(
    part: Part,
    step: Callable[[], RuleStep],
    known: Call | None,
    grads: tuple[Any, ...],
    merge: str,
) -> ClippedDense | ClippedRows:
    """Check and return the call of a part, unless it is known, in a form that supports clipping."""
    if isinstance(part, SparseUpdate):
        slices = grads[part.place]
        return ClippedRows(step(), part.arrays, slices, part.workspace, part.place, merge)
    call = part.call(step(), grads) if known is None else known
    return ClippedDense(step, part.operands, call, part.places)


def _naming(part: Part, error: InvalidArgumentError) -> InvalidArgumentError:
    """Return an error prefixed with the name of its variable, or its position in the step."""
    if isinstance(part, SparseUpdate):
        return of_variable(error, part.variable)
    numbered = re.match(r"variable (\d+): ", str(error))
    if numbered is None:
        return error
    place, text = int(numbered[1]), str(error)[numbered.end() :]
    named = of_variable(type(error)(text), part.variables[place])
    return named if str(named) != text else type(error)(f"variable {part.places[place]}: {text}")


def _parts_of(
    types: Sequence[type],
    variables: Sequence[Variable],
    operands: Sequence[tuple[Any, ...]],
    decays: Sequence[bool],
) -> tuple[list[Part], bool]:
    """Return the parts of a step, and whether any variables overlap.

    Dense variables form one part if they have the same dtype and device and agree in whether they
    decay and whether they are constrained.
    """
    dense: dict[Any, list[int]] = {}
    parts: list[Part] = []
    for place, (kind, variable) in enumerate(zip(types, variables, strict=True)):
        if issubclass(kind, IndexedSlices):
            parts.append(SparseUpdate(operands[place], place, variable, Workspace(), decays[place]))
        else:
            bound = variable.constraint is not None
            key = variable.device, variable.dtype, decays[place], bound
            dense.setdefault(key, []).append(place)

    def bucket(places: list[int]) -> DenseBucket:
        columns = zip(*(operands[place] for place in places), strict=True)
        owners = [variables[place] for place in places]
        converted = owners[0].device == "cpu" and any(types[k] is not np.ndarray for k in places)
        dtype = owners[0].dtype if converted else None
        bound = owners[0].constraint is not None
        return DenseBucket(
            tuple(map(list, columns)), places, owners, dtype, decays[places[0]], bound
        )

    if not any_overlap(variables):
        return [*map(bucket, dense.values()), *parts], False
    # some variables are repeated or share memory: one call for each, in order
    parts += [bucket([place]) for places in dense.values() for place in places]
    parts.sort(key=lambda part: part.place if isinstance(part, SparseUpdate) else part.places[0])
    return parts, True
