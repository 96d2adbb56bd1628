"""Optimizers whose steps are rules of the table: as few calls as there can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any

import numpy as np

from tfopt.devices import gpu_steps
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.together import Watched
from tfopt.kernels.training import run
from tfopt.optimizers.catch_up import Backlog, Reach, check_owed, refuse_catching_up
from tfopt.optimizers.chain import Chain, around, refuse_watching
from tfopt.optimizers.clipping import Checked, clipped_calls
from tfopt.optimizers.exclusion import Exclusion
from tfopt.optimizers.hyper import Hyper
from tfopt.optimizers.optimizer import ApplyState, Optimizer
from tfopt.optimizers.pairs import as_array, as_variable, memory_of, refuse_rows
from tfopt.optimizers.plan import Dense, Plan, Rows, parts_of
from tfopt.optimizers.report import StepReport, report_of
from tfopt.optimizers.route import Commit, Route
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
    weight_decay : float, optional
        At least 0. Before each step weights are multiplied by
        ``1 - learning_rate * weight_decay``: all of them by a dense gradient, those of the rows
        that the step visits by a sparse one.

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
        If the optimizer cannot catch up, or its rule does not go on from the weights there are.
    """

    weight_decay = Hyper(0)
    _can_decay = True

    def __init__(
        self,
        name: str,
        learning_rate: Any,
        *,
        sparse: str = "tensorflow",
        weight_decay: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        if weight_decay and not self._can_decay:
            raise InvalidArgumentError(
                f"weight_decay is not for {type(self).__name__}, which makes weights anew"
            )
        self.weight_decay = weight_decay or 0.0
        self._exclusion = Exclusion()
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

    @property
    def _fuses(self) -> bool:
        norms = self.clipnorm is not None or self.global_clipnorm is not None
        changed = self.gradient_aggregator is not None or bool(self.gradient_transformers)
        return not (self._one_by_one or norms or changed)

    @property
    def _follows(self) -> bool:
        return not self._one_by_one

    def _checked_step(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> Commit:
        if self._one_by_one:
            step = super()._checked_step(grads, variables, route)
            return partial(self._step_one_by_one, step)
        update = self._next_update()
        plan = self._plan
        types = tuple(map(type, grads))
        if plan is None or not plan.fits(update.rule, types, variables):
            plan = self._plan = self._planned(update.rule, grads, variables)
        calls, clips = self._calls(plan, update, grads, route.scale)
        updates = self._updates(plan, update, grads, route.scale) if plan.there else []
        chains = [around(part, call, route) for part, call in zip(plan.parts, calls, strict=True)]
        if self.observe:
            refuse_watching(calls, bool(updates))
        return partial(self._carry_out, plan, update, grads, chains, updates, route.scale, clips)

    def _step_one_by_one(self, step: Commit) -> None:
        step()
        self._stepped(self._next_update())

    def _carry_out(
        self,
        plan: Plan,
        update: Update,
        grads: tuple[Any, ...],
        chains: list[Chain],
        updates: list[Any],
        scale: float,
        clips: bool,
    ) -> None:
        watched: list[Watched] = []
        bound = None
        if self.observe:
            bound = math.inf if self.clipvalue is None else self.clipvalue / abs(scale)
        for part, chain in zip(plan.parts, chains, strict=True):
            if self.sparse == "catch_up":
                self._catch_up_before(part, update, grads)
            if isinstance(part, Dense):
                watched += chain.run(bound)
            else:
                watched += chain.run_rows(part, grads[part.place], bound)
            if self.sparse == "catch_up" and isinstance(part, Rows):
                self._remember(update, part.variable, grads[part.place].indices)
        self.last_step = report_of(watched, scale, clips) if self.observe else None
        if updates:
            gpu_steps().run_clipped(updates, *self._limits)
        for variable in plan.constrained:
            variable.constrain()
        self._stepped(update)

    def _next_update(self) -> Update:
        lr = self._next_rate()
        update = self._update(int(self.iterations) + 1, lr)
        return update._replace(keep=1 - lr * self.weight_decay) if self.weight_decay else update

    def exclude_from_weight_decay(
        self, var_list: Iterable[Any] = (), var_names: Iterable[str] = ()
    ) -> None:
        """Say which variables do not decay, beside those that have been said to.

        Parameters
        ----------
        var_list : iterable of Variable or ndarray
        var_names : iterable of str
            Regular expressions; a variable whose name has a match somewhere does not decay.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import AdamW
        >>> params = {"w": np.ones(2), "bias": np.ones(2)}
        >>> opt = AdamW(0.5, weight_decay=0.2)
        >>> opt.exclude_from_weight_decay(var_names=["bias$"])
        >>> _ = opt.step(params, {"w": np.zeros(2), "bias": np.zeros(2)})
        >>> params["w"].tolist(), params["bias"].tolist()
        ([0.9, 0.9], [1.0, 1.0])
        """
        self._exclusion.add(map(as_variable, var_list), var_names)
        self._plan = None

    @property
    def _limits(self) -> tuple[float | None, float | None, float | None]:
        return self.clipvalue, self.clipnorm, self.global_clipnorm

    def _calls(
        self, plan: Plan, update: Update, grads: tuple[Any, ...], scale: float
    ) -> tuple[list[Call], bool]:
        """Check a step of the host; return the calls that carry it out, one for each part.

        And whether they make any gradient's norm smaller.
        """
        clips = self._limits != (None, None, None)
        calls: list[Call] = []
        checked: list[Checked] = []
        for part in plan.parts:
            if isinstance(part, Dense):
                whole = step_of(update.rule, update, scale=scale, decays=part.decays)
                dense = [grads[place] for place in part.places]
                if part.dtype is not None:
                    dense = [as_array(grad, part.dtype) for grad in dense]
                calls.append(whole.dense(part.operands, dense))
                if clips:
                    remake = partial(whole.dense, part.operands)
                    checked.append(Checked(calls[-1], gradients_of(calls[-1]), remake, None))
                continue
            some = self._step_of_rows(update, scale, part.decays)
            if clips:
                rows = part.arrays, grads[part.place], part.room
                checked.append(some.clipped_rows(*rows, self.merge))
            else:
                calls.append(some.rows(part.arrays, grads[part.place], part.room))
        return clipped_calls(checked, *self._limits, scale) if clips else (calls, False)

    def _updates(
        self, plan: Plan, update: Update, grads: tuple[Any, ...], scale: float
    ) -> list[Any]:
        """Check a step on a GPU; return the updates that carry it out."""
        if plan.parts and self.global_clipnorm is not None:
            raise InvalidArgumentError("global_clipnorm is one of variables on one device")
        if self.merge == "before" and self._limits != (None, None, None):
            raise InvalidArgumentError('on a GPU merge must be "after"')
        if scale != 1 and self._limits != (None, None, None):
            raise InvalidArgumentError("on a GPU gradients that are scaled cannot be clipped, too")

        def steps(decays: bool) -> tuple[Step, Step]:
            whole = step_of(update.rule, update, scale=scale, decays=decays)
            return whole, self._step_of_rows(update, scale, decays)

        return gpu_steps().checked_updates(plan.there, grads, steps)  # type: ignore[no-any-return]

    def _step_of_rows(self, update: Update, scale: float = 1.0, decays: bool = True) -> Step:
        if self.sparse == "catch_up":  # as a dense step, so that the result is that of dense ones
            return step_of(update.rule, update, True, scale, decays)
        lazy = self.sparse == "lazy"
        return step_of(update.rows or update.rule, update, lazy, scale, decays)

    def _planned(self, rule: str, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> Plan:
        listed = [as_variable(var) for var in variables]
        refuse_rows(grads, listed)
        constrained = [variable for variable in listed if variable.constraint is not None]
        types = tuple(map(type, grads))
        for kind, variable in zip(types, listed, strict=True):
            if self.sparse == "catch_up" and issubclass(kind, IndexedSlices):
                refuse_catching_up(variable)
        self._create_slots(listed)
        operands = [self._operands(variable) for variable in listed]
        decays = [variable not in self._exclusion for variable in listed]
        parts = parts_of(types, listed, operands, decays)
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

    def _catch_up_all(self, variables: list[Variable]) -> None:
        """Let all rows of variables take the steps they have not taken."""
        for variable in variables if self._backlogs else ():
            found = self._backlogs.get(memory_of(variable))
            if found is not None:
                found.catch_up()

    def _catch_up_before(self, part: Dense | Rows, update: Update, grads: tuple[Any, ...]) -> None:
        """Let rows that a step names take the steps they have not taken."""
        if isinstance(part, Dense):
            self._catch_up_all(part.variables)
            return
        backlog = self._backlog(part.variable, update.rule)
        step = self._step_of_rows(update, decays=part.decays)
        backlog.prepare(step, backlog.rows_of(grads[part.place].indices))

    def _remember(self, update: Update, variable: Variable, indices: Any) -> None:
        """Remember a step of rows, which the others will catch up on."""
        backlog = self._backlog(variable, update.rule)
        step = self._step_of_rows(update, decays=variable not in self._exclusion)
        reach = self._reach(update)
        if step.var_scale != 1:  # steps without a gradient go on moving weights that decay
            reach = Reach(reach.first, max(reach.ratio, 1.0))
        backlog.remember(step, backlog.rows_of(indices), reach)

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

    def _move_state(self, old: Variable, new: Variable) -> None:
        if memory_of(old) in self._backlogs:
            raise InvalidArgumentError(f"rows of {old.name}, which has been replaced, owe steps")
        super()._move_state(old, new)

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
        usual = {"sparse": "tensorflow", "weight_decay": 0.0}
        own = {key: getattr(self, key) for key in usual}
        return {
            **super().get_config(),
            **{key: value for key, value in own.items() if value != usual[key]},
        }

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
        step = step_of(update.rule, update, decays=handle not in self._exclusion)
        call = step.dense(operands, [grad])
        self._catch_up_all([handle])
        run(call)

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        update = _local_update(handle, apply_state)
        slices = IndexedSlices(grad, indices)
        step = self._step_of_rows(update, decays=handle not in self._exclusion)
        call = step.rows(self._operands(handle), slices, Room())
        if self.sparse == "catch_up":
            backlog = self._backlog(handle, update.rule)
            backlog.prepare(step, backlog.rows_of(indices))
        run(call)
        if self.sparse == "catch_up":
            self._remember(update, handle, indices)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to


def _local_update(handle: Variable, apply_state: ApplyState) -> Update:
    """Return the update of a step with the hyperparameters that apply_state holds."""
    local = apply_state[handle.device, handle.dtype]
    update: Update = local["update"]
    return update._replace(hypers={hyper: local[hyper] for hyper in update.hypers})
