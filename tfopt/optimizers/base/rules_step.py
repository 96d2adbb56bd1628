"""The step of an optimizer whose updates are rules of the table, bound to variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tfopt.core.engine import Readable
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import all_finite
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Count
from tfopt.optimizers.step.clipping import NO_LIMITS
from tfopt.optimizers.step.gradients import are_finite
from tfopt.optimizers.step.plan import StepPlan
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import Observer
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step

if TYPE_CHECKING:
    from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

__all__ = ["RulesStep"]


class RulesStep(Step):
    """A step of a rule of the table, which may be another rule each time.

    Parameters
    ----------
    optimizer : RuleOptimizer
    request : StepRequest
        Its gradients do not matter.
    """

    def __init__(self, optimizer: RuleOptimizer, request: StepRequest) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()
        self._handles = request.handles
        self._looks = request.finite and not optimizer._measures
        self._is_real = all(handle.dtype.kind != "c" for handle in self._handles)
        self._clips = optimizer._limits != NO_LIMITS
        self._plan: StepPlan | None = None
        count = optimizer._store.weights[0]
        self._count = Count(count._array)
        self._written = [each for each in request.variables if isinstance(each, Readable)]
        self._written.append(count)
        patterns = optimizer._exclusion.patterns
        self._named = [each.name for each in self._handles] if patterns else []

    def fits(self) -> bool:
        """Whether patterns exclude the same variables from weight decay."""
        return not self._named or self._named == [each.name for each in self._handles]

    def prepare(self, grads: list[Any], scale: float) -> PreparedStep:
        """Check a step and return it."""
        optimizer, plan, clips = self._optimizer, self._plan, self._clips
        observes = optimizer.observe
        stepped = optimizer._as_stepped(grads, self._handles)
        ordinary = plan is not None and plan.accepts(stepped)
        if self._looks:
            checked = stepped if ordinary else self._with(grads, scale).checked().grads
            if not (all_finite(stepped) if ordinary and self._is_real else are_finite(checked)):
                raise NotFinite
        if optimizer._densifies and optimizer._makes_dense(grads, self._handles):
            made = optimizer._made_dense(self._with(grads, scale))
            stepped, scale = optimizer._as_stepped(made, self._handles), 1.0
            ordinary = plan is not None and plan.accepts(stepped)
            clips = observes = False  # the gradients have been clipped
        if not ordinary:
            self._request.handles  # noqa: B018  # an array that has become read-only is refused
        update = optimizer._next_update(self._count.next())
        if plan is None or update.rule != plan.rule or not (ordinary or plan.suits(stepped)):
            sparse = [isinstance(grad, IndexedSlices) for grad in stepped]
            plan = self._plan = optimizer._planned(update.rule, sparse, self._handles)
        calls, clipped = plan.calls(update, stepped, scale, clips, self._request.finite)
        observer = self._observer(plan, calls, clipped, scale) if observes else None
        deferral = optimizer._deferral(update)
        step = plan.arranged(calls, update, self._request, stepped, scale, observer, deferral)
        if plan.on_device:
            plan.add_launches(step, update, stepped, scale, clips)
        if optimizer.observe:
            step.after.append(partial(self._report, observer))
        step.writes += optimizer._left_by(update)
        step.writes.append(self._count)
        step.variables += self._written
        return step

    def _with(self, grads: list[Any], scale: float) -> StepRequest:
        return self._request._replace(grads=tuple(grads), scale=scale)

    def _observer(self, plan: StepPlan, calls: list[Call], clips: bool, scale: float) -> Observer:
        if plan.on_device:
            raise InvalidTypeError("a step on a GPU cannot be observed")
        return Observer(calls, self._optimizer.clipvalue, scale, clips)

    def _report(self, observer: Observer | None) -> None:
        self._optimizer._last_step = None if observer is None else observer.report()

    def release(self) -> None:
        """Release the gradients."""
        if self._plan is not None:
            self._plan.release()
