"""Optimizers that hand gradients on to another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.base.gradients import as_variable, memory_of
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.saved_config import made
from tfopt.optimizers.base.serialization import get, serialize
from tfopt.optimizers.base.slots import State
from tfopt.optimizers.execution.commit import Commit
from tfopt.optimizers.execution.route import Route
from tfopt.variable import Variable

__all__ = ["Own", "Wrapper"]


class Own:
    """An attribute of a wrapper itself: what a function makes of what it is set to.

    Parameters
    ----------
    checked : callable
        Returns what is kept, or raises.
    once : bool
        Whether only the constructor sets it.
    """

    def __init__(self, checked: Callable[[Any], Any] = lambda value: value, once: bool = False):
        self.checked, self.once = checked, once

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, wrapper: Any, owner: type | None = None) -> Any:
        if wrapper is None:
            return self
        try:
            return wrapper.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"{type(wrapper).__name__} has no {self.name} yet") from None

    def __set__(self, wrapper: Any, value: Any) -> None:
        before = wrapper.__dict__.get(self.name)
        if self.once and before is not None:
            how = "; assign a value to it" if isinstance(before, Variable) else ""
            raise InvalidArgumentError(
                f"{self.name} of {type(wrapper).__name__} cannot be replaced{how}"
            )
        wrapper.__dict__[self.name] = self.checked(value)


class _Inside:
    """An attribute that `Optimizer` has, and a wrapper has from the optimizer inside."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, wrapper: Any, owner: type | None = None) -> Any:
        return self if wrapper is None else wrapper._inside(self.name)

    def __set__(self, wrapper: Any, value: Any) -> None:
        wrapper._set_inside(self.name, value)


def _an_optimizer(value: Any) -> Optimizer:
    if not isinstance(value, Optimizer):
        raise InvalidTypeError(f"optimizer must be an optimizer, not {type(value).__name__}")
    return value


class Wrapper(Optimizer, abstract=True):
    """Base class: what it does not say itself is the inner optimizer's.

    It has no settings of `Optimizer`'s: public attributes that are not its own are read from the
    optimizer inside, and set there. Those that neither has are refused; a subclass names its own in
    the body of the class.

    Parameters
    ----------
    optimizer : Optimizer
        The inner one.
    name : str

    Attributes
    ----------
    optimizer : Optimizer

    Raises
    ------
    AttributeError
        If an attribute is read or set that neither has.
    """

    _counts_steps = False  # the inner optimizer does

    name: str = Own()  # type: ignore[assignment]
    optimizer: Optimizer = Own(_an_optimizer, once=True)  # type: ignore[assignment]
    learning_rate = _Inside()
    decay = _Inside()
    clipnorm = _Inside()
    clipvalue = _Inside()
    global_clipnorm = _Inside()

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        self.optimizer = optimizer
        State.__init__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "optimizer":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._inside(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            self._set_inside(name, value)

    def _inside(self, name: str) -> Any:
        """Return an attribute of the optimizer inside."""
        return getattr(self.optimizer, name)

    def _set_inside(self, name: str, value: Any) -> None:
        """Set an attribute of the optimizer inside, if it has it."""
        if not hasattr(self.optimizer, name):
            raise AttributeError(
                f"neither {type(self).__name__} nor the optimizer inside, "
                f"{type(self.optimizer).__name__}, has an attribute {name!r}"
            )
        setattr(self.optimizer, name, value)

    @property
    def iterations(self) -> Variable:
        """The number of the inner optimizer's steps, int64."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        self.optimizer.iterations = variable

    def _next_rate(self) -> float:
        return self.optimizer._next_rate()

    def _decayed_lr(self, var_dtype: Any) -> Any:
        return self.optimizer._decayed_lr(var_dtype)

    def _aggregates(self, route: Route) -> bool:
        return self.optimizer._aggregates(route)

    def _scales_of(self, var: Any) -> tuple[Variable, ...]:
        return self.optimizer._scales_of(var)

    @property
    def _fuses(self) -> bool:
        return self.optimizer._fuses

    @property
    def _follows(self) -> bool:
        return self.optimizer._follows

    @property
    def weights(self) -> list[Variable]:
        """The inner optimizer's, then what is this one's own."""
        return [*self.optimizer.weights, *self._weights[1:]]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        own = [weight.numpy().copy() for weight in self._weights[1:]]
        return [*self.optimizer.get_weights(), *own]

    @writes()
    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them."""
        arrays = list(weights)
        n = max(len(arrays) - len(self._weights) + 1, 0)
        own = [self._weights[0].numpy(), *arrays[n:]]
        before = self.optimizer.get_weights()
        self.optimizer.set_weights(arrays[:n])
        try:
            super().set_weights(own)
        except Exception:
            self.optimizer.set_weights(before)
            raise

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return a slot of a variable: its own, or else the inner optimizer's."""
        own = self._slots.get(memory_of(as_variable(var)), {})
        return own[slot_name] if slot_name in own else self.optimizer.get_slot(var, slot_name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots, the inner optimizer's first."""
        return [*self.optimizer.get_slot_names(), *super().get_slot_names()]

    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows take the steps they have not taken, if the inner optimizer's do."""
        self.optimizer.catch_up(var, rows)

    def flush(self) -> None:
        """Let all rows take the steps they have not taken, if the inner optimizer's do."""
        self.optimizer.flush()

    def _received(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Route]:
        return grads, variables, route  # the inner optimizer's hooks get what it is handed

    def _checked(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        return self._prepared(grads, variables, route)

    @property
    def _locks(self) -> bool:
        return any(inner._locks for inner in self._inner().values())

    def _counts(self) -> list[Variable]:
        return [count for inner in self._inner().values() for count in inner._counts()]

    def _mark(self) -> Any:
        return super()._mark(), [inner._mark() for inner in self._inner().values()]

    def _withdraw(self, mark: Any) -> None:
        own, within = mark
        super()._withdraw(own)
        for inner, its in zip(self._inner().values(), within, strict=True):
            inner._withdraw(its)

    def _holders(self) -> list[Any]:
        within = [holder for inner in self._inner().values() for holder in inner._holders()]
        return [*super()._holders(), *within]

    def _check_move(self, moved: dict[Any, Variable]) -> None:
        super()._check_move(moved)
        for inner in self._inner().values():
            inner._check_move(moved)

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        for inner in self._inner().values():
            inner._move_state(moved)

    def _inner(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer}

    def _known(self) -> list[Variable]:
        within = [known for inner in self._inner().values() for known in inner._known()]
        return [*within, *super()._known()]

    def _own_config(self) -> dict[str, Any]:
        """Return the arguments beside the inner optimizer and the name."""
        return {}

    def _saved_config(self) -> dict[str, Any]:
        return {"name": self.name, **self._own_config()}

    def _like(self, config: dict[str, Any]) -> Any:
        return made(lambda: type(self)(self.optimizer, **config))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        return {"optimizer": serialize(self.optimizer), "name": self.name, **self._own_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer with the arguments that `get_config` returned."""
        return cls(**{**config, "optimizer": get(config["optimizer"])})
