"""Optimizers whose steps are rules of the table: as few calls as there can be."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from tfopt.devices import gpu_steps
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.training import run
from tfopt.optimizers.catch_up import Backlog, Reach, check_owed, refuse_catching_up
from tfopt.optimizers.clipping import Checked, clipped_calls
from tfopt.optimizers.optimizer import ApplyState, Optimizer
from tfopt.optimizers.pairs import as_array, as_variable, memory_of, refuse_rows
from tfopt.optimizers.plan import Dense, Plan, parts_of
from tfopt.optimizers.steps import Step, Update, step_of
from tfopt.room import Room
from tfopt.variable import Variable

__all__ = ["RuleOptimizer", "Update"]

_HOOKS = (
    "_prepare_local",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


class RuleOptimizer(Optimizer):
    """Base class of the optimizers that the table has rules for.

    A subclass says which slots a variable gets (`_slot_values`) and which rule makes a step
    (`_update`); all dense variables of a dtype are then updated by one call.

    Where a method that `Optimizer` calls for each variable is overridden, they are called for each:
    then ``apply_state`` holds the rule's hyperparameters, which the methods here read from it.

    Parameters
    ----------
    name, learning_rate, **kwargs
        As in `Optimizer`.
    sparse : {"tensorflow", "lazy", "catch_up"}
        What a step of some rows does to the others of the variable. "tensorflow": what it does
        there, which differs from optimizer to optimizer. "lazy": nothing; neither they nor their
        slots change. "catch_up": what a dense step with a gradient of zero would do, but late, so
        that its cost does not depend on them: when a step names them, or `catch_up` or `flush` is
        called. Until then they must not be read.

    Raises
    ------
    InvalidArgumentError
        If the optimizer cannot catch up.
    """

    def __init__(
        self, name: str, learning_rate: Any, *, sparse: str = "tensorflow", **kwargs: Any
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        catches_up = type(self)._reach is not RuleOptimizer._reach
        modes = ("tensorflow", "lazy", *(("catch_up",) if catches_up else ()))
        if sparse not in modes:
            raise InvalidArgumentError(
                f"sparse must be one of {', '.join(modes)} for {type(self).__name__}, "
                f"not {sparse!r}"
            )
        self.sparse = sparse
        self._backlogs: dict[Any, Backlog] = {}
        self._plan: Plan | None = None
        self._one_by_one = any(
            getattr(type(self), hook) is not getattr(RuleOptimizer, hook) for hook in _HOOKS
        )

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
        raise NotImplementedError(f"{type(self).__name__} cannot catch up")

    def _stepped(self, update: Update) -> None:
        """Keep what a step leaves for the next one, beside slots."""

    def _create_slots(self, var_list: list[Variable]) -> None:
        for slot, value in self._slot_values().items():
            for variable in var_list:
                self.add_slot(variable, slot, value)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots this optimizer gives to each variable."""
        return list(self._slot_values())

    # ---- all variables at once

    def _take_step(self, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> None:
        if self._one_by_one:
            super()._take_step(grads, variables)
            self._stepped(self._next_update())
            return
        update = self._next_update()
        plan = self._plan
        types = tuple(map(type, grads))
        if plan is None or not plan.fits(update.rule, types, variables):
            plan = self._plan = self._planned(update.rule, grads, variables)
        calls = self._calls(plan, update, grads)
        updates = self._updates(plan, update, grads) if plan.there else []
        for part, call in zip(plan.parts, calls, strict=True):
            if self.sparse != "catch_up":
                run(call)
            elif isinstance(part, Dense):
                self._run_caught_up(call, part.variables)
            else:
                self._run_and_remember(call, update, part.variable, grads[part.place].indices)
        if updates:
            gpu_steps().run_clipped(updates, *self._limits)
        for variable in plan.constrained:
            variable.constrain()
        self._stepped(update)

    def _next_update(self) -> Update:
        return self._update(int(self.iterations) + 1, self._next_rate())

    @property
    def _limits(self) -> tuple[float | None, float | None, float | None]:
        return self.clipvalue, self.clipnorm, self.global_clipnorm

    def _calls(self, plan: Plan, update: Update, grads: tuple[Any, ...]) -> list[Call]:
        """Check a step of the host; return the calls that carry it out, one for each part."""
        whole = step_of(update.rule, update)
        some = self._step_of_rows(update)
        clips = self._limits != (None, None, None)
        calls: list[Call] = []
        checked: list[Checked] = []
        for part in plan.parts:
            if isinstance(part, Dense):
                dense = [grads[place] for place in part.places]
                if part.dtype is not None:
                    dense = [as_array(grad, part.dtype) for grad in dense]
                calls.append(whole.dense(part.operands, dense))
                if clips:
                    remake = partial(whole.dense, part.operands)
                    checked.append(Checked(calls[-1], gradients_of(calls[-1]), remake, None))
            elif clips:
                rows = part.arrays, grads[part.place], part.room
                checked.append(some.clipped_rows(*rows, self.merge))
            else:
                calls.append(some.rows(part.arrays, grads[part.place], part.room))
        return clipped_calls(checked, *self._limits) if clips else calls

    def _updates(self, plan: Plan, update: Update, grads: tuple[Any, ...]) -> list[Any]:
        """Check a step on a GPU; return the updates that carry it out."""
        if plan.parts and self.global_clipnorm is not None:
            raise InvalidArgumentError("global_clipnorm is one of variables on one device")
        if self.merge == "before" and self._limits != (None, None, None):
            raise InvalidArgumentError('on a GPU merge must be "after"')
        whole, some = step_of(update.rule, update), self._step_of_rows(update)
        return gpu_steps().checked_updates(plan.there, grads, whole, some)  # type: ignore[no-any-return]

    def _step_of_rows(self, update: Update) -> Step:
        if self.sparse == "catch_up":  # as a dense step, so that the result is that of dense ones
            return step_of(update.rule, update, lazy=True)
        return step_of(update.rows or update.rule, update, lazy=self.sparse == "lazy")

    def _planned(self, rule: str, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> Plan:
        listed = [as_variable(var) for var in variables]
        refuse_rows(grads, listed)
        constrained = [variable for variable in listed if variable.constraint is not None]
        types = tuple(map(type, grads))
        for kind, variable in zip(types, listed, strict=True):
            if self.sparse == "catch_up" and issubclass(kind, IndexedSlices):
                refuse_catching_up(variable)
        self._create_slots(listed)
        parts = parts_of(types, listed, [self._operands(variable) for variable in listed])
        here = [part for part in parts if part.device == "cpu"]
        there = [part for part in parts if part.device == "gpu"]
        return Plan(rule, types, variables, here, there, constrained)

    def _operands(self, variable: Variable) -> tuple[Any, ...]:
        slots = (self.get_slot(variable, slot).value() for slot in self._rule_slots())
        return (variable.value(), *slots)

    # ---- rows that catch up

    def _backlog(self, variable: Variable, rule: str) -> Backlog:
        key = memory_of(variable)
        found = self._backlogs.get(key)
        if found is None or found.rule != rule:  # another one if momentum has been switched on
            if found is not None:
                found.catch_up()
            found = self._backlogs[key] = Backlog(rule, self._operands(variable), variable)
        return found

    def _run_caught_up(self, call: Call, variables: list[Variable]) -> None:
        """Run a step of whole variables."""
        for variable in variables if self._backlogs else ():
            found = self._backlogs.get(memory_of(variable))
            if found is not None:
                found.catch_up()
        run(call)

    def _run_and_remember(
        self, call: Call, update: Update, variable: Variable, indices: Any
    ) -> None:
        """Run a step of rows, which the others will catch up on."""
        backlog, step = self._backlog(variable, update.rule), self._step_of_rows(update)
        rows = backlog.rows_of(indices)
        backlog.prepare(step, rows)
        run(call)
        backlog.remember(step, rows, self._reach(update))

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
        key = memory_of(as_variable(var))
        if key in self._backlogs:
            self._backlogs[key].catch_up(self._backlogs[key].rows_of(rows))

    def flush(self) -> None:
        """Let all rows of all variables take the steps they have not taken.

        Before variables are read or saved as a whole; `get_weights` does it, too.
        """
        for backlog in self._backlogs.values():
            backlog.catch_up()

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`, after a `flush`."""
        self.flush()
        return super().get_weights()

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
        for backlog in self._backlogs.values():
            backlog.forget()

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        owed = {}
        for name, variable in names.items():
            backlog = self._backlogs.get(memory_of(variable))
            state = backlog.state() if backlog is not None else {}
            if backlog is not None and state:
                slots = self._slots.get(memory_of(variable), {})
                named = {id(slot.value()): key for key, slot in slots.items()}
                owed[name] = {**state, "slots": [named[id(array)] for array in backlog.slots]}
        if len(owed) < sum(bool(backlog.state()) for backlog in self._backlogs.values()):
            raise InvalidArgumentError("rows of a variable that was not given owe steps")
        return {**super()._state_parts(names), **({"owed": owed} if owed else {})}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        owed = parts.pop("owed", {})
        for name, state in owed.items():
            if name not in names or not all((name, slot) in slots for slot in state["slots"]):
                raise InvalidArgumentError(f"rows of {name} owe steps, but it lacks their slots")
            check_owed(state, names[name])
        return [*super()._restoring(parts, names, slots), partial(self._owe, owed, names)]

    def _owe(self, owed: dict[str, Any], names: dict[str, Variable]) -> None:
        self._plan = None  # which knows the slots before
        self._backlogs.clear()
        for name, state in owed.items():
            variable = names[name]
            slots = (self.get_slot(variable, slot).value() for slot in state["slots"])
            backlog = Backlog(state["rule"], (variable.value(), *slots), variable)
            backlog.restore(state)
            self._backlogs[memory_of(variable)] = backlog

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self._slot_values(), variable.shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        config = super().get_config()
        return config if self.sparse == "tensorflow" else {**config, "sparse": self.sparse}

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
        update = _local_update(handle, apply_state)
        operands = tuple([array] for array in self._operands(handle))
        self._run_caught_up(step_of(update.rule, update).dense(operands, [grad]), [handle])

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        update = _local_update(handle, apply_state)
        slices = IndexedSlices(grad, indices)
        call = self._step_of_rows(update).rows(self._operands(handle), slices, Room())
        if self.sparse == "catch_up":
            self._run_and_remember(call, update, handle, indices)
        else:
            run(call)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to


def _local_update(handle: Variable, apply_state: ApplyState) -> Update:
    """Return the update of a step with the hyperparameters that apply_state holds."""
    local = apply_state[handle.device, handle.dtype]
    update: Update = local["update"]
    return update._replace(hypers={hyper: local[hyper] for hyper in update.hypers})
