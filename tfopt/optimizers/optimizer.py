"""The contract of OptimizerV2: steps, and the methods a subclass may override."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tfopt.autodiff.core import tracing
from tfopt.autodiff.effects import postpone
from tfopt.autodiff.tape import GradientTape
from tfopt.indexed_slices import IndexedSlices
from tfopt.locks import locked
from tfopt.optimizers.checkpointed import Checkpointed
from tfopt.optimizers.clipping import clipped_gradients
from tfopt.optimizers.minimizing import pairs_of_loss
from tfopt.optimizers.pairs import (
    as_gradient,
    as_variable,
    checked_gradient,
    refuse_rows,
    unzipped,
)
from tfopt.optimizers.route import DIRECT, Commit, Route, scaled
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

    Notes
    -----
    Slots are those of arrays in memory. So ``copy.deepcopy`` and ``pickle`` take an optimizer
    together with its variables, ``copy.deepcopy((optimizer, params))``; for other variables there
    is `state_dict`.

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
    def _measures(self) -> bool:
        """Whether a step takes norms that tell whether its gradients are finite."""
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
            If the structures differ, two places have one name, or a place holds another shape or
            dtype than at the last step; or if arrays have changed their places in such a way that
            two would get the state of one.

        Notes
        -----
        The state of an array belongs to its place in the structure. So an array may be replaced
        by another one of its shape and dtype between two steps, also by that of another place; the
        slots stay. A place's name is its keys and numbers, as ``layers/0/w``.

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
        pairs = self._places.pairs(params, grads, self._move)
        given = [pair for pair in pairs if pair[0] is not None]
        return self.apply_gradients(given or pairs)

    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows of a variable take the steps they have not taken: there are none here.

        Parameters
        ----------
        var : Variable or ndarray
        rows : array_like of int
        """

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
        return self.apply_gradients(pairs_of_loss(loss, var_list, grad_loss, tape), name)
