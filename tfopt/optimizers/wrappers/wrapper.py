"""Wrappers: optimizers that extend the steps of an inner optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from tfopt.core.known_attributes import declares, did_you_mean
from tfopt.errors import InvalidTypeError
from tfopt.kernels.update.commit import Undo, Write
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.base.optimizer_v2 import Optimizer
from tfopt.optimizers.settings import Setting, refuse_class
from tfopt.optimizers.state.config import change_to_adopt, get, made, serialize
from tfopt.optimizers.state.restoration import LoadedState, Restoration
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.variable import Variable

__all__ = ["Wrapper"]


def _an_optimizer(name: str, value: Any) -> OptimizerBase:
    refuse_class(name, value)
    if not isinstance(value, OptimizerBase):
        raise InvalidTypeError(f"{name} must be an optimizer, not {type(value).__name__}")
    return value


class Wrapper(OptimizerBase, abstract=True):
    """Base class of optimizers that wrap another one, including user-defined ones.

    A subclass overrides `prepare`: it requests a step from the inner optimizer, possibly with other
    gradients, and appends its own operations to it. `add_slot` creates slots of the wrapper,
    `add_weight` other state; both are saved, and new slots are removed if the step fails.

    A wrapper does not have the hyperparameters of `Optimizer`: public attributes are read from and
    set on the inner optimizer, except those that the wrapper defines itself. These are the
    arguments of its constructor, which form its configuration, and the names in the class body.

    ``isinstance(wrapper, Optimizer)`` is true, although it does not inherit from it.

    Parameters
    ----------
    optimizer : Optimizer
        The inner optimizer.
    name : str

    Attributes
    ----------
    optimizer : Optimizer

    Raises
    ------
    AttributeError
        If an attribute that neither optimizer has is read or set.

    Examples
    --------
    k steps forward, one step back (Zhang et al., Lookahead Optimizer, NeurIPS 2019):

    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, Wrapper
    >>> class Lookahead(Wrapper):
    ...     def __init__(self, optimizer, period=5, alpha=0.5, name="Lookahead"):
    ...         super().__init__(optimizer, name)
    ...         self.period, self.alpha = period, alpha
    ...
    ...     def prepare(self, request):
    ...         slots = [(self.add_slot(v, "slow", v.numpy()), v) for v in request.handles]
    ...         step = self.optimizer.prepare(request)
    ...         if step.counts and (int(self.iterations) + 1) % self.period == 0:
    ...             for slow, fast in slots:
    ...                 step.update("moving_average", slow, fast, momentum=1 - self.alpha)
    ...                 step.assign(fast, slow)
    ...         return step
    >>> w = np.array([8.0])
    >>> opt = Lookahead(SGD(1.0), period=2)
    >>> for _ in range(2):
    ...     _ = opt.apply_gradients([(np.ones(1), w)])
    >>> w, opt.learning_rate
    (array([7.]), 1.0)
    """

    _counts_steps = False  # the inner optimizer does
    _weight_bounds: ClassVar[dict[str, tuple[float, float]]] = {}
    _arguments: tuple[str, ...] = ()  # the other arguments of the constructor

    optimizer = Setting(_an_optimizer, once=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_arguments" not in vars(cls):
            _, *arguments = parameters_of(cls)
            cls._arguments = tuple(each for each in arguments if each not in ("optimizer", "name"))

    def __init__(self, optimizer: OptimizerBase, name: str) -> None:
        self.optimizer = optimizer
        super().__init__(name)

    # ---- steps

    def _bind(self, request: StepRequest) -> Step:
        return self.optimizer.bind(request)

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of a `StepRequest` that steps support.

        A subclass that passes on `StepRequest.before` or `StepRequest.after` may keep more of the
        inner optimizer's features.
        """
        inner = self.optimizer.capabilities
        return inner._replace(fuses=False, follows=False, fuses_on_device=False)

    def loss_scales(self, var: Any) -> tuple[Variable, ...]:
        """Return the scales of the loss for the gradient of a variable, or of all if None."""
        return self.optimizer.loss_scales(var)

    @property
    def iterations(self) -> Variable:
        """The number of the inner optimizer's steps, int64."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        self.optimizer.iterations = variable

    def catch_up(self, var: Any, rows: Any) -> None:
        """Apply the deferred updates of some rows in the inner optimizer."""
        self.optimizer.catch_up(var, rows)

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "optimizer":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._inside(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name.startswith("_") or name in self._arguments or declares(type(self), name)
        if own:
            super().__setattr__(name, value)
            return
        with Undo([], self._all_holders()):
            self._set_inside(name, value)
            self._check_settings()

    def _settable(self) -> Iterator[str]:
        yield from super()._settable()
        for inner in self._inner().values():
            yield from inner._settable()

    def _inside(self, name: str) -> Any:
        """Return an attribute of the inner optimizer."""
        return getattr(self.optimizer, name)

    def _set_inside(self, name: str, value: Any) -> None:
        """Set an existing attribute of the inner optimizer."""
        if not hasattr(self.optimizer, name):
            raise AttributeError(
                f"neither {type(self).__name__} nor the inner optimizer, "
                f"{type(self.optimizer).__name__}, has an attribute {name!r}"
                f"{did_you_mean(name, self._settable())}"
            )
        setattr(self.optimizer, name, value)

    def _decayed_lr(self, var_dtype: Any) -> Any:
        return self.optimizer._decayed_lr(var_dtype)

    # ---- state

    def add_weight(self, name: str, initial_value: Any) -> Variable:
        """Return a new weight: state that does not belong to a variable.

        Parameters
        ----------
        name : str
            Its name in a saved state.
        initial_value : array_like
            Determines the dtype.
        """
        weight = Variable(np.array(initial_value), f"{self.name}/{name}", trainable=False)
        self._store.weights.append(weight)
        return weight

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        arrays = list(weights)
        *others, last = self._inner().values()
        for inner in others:
            n = len(inner.weights)
            inner._set_weights(restoration, arrays[:n])
            del arrays[:n]
        n = max(len(arrays) - len(self._store.weights), 0)
        last._set_weights(restoration, arrays[:n])
        super()._set_weights(restoration, arrays[n:])

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        # those of the wrapper, and else those of the inner optimizer
        return {**self.optimizer._slots_of(variable), **self._store.of(variable)}

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots, those of the inner optimizer first."""
        return [*self.optimizer.get_slot_names(), *super().get_slot_names()]

    def _inner(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer}

    @property
    def _locks(self) -> bool:
        return any(inner._locks for inner in self._inner().values())

    # ---- configuration

    def _saved_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", *self._arguments)}

    def _like(self, config: dict[str, Any]) -> Any:
        return made(lambda: type(self)(self.optimizer, **config))

    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        return [change_to_adopt(self, loaded.like)]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments of this optimizer, without its state."""
        return {"optimizer": serialize(self.optimizer), **self._saved_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer constructed from the result of `get_config`."""
        return cls(**{**config, "optimizer": get(config["optimizer"])})


Optimizer.register(Wrapper)
