"""Groups of variables, each with an optimizer of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.calls import Call
from tfopt.optimizers.base.gradients import as_variable
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.saved_config import is_function, made, without_function
from tfopt.optimizers.base.serialization import get, serialize
from tfopt.optimizers.base.state_parts import as_damage
from tfopt.optimizers.base.variable_set import VariableSet
from tfopt.optimizers.base.weight_decay import DecayingOptimizer
from tfopt.optimizers.execution.commit import Commit
from tfopt.optimizers.execution.route import NotFinite, Route
from tfopt.optimizers.wrappers.wrapper import Own, Wrapper
from tfopt.variable import Variable

__all__ = ["ParameterGroups"]

_HOOKS = ("gradient_aggregator", "gradient_transformers")


class ParameterGroups(Wrapper):
    """Updates groups of variables with hyperparameters, schedules or rules of their own.

    Parameters
    ----------
    optimizer : Optimizer
        Of the variables that are in no group.
    groups : list of (which, how)
        ``which`` is a regular expression, with a match somewhere in a variable's name, or a list of
        variables; the first group that fits is a variable's. ``how`` is an optimizer, or a dict of
        arguments in which the group's differs from `optimizer`.
    name : str, default "ParameterGroups"

    Attributes
    ----------
    optimizers : list of Optimizer
        Those of the groups, then `optimizer`.

    Raises
    ------
    InvalidTypeError
        If an argument does not fit.
    InvalidArgumentError
        If two groups have one optimizer.

    Notes
    -----
    An attribute that is set here is set for all groups, and what is read is what all have: where
    they differ, or where one has none, that is an AttributeError.

    All pairs of a step are checked before any group is updated. All groups count all steps,
    also those without a variable of theirs. A norm to clip to is one of a group, not of all.

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

    optimizers: list[Optimizer] = Own(once=True)  # type: ignore[assignment]

    def __init__(
        self,
        optimizer: Optimizer,
        groups: Iterable[tuple[Any, Any]],
        name: str = "ParameterGroups",
    ) -> None:
        super().__init__(optimizer, name)
        self._members: list[VariableSet] = []
        optimizers: list[Optimizer] = []
        for which, how in groups:
            self._members.append(_selection(which))
            optimizers.append(_made(optimizer, how))
        self.optimizers = [*optimizers, optimizer]
        if len(set(map(id, self.optimizers))) < len(self.optimizers):
            raise InvalidArgumentError(
                "each group needs an optimizer object of its own, because each counts its steps"
            )

    def group_of(self, var: Any) -> Optimizer:
        """Return the optimizer of a variable."""
        return self.optimizers[self._number(as_variable(var))]

    def _number(self, variable: Variable) -> int:
        fitting = (k for k, members in enumerate(self._members) if variable in members)
        return next(fitting, len(self._members))

    @property
    def _fuses(self) -> bool:
        return all(optimizer._fuses for optimizer in self.optimizers)

    @property
    def _follows(self) -> bool:
        # one around another may leave a step out that others take
        return all(own._follows and own._counts_steps for own in self.optimizers)

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        places: list[list[int]] = [[] for _ in self.optimizers]
        for place, var in enumerate(variables):
            places[self._number(as_variable(var))].append(place)
        commit = Commit([])
        left_out: list[NotFinite] = []
        for optimizer, own in zip(self.optimizers, places, strict=True):
            if not own:
                step = optimizer._counting()
            else:
                given = tuple(grads[k] for k in own), tuple(variables[k] for k in own)
                try:
                    step = optimizer._prepared(*given, _narrowed(route, own))
                except NotFinite as found:  # the others' aggregators are called all the same
                    left_out.append(found)
                    continue
            commit.join(step)
            commit.steps = step.steps  # those that this one counts are the last one's
        if left_out:
            raise NotFinite(*(other for found in left_out for other in found.instead))
        return commit

    def _aggregates(self, route: Route) -> bool:
        return any(optimizer._aggregates(route) for optimizer in self.optimizers)

    def _scales_of(self, var: Any) -> tuple[Variable, ...]:
        if var is not None:
            return self.group_of(var)._scales_of(var)
        scales = {optimizer._scales_of(None) for optimizer in self.optimizers}
        if len(scales) > 1:
            raise InvalidArgumentError(
                "the groups scale losses of their own: use `minimize`, or scale for each group"
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
                )
        before = [getattr(optimizer, name) for optimizer in self.optimizers]
        try:
            for optimizer in self.optimizers:
                setattr(optimizer, name, value)
        except Exception:
            for optimizer, own in zip(self.optimizers, before, strict=True):
                setattr(optimizer, name, own)
            raise

    @property
    def iterations(self) -> Variable:
        """The number of steps of the optimizer of the variables in no group, int64."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if len(self.optimizers) > 1:
            raise InvalidArgumentError(
                "each group counts its own steps: set `iterations` of one of `optimizers`"
            )
        self.optimizer.iterations = variable

    def _next_rate(self) -> float:
        return float(self._inside("_next_rate")())

    @property
    def last_step(self) -> Any:
        """The groups' own, in a list."""
        return [getattr(optimizer, "last_step", None) for optimizer in self.optimizers]

    @property
    def weights(self) -> list[Variable]:
        """Those of all groups, one group after the other."""
        return [weight for optimizer in self.optimizers for weight in optimizer.weights]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        return [array for optimizer in self.optimizers for array in optimizer.get_weights()]

    @writes()
    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them."""
        arrays, start = list(weights), 0
        before = [optimizer.get_weights() for optimizer in self.optimizers]
        try:
            for k, optimizer in enumerate(self.optimizers):
                last = k == len(before) - 1
                stop = len(arrays) if last else start + len(before[k])
                optimizer.set_weights(arrays[start:stop])
                start = stop
        except Exception:
            for optimizer, own in zip(self.optimizers, before, strict=True):
                optimizer.set_weights(own)
            raise

    def add_slot(self, var: Any, *args: Any, **kwargs: Any) -> Variable:
        """Return the slot of a variable; its group's optimizer makes it if there is none."""
        return self.group_of(var).add_slot(var, *args, **kwargs)

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable, which its group's optimizer has."""
        return self.group_of(var).get_slot(var, slot_name)

    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows take the steps they have not taken, if their group's do."""
        self.group_of(var).catch_up(var, rows)

    def flush(self) -> None:
        """Let all rows of all groups take the steps they have not taken."""
        for optimizer in self.optimizers:
            optimizer.flush()

    def _move_state(self, moved: dict[Any, Variable]) -> None:
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

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        with as_damage():
            if parts.pop("members", None) != self._members_in(names):
                raise InvalidArgumentError("the groups in the state hold other variables")
        return super()._restoring(parts, names, slots)

    def _like(self, config: dict[str, Any]) -> Any:
        return made(lambda: type(self)(self.optimizer, **{**config, "groups": []}))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state.

        Raises
        ------
        InvalidTypeError
            If a group is a list of variables, which no configuration holds.
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


