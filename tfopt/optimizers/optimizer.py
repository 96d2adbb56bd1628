"""The contract of OptimizerV2: settings, steps, and the methods a subclass may override."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tfopt.autodiff.core import Operand, tracing
from tfopt.autodiff.effects import postpone
from tfopt.autodiff.nest import flatten
from tfopt.autodiff.tape import GradientTape
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.locks import locked
from tfopt.optimizers.checkpointed import Checkpointed
from tfopt.optimizers.clipping import Limit, clipped_gradients
from tfopt.optimizers.hyper import Hyper, LearningRate, rate_config
from tfopt.optimizers.names import made_unique
from tfopt.optimizers.pairs import (
    as_gradient,
    as_variable,
    checked_gradient,
    refuse_rows,
    unzipped,
)
from tfopt.optimizers.places import Places
from tfopt.optimizers.route import DIRECT, Commit, Route, scaled
from tfopt.optimizers.schedules import LearningRateSchedule, deserialize
from tfopt.variable import Variable, prepare_writes

__all__ = ["Optimizer"]

ApplyState = dict[tuple[str, np.dtype[Any]], dict[str, Any]]


class Optimizer(Checkpointed):
    """Base class of the optimizers, and of a user's own.

    A subclass of this class takes its steps in NumPy: it overrides `_create_slots`,
    `_resource_apply_dense` and `_resource_apply_sparse` as one of TensorFlow's OptimizerV2 does.

    Parameters
    ----------
    name : str
        Part of the slots' names.
    learning_rate : float, LearningRateSchedule or callable, default 0.001
        At least 0. A schedule, or another function of one argument, is called with the number of
        steps taken before, at each step; a function without arguments is called as it is.
    decay : float, default 0.0
        The learning rate of a step is ``learning_rate / (1 + decay * iterations)``.
    clipvalue : float, optional
        Every gradient is clipped to this and its negative, first.
    clipnorm : float, optional
        Every gradient is clipped to this norm.
    global_clipnorm : float, optional
        All gradients are clipped to this common norm; not together with `clipnorm`.
    merge : {"after", "before"}
        Whether gradient rows of one index are summed after the clipping, as in TensorFlow, or
        before it, so that the norm is the one of the true gradient.
    gradient_aggregator : callable, optional
        Gets the list of pairs and returns one, first of all: where there are replicas, with the
        sums or means of their gradients, dense ones and `IndexedSlices`.
    gradient_transformers : list of callable, optional
        Each gets the list of pairs and returns one, in turn; not together with clipping.
    use_locking : bool, default False
        Hold the locks of the variables while they are updated, so that two threads do not update
        one at once, and whoever holds ``variable.lock`` sees no half of a step.
    compat : {None, "tensorflow"}
        "tensorflow" rounds hyperparameters given as Python numbers to float32, as TensorFlow does;
        otherwise they are kept in float64.
    lr : float, optional
        An old name of `learning_rate`, with a warning.

    Attributes
    ----------
    iterations : Variable
        The number of steps taken, int64.

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
    ) -> None:
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
                "The `lr` argument is deprecated, use `learning_rate` instead.", stacklevel=3
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
        rate: float = type(self).learning_rate.at(self, step)
        return rate / (1 + self.decay * step)

    # ---- steps

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
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
        experimental_aggregate_gradients : bool, default True
            False leaves the `gradient_aggregator` out.

        Returns
        -------
        iterations : Variable or None
            The step count after the step; None, without a step, if there are no pairs.

        Raises
        ------
        InvalidArgumentError
            If all gradients are None, or an argument does not fit.
        RuntimeError
            If a variable with a constraint has a gradient of some rows.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            return None
        if tracing() is not None:
            options = {"experimental_aggregate_gradients": experimental_aggregate_gradients}
            postpone(Optimizer.apply_gradients, (self, pairs, name), options)
            return self.iterations
        route = DIRECT if experimental_aggregate_gradients else DIRECT._replace(aggregates=False)
        grads, variables = unzipped(pairs)
        self._prepared(tuple(map(as_gradient, grads)), variables, route)()
        return self.iterations

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        """Check a step by gradients that come by a route; return what carries it out."""
        if self.gradient_transformers or (self.gradient_aggregator and route.aggregates):
            grads, route = scaled(grads, route.scale), route._replace(scale=1.0)
        if self.gradient_aggregator is not None and route.aggregates:
            aggregated = self.gradient_aggregator(list(zip(grads, variables, strict=True)))
            grads, variables = unzipped(aggregated)
        for transform in self.gradient_transformers:
            grads, variables = unzipped(transform(list(zip(grads, variables, strict=True))))
        step = self._checked_step(grads, variables, route)

        def commit() -> None:
            prepare_writes(variables)
            with locked(*variables) if self.use_locking else nullcontext():
                step()
            self._count()

        return commit

    def _count(self) -> None:
        self.iterations.assign_add(1)

    @property
    def _fuses(self) -> bool:
        """Whether a step reads each gradient once, so that `Route.lead` can make them."""
        return False

    @property
    def _follows(self) -> bool:
        """Whether a step makes the calls of `Route.follow`."""
        return False

    def _checked_step(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> Commit:
        """Check every pair; return what updates them: here, one variable after another."""
        handles = [as_variable(var) for var in variables]
        refuse_rows(grads, handles)
        grads = scaled(tuple(map(checked_gradient, grads, handles)), route.scale)
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        grads = clipped_gradients(grads, self.merge, *limits)
        self._create_slots(handles)
        return partial(self._step_each, grads, handles)

    def _step_each(self, grads: tuple[Any, ...], handles: list[Variable]) -> None:
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

    def step(self, params: Any, grads: Any) -> Variable | None:
        """Take one step with arrays in dicts, lists and tuples, nested or not.

        Parameters
        ----------
        params : dict, list or tuple of arrays and Variables, nested or not, or one of these
            Updated in place.
        grads : the same structure of gradients
            As in `apply_gradients`; None leaves its variable out.

        Returns
        -------
        iterations : Variable or None
            As `apply_gradients` returns it.

        Raises
        ------
        InvalidArgumentError
            If the structures differ, or a place holds another shape or dtype than at the last step.

        Notes
        -----
        The state of an array belongs to its place in the structure. So an array may be replaced
        by another one of its shape and dtype between two steps; the slots stay. A place's name is
        its keys and numbers, as ``layers/0/w``.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> params = {"layers": [{"w": np.ones((2, 2)), "b": np.zeros(2)}]}
        >>> grads = {"layers": [{"w": np.ones((2, 2)), "b": None}]}
        >>> opt = Adam(0.5)
        >>> int(opt.step(params, grads))
        1
        >>> params["layers"][0]["w"].round(3).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        """
        pairs = self._places.pairs(params, grads, self._move_state)
        given = [pair for pair in pairs if pair[0] is not None]
        return self.apply_gradients(given or pairs)

    def minimize(
        self,
        loss: Any,
        var_list: Any,
        grad_loss: Any = None,
        name: str | None = None,
        tape: GradientTape | None = None,
    ) -> Variable | None:
        """Take one step down a loss.

        Parameters
        ----------
        loss : callable or Tensor
            A function without arguments that returns the loss as a tensor, which a tape records;
            or the loss and its gradients, a pair; or a tensor that `tape` has recorded.
        var_list : list of variables, a variable, or callable
            The variables the gradients are of; a function is called after the loss. Arrays can be
            among them if the loss returns their gradients.
        grad_loss : tensor, optional
            The gradient of the loss that is carried back; 1 if None.
        name : str, optional
            Accepted for compatibility, without effect.
        tape : GradientTape, optional
            Records the loss, if it is a function, or has recorded it.

        Returns
        -------
        iterations : Variable or None
            As `apply_gradients` returns it.

        Raises
        ------
        InvalidArgumentError
            If the loss is a tensor and no tape is given, or it returns something else.
        InvalidTypeError
            If an array is among the variables, and gradients are to be found.

        Examples
        --------
        >>> import numpy as np
        >>> import tfopt
        >>> w = tfopt.Variable(np.array([3.0, -4.0]))
        >>> _ = tfopt.optimizers.SGD(0.25).minimize(lambda: np.sum(w * w), [w])
        >>> w.numpy()
        array([ 1.5, -2. ])
        """
        if not callable(loss) and tape is None:
            raise InvalidArgumentError("`tape` is required when a `Tensor` loss is passed.")
        recorder = GradientTape() if tape is None else tape
        made = loss
        if callable(loss):
            with recorder:
                if not callable(var_list):
                    recorder.watch([v for v in flatten(var_list) if isinstance(v, Variable)])
                made = loss()
        variables = var_list() if callable(var_list) else var_list
        if isinstance(variables, (Variable, np.ndarray)):
            variables = [variables]
        if isinstance(made, tuple):
            return self._minimize_given(made, variables, name)
        if not isinstance(made, Operand):
            raise InvalidArgumentError(
                "the loss must return a pair, the loss and its gradients, or a tensor, "
                f"not {type(made).__name__}"
            )
        if any(not isinstance(variable, Variable) for variable in variables):
            raise InvalidTypeError("gradients are found for Variables: wrap the arrays")
        grads = recorder.gradient(made, list(variables), grad_loss)
        return self.apply_gradients(zip(grads, variables, strict=True), name)

    def _minimize_given(
        self, made: tuple[Any, ...], variables: Any, name: str | None
    ) -> Variable | None:
        """Take a step with the gradients that a loss has returned."""
        if len(made) != 2:
            raise InvalidArgumentError("the loss must return a pair, the loss and its gradients")
        _, grads = made
        if len(grads) != len(variables):
            raise InvalidArgumentError(f"{len(variables)} variables, but {len(grads)} gradients")
        return self.apply_gradients(zip(grads, variables, strict=True), name)

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
    def from_config(cls, config: dict[str, Any]) -> Optimizer:
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
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"
