"""What an optimizer is made with: its hyperparameters and other settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np

from tfopt.core.call_site import stacklevel
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.base.hyperparameters import Hyper, LearningRate, rate_config
from tfopt.optimizers.base.slots import State
from tfopt.optimizers.base.unique_names import made_unique, unknown_argument
from tfopt.optimizers.execution.clipping import Limit
from tfopt.optimizers.schedules import LearningRateSchedule, deserialize

__all__ = ["Settings"]


class Settings(State):
    """The arguments that `Optimizer` describes, and the configuration that holds them."""

    learning_rate = LearningRate(0)
    decay = Hyper(0)
    clipnorm = Limit()
    clipvalue = Limit()
    global_clipnorm = Limit()

    def __init__(
        self,
        name: str,
        learning_rate: Any = 0.001,
        *,
        decay: float = 0.0,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        merge: str = "after",
        gradient_aggregator: Callable[[list[Any]], Iterable[Any]] | None = None,
        gradient_transformers: Sequence[Callable[[list[Any]], Iterable[Any]]] | None = None,
        use_locking: bool = False,
        compat: str | None = None,
        lr: float | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise unknown_argument(type(self), next(iter(unknown)))
        if merge not in ("after", "before"):
            raise InvalidArgumentError(f'merge must be "after" or "before", not {merge!r}')
        if compat not in (None, "tensorflow"):
            raise InvalidArgumentError(f'compat must be None or "tensorflow", not {compat!r}')
        super().__init__(name or made_unique(type(self).__name__))
        self.compat = compat
        self.merge = merge
        self.use_locking = bool(use_locking)
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        limits = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        given = [key for key, limit in limits.items() if limit is not None]
        if gradient_transformers and given:
            raise InvalidArgumentError(
                f"`{given[0]}` cannot be set when `gradient_transformers` is set. Instead, use the "
                "`gradient_transformers` to specify clipping and other transformations."
            )
        self.gradient_aggregator = gradient_aggregator
        self.gradient_transformers = list(gradient_transformers or ())
        if lr is not None:
            warnings.warn(
                "The `lr` argument is deprecated, use `learning_rate` instead.",
                stacklevel=stacklevel(),
            )
            learning_rate = lr
        self.learning_rate = learning_rate
        self.decay = decay

    @property
    def lr(self) -> Any:
        """Another name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    # ---- hyperparameters

    def _set_hyper(self, name: str, value: Any) -> None:
        """Set a hyperparameter, an attribute of that name: a number, or a function of nothing."""
        setattr(self, name, value)

    def _get_hyper(self, name: str, dtype: Any = None) -> Any:
        """Return a hyperparameter: of a dtype if one is given; a schedule as it is."""
        value = getattr(self, name)
        if isinstance(value, LearningRateSchedule):
            return value
        value = value() if callable(value) else value
        return value if dtype is None else np.dtype(dtype).type(value)

    def _serialize_hyperparameter(self, name: str) -> Any:
        """Return a hyperparameter as `get_config` holds it."""
        return rate_config(getattr(self, name))

    def _decayed_lr(self, var_dtype: Any) -> Any:
        """Return the learning rate of the next step, computed in float64, in a dtype."""
        return np.dtype(var_dtype).type(self._next_rate())

    def _next_rate(self) -> float:
        step = int(self.iterations)
        rate: float = type(self).learning_rate.at(self, step) / (1 + self.decay * step)
        return rate

    # ---- configuration

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        clipping = {
            "clipnorm": self.clipnorm,
            "clipvalue": self.clipvalue,
            "global_clipnorm": self.global_clipnorm,
        }
        usual = {"merge": "after", "use_locking": False, "compat": None}
        others = {key: getattr(self, key) for key in usual}
        return {
            "name": self.name,
            **{key: value for key, value in clipping.items() if value is not None},
            **{key: value for key, value in others.items() if value != usual[key]},
            "learning_rate": rate_config(self.learning_rate),
            "decay": self.decay,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer with the arguments that `get_config` returned.

        ``lr`` is another name of ``learning_rate``, of which a dict makes a schedule.
        """
        given = dict(config)
        if "lr" in given:
            given["learning_rate"] = given.pop("lr")
        if isinstance(given.get("learning_rate"), dict):
            given["learning_rate"] = deserialize(given["learning_rate"])
        return cls(**given)

    def __repr__(self) -> str:
        try:
            config = self.get_config()
        except InvalidTypeError:  # what no configuration holds: functions, lists of variables
            return f"<{type(self).__name__} {self.name!r}>"
        arguments = ", ".join(f"{key}={value!r}" for key, value in config.items())
        return f"{type(self).__name__}({arguments})"
