"""The contract of OptimizerV2: hyperparameters, and the methods a subclass may override."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self, get_args

import numpy as np

from tfopt.core.callers import stacklevel
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Write
from tfopt.names import unknown_argument
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.base.each_step import EachStep
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.base.shared_docs import filled
from tfopt.optimizers.base.unique_names import made_unique
from tfopt.optimizers.options import Compat, LearningRateLike, Merge, PairsFunction
from tfopt.optimizers.schedules import LearningRateSchedule, deserialize
from tfopt.optimizers.settings import (
    Hook,
    Setting,
    choice,
    configuration,
    flag,
    function,
    functions,
)
from tfopt.optimizers.state import config as configs
from tfopt.optimizers.state.hyperparameters import Hyper, LearningRate, limit, rate_config
from tfopt.optimizers.state.restoration import LoadedState
from tfopt.optimizers.state.step_count import StepCount
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.state.variables import as_variable, refuse_gpu
from tfopt.optimizers.step.clipping import clipped_gradients
from tfopt.optimizers.step.gradients import are_finite, refuse_rows, split_pairs
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, NotFinite, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.variable import Variable

__all__ = ["ApplyState", "Optimizer"]

ApplyState = dict[tuple[str, np.dtype[Any]], dict[str, Any]]


class Optimizer(OptimizerBase, abstract=True):
    """Base class of the optimizers, including user-defined ones.

    A direct subclass computes its steps in NumPy: it overrides `_create_slots`,
    `_resource_apply_dense` and `_resource_apply_sparse`, as with TensorFlow's OptimizerV2.

    Parameters
    ----------
    name : str
        Part of the slots' names.
    learning_rate : float, LearningRateSchedule, callable or Variable, default 0.001
        At least 0. A schedule, or another function of one argument, is called at each step with
        the number of steps taken so far; a function without arguments is called without any. A
        variable is read at each step; its value is not part of the optimizer's state.
    decay : float, default 0.0
        The learning rate of a step is ``learning_rate / (1 + decay * iterations)``.
    clipvalue : float, optional
        Every gradient is first clipped to [-clipvalue, clipvalue].
    clipnorm : float, optional
        The maximum norm of each gradient.
    global_clipnorm : float, optional
        The maximum global norm of all gradients; cannot be combined with `clipnorm`.
    merge : {"after", "before"}
        Whether gradient rows with the same index are summed after clipping, as in TensorFlow, or
        before it, so that the norm is that of the true gradient.
    gradient_aggregator : callable, optional
        Called first, with the list of pairs, and returns a list of pairs: with several replicas,
        one with the sums or means of their gradients (arrays and `IndexedSlices`).
    gradient_transformers : list of callable, optional
        Called in turn with the list of pairs; each returns a list of pairs. Cannot be combined
        with clipping.
    use_locking : bool, default False
        Hold the locks of the variables and of `iterations` during a step, so that steps taken by
        several threads are serialized, and a thread that holds ``variable.lock`` never sees a
        partial step.
    compat : {None, "tensorflow"}
        "tensorflow" rounds hyperparameters given as Python numbers to float32, as TensorFlow does;
        otherwise they are kept in float64.
    lr : float, optional
        Deprecated name of `learning_rate`; gives a warning.

    Attributes
    ----------
    iterations : Variable
        The number of steps taken, int64.

    Notes
    -----
    Slots belong to arrays in memory. So use ``copy.deepcopy`` and ``pickle`` on an optimizer
    together with its variables: ``copy.deepcopy((optimizer, params))``. To use the state with
    other variables, see `state_dict`.

    Examples
    --------
    Sign descent with momentum (Bernstein et al., signSGD, ICML 2018):

    >>> import numpy as np
    >>> from tfopt.optimizers import Optimizer
    >>> class Signum(Optimizer):
    ...     def __init__(self, learning_rate=0.001, momentum=0.9, name="Signum", **kwargs):
    ...         super().__init__(name, learning_rate, **kwargs)
    ...         self._set_hyper("momentum", momentum)
    ...
    ...     def _create_slots(self, var_list):
    ...         for var in var_list:
    ...             self.add_slot(var, "m")
    ...
    ...     def _resource_apply_dense(self, grad, var, apply_state):
    ...         m = self.get_slot(var, "m").numpy()
    ...         mu = self._get_hyper("momentum", var.dtype)
    ...         m[...] = mu * m + (1 - mu) * grad
    ...         var.assign_sub(apply_state["cpu", var.dtype]["lr_t"] * np.sign(m))
    ...
    ...     def get_config(self):
    ...         own = {"momentum": self._serialize_hyperparameter("momentum")}
    ...         return {**super().get_config(), **own}
    >>> w = np.array([3.0, -4.0])
    >>> opt = Signum(0.5)
    >>> int(opt.apply_gradients([(2 * w, w)]))
    1
    >>> w
    array([ 2.5, -3.5])
    """

    # in the order of configurations
    clipnorm = Setting(limit, default=None)
    clipvalue = Setting(limit, default=None)
    global_clipnorm = Setting(limit, default=None)
    merge = Setting[Merge](choice(*get_args(Merge)), default="after")
    use_locking = Setting(flag, default=False)
    compat = Setting[Compat](choice(None, "tensorflow"), default=None, once=True)
    learning_rate = LearningRate(0)
    decay = Hyper(0)
    gradient_aggregator = Hook(function)
    gradient_transformers = Hook[Any](functions, default=())

    _overrides_aggregation = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        overridden = cls._aggregate_gradients is not Optimizer._aggregate_gradients
        cls._overrides_aggregation = overridden
        if cls.__doc__:  # there is none with -OO
            cls.__doc__ = filled(cls.__doc__)

    def __init__(
        self,
        name: str,
        learning_rate: LearningRateLike = 0.001,
        *,
        decay: float = 0.0,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        merge: Merge = "after",
        gradient_aggregator: PairsFunction | None = None,
        gradient_transformers: Sequence[PairsFunction] | None = None,
        use_locking: bool = False,
        compat: Compat = None,
        lr: float | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise unknown_argument(type(self), next(iter(unknown)), parameters_of(type(self)))
        name = made_unique(type(self).__name__) if name in (None, "") else name
        super().__init__(name)
        self._store.weights.append(StepCount.of(name))
        self.compat = compat
        self.merge = merge
        self.use_locking = use_locking
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        self.gradient_aggregator = gradient_aggregator
        self.gradient_transformers = gradient_transformers
        if lr is not None:
            warnings.warn(
                "The `lr` argument is deprecated, use `learning_rate` instead.",
                stacklevel=stacklevel(),
            )
            learning_rate = lr
        self.learning_rate = learning_rate
        self.decay = decay

    def _check_settings(self) -> None:
        limits = ("clipnorm", "clipvalue", "global_clipnorm")
        used = [name for name in limits if getattr(self, name) is not None]
        if used and self.gradient_transformers:
            raise InvalidArgumentError(
                f"`{used[0]}` cannot be set when `gradient_transformers` is set. Instead, use the "
                "`gradient_transformers` to specify clipping and other transformations."
            )
        if self.clipnorm is not None and self.global_clipnorm is not None:
            raise InvalidArgumentError(
                f"Cannot accept both `clipnorm` and `global_clipnorm`, passed `clipnorm` "
                f"{self.clipnorm}, `global_clipnorm` {self.global_clipnorm}"
            )

    @property
    def lr(self) -> Any:
        """Alias of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    @property
    def iterations(self) -> Variable:
        """The number of steps taken, int64.

        Before slots are created, it can be set to a Variable, which then counts the steps.
        """
        return self._store.weights[0]

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if self._store.owners:
            raise RuntimeError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been "
                "created"
            )
        count = as_variable(variable)
        if count.shape != () or count.dtype != np.int64:
            raise InvalidArgumentError(
                f"iterations must be an int64 scalar, not {count.dtype} of shape {count.shape}"
            )
        self._store.count_with(count)

    # ---- methods that a subclass may override

    def _create_slots(self, var_list: list[Variable]) -> None:
        """Create the slots (`add_slot`) of variables, some of which may already have them."""

    def _prepare_local(
        self, var_device: str, var_dtype: np.dtype[Any], apply_state: ApplyState
    ) -> None:
        """Compute the values of a step shared by all variables of one device and dtype."""
        apply_state[var_device, var_dtype] = {"lr_t": self._decayed_lr(var_dtype)}

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        """Update a variable with a gradient of its shape and dtype."""
        raise NotImplementedError(f"{type(self).__name__} must override _resource_apply_dense")

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        """Update the rows of a variable at distinct indices."""
        raise NotImplementedError(f"{type(self).__name__} must override _resource_apply_sparse")

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        """Update rows at indices with possible duplicates, whose gradients are summed."""
        merged = IndexedSlices(grad, indices).sum_duplicates()
        self._resource_apply_sparse(merged.values, handle, merged.indices, apply_state)

    def _aggregate_gradients(self, grads_and_vars: list[Any]) -> Iterable[Any]:
        """Return the pairs aggregated over all replicas by `gradient_aggregator`."""
        aggregator = self.gradient_aggregator
        return grads_and_vars if aggregator is None else aggregator(grads_and_vars)

    # ---- steps

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of a `StepRequest` that steps support."""
        takes_norm = self.global_clipnorm is not None
        return Capabilities(aggregates=self._aggregates, takes_norm=takes_norm)

    @property
    def _aggregates(self) -> bool:
        """Whether gradients are aggregated over replicas."""
        return self.gradient_aggregator is not None or self._overrides_aggregation

    @property
    def _measures(self) -> bool:
        """Whether a step computes norms that show whether its gradients are finite."""
        return False

    @property
    def _locks(self) -> bool:
        locks: bool = self.use_locking
        return locks

    def _bind(self, request: StepRequest) -> Step:
        refuse_gpu(request.handles, type(self).__name__)
        return EachStep(self, request)

    @property
    def _has_hooks(self) -> bool:
        return self._aggregates or bool(self.gradient_transformers)

    def _hooked(self, request: StepRequest) -> StepRequest:
        aggregates = request.aggregates and self._aggregates
        if not (aggregates or self.gradient_transformers):
            return request
        if request.scale != 1:
            request = request.checked().scaled()
        if aggregates:
            pairs = list(zip(request.grads, request.variables, strict=True))
            grads, variables = split_pairs(self._aggregate_gradients(pairs))
            request = request._replace(grads=grads, variables=variables)
            if request.finite:
                request = request.checked()
        # after the aggregator, so that all replicas call it and reach the same result
        looks = request.finite and not self._measures
        if looks and not are_finite(request.grads, request.known):
            raise NotFinite
        request = request.replace(finite=request.finite and self._measures)
        for transform in self.gradient_transformers:
            pairs = list(zip(request.grads, request.variables, strict=True))
            grads, variables = split_pairs(transform(pairs))
            request = request.replace(grads=grads, variables=variables)
        return request

    def _prepare_each(self, request: StepRequest) -> PreparedStep:
        """Check every pair; return a step that updates one variable after another.

        Since a user-defined method may raise at any point and write to any element, variables and
        slots are copied first.
        """
        handles = request.handles
        if request.finite and not are_finite(request.checked().grads, request.known):
            raise NotFinite
        for grad, handle in zip(request.grads, handles, strict=True):
            if isinstance(grad, IndexedSlices):
                refuse_rows(handle)
        checked = request.checked().scaled()
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        grads, clipped = clipped_gradients(checked.grads, self.merge, limits, checked.known)
        self._create_slots(handles)
        step = PreparedStep([])
        if clipped:
            step.clipped = True
        step.work.append(partial(self._step_each, grads, handles))
        step.kept += self._written_to(handles)
        return step

    def _written_to(self, handles: list[Variable]) -> list[np.ndarray]:
        """Return the arrays of variables, of their slots, and of weights that are not slots."""
        slots = [slot for handle in handles for slot in self._store.of(handle).values()]
        return [variable.numpy() for variable in (*handles, *slots, *self._store.others)]

    def _step_each(self, grads: tuple[Any, ...], handles: list[Variable], writes: Writes) -> None:
        apply_state: ApplyState = {}
        for device, dtype in dict.fromkeys((handle.device, handle.dtype) for handle in handles):
            self._prepare_local(device, dtype, apply_state)
        for grad, handle in zip(grads, handles, strict=True):
            if isinstance(grad, IndexedSlices):
                self._resource_apply_sparse_duplicate_indices(
                    grad.values, handle, grad.indices, apply_state
                )
            else:
                self._resource_apply_dense(grad, handle, apply_state)
                handle.constrain()

    # ---- hyperparameters

    def _set_hyper(self, name: str, value: Any) -> None:
        """Set a hyperparameter attribute to a number or a function without arguments."""
        setattr(self, name, value)

    def _get_hyper(self, name: str, dtype: Any = None) -> Any:
        """Return a hyperparameter, in `dtype` unless it is None; a schedule is not evaluated."""
        value = getattr(self, name)
        if isinstance(value, LearningRateSchedule):
            return value
        value = value() if callable(value) else value
        return value if dtype is None else np.dtype(dtype).type(value)

    def _serialize_hyperparameter(self, name: str) -> Any:
        """Return a hyperparameter as it appears in `get_config`."""
        return rate_config(getattr(self, name))

    def _decayed_lr(self, var_dtype: Any) -> Any:
        """Return the learning rate of the next step in a dtype; it is computed in float64."""
        self.iterations.numpy()  # raises while a function is being traced
        return np.dtype(var_dtype).type(self._next_rate(self._steps_taken))

    @property
    def _steps_taken(self) -> int:
        # the variable's method would cost more than a step's rate
        taken: int = self._store.weights[0]._array.item()
        return taken

    def _next_rate(self, step: int) -> float:
        """Return the learning rate after a number of steps."""
        rate = self.learning_rate
        if type(rate) is not float:
            rate = type(self).learning_rate.at(self, step)
        decay = self.decay
        decayed: float = rate / (1 + decay * step) if decay else rate
        return decayed

    # ---- configuration

    def _given(self) -> dict[str, Any]:
        # `lr` is another name of learning_rate; None stands for no decay, unless that is a number
        given = {"lr": None, "gradient_transformers": self.gradient_transformers or None}
        decay = parameters_of(type(self)).get("weight_decay")
        if decay is not None and decay.default is None:
            given["weight_decay"] = getattr(self, "weight_decay", None) or None
        return given

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments of this optimizer, without its state."""
        return configuration(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer constructed from the result of `get_config`.

        ``lr`` is an alias of ``learning_rate``, for which a dict is deserialized as a schedule.
        """
        arguments = dict(config)
        if "lr" in arguments:
            arguments["learning_rate"] = arguments.pop("lr")
        if isinstance(arguments.get("learning_rate"), dict):
            arguments["learning_rate"] = deserialize(arguments["learning_rate"])
        return cls(**arguments)

    def _saved_config(self) -> dict[str, Any]:
        return configs.saved_config(self)

    def _like(self, config: dict[str, Any]) -> Any:
        return configs.like(self, config)

    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        return [configs.change_to_adopt(self, loaded.like)]
