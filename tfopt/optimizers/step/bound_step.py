"""Steps that are taken again, of the same variables with other gradients.

A training loop updates the same arrays at each step, so most of what a step is checked for has been
checked before. A step that has been taken can be repeated by a bound one, which keeps its checked
calls; that of a wrapper is made around the bound step of the optimizer inside. A bound step looks
at all that can have changed since. Whatever is out of the ordinary is left to a fresh step, which
is what a bound one must not be distinguished from, except by time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfopt.core.engine import Readable, prepare_writes
from tfopt.core.locks import locked
from tfopt.core.rule_steps import RuleUpdate, SparseUpdate
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Count, carry_out
from tfopt.kernels.update.repetition import Apart, Repetition, gradients_of
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.clipping import NO_LIMITS, clip_again
from tfopt.optimizers.step.gradients import as_gradient, host_arrays
from tfopt.optimizers.step.plan import Part, StepPlan, in_turns
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import Observer
from tfopt.optimizers.step.request import StepRequest

if TYPE_CHECKING:
    from tfopt.optimizers.base.optimizer_base import OptimizerBase
    from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

__all__ = ["BoundAround", "BoundRules", "BoundStep", "Repeats", "bound_rules"]


class BoundStep(ABC):
    """A step bound to variables, which only one thread at a time can use."""

    @abstractmethod
    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the step with other gradients, without changing anything.

        Parameters
        ----------
        grads : list
            Arrays and `IndexedSlices`.
        scale : float
            Multiplies the gradients.

        Returns
        -------
        list of Call or Write, or None
            None if the step needs to be prepared. Exceptions mean the same.
        """

    @abstractmethod
    def finish(self) -> None:
        """Let go of the gradients, after the writes have been carried out."""


class BoundAround(BoundStep):
    """The bound step of a wrapper, which does the same as that of the optimizer inside.

    Parameters
    ----------
    wrapper : Wrapper
    make : callable
        Makes the bound step of the optimizer inside.
    """

    def __init__(self, wrapper: Any, make: Callable[[], BoundStep]) -> None:
        self._wrapper, self._inner = wrapper, make()
        self._slots = wrapper._store.by_memory

    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the step with other gradients, without changing anything."""
        return self._inner.writes(grads, scale)

    def finish(self) -> None:
        """Let go of the gradients, after the writes have been carried out."""
        self._inner.finish()


class BoundRules(BoundStep):
    """A step of rules of the table.

    Parameters
    ----------
    optimizer : RuleOptimizer
    plan : StepPlan
    parts : list of (Part, Repetition or None)
        The parts of the plan; None where each step needs all checks.
    request : StepRequest
        What a step has been asked for: its `before` and `after` are called for each step.
    is_whole : bool
        Whether the repetitions are all calls, which are neither clipped nor observed by a new
        observer in each step.
    """

    def __init__(
        self,
        optimizer: RuleOptimizer,
        plan: StepPlan,
        parts: list[tuple[Part, Repetition | None]],
        request: StepRequest,
        is_whole: bool,
    ) -> None:
        self._optimizer, self._plan, self._parts = optimizer, plan, parts
        self._request, self._is_whole = request._replace(grads=()), is_whole
        self._unchanged = optimizer._repeatable()
        self._count = Count(optimizer._store.weights[0]._array)
        self._observer: Observer | None = None

    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the step with other gradients, without changing anything."""
        optimizer, plan = self._optimizer, self._plan
        asks = type(optimizer.learning_rate) is not float and optimizer._asks_once
        if asks or not self._unchanged.holds() or not self._takes(grads):
            return None
        update = optimizer._next_update(self._count.next())
        if update.rule != plan.rule:
            return None
        writes = self._made(update, grads, scale)
        writes += optimizer._left_by(update)
        writes.append(self._count)
        return writes

    def _takes(self, grads: list[Any]) -> bool:
        """Whether no gradient needs checks that the calls do not make."""
        for part, repetition in self._parts:
            if repetition is not None:
                if not repetition.takes([grads[place] for place in part.places]):
                    return False
                continue
            for place in part.places:
                grad = grads[place]
                if type(grad) is not self._plan.types[place] or (
                    type(grad) is IndexedSlices and type(grad.values) is not np.ndarray
                ):
                    return False
        return True

    def _made(self, update: RuleUpdate, grads: list[Any], scale: float) -> Writes:
        """Return the calls of the step, in turns with those before and after them."""
        optimizer, request = self._optimizer, self._request
        known: list[Any] = []
        for part, repetition in self._parts:
            own = update if part.decays else update.without_decay()
            call = None
            if repetition is not None:
                call = repetition.call_with(own.hypers, own.flags, scale, own.keep)
                own.completed(call, part.places)
            known.append(call)
        calls = known
        if not self._is_whole:
            again = request._replace(grads=tuple(grads), scale=scale)
            calls, clips = self._plan.calls(
                update, again, optimizer.sparse, optimizer._limits, optimizer.merge, known
            )
            if optimizer.observe:
                self._observer = optimizer._observer(again, calls, clips, self._plan)
        writes: Writes = []
        for (part, _), call in zip(self._parts, calls, strict=True):
            writes += in_turns(part, call, request, self._observer)
        return writes

    def finish(self) -> None:
        """Let go of the gradients, and report an observed step."""
        for _, repetition in self._parts:
            if repetition is not None:
                repetition.release()
        if self._observer is not None:
            self._optimizer._last_step = self._observer.report()
            self._observer = None


