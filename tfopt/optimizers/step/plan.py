"""The plan of a step of rules: its variables, grouped into as few calls as possible.

A plan is bound to variables and slots. A training loop passes the same variables at each step, so
the plan only gets new gradients; it checks all calls of a step before it carries out the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.kernels.update.pipeline import Turns
from tfopt.kernels.update.repetition import Repetitions
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
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import Observer
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.updates.device_rule import DeviceStep
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate, SparseUpdate
from tfopt.variable import Variable

__all__ = ["Part", "StepPlan"]

Part = DenseBucket | SparseUpdate


class StepPlan:
    """The calls of a step of a rule, which updates variables with as few of them as possible.

    Parameters
    ----------
    rule : str
    sparse : sequence of bool
        Whether each gradient is `IndexedSlices`.
    variables : sequence of Variable
    operands : sequence of tuple
        For each variable, its array and those of its slots.
    exclusion : VariableSet
        The variables whose weights do not decay.
    mode : str
        How rows are stepped, as `sparse` of the optimizer.
    limits : tuple
        Of values, of norms and of the global norm.
    merge : {"after", "before"}
        Whether gradients of the same row are summed after clipping or before it.
    """

    def __init__(
        self,
        rule: str,
        sparse: Sequence[bool],
        variables: Sequence[Variable],
        operands: Sequence[tuple[Any, ...]],
        exclusion: VariableSet,
        mode: str,
        limits: Limits,
        merge: str,
    ) -> None:
        self.rule, self._mode, self._limits, self._merge = rule, mode, limits, merge
        decays = [variable not in exclusion for variable in variables]
        parts, self.overlapping = _parts_of(sparse, variables, operands, decays)
        self.parts = [part for part in parts if part.variables[0].device == "cpu"]
        self.on_device = [part for part in parts if part.variables[0].device == "gpu"]
        self.constrained = any(part.constrained for part in self.parts)
        self._device: DeviceStep | None = None  # of variables on a GPU
        self.has_rows = any(isinstance(part, SparseUpdate) for part in self.parts)
        self.by_elements = kernels[rule].rule.reduction is None
        #: Whether updates go through elements in order, so that they can be watched on the way.
        self.in_pieces = self.by_elements and not self.has_rows
        places = [list(part.places) for part in self.parts]
        self._repetitions = Repetitions(places, [part.decays for part in self.parts])
        #: Takes gradients, and returns whether all parts can be repeated with them; then `again`
        #: returns the calls of those in host memory. Otherwise some need other checks than theirs.
        self.accepts, self.again = self._repetitions.accepts, self._repetitions.calls
        self.release = self._repetitions.release
        if self.on_device:
            self.accepts, self.release = self._accepts_both, self._release_both

    # ---- checks

    def suits(self, grads: list[Any]) -> bool:
        """Whether gradients are sparse where the plan is of rows, and only there."""
        return all(
            isinstance(grads[place], IndexedSlices) is isinstance(part, SparseUpdate)
            for part in (*self.parts, *self.on_device)
            for place in part.places
        )

    def calls(
        self,
        update: RuleUpdate,
        grads: list[Any],
        scale: float,
        clips: bool,
        finite: bool,
        known: KnownNorms | None,
    ) -> tuple[list[Any], bool]:
        """Check the host part of a step, whose gradients have been accepted.

        Return its calls, one for each part, and whether they clip any gradient by its norm.

        Raises
        ------
        NotFinite
            If the gradients must be finite and a norm computed for clipping is not.
        """
        calls: list[Any] = self.again(update, scale)
        if None in calls:
            self._check(calls, update, grads, scale, clips)
        if not clips:
            return calls, False
        each = zip(self.parts, calls, strict=True)
        checked = [self._clippable(part, call, update, grads, scale) for part, call in each]
        return clipped_calls(checked, *self._limits, scale, finite, known)

    def _check(
        self, calls: list[Any], update: RuleUpdate, grads: list[Any], scale: float, clips: bool
    ) -> None:
        """Check the calls of parts that are not repeated; from now on they are, if possible."""
        for k, part in enumerate(self.parts):
            if calls[k] is not None or (clips and isinstance(part, SparseUpdate)):
                continue
            try:
                calls[k] = part.call(part.step(update, self._mode, scale), grads)
            except InvalidArgumentError as error:
                raise _named(part, error) from None
            if isinstance(part, DenseBucket):
                self._repetitions.add(k, kernels[self.rule], calls[k])

    def _clippable(
        self, part: Part, call: Any, update: RuleUpdate, grads: list[Any], scale: float
    ) -> ClippedDense | ClippedRows:
        """Return the call of a part in a form that supports clipping; check that of rows."""
        if isinstance(part, SparseUpdate):
            rows = part.step(update, self._mode, scale), part.arrays, grads[part.place]
            try:
                return ClippedRows(*rows, part.workspace, part.place, self._merge)
            except InvalidArgumentError as error:
                raise _named(part, error) from None
        remade = partial(part.step, update, self._mode, scale)
        return ClippedDense(remade, part.operands, call, part.places)

    def _accepts_both(self, grads: list[Any]) -> bool:
        """As `accepts`, for a plan with variables on a GPU."""
        device = self._device
        return device is not None and device.takes(grads) and self._repetitions.accepts(grads)

    def _release_both(self) -> None:
        self._repetitions.release()
        if self._device is not None:
            self._device.release()

    def add_launch(
        self,
        step: PreparedStep,
        update: RuleUpdate,
        request: StepRequest,
        grads: list[Any],
        scale: float,
        clips: bool,
    ) -> None:
        """Check the updates on a GPU, and add them to the host step: as a write if they are bound.

        If the plan has accepted the gradients, little is left to check. What the request asks for
        before and after updates is added before and after them.

        Raises
        ------
        NotFinite
            If the gradients must be finite and they are not; this waits for them.
        """
        device = self._device
        if device is None:
            limits = self._limits if clips else NO_LIMITS
            device = self._device = DeviceStep(self.on_device, self._mode, limits)
        if self.parts and self._limits[2] is not None:
            raise InvalidArgumentError("global_clipnorm needs all variables on one device")
        if clips and self._merge == "before":
            raise InvalidArgumentError('on a GPU, merge must be "after"')
        updates = device.launch(update, scale, grads)
        if request.finite and not device.finite(updates, grads):
            raise NotFinite
        first: list[Any] = []  # launches
        if request.before is not None:
            first += [request.before(list(part.places)) for part in self.on_device]
        if isinstance(updates, Launch):
            updates.follow(first)
            step.writes.append(updates)
        else:
            step.launches = True
            step.work.append(partial(_launch, first, device, updates, scale, self.on_device))
        if request.after is not None:
            asked = [request.after(part.variables) for part in self.on_device]
            step.writes += [write for write in asked if write is not None]

    # ---- order

    def in_turns(self, calls: list[Any], request: StepRequest, observer: Observer | None) -> Writes:
        """Return calls with those before and after them, watched by an observer if there is one."""
        writes: Writes = []
        for part, call in zip(self.parts, calls, strict=True):
            writes += _in_turns(part, call, request, observer)
        return writes

    def arranged(
        self,
        calls: list[Any],
        update: RuleUpdate,
        request: StepRequest,
        grads: list[Any],
        scale: float,
        observer: Observer | None,
        deferral: Deferral | None,
    ) -> PreparedStep:
        """Return a step that combines calls with what precedes, follows and watches them.

        Parameters
        ----------
        calls : list of Call
            As returned by `calls`.
        update : RuleUpdate
        request : StepRequest
        grads : list
        scale : float
        observer : Observer, optional
            Watches the updates.
        deferral : Deferral, optional
            Handles deferred updates.
        """
        step = PreparedStep([])
        late = self.has_rows and deferral is not None and deferral.late
        looked_at = late if observer is None else not self.in_pieces
        # variables that share memory change one another, so that each is looked at, caught up or
        # constrained after the update of those before it
        pauses = self.overlapping and (self.constrained or looked_at)
        watches = observer if self.by_elements else None
        for part, call in zip(self.parts, calls, strict=True):
            writes = _in_turns(part, call, request, watches)
            first = self._first(part, update, grads, scale, observer, deferral)
            if part.constrained or pauses:
                step.work.append(partial(_carry_out_part, part, first, writes))
                step.kept += part.written
                if deferral is not None:
                    deferral.protect(step, part.variables)
                continue
            step.writes += writes
            if first:
                step.work += first
        return step

    def _first(
        self,
        part: Part,
        update: RuleUpdate,
        grads: list[Any],
        scale: float,
        observer: Observer | None,
        deferral: Deferral | None,
    ) -> list[Work]:
        """Return the work that precedes a part."""
        first: list[Work] = []
        if isinstance(part, SparseUpdate):
            slices = grads[part.place]
            if deferral is not None and deferral.late:
                first.append(deferral.before_rows(part, slices.indices, scale))
            if observer is not None:
                everywhere = part.step(update, self._mode, scale).everywhere
                first.append(observer.watch_rows(part, slices, everywhere))
        else:
            if deferral is not None:
                first.append(deferral.before_all(part.variables))
            if observer is not None and not self.by_elements:
                first.append(observer.watch_whole(part, tuple(grads)))
        return first


def _in_turns(
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


def _launch(
    first: Writes,
    device: DeviceStep,
    updates: list[Any],
    scale: float,
    parts: list[Part],
    writes: Writes,
) -> None:
    carry_out(first)
    device.run(updates, scale)
    for part in parts:
        for variable in part.variables:
            variable.constrain()


def _named(part: Part, error: InvalidArgumentError) -> InvalidArgumentError:
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
    sparse: Sequence[bool],
    variables: Sequence[Variable],
    operands: Sequence[tuple[Any, ...]],
    decays: Sequence[bool],
) -> tuple[list[Part], bool]:
    """Return the parts of a step, and whether any variables overlap.

    Dense variables form one part if they have the same dtype and device and agree in whether they
    decay and whether they are constrained; on a GPU also in how their slots are stored.
    """
    dense: dict[Any, list[int]] = {}
    parts: list[Part] = []
    for place, (is_sparse, variable) in enumerate(zip(sparse, variables, strict=True)):
        if is_sparse:
            parts.append(SparseUpdate(operands[place], place, variable, Workspace(), decays[place]))
        else:
            bound = variable.constraint is not None
            key: Any = variable.device, variable.dtype, decays[place], bound
            if variable.device == "gpu":
                key += tuple(str(array.dtype) for array in operands[place])
            dense.setdefault(key, []).append(place)

    def bucket(places: list[int]) -> DenseBucket:
        columns = zip(*(operands[place] for place in places), strict=True)
        owners = [variables[place] for place in places]
        dtype = owners[0].dtype if owners[0].device == "cpu" else None
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
