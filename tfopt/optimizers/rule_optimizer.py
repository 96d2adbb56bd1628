"""Optimizers whose steps are rules of the table: as few calls as there can be."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.training import run
from tfopt.optimizers.clipping import Checked, clipped_calls
from tfopt.optimizers.optimizer import ApplyState, Optimizer
from tfopt.optimizers.pairs import any_overlap, as_array, as_variable, refuse_rows
from tfopt.optimizers.steps import Update, step_of
from tfopt.variable import Variable

__all__ = ["RuleOptimizer", "Update"]

_HOOKS = (
    "_prepare_local",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


class _Dense(NamedTuple):
    """Variables that one call updates together, and the places of their gradients in a step."""

    operands: tuple[list[np.ndarray], ...]  # the variables, the first slots, the second ones, ...
    places: list[int]
    dtype: np.dtype[Any] | None  # for gradients that are no arrays; None if all are


class _Rows(NamedTuple):
    """A variable with its slots, some rows of which are updated, and its gradient's place."""

    arrays: tuple[np.ndarray, ...]
    place: int


class _Plan(NamedTuple):
    """What a step did, which the next one repeats if it has the same variables.

    A training loop passes the same variables each time; then only the gradients are looked at.
    """

    rule: str
    types: tuple[type, ...]  # of the gradients
    variables: tuple[Any, ...]
    parts: list[_Dense | _Rows]
    constrained: list[Variable]

    def fits(self, rule: str, types: tuple[type, ...], variables: tuple[Any, ...]) -> bool:
        return (
            self.rule == rule
            and self.types == types
            and all(map(operator.is_, self.variables, variables))
        )


class RuleOptimizer(Optimizer):
    """Base class of the optimizers that the table has rules for.

    A subclass says which slots a variable gets (`_slot_values`) and which rule makes a step
    (`_update`); all dense variables of a dtype are then updated by one call.

    Where a method that `Optimizer` calls for each variable is overridden, they are called for each:
    then ``apply_state`` holds the rule's hyperparameters, which the methods here read from it.
    """

    def __init__(self, name: str, learning_rate: Any, **kwargs: Any) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self._plan: _Plan | None = None
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
        for call in self._calls(update, grads, variables):
            run(call)
        if self._plan is not None:
            for variable in self._plan.constrained:
                variable.constrain()
        self._stepped(update)

    def _next_update(self) -> Update:
        return self._update(int(self.iterations) + 1, self._next_rate())

    def _calls(
        self, update: Update, grads: tuple[Any, ...], variables: tuple[Any, ...]
    ) -> list[Call]:
        """Check a step; return the calls that carry it out."""
        whole = step_of(update.rule, update)
        some = whole if update.rows is None else step_of(update.rows, update)
        types = tuple(map(type, grads))
        plan = self._plan
        if plan is None or not plan.fits(update.rule, types, variables):
            plan = self._plan = self._planned(update.rule, grads, variables)
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        clips = limits != (None, None, None)
        calls: list[Call] = []
        checked: list[Checked] = []
        for part in plan.parts:
            if isinstance(part, _Dense):
                dense = [grads[place] for place in part.places]
                if part.dtype is not None:
                    dense = [as_array(grad, part.dtype) for grad in dense]
                calls.append(whole.dense(part.operands, dense))
                if clips:
                    remake = partial(whole.dense, part.operands)
                    checked.append(Checked(calls[-1], gradients_of(calls[-1]), remake, None))
            elif clips:
                checked.append(some.clipped_rows(part.arrays, grads[part.place], self.merge))
            else:
                calls.append(some.rows(part.arrays, grads[part.place]))
        return clipped_calls(checked, *limits) if clips else calls

    def _planned(self, rule: str, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> _Plan:
        listed = [as_variable(var) for var in variables]
        refuse_rows(grads, listed)
        constrained = [variable for variable in listed if variable.constraint is not None]
        types = tuple(map(type, grads))
        return _Plan(rule, types, variables, self._parts(types, listed), constrained)

    def _parts(self, types: tuple[type, ...], variables: list[Variable]) -> list[_Dense | _Rows]:
        """Sort a step's variables into as few calls as there can be."""
        self._create_slots(variables)
        operands = [self._operands(variable) for variable in variables]
        dense: dict[np.dtype[Any], list[int]] = {}
        parts: list[_Dense | _Rows] = []
        for place, kind in enumerate(types):
            if issubclass(kind, IndexedSlices):
                parts.append(_Rows(operands[place], place))
            else:
                dense.setdefault(operands[place][0].dtype, []).append(place)

        def together(places: list[int]) -> _Dense:
            columns = zip(*(operands[place] for place in places), strict=True)
            arrays = all(types[place] is np.ndarray for place in places)
            dtype = None if arrays else operands[places[0]][0].dtype
            return _Dense(tuple(map(list, columns)), places, dtype)

        if not any_overlap([arrays[0] for arrays in operands]):
            return [*map(together, dense.values()), *parts]
        # A variable that comes twice, or shares memory with another: one call each, in turn.
        parts += [together([place]) for places in dense.values() for place in places]
        return sorted(parts, key=lambda part: part[1] if isinstance(part, _Rows) else part[1][0])

    def _operands(self, variable: Variable) -> tuple[np.ndarray, ...]:
        slots = (self.get_slot(variable, slot).numpy() for slot in self._rule_slots())
        return (variable.numpy(), *slots)

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
        run(step_of(update.rule, update).dense(operands, [grad]))

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        update = _local_update(handle, apply_state)
        some = step_of(update.rows or update.rule, update)
        run(some.rows(self._operands(handle), IndexedSlices(grad, indices)))

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to


def _local_update(handle: Variable, apply_state: ApplyState) -> Update:
    """Return the update of a step with the hyperparameters that apply_state holds."""
    local = apply_state[handle.device, handle.dtype]
    update: Update = local["update"]
    return update._replace(hypers={hyper: local[hyper] for hyper in update.hypers})
