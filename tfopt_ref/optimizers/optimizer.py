"""The contract of OptimizerV2: settings, steps, and the methods a subclass may override."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from tfopt_ref.autodiff.effects import writes
from tfopt_ref.autodiff.tape import GradientTape
from tfopt_ref.call_site import stacklevel
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.checkpointed import Checkpointed
from tfopt_ref.optimizers.clipping import Limit, clipped_gradients
from tfopt_ref.optimizers.hyper import Hyper, LearningRate, rate_config
from tfopt_ref.optimizers.minimizing import pairs_of_loss
from tfopt_ref.optimizers.names import made_unique, unknown_argument
from tfopt_ref.optimizers.pairs import (
    are_finite,
    as_gradient,
    as_variable,
    checked_gradient,
    checked_pairs,
    refuse_rows,
    times,
)
from tfopt_ref.optimizers.places import Places
from tfopt_ref.optimizers.schedules import LearningRateSchedule, deserialize
from tfopt_ref.variable import Variable

__all__ = ["Commit", "NotFinite", "Optimizer"]

Commit = Callable[[], None]
ApplyState = dict[tuple[str, np.dtype[Any]], dict[str, Any]]


class NotFinite(Exception):
    """Why a step that was to be of finite gradients is none; and what is carried out instead."""

    def __init__(self, *instead: Commit) -> None:
        super().__init__()
        self.instead = instead


class Optimizer(Checkpointed):
    """Base class of the optimizers, and of a user's own.

    `use_locking` is accepted without effect.
    """

    _HAS_AGGREGATE_GRAD = True  # what TensorFlow's training loops look for

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
        self._places = Places()
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

    # ---- what a subclass may override

    def _create_slots(self, var_list: list[Variable]) -> None:
        """Make the slots (`add_slot`) of variables, some of which may have theirs."""

    def _prepare_local(
        self, var_device: str, var_dtype: np.dtype[Any], apply_state: ApplyState
    ) -> None:
        """Compute what a step's variables of one device and dtype have in common."""
        apply_state[var_device, var_dtype] = {"lr_t": self._decayed_lr(var_dtype)}

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        """Update a variable by a gradient of its shape and dtype."""
        raise NotImplementedError(f"{type(self).__name__} must override _resource_apply_dense")

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        """Update the rows of a variable that distinct indices name."""
        raise NotImplementedError(f"{type(self).__name__} must override _resource_apply_sparse")

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        """Update rows, of which some may be named several times: sum what they get."""
        merged = IndexedSlices(grad, indices).sum_duplicates()
        self._resource_apply_sparse(merged.values, handle, merged.indices, apply_state)

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

    # ---- steps

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
        self._apply(pairs, experimental_aggregate_gradients)
        return self.iterations

    @writes()
    def _apply(self, pairs: list[tuple[Any, Any]], aggregate: bool) -> None:
        self._prepared(checked_pairs(pairs), 1.0, aggregate, False)()

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool, finite: bool) -> Commit:
        """Check a step by gradients times a scale; return what carries it out.

        `NotFinite` is raised if they are to be `finite`, and one is infinite or NaN.
        """
        aggregates = aggregates and self._aggregates()
        if aggregates or self.gradient_transformers:
            pairs = [(times(as_gradient(grad, var), scale), var) for grad, var in pairs]
            scale = 1.0
        if aggregates:
            pairs = checked_pairs(self._aggregate_gradients(pairs))
        if finite and not are_finite(pairs):
            raise NotFinite
        for transform in self.gradient_transformers:
            pairs = checked_pairs(transform(pairs))
        variables = [as_variable(var) for _, var in pairs]
        known = len(self._weights)
        try:
            step = self._checked_step([grad for grad, _ in pairs], variables, scale)
        except Exception:
            self._withdraw(known)
            raise

        def commit() -> None:
            step()
            self._count()

        return commit

    def _aggregates(self) -> bool:
        """Whether gradients are aggregated over replicas."""
        own = type(self)._aggregate_gradients is not Optimizer._aggregate_gradients
        return own or self.gradient_aggregator is not None

    def _aggregate_gradients(self, grads_and_vars: list[Any]) -> Iterable[Any]:
        """Return the pairs of all replicas: what `gradient_aggregator` makes of these."""
        aggregator = self.gradient_aggregator
        return grads_and_vars if aggregator is None else aggregator(grads_and_vars)

    def _scales_of(self, var: Any) -> tuple[Variable, ...]:
        """Return what the loss has to be multiplied by, for gradients of a variable."""
        return ()

    def _count(self) -> None:
        self.iterations.assign_add(1)

    def _checked_step(self, grads: list[Any], variables: list[Variable], scale: float) -> Commit:
        """Check every pair; return what updates one variable after another."""
        refuse_rows(grads, variables)
        given = [checked_gradient(grad, var) for grad, var in zip(grads, variables, strict=True)]
        given = clipped_gradients(self, [times(grad, scale) for grad in given])
        self._create_slots(variables)
        return partial(self._step_each, given, variables)

    def _step_each(self, given: list[Any], variables: list[Variable]) -> None:
        apply_state: ApplyState = {}
        for device, dtype in dict.fromkeys((var.device, var.dtype) for var in variables):
            self._prepare_local(device, dtype, apply_state)
        for grad, var in zip(given, variables, strict=True):
            var.before_write()
            if isinstance(grad, IndexedSlices):
                self._resource_apply_sparse_duplicate_indices(
                    grad.values, var, grad.indices, apply_state
                )
            else:
                self._resource_apply_dense(grad, var, apply_state)
                var.constrain()

    def step(self, params: Any, grads: Any) -> Variable | None:
        """Take one step with arrays in dicts, lists and tuples, nested or not."""
        pairs = self._places.pairs(params, grads, self._move)
        given = [pair for pair in pairs if pair[0] is not None]
        return self.apply_gradients(given or pairs)

    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows take the steps they have not taken: there are none here."""

    def flush(self) -> None:
        """Let all rows take the steps they have not taken: there are none here."""

    def _move(self, moved: dict[Any, Variable]) -> None:
        self._check_move(moved)
        self._move_state(moved)

    def minimize(
        self,
        loss: Any,
        var_list: Any,
        grad_loss: Any = None,
        name: str | None = None,
        tape: GradientTape | None = None,
    ) -> Variable | None:
        """Take one step down a loss.

        It is a tensor that a tape has recorded; or a function that returns a tensor, which is
        recorded here, or a pair, a loss and its gradients.
        """
        pairs = pairs_of_loss(loss, var_list, grad_loss, tape, self._scales_of)
        return self.apply_gradients(pairs, name)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
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
        """Return an optimizer with the arguments that `get_config` returned."""
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
