"""The contract of OptimizerV2: variables, slots, steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.clipping import Limit, clipped
from tfopt_ref.optimizers.hyper import Hyper, LearningRate, rate_config
from tfopt_ref.optimizers.names import made_unique
from tfopt_ref.optimizers.schedules import deserialize
from tfopt_ref.optimizers.weights import fitting
from tfopt_ref.training_op import TrainingOp
from tfopt_ref.variable import Variable

__all__ = ["Optimizer"]

Update = tuple[TrainingOp, dict[str, Any]]


class Optimizer:
    """Base class: a subclass gives the slots' first values and the op of a step."""

    learning_rate = LearningRate(0)
    decay = Hyper(0)

    clipnorm = Limit()
    clipvalue = Limit()
    global_clipnorm = Limit()

    def __init__(
        self,
        name: str,
        learning_rate: Any,
        *,
        decay: float = 0.0,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        merge: str = "after",
        gradient_aggregator: Callable[[list[Any]], Sequence[Any]] | None = None,
        gradient_transformers: Sequence[Callable[[list[Any]], Iterable[Any]]] | None = None,
        lr: float | None = None,
    ) -> None:
        if merge not in ("after", "before"):
            raise InvalidArgumentError(f'merge must be "after" or "before", not {merge!r}')
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        self.merge = merge
        limits = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        given = [key for key, limit in limits.items() if limit is not None]
        if gradient_transformers and given:
            raise InvalidArgumentError(
                f"`{given[0]}` cannot be set when `gradient_transformers` is set. Instead, use the "
                "`gradient_transformers` to specify clipping and other transformations."
            )
        self.gradient_aggregator = gradient_aggregator
        self.gradient_transformers = list(gradient_transformers or ())
        self.name = name or made_unique(type(self).__name__)
        if lr is not None:
            warnings.warn(
                "The `lr` argument is deprecated, use `learning_rate` instead.", stacklevel=3
            )
            learning_rate = lr
        self.learning_rate = learning_rate
        self.decay = decay
        self.iterations = Variable(np.zeros((), np.int64), name=f"{name}/iterations")
        self._weights = [self.iterations]
        self._slots: dict[Any, dict[str, Variable]] = {}
        self._owners: list[Variable] = []

    @property
    def lr(self) -> Any:
        """Another name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    def _slot_values(self) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> Update:
        """Return the op of step t (the first is 1) and its hyperparameters."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    def _sparse_op(self) -> TrainingOp | None:
        """Return the op for sparse gradients, if it is another one."""
        return None

    def _duplicates(self) -> str:
        """Return what repeated indices mean, as in training_ops."""
        return "sum"

    def _op_slots(self) -> tuple[str, ...]:
        """Return the names of the slots in the order in which the op takes them."""
        return tuple(self._slot_values())

    def _stepped(self, hypers: dict[str, Any]) -> None:
        """Keep what a step leaves for the next one, beside slots."""

    def _create_slots(self, variables: list[Variable]) -> None:
        """Make the slots of variables that have none, in the order of `weights`."""
        for slot, value in self._slot_values().items():
            for variable in variables:
                self.add_slot(variable, slot, value)

    def add_slot(self, var: Any, slot_name: str, initial_value: float = 0.0) -> Variable:
        """Return the slot of a variable; make it if there is none."""
        variable = _as_variable(var)
        slots = self._slots.setdefault(_memory(variable), {})
        self._owners.append(variable)
        if slot_name not in slots:
            array = np.full(variable.shape, initial_value, variable.dtype)
            slots[slot_name] = Variable(array, f"{self.name}/{variable.name}/{slot_name}")
            self._weights.append(slots[slot_name])
        return slots[slot_name]

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable; KeyError if there is none."""
        return self._slots[_memory(_as_variable(var))][slot_name]

    def get_slot_names(self) -> list[str]:
        """Return the names of a variable's slots."""
        return list(self._slot_values())

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Variable | None:
        """Take one step: check every pair, then update every variable by its gradient."""
        pairs = list(grads_and_vars)
        if not pairs:
            return None
        pairs = _checked_pairs(pairs)
        if self.gradient_aggregator is not None and experimental_aggregate_gradients:
            grads = self.gradient_aggregator(pairs)
            pairs = [(grad, var) for grad, (_, var) in zip(grads, pairs, strict=True)]
        for transform in self.gradient_transformers:
            pairs = _checked_pairs(transform(pairs))
        step = int(self.iterations)
        lr = type(self).learning_rate.at(self, step) / (1 + self.decay * step)
        op, hypers = self._update(step + 1, lr)
        calls = []
        clips = (self.clipvalue, self.clipnorm, self.global_clipnorm) != (None, None, None)
        variables = [_as_variable(var) for _, var in pairs]
        self._create_slots(variables)
        for (grad, _), variable in zip(pairs, variables, strict=True):
            slots = (self.get_slot(variable, slot).numpy() for slot in self._op_slots())
            arrays = [variable.numpy(), *slots]
            own = self._sparse_op() if isinstance(grad, IndexedSlices) else None
            calls.append(self._checked(own or op, hypers, arrays, grad))
        if clips:
            ops = [called for called, *_ in calls]
            given = clipped([(operands, options) for _, operands, options in calls], self)
            calls = [(called, *each) for called, each in zip(ops, given, strict=True)]
        for called, operands, options in calls:
            called(*operands, **options)
        self._stepped(hypers)
        self.iterations.assign(step + 1)
        return self.iterations

    def minimize(
        self, loss: Callable[[], tuple[Any, Sequence[Any]]], var_list: Any, name: str | None = None
    ) -> Variable | None:
        """Take one step down a loss, a function that returns the loss and its gradients."""
        if not callable(loss):
            raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
        made = loss()
        if not isinstance(made, tuple) or len(made) != 2:
            raise InvalidArgumentError("the loss must return a pair: the loss and its gradients")
        variables = var_list() if callable(var_list) else var_list
        if isinstance(variables, (Variable, np.ndarray)):
            variables = [variables]
        _, grads = made
        if len(grads) != len(variables):
            raise InvalidArgumentError(f"{len(variables)} variables, but {len(grads)} gradients")
        return self.apply_gradients(zip(grads, variables, strict=True), name)

    def _checked(
        self, op: TrainingOp, hypers: dict[str, Any], arrays: list[np.ndarray], grad: Any
    ) -> Any:
        """Return an op with the arrays and options of a call that can be carried out."""
        if not isinstance(grad, IndexedSlices):
            array = grad if hasattr(grad, "dtype") else np.asarray(grad, arrays[0].dtype)
            op.check(op.bind(*arrays, array, **hypers))
            return op, (*arrays, array), hypers
        rows = {"indices": grad.indices, "duplicates": self._duplicates()}
        op.check(op.bind(*arrays, grad.values, **hypers, **rows))
        return op, (*arrays, grad.values), {**hypers, **rows}

    @property
    def weights(self) -> list[Variable]:
        """The state: the step count, then the slots in the order in which they were made."""
        return list(self._weights)

    def variables(self) -> list[Variable]:
        """Return `weights`, as TensorFlow's method does."""
        return self.weights

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays."""
        return [weight.numpy().copy() for weight in self._weights]

    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them."""
        for weight, array in zip(
            self._weights, fitting(self.name, self._weights, weights), strict=True
        ):
            weight.assign(array)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        clipping = {
            "clipnorm": self.clipnorm,
            "clipvalue": self.clipvalue,
            "global_clipnorm": self.global_clipnorm,
            "merge": None if self.merge == "after" else self.merge,
        }
        return {
            "name": self.name,
            **{key: value for key, value in clipping.items() if value is not None},
            "learning_rate": rate_config(self.learning_rate),
            "decay": self.decay,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Optimizer:
        """Return an optimizer with the arguments that `get_config` returned."""
        given = dict(config)
        if "lr" in given:
            given["learning_rate"] = given.pop("lr")
        if isinstance(given.get("learning_rate"), dict):
            given["learning_rate"] = deserialize(given["learning_rate"])
        return cls(**given)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


def _checked_pairs(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    try:
        return _without_none([(grad, var) for grad, var in pairs])
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            "grads_and_vars must be pairs of a gradient and a variable"
        ) from None


def _without_none(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    kept = [(grad, var) for grad, var in pairs if grad is not None]
    missing = [
        var.name if isinstance(var, Variable) else "Variable" for grad, var in pairs if grad is None
    ]
    if not kept:
        raise InvalidArgumentError(f"No gradients provided for any variable: {missing}.")
    if missing:
        warnings.warn(f"Gradients do not exist for variables {missing}.", stacklevel=4)
    return kept


def _as_variable(var: Any) -> Variable:
    if isinstance(var, Variable):
        return var
    if isinstance(var, np.ndarray):
        return Variable(var)
    raise InvalidTypeError(f"Trying to update a {type(var).__name__}, not a variable")


def _memory(variable: Variable) -> Any:
    """Return what identifies a variable: the same memory seen the same way."""
    array = variable.numpy()
    return array.ctypes.data, array.shape, array.strides, array.dtype