def _made(optimizer: Optimizer, how: Any) -> Optimizer:
    if isinstance(how, Optimizer):
        return how
    if not isinstance(how, Mapping):
        raise InvalidTypeError(
            f"a group needs an optimizer or a dict of settings, not {type(how).__name__}"
        )
    if "class_name" in how:
        return get(how)
    return _differing(optimizer, how)


def _differing(optimizer: Optimizer, how: Mapping[str, Any]) -> Optimizer:
    """Return an optimizer like another one but for some arguments."""
    if isinstance(optimizer, ParameterGroups):
        return type(optimizer).from_config({**optimizer.get_config(), **how})
    if isinstance(optimizer, Wrapper):
        return _differing_around(optimizer, how)
    config = without_function(optimizer).get_config()
    hooks = {key: hook for key in _HOOKS if (hook := getattr(optimizer, key))}
    new = type(optimizer).from_config({**config, **hooks, **how})
    if is_function(optimizer) and how.keys().isdisjoint(("learning_rate", "lr")):
        new.learning_rate = optimizer.learning_rate
    if isinstance(optimizer, DecayingOptimizer) and isinstance(new, DecayingOptimizer):
        new.exclude_from_weight_decay(optimizer._exclusion.variables)
    return new


def _differing_around(wrapper: Wrapper, how: Mapping[str, Any]) -> Optimizer:
    """Return a wrapper like another one; arguments it does not take are for the one inside."""
    taken = inspect.signature(type(wrapper)).parameters
    own = {key: value for key, value in how.items() if key in taken}
    inside = {key: value for key, value in how.items() if key not in taken}
    inner = _differing(wrapper.optimizer, inside)
    around: Optimizer = type(wrapper)(inner, **{**wrapper._saved_config(), **own})
    return around


def _narrowed(route: Route, places: list[int]) -> Route:
    """Return a route for the gradients at some places, which are numbered anew."""
    lead = route.lead
    if lead is None:
        return route

    def own(chosen: list[int]) -> Call:
        return lead([places[k] for k in chosen])

    return route._replace(lead=own)
