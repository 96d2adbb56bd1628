"""The contract of OptimizerV2: variables, slots, steps."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call, dense_call, sparse_call
from tfopt.kernels.groups import Group
from tfopt.kernels.training import run
from tfopt.optimizers.hyper import Hyper
from tfopt.variable import Variable

__all__ = ["Optimizer", "Update"]


class Update(NamedTuple):
    """What one step does: a rule of the table with its hyperparameters."""

    rule: str
    hypers: dict[str, float]
    flags: dict[str, bool] = {}
    merge: bool = True  # whether the rows of repeated indices are summed first


class _Plan(NamedTuple):
    """The last step's variables, all dense, and the groups that update them."""

    rule: str
    variables: tuple[Any, ...]
    groups: list[tuple[Group, list[int]]]  # with the places of the group's gradients


class Optimizer:
    """Base class of the optimizers.

    A subclass says which slots a variable gets (`_slot_values`) and which rule makes a step
    (`_update`); everything else is here.

    Parameters
    ----------
    name : str
        Part of the slots' names.
    learning_rate : float
        At least 0.
    decay : float, default 0.0
        The learning rate of a step is ``learning_rate / (1 + decay * iterations)``.

    Attributes
    ----------
    iterations : Variable
        The number of steps taken, int64.
    """

    learning_rate = Hyper(0)
    decay = Hyper(0)

    def __init__(self, name: str, learning_rate: float, *, decay: float = 0.0) -> None:
        self.name = name
        self.learning_rate = learning_rate
        self.decay = decay
        self.iterations = Variable(np.zeros((), np.int64), name=f"{name}/iterations")
        self._slots: dict[tuple[Any, ...], dict[str, Variable]] = {}
        self._owners: list[Variable] = []  # keeps each slot's variable, hence its address, alive
        self._plan: _Plan | None = None

    @property
    def lr(self) -> float:
        """Another name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = value

    # ---- what a subclass defines

    def _slot_values(self) -> dict[str, float]:
        """Return the names of a variable's slots, in the rule's order, and their first values."""
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> Update:
        """Return what step number t (the first is 1) does at learning rate lr."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    # ---- slots

    def add_slot(self, var: Any, slot_name: str, initial_value: float = 0.0) -> Variable:
        """Return the slot of a variable; make it, of the variable's shape, if there is none."""
        variable = _as_variable(var)
        slots = self._slots.get(_memory(variable))
        if slots is None:
            slots = self._slots[_memory(variable)] = {}
            self._owners.append(variable)
        if slot_name not in slots:
            array = np.full(variable.shape, initial_value, variable.dtype)
            name = f"{self.name}/{variable.name}/{slot_name}"
            slots[slot_name] = Variable(array, name)
        return slots[slot_name]

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable.

        Raises
        ------
        KeyError
            If the variable has no such slot; slots are made by the first step.
        """
        return self._slots[_memory(_as_variable(var))][slot_name]

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots this optimizer gives to each variable."""
        return list(self._slot_values())

    # ---- steps

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], name: str | None = None
    ) -> Variable | None:
        """Take one step: update every variable by its gradient.

        Every pair is checked before any variable is touched, so a refused call changes nothing.

        Parameters
        ----------
        grads_and_vars : iterable of (gradient, variable)
            The gradient is an array of the variable's shape and dtype, or `IndexedSlices`; pairs
            whose gradient is None are left out. The variable is a `Variable` or an array. One that
            comes twice is updated twice.
        name : str, optional
            Accepted for compatibility, without effect.

        Returns
        -------
        iterations : Variable or None
            The step count after the step; None, without a step, if there are no pairs.

        Raises
        ------
        InvalidArgumentError
            If all gradients are None, or an argument does not fit.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            return None
        try:
            grads, variables = zip(*pairs, strict=True)
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                "grads_and_vars must be pairs of a gradient and a variable"
            ) from None
        if type(None) in set(map(type, grads)):
            grads, variables = self._without_none(grads, variables)
        step = int(self.iterations)
        lr = self.learning_rate / (1 + self.decay * step)
        update = self._update(step + 1, lr)
        for call in self._calls(update, grads, variables):
            run(call)
        self.iterations.assign(step + 1)
        return self.iterations

    def _without_none(self, grads: tuple[Any, ...], variables: tuple[Any, ...]) -> Any:
        kept = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        missing = [_name(v) for g, v in zip(grads, variables, strict=True) if g is None]
        if not kept:
            raise InvalidArgumentError(f"No gradients provided for any variable: {missing}.")
        warnings.warn(f"Gradients do not exist for variables {missing}.", stacklevel=3)
        return zip(*kept, strict=True)

    def _calls(
        self, update: Update, grads: tuple[Any, ...], variables: tuple[Any, ...]
    ) -> list[Call]:
        """Check a step; return the calls that carry it out."""
        rule = kernels[update.rule].rule
        hypers = tuple(update.hypers[hyper] for hyper in rule.hypers)
        flags = sum(1 << k for k, flag in enumerate(rule.flags) if update.flags[flag])
        if set(map(type, grads)) == {np.ndarray}:
            groups = self._groups(update.rule, variables)
        else:
            groups = None
        if groups is not None:
            return [
                group.call([grads[i] for i in places], hypers, flags, 1.0)
                for group, places in groups
            ]
        calls = []
        for grad, var in zip(grads, variables, strict=True):
            variable = _as_variable(var)
            arrays = (variable.numpy(), *self._slot_arrays(variable))
            if isinstance(grad, IndexedSlices):
                calls.append(_sparse(update, arrays, grad, hypers, flags))
            else:
                array = grad if hasattr(grad, "dtype") else np.asarray(grad, variable.dtype)
                calls.append(dense_call(kernels[update.rule], (*arrays, array), hypers, flags, 1.0))
        return calls

    def _groups(
        self, rule: str, variables: tuple[Any, ...]
    ) -> list[tuple[Group, list[int]]] | None:
        """Return the variables by dtype, or None if they must be updated one after another.

        That is so if a variable comes twice, or two share memory.

        A training loop passes the same variables each time; then nothing is looked at again.
        """
        plan = self._plan
        if (
            plan is not None
            and plan.rule == rule
            and len(plan.variables) == len(variables)
            and all(map(operator.is_, plan.variables, variables))
        ):
            return plan.groups
        known = [_as_variable(var) for var in variables]
        if len({_memory(variable) for variable in known}) < len(known):
            return None
        places: dict[np.dtype, list[int]] = {}
        for i, variable in enumerate(known):
            places.setdefault(variable.dtype, []).append(i)
        groups = []
        for members in places.values():
            operands = [(known[i].numpy(), *self._slot_arrays(known[i])) for i in members]
            try:
                groups.append((Group(kernels[rule], operands), members))
            except InvalidArgumentError:
                return None
        self._plan = _Plan(rule, variables, groups)
        return groups

    def _slot_arrays(self, variable: Variable) -> list[np.ndarray]:
        return [
            self.add_slot(variable, slot, value).numpy()
            for slot, value in self._slot_values().items()
        ]

    # ---- configuration

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        return {"name": self.name, "learning_rate": self.learning_rate, "decay": self.decay}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Optimizer:
        """Return an optimizer with the arguments that `get_config` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


def _sparse(
    update: Update,
    arrays: tuple[np.ndarray, ...],
    slices: IndexedSlices,
    hypers: tuple[float, ...],
    flags: int,
) -> Call:
    """Check the update of some rows; the rows of repeated indices are summed if the rule says."""
    kernel = kernels[update.rule]
    call = sparse_call(kernel, (*arrays, slices.values), slices.indices, hypers, flags, 1.0)
    if not update.merge:
        return call
    merged = slices.sum_duplicates()
    return sparse_call(kernel, (*arrays, merged.values), merged.indices, hypers, flags, 1.0)


def _as_variable(var: Any) -> Variable:
    if isinstance(var, Variable):
        return var
    if isinstance(var, np.ndarray):
        return Variable(var)
    raise InvalidTypeError(f"Trying to update a {type(var).__name__}, not a variable")


def _name(var: Any) -> str:
    return var.name if isinstance(var, Variable) else "Variable"


def _memory(variable: Variable) -> tuple[Any, ...]:
    """Return what identifies a variable: the same memory seen the same way is the same variable.

    So that slots are found again when a caller makes a new view, or wraps an array, at each step.
    """
    array = variable.numpy()
    return array.ctypes.data, array.shape, array.strides, array.dtype
