"""Groups of variables with separate optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tfopt.core.known_attributes import did_you_mean
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.update.commit import Write
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.settings import Setting, refuse_class
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.config import get, is_function, made, serialize, without_function
from tfopt.optimizers.state.restoration import LoadedState, as_damage
from tfopt.optimizers.state.variable_set import VariableSet
from tfopt.optimizers.state.variables import as_variable
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.optimizers.wrappers.groups_step import GroupsStep
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["ParameterGroups"]

_HOOKS = ("gradient_aggregator", "gradient_transformers")


class ParameterGroups(Wrapper):
    """Updates groups of variables with different hyperparameters, schedules or rules.

    Parameters
    ----------
    optimizer : Optimizer
        The optimizer of variables that belong to no group.
    groups : list of (which, how)
        ``which`` is a regular expression that matches anywhere in a variable's name, or a list of
        variables; a variable belongs to the first group that matches. ``how`` is an optimizer, or a
        dict of the arguments in which the group's optimizer differs from `optimizer`.
    name : str, default "ParameterGroups"

    Attributes
    ----------
    optimizers : list of Optimizer
        The optimizers of the groups, then `optimizer`.

    Raises
    ------
    InvalidTypeError
        If an argument is invalid.
    InvalidArgumentError
        If two groups have the same optimizer.

    Notes
    -----
    Setting an attribute sets it for all groups; reading one returns the value common to all groups.
    If the groups differ, or one lacks the attribute, this raises an AttributeError.

    All pairs of a step are checked before any group is updated. Every group counts every step, even
    one without any of its variables. A global norm is that of a group, not of all groups.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, ParameterGroups
    >>> params = {"head": {"w": np.ones(1)}, "body": {"w": np.ones(1)}}
    >>> opt = ParameterGroups(SGD(0.5), [("^body/", {"learning_rate": 0.25})])
    >>> _ = opt.step(params, params)
    >>> params
    {'head': {'w': array([0.5])}, 'body': {'w': array([0.75])}}
    """

    _arguments = ()  # `groups` only serves to construct `optimizers`

    optimizers = Setting[list[OptimizerBase]](once=True)

    def __init__(
        self,
        optimizer: OptimizerBase,
        groups: Iterable[tuple[Any, Any]],
        name: str = "ParameterGroups",
    ) -> None:
        super().__init__(optimizer, name)
        self._members: list[VariableSet] = []
        optimizers: list[OptimizerBase] = []
        for which, how in groups:
            self._members.append(_selection(which))
            optimizers.append(_made(optimizer, how))
        self.optimizers = [*optimizers, optimizer]
        if len(set(map(id, self.optimizers))) < len(self.optimizers):
            raise InvalidArgumentError(
                "each group needs a separate optimizer object, because each counts its steps"
            )

    def group_of(self, var: Any) -> OptimizerBase:
        """Return the optimizer of a variable."""
        return self.optimizers[self._number(as_variable(var))]

    def _number(self, variable: Variable) -> int:
        fitting = (k for k, members in enumerate(self._members) if variable in members)
        return next(fitting, len(self._members))

    @property
    def capabilities(self) -> Capabilities:
        """The features that all groups support; gradients are aggregated if any group does so."""
        each = [optimizer.capabilities for optimizer in self.optimizers]
        # a wrapper may skip a step that others take
        wrapped = any(isinstance(optimizer, Wrapper) for optimizer in self.optimizers)
        return Capabilities(
            fuses=all(group.fuses for group in each),
            follows=not wrapped and all(group.follows for group in each),
            aggregates=any(group.aggregates for group in each),
            defers=any(group.defers for group in each),
            fuses_on_device=all(group.fuses_on_device for group in each),
            takes_norm=any(group.takes_norm for group in each),
        )

    def _bind(self, request: StepRequest) -> Step:
        places: list[list[int]] = [[] for _ in self.optimizers]
        for place, var in enumerate(request.variables):
            places[self._number(as_variable(var))].append(place)
        return GroupsStep(self.optimizers, places, request)

    def loss_scales(self, var: Any) -> tuple[Variable, ...]:
        """Return the scales of a variable's group, or of all groups if `var` is None."""
        if var is not None:
            return self.group_of(var).loss_scales(var)
        scales = {optimizer.loss_scales(None) for optimizer in self.optimizers}
        if len(scales) > 1:
            raise InvalidArgumentError(
                "the groups have different loss scales: use `minimize`, or scale the loss for each "
                "group"
            )
        return scales.pop()

    def _inside(self, name: str) -> Any:
        first, *others = [getattr(optimizer, name) for optimizer in self.optimizers]
        if not all(other is first or bool(other == first) for other in others):
            raise AttributeError(f"the groups differ in {name}: read it from one of `optimizers`")
        return first

    def _set_inside(self, name: str, value: Any) -> None:
        for optimizer in self.optimizers:
            if not hasattr(optimizer, name):
                raise AttributeError(
                    f"{type(optimizer).__name__}, the optimizer of a group, has no attribute "
                    f"{name!r}: set it on some of `optimizers`"
                    f"{did_you_mean(name, self._settable())}"
                )
        for optimizer in self.optimizers:
            setattr(optimizer, name, value)

    @property
    def iterations(self) -> Variable:
        """The step count of `optimizer`, int64."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if len(self.optimizers) > 1:
            raise InvalidArgumentError(
                "each group counts its own steps: set `iterations` of one of `optimizers`"
            )
        self.optimizer.iterations = variable

    @property
    def last_step(self) -> Any:
        """A list of the groups' reports."""
        return [getattr(optimizer, "last_step", None) for optimizer in self.optimizers]

    def add_slot(self, var: Any, *args: Any, **kwargs: Any) -> Variable:
        """Return a slot of a variable; its group's optimizer creates it if it does not exist."""
        return self.group_of(var).add_slot(var, *args, **kwargs)

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        return self.group_of(variable)._slots_of(variable)

    def catch_up(self, var: Any, rows: Any) -> None:
        """Apply the deferred updates of some rows of a variable."""
        self.group_of(var).catch_up(var, rows)

    def _move_state(self, moved: ByVariable[Variable]) -> None:
        super()._move_state(moved)
        self._members = [members.moved(moved) for members in self._members]

    def _inner(self) -> dict[str, Any]:
        groups = {f"group {k}": optimizer for k, optimizer in enumerate(self.optimizers[:-1])}
        return {**groups, **super()._inner()}

    def _known(self) -> list[Variable]:
        return [*super()._known(), *(v for members in self._members for v in members.variables)]

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        return {**super()._state_parts(names), "members": self._members_in(names)}

    def _members_in(self, names: dict[str, Variable]) -> list[dict[str, list[str]]]:
        return [
            {"patterns": members.patterns, "variables": members.names_in(names)}
            for members in self._members
        ]

    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        with as_damage():
            if loaded.parts.pop("members", None) != self._members_in(loaded.names):
                raise InvalidArgumentError("the groups in the state hold other variables")
        return super()._changes_to_adopt(loaded)

    def _like(self, config: dict[str, Any]) -> Any:
        return made(lambda: type(self)(self.optimizer, **{**config, "groups": []}))

    def _given(self) -> dict[str, Any]:
        groups = [
            (members.patterns[0] if members.patterns else members.variables, optimizer)
            for members, optimizer in zip(self._members, self.optimizers, strict=False)
        ]
        return {"optimizer": self.optimizer, "groups": groups}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments of this optimizer, without its state.

        Raises
        ------
        InvalidTypeError
            If a group is a list of variables, which a configuration cannot contain.
        """
        if not all(members.patterns for members in self._members):
            raise InvalidTypeError("a configuration cannot hold variables; give a pattern")
        groups = [
            [members.patterns[0], serialize(optimizer)]
            for members, optimizer in zip(self._members, self.optimizers, strict=False)
        ]
        return {**super().get_config(), "groups": groups}


def _selection(which: Any) -> VariableSet:
    if isinstance(which, str):
        return VariableSet(patterns=[which])
    if isinstance(which, np.ndarray) or not isinstance(which, Iterable):
        raise InvalidTypeError("a group must be a pattern or a list of variables")
    return VariableSet(map(as_variable, which))


def _made(optimizer: OptimizerBase, how: Any) -> Any:
    refuse_class("the optimizer of a group", how)
    if isinstance(how, OptimizerBase):
        return how
    if not isinstance(how, Mapping):
        raise InvalidTypeError(
            f"a group needs an optimizer or a dict of settings, not {type(how).__name__}"
        )
    if "class_name" in how:
        return get(how)
    return _differing(optimizer, how)


def _differing(optimizer: Any, how: Mapping[str, Any]) -> Any:
    """Return an optimizer that differs from another one in some arguments."""
    if isinstance(optimizer, ParameterGroups):
        return type(optimizer).from_config({**optimizer.get_config(), **how})
    if isinstance(optimizer, Wrapper):
        return _differing_around(optimizer, how)
    config = without_function(optimizer).get_config()
    hooks = {key: hook for key in _HOOKS if (hook := getattr(optimizer, key))}
    new = type(optimizer).from_config({**config, **hooks, **how})
    if is_function(optimizer) and how.keys().isdisjoint(("learning_rate", "lr")):
        new.learning_rate = optimizer.learning_rate
    if isinstance(optimizer, RuleOptimizer) and isinstance(new, RuleOptimizer):
        new.exclude_from_weight_decay(optimizer._exclusion.variables)
    return new


def _differing_around(wrapper: Wrapper, how: Mapping[str, Any]) -> OptimizerBase:
    """Return a wrapper that differs in some arguments; unknown ones go to the inner optimizer."""
    accepted = parameters_of(type(wrapper))
    outer = {key: value for key, value in how.items() if key in accepted}
    inside = {key: value for key, value in how.items() if key not in accepted}
    inner = _differing(wrapper.optimizer, inside)
    return type(wrapper)(inner, **{**wrapper._saved_config(), **outer})