class BoundCall(BoundRules):
    """The commonest step of rules: a single dense call, which is not observed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        ((self._part, repetition),) = self._parts
        assert repetition is not None
        self._only, self._decays = repetition, self._part.decays
        self._is_alone = self._request.before is self._request.after is None
        self._takes = repetition.takes  # type: ignore[method-assign]

    def _made(self, update: RuleUpdate, grads: list[Any], scale: float) -> Writes:
        own = update if self._decays else update.without_decay()
        call = self._only.call_with(own.hypers, own.flags, scale, own.keep)
        if own.decay or own.rounding is not None:
            own.completed(call, self._part.places)
        if not self._is_whole and not clip_again(call, grads, self._optimizer._limits, scale):
            return super()._made(update, grads, scale)
        return [call] if self._is_alone else in_turns(self._part, call, self._request)

    def finish(self) -> None:
        """Let go of the gradients, after the writes have been carried out."""
        self._only.release()


class WatchedCall(BoundCall):
    """A single dense call, neither clipped nor in turns with others, which is observed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turns: Writes = []

    def _made(self, update: RuleUpdate, grads: list[Any], scale: float) -> Writes:
        calls: Any = super()._made(update, grads, scale)
        if self._observer is None:
            self._observer = Observer(calls, None, scale, False)
            self._turns = [self._observer.watch(calls, 0)]  # the call is the same in each step
        self._observer.scale = scale
        return self._turns.copy()

    def finish(self) -> None:
        """Let go of the gradients, and report the step."""
        super().finish()
        if self._observer is not None:
            self._optimizer._last_step = self._observer.report()


def bound_rules(
    optimizer: RuleOptimizer, plan: StepPlan, calls: list[Call], request: StepRequest
) -> BoundStep:
    """Return the bound step of a step of rules that has been taken by calls of a plan's parts."""
    parts = [
        (part, _repetition(plan.rule, part, call))
        for part, call in zip(plan.parts, calls, strict=True)
    ]
    are_calls = all(repetition is not None for _, repetition in parts)
    is_whole = are_calls and optimizer._limits == NO_LIMITS
    kind: type[BoundRules] = BoundCall if are_calls and len(parts) == 1 else BoundRules
    if optimizer.observe:
        is_alone = request.before is request.after is None
        kind = WatchedCall if kind is BoundCall and is_whole and is_alone else BoundRules
        is_whole = kind is WatchedCall
    return kind(optimizer, plan, parts, request, is_whole)


def _repetition(rule: str, part: Part, call: Call) -> Repetition | None:
    """Return the repetition of a dense call; None if each step needs all checks."""
    if isinstance(part, SparseUpdate):
        return None
    repetition = Repetition(kernels[rule], call)
    return repetition if repetition.possible else None


class _Kept(NamedTuple):
    """A bound step with its variables, as passed by the caller."""

    step: BoundStep
    passed: tuple[Any, ...]
    apart: Apart | None  # where there are several variables
    readable: list[Readable]  # all that the step writes to and tensors may share the memory of


class Repeats:
    """The bound steps of an optimizer, one for each of its phases."""

    def __init__(self) -> None:
        self._kept: dict[Any, _Kept] = {}

    def keep(self, phase: Any, step: PreparedStep, owner: object, passed: tuple[Any, ...]) -> None:
        """Keep the bound step that a step leaves after it has been taken, if it does."""
        make = step._bound_by(owner)
        if make is not None:
            readable = [each for each in step.variables if isinstance(each, Readable)]
            bound = make()
            bound.finish()
            apart = Apart(host_arrays(passed)) if len(passed) > 1 else None
            self._kept[phase] = _Kept(bound, passed, apart, readable)

    def take(self, optimizer: OptimizerBase, pairs: list[Any]) -> bool:
        """Take a step of pairs if a bound one can; otherwise nothing has changed."""
        phase = optimizer._phase
        kept = self._kept.get(phase)
        grads = None if kept is None else gradients_of(pairs, kept.passed)
        if kept is None or grads is None:
            return False
        if not optimizer._locks:
            return self._take(phase, kept, grads)
        with locked(*optimizer._counts(), *kept.passed):
            return self._take(phase, kept, grads)

    def take_flat(
        self, optimizer: OptimizerBase, grads: list[Any], variables: tuple[Any, ...]
    ) -> bool:
        """Take a step of variables, whose locks are held if necessary, if a bound one can."""
        phase = optimizer._phase
        kept = self._kept.get(phase)
        if kept is None:
            return False
        if kept.passed is not variables:
            if len(kept.passed) != len(variables) or any(map(_is_not, kept.passed, variables)):
                return False
            kept = self._kept[phase] = kept._replace(passed=variables)
        return self._take(phase, kept, grads)

    def _take(self, phase: Any, kept: _Kept, grads: list[Any]) -> bool:
        step, _, apart, readable = kept
        if self._kept.pop(phase, None) is not kept:  # another thread is using it
            return False
        if type(grads[0]) is not np.ndarray:
            grads = list(map(as_gradient, grads))
        if apart is not None and not apart.holds(grads):
            self._kept[phase] = kept
            return False
        try:
            writes = step.writes(grads, 1.0)
        except Exception:
            return False  # a fresh step raises it
        if writes is None:
            return False
        prepare_writes(readable)
        carry_out(writes)
        step.finish()
        self._kept[phase] = kept
        return True


def _is_not(a: object, b: object) -> bool:
    return a is not b
