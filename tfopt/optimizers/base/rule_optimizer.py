"""Optimizers whose steps are rules of the table, carried out by as few calls as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.commit import carry_out
from tfopt.kernels.update.dense import run
from tfopt.optimizers.base.optimizer_v2 import ApplyState
from tfopt.optimizers.base.rule_state import RuleState
from tfopt.optimizers.base.rules_step import RulesStep, ShapedStep
from tfopt.optimizers.options import BaseOptions, LearningRateLike, Sparse, Storage
from tfopt.optimizers.state.slot_storage import IN_BLOCKS, stored_dtype
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.state.variable_set import VariableSet
from tfopt.optimizers.step.checks import check_rounding, check_signed
from tfopt.optimizers.step.clipping import Limits, clipped_gradients
from tfopt.optimizers.step.deferred_rows import DecayBound, refuse_catching_up
from tfopt.optimizers.step.deferred_tables import Deferral, DeferredUpdates
from tfopt.optimizers.step.gradients import refuse_rows
from tfopt.optimizers.step.plan import StepPlan
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import StepReport
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.storage import shape_in
from tfopt.updates.rule_steps import RuleUpdate, SparseUpdate
from tfopt.variable import Variable

__all__ = ["RuleOptimizer"]

_HOOKS = (
    "_prepare_local",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


class RuleOptimizer(RuleState, abstract=True):
    """Base class of the optimizers whose steps are rules of the table.

    A subclass defines the slots of a variable (`_slot_values`) and the rule of a step (`_update`);
    all dense variables of a dtype are then updated by one call.

    If a subclass overrides one of the methods that `Optimizer` calls for each variable, these are
    called instead; they take the rule's hyperparameters from ``apply_state``.

    Parameters
    ----------
    name, learning_rate, **kwargs
        As in `Optimizer`.
    weight_decay : float, optional
        At least 0. Before each step the weights are multiplied by
        ``1 - learning_rate * weight_decay``: all weights for a dense gradient, only the rows of
        the gradient for a sparse one.
    sparse : {"tensorflow", "lazy", "catch_up"}
        How a sparse gradient affects the rows it does not contain. "tensorflow": as in
        TensorFlow, where it depends on the optimizer. "lazy": neither these rows nor their slots
        change. "catch_up": they are updated as by a dense step with a gradient of zero, but the
        update is deferred, so that the cost of a step does not depend on them, until a gradient
        contains them or `catch_up` or `flush` is called. Until then they must not be read.
    storage : {"float32", "float16", "bfloat16", "8bit", "4bit", "dynamic8bit"} or dict, optional
        How slots are stored, or a dict of this by slot; by default in the variable's dtype. They
        are computed in float32. In 8 or 4 bits (`tfopt.storage`) are those of variables of at least
        4096 elements, which then need dense gradients. For float32 and 16-bit variables.
    stochastic_rounding : int, optional
        A seed, at least 0: numbers stored as bfloat16, of variables and slots, are rounded up or
        down at random, so that their means are what was computed; by default, to the nearest. The
        bits depend on the seed, the step count, the variable's place in the step and the index of
        the element alone.
    cautious_weight_decay : bool, default False
        Whether weights decay only where the step itself moves them towards zero, or not at all:
        there ``learning_rate * weight_decay`` times what they were before is subtracted after it.

    Attributes
    ----------
    observe : bool
        Whether steps set `last_step`; initially False. This costs arithmetic but, for dense
        gradients, no memory traffic.
    last_step : StepReport or None
        A report of the last observed step; only for real variables in host memory. None after a
        step that took one variable after another: with overridden methods, and of rows whose rule
        needs whole variables.

    Raises
    ------
    InvalidArgumentError
        If the optimizer does not support catching up, or does not support weight decay because
        its rule does not start from the current weights; if `cautious_weight_decay` lacks a
        weight decay or is not supported; if rounding or cautious decay is combined with
        catching up.

    References
    ----------
    Chen et al.: Cautious Weight Decay, 2025.
    """

    _densifies = False  # whether sparse gradients of some variables are made dense ones
    _row_slots: tuple[str, ...] = ()  # the slots that have one number for each row of a variable

    def __init__(
        self,
        name: str,
        learning_rate: LearningRateLike,
        *,
        sparse: Sparse = "tensorflow",
        weight_decay: float | None = None,
        storage: Storage = None,
        stochastic_rounding: int | None = None,
        cautious_weight_decay: bool = False,
        **kwargs: Unpack[BaseOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.weight_decay = weight_decay
        self.cautious_weight_decay = cautious_weight_decay
        self.stochastic_rounding = stochastic_rounding
        self.storage = storage
        self.sparse = sparse
        self.observe = False
        self._last_step: StepReport | None = None
        self._exclusion = VariableSet()
        self._deferred = DeferredUpdates()

    @property
    def _one_by_one(self) -> bool:
        """Whether a method that is called for each variable is overridden."""
        return any(getattr(type(self), hook) is not getattr(RuleOptimizer, hook) for hook in _HOOKS)

    def _modes(self) -> tuple[Sparse, ...]:
        """Return what `sparse` can be."""
        catches_up = type(self)._decay_bound is not RuleOptimizer._decay_bound
        has_rows = not self._densifies or (
            type(self)._needs_whole is not RuleOptimizer._needs_whole  # of some variables
        )
        lazy = ("lazy",) if has_rows else ()
        return ("tensorflow", *lazy, *(("catch_up",) if catches_up else ()))

    # ---- methods that a subclass defines

    def _slot_values(self) -> dict[str, float]:
        """Return the names of a variable's slots, in the rule's order, and their initial values."""
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> RuleUpdate:
        """Return the update of step t (counted from 1) at learning rate lr."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    def _rule_slots(self) -> tuple[str, ...]:
        """Return the names of the slots in the order in which the rule takes them."""
        return tuple(self._slot_values())

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        """Return a bound on how far steps without a gradient move a variable."""
        raise NotImplementedError(f'{type(self).__name__} does not support sparse="catch_up"')

    def _left_by(self, update: RuleUpdate) -> Writes:
        """Return the writes of state other than slots that a step leaves for the next one."""
        return []

    def _create_slots(self, var_list: list[Variable]) -> None:
        for slot, value in self._slot_values().items():
            for variable in var_list:
                self.add_slot(variable, slot, value)

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {slot: self._slot_shape(variable, slot) for slot in self._slot_values()}

    def _slot_shape(self, variable: Variable, slot_name: str) -> tuple[int, ...]:
        """Return the shape of the array that holds a slot."""
        shape = self._numbers_shape(variable, slot_name)
        if self.storage is None:
            return shape
        return shape_in(self._slot_dtype(variable, slot_name), shape)

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        slots = self._slot_values()
        is_small = slot_name in self._row_slots and len(slots) > len(self._row_slots)
        stays = self.storage is None or (self.storage in IN_BLOCKS and is_small)
        if stays or slot_name not in slots:
            return super()._slot_dtype(variable, slot_name)
        if isinstance(self.storage, Mapping) and not slots.keys() >= self.storage.keys():
            unknown = next(slot for slot in self.storage if slot not in slots)
            raise InvalidArgumentError(
                f"{type(self).__name__} has no slot {unknown!r}; it has "
                f"{', '.join(slots) or 'none'}"
            )
        rule = kernels[self._update(1, 1.0).rule].rule
        places = dict(zip(rule.slots, self._rule_slots(), strict=True))
        codes = {places[slot]: code for slot, code in rule.codes.items()}
        return stored_dtype(self.storage, variable, slot_name, codes)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that this optimizer creates for each variable."""
        return list(self._slot_values())

    # ---- all variables at once

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of a `StepRequest` that steps support."""
        there = self._takes_as_given and self._by_elements
        fuses = there and not self._takes_norms
        late = self.sparse == "catch_up"
        follows = not (self._one_by_one or self._densifies)
        takes_norm = self.global_clipnorm is not None
        return Capabilities(fuses, follows, self._aggregates, late, there, takes_norm)

    @property
    def _measures(self) -> bool:
        # a clamped infinity is finite, and a sum of finite rows may be infinite
        unchanged = self.clipvalue is None and self.merge == "after"
        return self._takes_as_given and self._takes_norms and unchanged

    @property
    def _takes_norms(self) -> bool:
        return self.clipnorm is not None or self.global_clipnorm is not None

    @property
    def _takes_as_given(self) -> bool:
        apart = self._one_by_one or self._densifies
        return not (apart or self._aggregates or self.gradient_transformers)

    def _bind(self, request: StepRequest) -> Step:
        if self._one_by_one:
            return super()._bind(request)
        return ShapedStep(self, request) if self._densifies else RulesStep(self, request)

    @property
    def _limits(self) -> Limits:
        return self.clipvalue, self.clipnorm, self.global_clipnorm

    # ---- the calls of a step

    @property
    def last_step(self) -> StepReport | None:
        """A report of the last step that was observed; None if there is none."""
        return self._last_step

    def _deferral(self, update: RuleUpdate) -> Deferral | None:
        """Return the handling of deferred updates, if there are or may be any."""
        late = self.sparse == "catch_up"
        if not (late or self._deferred.tables):
            return None
        return Deferral(self._deferred, update, late, self._decay_bound)

    def _prepare_each(self, request: StepRequest) -> PreparedStep:
        step = super()._prepare_each(request)
        update = self._next_update(self._steps_taken + 1)
        deferral = self._deferral(update)
        if deferral is not None:
            deferral.protect(step, request.handles)
        if self.observe:
            step.after.append(lambda: setattr(self, "_last_step", None))
        step.writes += self._left_by(update)
        return step

    def _next_update(self, t: int) -> RuleUpdate:
        lr = self._next_rate(t - 1)
        update = self._update(t, lr)
        seed, decay = self.stochastic_rounding, lr * self.weight_decay
        rounding = None if seed is None else (seed, t)
        if not decay or "weight_decay" in update.hypers:
            return update if rounding is None else update._replace(rounding=rounding)
        keep, subtracted = (1.0, decay) if self.cautious_weight_decay else (1 - decay, 0.0)
        return update._replace(keep=keep, decay=subtracted, rounding=rounding)

    def _planned(self, rule: str, sparse: Sequence[bool], variables: list[Variable]) -> StepPlan:
        """Return the plan of a step; `sparse` are the variables whose gradients are of rows."""
        for is_sparse, variable in zip(sparse, variables, strict=True):
            if is_sparse:
                refuse_rows(variable)
                if self.sparse == "catch_up":
                    refuse_catching_up(variable)
        self._create_slots(variables)
        operands = [self._operands(variable) for variable in variables]
        if self.stochastic_rounding is not None:
            check_rounding(variables, operands)
        if self.cautious_weight_decay:
            check_signed(variables)
        settings = self.sparse, self._limits, self.merge
        return StepPlan(rule, sparse, variables, operands, self._exclusion, *settings)

    def _operands(self, variable: Variable) -> tuple[Any, ...]:
        slots = (self.get_slot(variable, slot).value() for slot in self._rule_slots())
        return (variable.value(), *slots)

    # ---- gradients of other shapes than the rule's

    def _as_stepped(self, grads: list[Any], variables: list[Variable]) -> list[Any]:
        """Return gradients in the shapes that the rule gets them in."""
        return grads

    def _needs_whole(self, variable: Variable) -> bool:
        """Return whether a sparse gradient of a variable is made a dense one."""
        return self._densifies

    def _makes_dense(self, grads: list[Any], variables: list[Variable]) -> bool:
        """Return whether any gradients are made dense ones."""
        return any(
            isinstance(grad, IndexedSlices) and self._needs_whole(variable)
            for grad, variable in zip(grads, variables, strict=True)
        )

    def _made_dense(self, request: StepRequest) -> tuple[list[Any], bool]:
        """Return clipped gradients, those of variables that are taken as a whole made dense.

        Also return whether any norm exceeds its limit. The gradients of variables on a GPU stay
        rows, which their step makes dense.
        """
        variables = request.handles
        for grad, variable in zip(request.grads, variables, strict=True):
            if isinstance(grad, IndexedSlices):
                refuse_rows(variable)
        checked = request.checked().scaled()
        grads, clipped = clipped_gradients(checked.grads, self.merge, self._limits, checked.known)
        made = [
            _whole(grad, variable)
            if isinstance(grad, IndexedSlices)
            and variable.device == "cpu"
            and self._needs_whole(variable)
            else grad
            for grad, variable in zip(grads, variables, strict=True)
        ]
        return made, clipped

    # ---- one variable after another

    def _prepare_local(
        self, var_device: str, var_dtype: np.dtype[Any], apply_state: ApplyState
    ) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        update = self._next_update(self._steps_taken + 1)
        apply_state[var_device, var_dtype].update(update.hypers, update=update)

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        update = _local_update(handle, apply_state)
        operands = tuple([array] for array in self._operands(handle))
        call = update.step(decays=handle not in self._exclusion).dense(
            operands, self._as_stepped([grad], [handle])
        )
        self._deferred.catch_up([handle])
        run(call)

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        if self._needs_whole(handle):
            whole = _whole(IndexedSlices(grad, indices), handle)
            self._resource_apply_dense(whole, handle, apply_state)
            return
        update = _local_update(handle, apply_state)
        decays = handle not in self._exclusion
        part = SparseUpdate(self._operands(handle), 0, handle, Workspace(), decays)
        step = part.step(update, self.sparse, 1.0)
        writes: Writes = [part.call(step, (IndexedSlices(grad, indices),))]
        deferral = self._deferral(update)
        if deferral is not None and deferral.late:
            deferral.before_rows(part, indices, 1.0)(writes)
        carry_out(writes)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        # duplicates are summed there if required
        self._resource_apply_sparse(grad, handle, indices, apply_state)


def _whole(grad: IndexedSlices, variable: Variable) -> np.ndarray:
    """Return the dense gradient of a variable that rows stand for."""
    rows = grad.sum_duplicates()
    whole = np.zeros(variable.shape, rows.values.dtype)
    whole[rows.indices] = rows.values
    return whole


def _local_update(handle: Variable, apply_state: ApplyState) -> RuleUpdate:
    """Return the update of a step with the hyperparameters in apply_state."""
    local = apply_state[handle.device, handle.dtype]
    update: RuleUpdate = local["update"]
    return update._replace(hypers={hyper: local[hyper] for hyper in update.hypers})
