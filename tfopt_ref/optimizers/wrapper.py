"""Optimizers that hand gradients on to another one."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from tfopt_ref.errors import InvalidTypeError
from tfopt_ref.optimizers.checkpointed import Checkpointed
from tfopt_ref.optimizers.optimizer import Optimizer
from tfopt_ref.optimizers.pairs import as_variable, memory_of
from tfopt_ref.optimizers.places import Places
from tfopt_ref.optimizers.saved_config import made
from tfopt_ref.optimizers.state import State
from tfopt_ref.variable import Variable

__all__ = ["Wrapper"]


class Wrapper(Optimizer):
    """Base class: what it does not say itself is the inner optimizer's."""

    _counts_steps = False  # the inner optimizer does

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        if not isinstance(optimizer, Optimizer):
            raise InvalidTypeError(f"optimizer must be one, not {type(optimizer).__name__}")
        State.__init__(self, name)
        self.optimizer = optimizer
        self._places = Places()
        self.gradient_aggregator = None
        self.gradient_transformers = []
        self.use_locking = False

    @property
    def iterations(self) -> Variable:
        """The number of the inner optimizer's steps, int64."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        self.optimizer.iterations = variable

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's."""
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.optimizer.learning_rate = value

    @property
    def observe(self) -> bool:
        """Whether the inner optimizer keeps its `last_step`."""
        return bool(getattr(self.optimizer, "observe", False))

    @observe.setter
    def observe(self, on: bool) -> None:
        self.optimizer.observe = on  # type: ignore[attr-defined]

    @property
    def last_step(self) -> Any:
        """What the inner optimizer's last step did, if it was observed."""
        return getattr(self.optimizer, "last_step", None)

    @property
    def weights(self) -> list[Variable]:
        """The inner optimizer's, then what is this one's own."""
        return [*self.optimizer.weights, *self._weights[1:]]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        own = [weight.numpy().copy() for weight in self._weights[1:]]
        return [*self.optimizer.get_weights(), *own]

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

    def _check_move(self, moved: dict[Any, Variable]) -> None:
        super()._check_move(moved)
        for inner in self._inner().values():
            inner._check_move(moved)

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        for inner in self._inner().values():
            inner._move_state(moved)

    def _inner(self) -> dict[str, Checkpointed]:
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
        return made(partial(type(self), self.optimizer, **config))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        from tfopt_ref.optimizers.serialization import serialize

        return {"optimizer": serialize(self.optimizer), "name": self.name, **self._own_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer with the arguments that `get_config` returned."""
        from tfopt_ref.optimizers.serialization import get

        return cls(**{**config, "optimizer": get(config["optimizer"])})
