"""The step of an optimizer whose updates are rules of the table, bound to variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfopt.core.engine import Readable
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import all_finite
from tfopt.kernels.update.commit import Count
from tfopt.kernels.update.repetition import are_arrays
from tfopt.optimizers.step.clipping import NO_LIMITS
from tfopt.optimizers.step.gradients import are_finite, as_taken, checked_gradient
from tfopt.optimizers.step.known_norms import KnownNorms, refuse_norm_on_device
from tfopt.optimizers.step.plan import StepPlan
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import Observer
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step

if TYPE_CHECKING:
    from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

__all__ = ["RulesStep", "ShapedStep"]


class RulesStep(Step):
    """A step of a rule of the table, which may be another rule each time.

    Parameters
    ----------
    optimizer : RuleOptimizer
    request : StepRequest
        Its gradients do not matter.
    clips, observes : bool
        Whether the optimizer's limits apply, and whether steps are reported if it observes.
    """

    def __init__(
        self,
        optimizer: RuleOptimizer,
        request: StepRequest,
        clips: bool = True,
        observes: bool = True,
    ) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()
        self._handles, self._finite = request.handles, request.finite
        hosted = [k for k, handle in enumerate(self._handles) if handle.device == "cpu"]
        self._on_device = len(hosted) < len(self._handles)
        #: The gradients that must be finite; those that are looked at before the step is checked,
        #: unless a norm is computed that tells.
        self._to_look_at = hosted if request.finite else []
        self._looked_at = [] if optimizer._measures else self._to_look_at
        #: Whether one call can look at all gradients.
        self._is_real = not (
            self._on_device or any(handle.dtype.kind == "c" for handle in self._handles)
        )
        self._clips = clips and optimizer._limits != NO_LIMITS
        self._observes = observes and optimizer.observe
        self._defers = optimizer.sparse == "catch_up" or bool(optimizer._deferred.tables)
        self._adds = not request.adds_nothing
        self._plan: StepPlan | None = None
        count = optimizer._store.weights[0]
        self._count = Count(count._array)
        self._written = [each for each in request.variables if isinstance(each, Readable)]
        self._written.append(count)
        if optimizer._exclusion.patterns:
            self._names = [each.name for each in self._handles]
            self.fits = self._has_names

    def _has_names(self) -> bool:
        """Whether patterns exclude the same variables from weight decay."""
        return self._names == [each.name for each in self._handles]

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        optimizer, plan = self._optimizer, self._plan
        ordinary = plan is not None and plan.accepts(grads)
        if not ordinary:
            self._request.handles  # noqa: B018  # an array that has become read-only is refused
            if self._on_device:
                grads = as_taken(grads, self._handles)
        if self._finite:
            self._refuse_infinite(grads, ordinary, known)
        update = optimizer._next_update(self._count.next())
        if plan is None or not ordinary or update.rule != plan.rule:
            plan = self._plan = self._planned(update.rule, grads, ordinary)
            self.release, ordinary = plan.release, False  # type: ignore[method-assign]
        clipped = False
        if ordinary and not self._clips:
            calls = plan.again(update, scale)
        else:
            clips = self._clips
            calls, clipped = plan.calls(update, grads, scale, clips, self._finite, known)
        observer = self._observer(plan, calls, clipped, scale) if self._observes else None
        if not plan.constrained and not self._defers and (observer is None or plan.in_pieces):
            if self._adds or observer is not None:
                calls = plan.in_turns(calls, self._request, observer)
            step = PreparedStep(calls, self._written)
        else:
            deferral = optimizer._deferral(update)
            step = plan.arranged(calls, update, self._request, grads, scale, observer, deferral)
            step.variables += self._written
        if clipped:
            step.clipped = True
        if plan.on_device:
            refuse_norm_on_device(known)
            plan.add_launch(step, update, self._request, grads, scale, self._clips)
        if observer is not None:
            step.after.append(lambda: vars(optimizer).update(_last_step=observer.report()))
        step.writes += optimizer._left_by(update)
        step.writes.append(self._count)
        return step

    def _planned(self, rule: str, grads: list[Any], ordinary: bool) -> StepPlan:
        """Return the plan of a step, which is the last one if that suits it."""
        plan = self._plan
        if plan is not None and rule == plan.rule and (ordinary or plan.suits(grads)):
            return plan
        optimizer, handles = self._optimizer, self._handles
        sparse = [
            isinstance(grad, IndexedSlices)
            # a device makes rows whole as it steps
            and not (handle.device == "gpu" and optimizer._needs_whole(handle))
            for grad, handle in zip(grads, handles, strict=True)
        ]
        return optimizer._planned(rule, sparse, handles)

    def _observer(self, plan: StepPlan, calls: list[Any], clips: bool, scale: float) -> Observer:
        if plan.on_device:
            raise InvalidTypeError("a step on a GPU cannot be observed")
        return Observer(calls, self._optimizer.clipvalue, scale, clips)

    def _refuse_infinite(self, grads: list[Any], ordinary: bool, known: KnownNorms | None) -> None:
        """Raise `NotFinite` unless all gradients are finite; check those that are not ordinary."""
        given = known is not None and known.norm is not None
        looked_at = self._to_look_at if given else self._looked_at
        if not looked_at:
            return
        if ordinary and self._is_real:
            finite = all_finite(grads) if known is None else are_finite(grads, known)
        else:
            each = [(grads[k], self._handles[k]) for k in looked_at]
            finite = are_finite([checked_gradient(*pair) for pair in each], known)
        if not finite:
            raise NotFinite


class ShapedStep(Step):
    """A step whose rule gets gradients in other shapes, and some rows as dense gradients.

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
        unchecked = request.replace(finite=request.finite and optimizer._measures)
        self._usual = RulesStep(optimizer, unchecked)
        #: Of gradients that have been clipped, so that their norms cannot be observed.
        self._dense = RulesStep(optimizer, unchecked, clips=False, observes=False)
        self.fits = self._usual.fits

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        optimizer = self._optimizer
        self._request.handles  # noqa: B018  # an array that has become read-only is refused
        if self._looks and not are_finite(self._with(grads, scale).checked().grads, known):
            raise NotFinite
        if are_arrays(grads) or not optimizer._makes_dense(grads, self._handles):
            return self._usual.prepare(optimizer._as_stepped(grads, self._handles), scale, known)
        made, clipped = optimizer._made_dense(self._with(grads, scale)._replace(known=known))
        step = self._dense.prepare(optimizer._as_stepped(made, self._handles), 1.0)
        if clipped:
            step.clipped = True
        if optimizer.observe:
            step.after.append(lambda: setattr(optimizer, "_last_step", None))
        return step

    def _with(self, grads: list[Any], scale: float) -> StepRequest:
        return self._request._replace(grads=tuple(grads), scale=scale)

    def release(self) -> None:
        """Release the gradients."""
        self._usual.release()
        self._dense.release()
