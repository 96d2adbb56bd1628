"""Optimizers whose steps are rules of the table: as few calls as there can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.effects import writes
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.commit import carry_out
from tfopt.kernels.together import Turns
from tfopt.kernels.training import run
from tfopt.optimizers.base.gradients import as_variable, refuse_rows
from tfopt.optimizers.base.optimizer import ApplyState
from tfopt.optimizers.base.state_parts import as_damage
from tfopt.optimizers.base.weight_decay import DecayingOptimizer
from tfopt.optimizers.execution.commit import Commit, Work, Writes
from tfopt.optimizers.execution.deferred_rows import Reach, refuse_catching_up
from tfopt.optimizers.execution.deferred_tables import Backlogs, check_all_owed
from tfopt.optimizers.execution.fused import gpu_updates, host_calls
from tfopt.optimizers.execution.pipeline import RowWatch, around, refuse_watching
from tfopt.optimizers.execution.route import DIRECT, Route
from tfopt.optimizers.execution.rule_steps import Steps, Update
from tfopt.optimizers.execution.step_plan import Dense, Plan, Rows, parts_of
from tfopt.optimizers.execution.step_report import StepReport, report_of
from tfopt.variable import Variable

__all__ = ["RuleOptimizer", "Update"]

_HOOKS = (
    "_prepare_local",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


class RuleOptimizer(DecayingOptimizer, abstract=True):
    """Base class of the optimizers that the table has rules for.

    A subclass says which slots a variable gets (`_slot_values`) and which rule makes a step
    (`_update`); all dense variables of a dtype are then updated by one call.

    Where a method that `Optimizer` calls for each variable is overridden, they are called for each:
    then ``apply_state`` holds the rule's hyperparameters, which the methods here read from it.

    Parameters
    ----------
    name, learning_rate, **kwargs
        As in `DecayingOptimizer`.
    sparse : {"tensorflow", "lazy", "catch_up"}
        What a step of some rows does to the others of the variable. "tensorflow": what it does
        there, which differs from optimizer to optimizer. "lazy": nothing; neither they nor their
        slots change. "catch_up": what a dense step with a gradient of zero would do, but late, so
        that its cost does not depend on them: when a step names them, or `catch_up` or `flush` is
        called. Until then they must not be read.

    Attributes
    ----------
    observe : bool
        Whether `last_step` is to be kept, at first False; it costs arithmetic, and for gradients
        of all rows no memory traffic.
    last_step : StepReport or None
        What the last step did, if it was observed: of real numbers in the host's memory.

    Raises
    ------
    InvalidArgumentError
        If the optimizer cannot catch up.
    """

    def __init__(
        self,
        name: str,
        learning_rate: Any,
        *,
        sparse: str = "tensorflow",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.observe = False
        self.last_step: StepReport | None = None
        catches_up = type(self)._reach is not RuleOptimizer._reach
        modes = ("tensorflow", "lazy", *(("catch_up",) if catches_up else ()))
        if sparse not in modes:
            raise InvalidArgumentError(
                f"sparse must be one of {', '.join(modes)} for {type(self).__name__}, "
                f"not {sparse!r}"
            )
        self.sparse = sparse
        self._backlogs = Backlogs()
        self._plan: Plan | None = None
        self._one_by_one = any(
            getattr(type(self), hook) is not getattr(RuleOptimizer, hook) for hook in _HOOKS
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_plan": None}

    # ---- what a subclass defines

    def _slot_values(self) -> dict[str, float]:
        """Return the names of a variable's slots, in the rule's order, and their first values."""
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> Update:
        """Return what step number t (the first is 1) does at learning rate lr."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    def _rule_slots(self) -> tuple[str, ...]:
        """Return the names of the slots in the order in which the rule takes them."""
        return tuple(self._slot_values())

    def _reach(self, update: Update) -> Reach:
        """Return how far steps without a gradient move a variable, if rows can catch up."""
        raise NotImplementedError(f'{type(self).__name__} does not support sparse="catch_up"')

    def _left_by(self, update: Update) -> Writes:
        """Return the writes of what a step leaves for the next one, beside slots."""
        return []

    def _create_slots(self, var_list: list[Variable]) -> None:
        for slot, value in self._slot_values().items():
            for variable in var_list:
                self.add_slot(variable, slot, value)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots this optimizer gives to each variable."""
        return list(self._slot_values())

    # ---- all variables at once

    @property
    def _fuses(self) -> bool:
        return self._takes_as_given and not self._takes_norms

    @property
    def _measures(self) -> bool:
        # a clamped infinity is finite, and a sum of finite rows may be infinite
        own = self.clipvalue is None and self.merge == "after"
        return self._takes_as_given and self._takes_norms and own

    @property
    def _takes_norms(self) -> bool:
        return self.clipnorm is not None or self.global_clipnorm is not None

    @property
    def _takes_as_given(self) -> bool:
        changed = self._aggregates(DIRECT) or bool(self.gradient_transformers)
        return not (self._one_by_one or changed)

    @property
    def _follows(self) -> bool:
        return not self._one_by_one

    def _checked_step(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> Commit:
        if self._one_by_one:
            return self._checked_each(grads, variables, route)
        update = self._next_update()
        plan = self._plan
        types = tuple(map(type, grads))
        if plan is None or not plan.fits(update.rule, types, variables, self._exclusion):
            plan = self._plan = self._planned(update.rule, grads, variables)
        steps = Steps(update, self.sparse, route.scale)
        given = plan, steps, grads
        calls, clips = host_calls(*given, self._limits, self.merge, route.finite)
        updates = gpu_updates(*given, self._limits, self.merge) if plan.there else []
        if self.observe:
            refuse_watching(calls, bool(updates))
        commit = self._in_parts(plan, steps, grads, calls, clips, route)
        if updates:
            commit.launches = True
            commit.work.append(partial(self._launch, plan.there, updates))
        commit.writes += self._left_by(update)
        return commit

    def _in_parts(
        self,
        plan: Plan,
        steps: Steps,
        grads: tuple[Any, ...],
        calls: list[Call],
        clips: bool,
        route: Route,
    ) -> Commit:
        """Return what carries out the calls of a plan's parts."""
        commit, bound = Commit([]), None
        watches: list[Turns | RowWatch] = []
        if self.observe:
            bound = math.inf if self.clipvalue is None else self.clipvalue / abs(route.scale)
            commit.after.append(partial(self._report, watches, route.scale, clips))
        for part, call in zip(plan.parts, calls, strict=True):
            chain = around(part, call, route)
            before: list[Work] = []
            if isinstance(part, Dense):
                writes, turns = chain.writes(bound)
                if turns is not None:
                    watches.append(turns)
                if self._backlogs.any or self.sparse == "catch_up":
                    before.append(partial(self._settle, part.variables))
            else:
                slices, writes = grads[part.place], chain.row_writes()
                if self.sparse == "catch_up":
                    before.append(self._visit(steps, part.variable, part.arrays, slices.indices))
                if bound is not None:
                    watch = RowWatch(part, slices, bound)
                    watches.append(watch)
                    before.append(watch.look)
            if part.constrained or (plan.overlapping and plan.pauses(self.sparse, self.observe)):
                commit.work.append(partial(_carry_out_part, part, before, writes))
                commit.kept += part.written
                if self._backlogs.any or self.sparse == "catch_up":
                    self._keep_backlogs(commit, part.variables)
            else:
                commit.work += before
                commit.writes += writes
        return commit

    def _keep_backlogs(self, commit: Commit, variables: list[Variable]) -> None:
        """Have what rows of variables owe put back if a step fails after it has changed."""
        backlogs = self._backlogs.of(variables)
        commit.owners += [self._backlogs, *backlogs]
        commit.kept += [array for backlog in backlogs for array in backlog.changed]

    def _settle(self, variables: list[Variable], writes: Writes) -> None:
        self._backlogs.catch_up(variables)

    def _launch(self, parts: list[Dense | Rows], updates: list[Any], writes: Writes) -> None:
        backend_of(parts[0].variables).run_clipped(updates, *self._limits)
        for part in parts:
            for variable in part.variables:
                variable.constrain()

    def _report(self, watches: list[Turns | RowWatch], scale: float, clips: bool) -> None:
        self.last_step = report_of([watch.watched() for watch in watches], scale, clips)

    def _checked_each(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> Commit:
        commit = super()._checked_step(grads, variables, route)
        if self._backlogs.any or self.sparse == "catch_up":
            self._keep_backlogs(commit, list(map(as_variable, variables)))
        commit.writes += self._left_by(self._next_update())
        return commit

    def _next_update(self) -> Update:
        lr = self._next_rate()
        update = self._update(int(self.iterations) + 1, lr)
        return update._replace(keep=1 - lr * self.weight_decay) if self.weight_decay else update

    @property
    def _limits(self) -> tuple[float | None, float | None, float | None]:
        return self.clipvalue, self.clipnorm, self.global_clipnorm

    def _planned(self, rule: str, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> Plan:
        listed = [as_variable(var) for var in variables]
        refuse_rows(grads, listed)
        types = tuple(map(type, grads))
        for kind, variable in zip(types, listed, strict=True):
            if self.sparse == "catch_up" and issubclass(kind, IndexedSlices):
                refuse_catching_up(variable)
        self._create_slots(listed)
        operands = [self._operands(variable) for variable in listed]
        decays = [variable not in self._exclusion for variable in listed]
        parts, overlapping = parts_of(types, listed, operands, decays)
        here = [part for part in parts if part.device == "cpu"]
        there = [part for part in parts if part.device == "gpu"]
        return Plan(rule, types, variables, self._exclusion, here, there, overlapping)

    def _operands(self, variable: Variable) -> tuple[Any, ...]:
        slots = (self.get_slot(variable, slot).value() for slot in self._rule_slots())
        return (variable.value(), *slots)

    # ---- rows that catch up

    def _visit(
        self, steps: Steps, variable: Variable, arrays: tuple[Any, ...], indices: Any
    ) -> Work:
        """Return what comes before a step of rows."""
        step, reach = steps.of_rows(variable not in self._exclusion), self._reach(steps.update)
        return partial(self._backlogs.visit, step, variable, arrays, indices, reach)

    @writes()
    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows of a variable take the steps they have not taken, so that they can be read.

        Nothing happens unless ``sparse="catch_up"``.

        Parameters
        ----------
        var : Variable or ndarray
        rows : array_like of int
            Repeated ones are taken once.

        Raises
        ------
        InvalidArgumentError
            If `rows` are not integers.
        IndexOutOfRangeError
            If the variable does not have one of them.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt import IndexedSlices
        >>> from tfopt.optimizers import Adam
        >>> table = np.ones((1000, 2))
        >>> opt = Adam(0.1, sparse="catch_up")
        >>> for row in (3, 5):
        ...     _ = opt.apply_gradients([(IndexedSlices(np.ones((1, 2)), np.array([row])), table)])
        >>> before = table[3, 0]
        >>> opt.catch_up(table, [3])
        >>> bool(table[3, 0] < before)
        True
        """
        self._backlogs.catch_up_rows(as_variable(var), rows)

    @writes()
    def flush(self) -> None:
        """Let all rows of all variables take the steps they have not taken.

        Before variables are read or saved as a whole; `get_weights` does it, too.
        """
        self._backlogs.flush()

    def _withdraw(self, mark: Any) -> None:
        if len(self._weights) > mark:
            self._plan = None  # which has slots that are taken back
        super()._withdraw(mark)

    def _holders(self) -> list[Any]:
        return [*super()._holders(), self._backlogs]

    def _check_move(self, moved: dict[Any, Variable]) -> None:
        super()._check_move(moved)
        self._backlogs.check_move(moved)

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._backlogs.drop(moved)

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`, after a `flush`."""
        self.flush()
        return super().get_weights()

    @writes()
    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them.

        Steps that rows have not taken are forgotten: call `flush` first to keep them.

        Parameters
        ----------
        weights : list of array_like
            As many as `weights`, which the first step makes, and of their shapes; converted to
            their dtypes.

        Raises
        ------
        InvalidArgumentError
            If they are not; nothing has changed.
        """
        super().set_weights(weights)
        self._backlogs.forget()

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        owed = self._backlogs.state(names, self._slots)
        return {**super()._state_parts(names), **({"owed": owed} if owed else {})}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        owed = parts.pop("owed", {})
        with as_damage():
            check_all_owed(owed, names, slots)

        def owe() -> None:
            self._plan = None  # which knows the slots before
            self._backlogs.restore(owed, names, self._slots)

        return [*super()._restoring(parts, names, slots), owe]

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._backlogs.variables]

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self._slot_values(), variable.shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        own = {} if self.sparse == "tensorflow" else {"sparse": self.sparse}
        return {**super().get_config(), **own}

    # ---- one variable after another

    def _prepare_local(
        self, var_device: str, var_dtype: np.dtype[Any], apply_state: ApplyState
    ) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        update = self._next_update()
        apply_state[var_device, var_dtype].update(update.hypers, update=update)

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        steps = Steps(_local_update(handle, apply_state), self.sparse)
        operands = tuple([array] for array in self._operands(handle))
        call = steps.whole(handle not in self._exclusion).dense(operands, [grad])
        self._backlogs.catch_up([handle])
        run(call)

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        update = _local_update(handle, apply_state)
        steps, arrays = Steps(update, self.sparse), self._operands(handle)
        step = steps.of_rows(handle not in self._exclusion)
        writes: Writes = [step.rows(arrays, IndexedSlices(grad, indices), Workspace())]
        if self.sparse == "catch_up":
            self._visit(steps, handle, arrays, indices)(writes)
        carry_out(writes)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to


def _carry_out_part(part: Dense | Rows, before: list[Work], own: Writes, writes: Writes) -> None:
    """Carry out a part of a step where it stands among the others."""
    for work in before:
        work(own)
    carry_out(own)
    if part.constrained:
        for variable in part.variables:
            variable.constrain()


def _local_update(handle: Variable, apply_state: ApplyState) -> Update:
    """Return the update of a step with the hyperparameters that apply_state holds."""
    local = apply_state[handle.device, handle.dtype]
    update: Update = local["update"]
    return update._replace(hypers={hyper: local[hyper] for hyper in update.hypers})
