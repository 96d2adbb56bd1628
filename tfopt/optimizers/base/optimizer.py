"""The contract of OptimizerV2: steps, and the methods a subclass may override."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from tfopt.autodiff.tape import GradientTape
from tfopt.core.effects import writes
from tfopt.core.locks import locked
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.commit import Attributes, Count, Undo
from tfopt.optimizers.base.gradients import (
    are_finite,
    as_gradient,
    as_variable,
    checked_gradient,
    memory_of,
    refuse_rows,
    unzipped,
)
from tfopt.optimizers.base.minimize import pairs_of_loss
from tfopt.optimizers.base.state_dict import Checkpointed
from tfopt.optimizers.base.tree import leaves
from tfopt.optimizers.execution.clipping import clipped_gradients
from tfopt.optimizers.execution.commit import Commit, Writes
from tfopt.optimizers.execution.route import DIRECT, NotFinite, Route, scaled
from tfopt.variable import Variable

__all__ = ["OPTIMIZERS", "Optimizer"]

#: What OptimizerV2 calls and these optimizers do not, and what does the same.
_NOT_CALLED = {
    "_compute_gradients": "override minimize, or let its loss return gradients",
    "_get_gradients": "override minimize, or let its loss return gradients",
    "_transform_loss": "change the loss that minimize is given",
    "_transform_unaggregated_gradients": "override _aggregate_gradients",
    "_transform_gradients": "give gradient_transformers",
}

ApplyState = dict[tuple[str, np.dtype[Any]], dict[str, Any]]

#: This package's optimizers by their names in lower case, as `deserialize` finds them.
OPTIMIZERS: dict[str, type[Optimizer]] = {}


class Optimizer(Checkpointed):
    """Base class of the optimizers, and of a user's own.

    A subclass of this class takes its steps in NumPy: it overrides `_create_slots`,
    `_resource_apply_dense` and `_resource_apply_sparse` as one of TensorFlow's OptimizerV2 does.

    Parameters
    ----------
    name : str
        Part of the slots' names.
    learning_rate : float, LearningRateSchedule, callable or Variable, default 0.001
        At least 0. A schedule, or another function of one argument, is called with the number of
        steps taken before, at each step; a function without arguments is called as it is. A
        variable is read at each step; the optimizer's state does not hold its value.
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
        Hold the locks of the variables and of `iterations` during a step, so that steps that
        threads take are those of one thread, and whoever holds ``variable.lock`` sees no half of a
        step.
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

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("tfopt.optimizers.") and not abstract:
            OPTIMIZERS[cls.__name__.lower()] = cls
        for name, instead in _NOT_CALLED.items():
            if name in vars(cls):
                raise InvalidTypeError(
                    f"{cls.__name__} overrides {name}, which no step here calls: {instead}"
                )

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

    def _aggregate_gradients(self, grads_and_vars: list[Any]) -> Iterable[Any]:
        """Return the pairs of all replicas: what `gradient_aggregator` makes of these."""
        aggregator = self.gradient_aggregator
        return grads_and_vars if aggregator is None else aggregator(grads_and_vars)

    # ---- steps

    @writes(returns=lambda given: given["self"].iterations if given["grads_and_vars"] else None)
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
        if not isinstance(grads_and_vars, Iterable):
            kind = type(grads_and_vars).__name__
            raise InvalidTypeError(f"grads_and_vars must be a list of pairs, not {kind}")
        pairs = list(grads_and_vars)
        if not pairs:
            return None
        route = DIRECT if experimental_aggregate_gradients else DIRECT._replace(aggregates=False)
        grads, variables = unzipped(pairs)
        received = self._received(tuple(map(as_gradient, grads)), variables, route)
        if not self._locks:
            self._take(*received)
            return self.iterations
        with locked(*self._counts(), *received[1]):
            self._take(*received)
        return self.iterations

    def _take(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> None:
        """Take a step whole, or raise and leave everything as it was."""
        mark, moved = self._mark(), self._places.undo
        taken = Undo([]) if moved is None else moved
        try:
            commit = self._checked(grads, variables, route)
            if moved is not None:
                commit.writes.append(Attributes(self._places, {"undo": None}))
            commit(taken)
        except BaseException:
            if not taken.done:  # what is raised after the writes finds the step taken
                self._withdraw(mark)
            raise

    def _received(
        self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Route]:
        """Return what those make of gradients who aggregate and transform them."""
        aggregates = self._aggregates(route)
        if self.gradient_transformers or aggregates:
            grads, route = scaled(grads, route.scale), route._replace(scale=1.0)
        if aggregates:
            aggregated = self._aggregate_gradients(list(zip(grads, variables, strict=True)))
            grads, variables = _unzipped(aggregated)
            if route.finite:
                grads = tuple(map(checked_gradient, grads, map(as_variable, variables)))
        # after the aggregator, so that all replicas come to it, and to the same answer
        if route.finite and not self._measures and not are_finite(grads):
            raise NotFinite
        for transform in self.gradient_transformers:
            grads, variables = _unzipped(transform(list(zip(grads, variables, strict=True))))
        return grads, variables, route

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        """Check a step by gradients that come by a route; return what carries it out."""
        return self._checked(*self._received(grads, variables, route))

    def _checked(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        """Check a step by gradients that have been received; return what carries it out."""
        commit = self._checked_step(grads, variables, route)
        commit.variables = [*variables, self.iterations]
        commit.writes.append(Count(self.iterations.numpy()))
        return commit

    def _counting(self) -> Commit:
        """Return what counts a step in which nothing is updated."""
        return Commit([Count(self.iterations.numpy())], [self.iterations])

    def _aggregates(self, route: Route) -> bool:
        """Whether gradients that come by a route are aggregated over replicas."""
        own = type(self)._aggregate_gradients is not Optimizer._aggregate_gradients
        return route.aggregates and (own or self.gradient_aggregator is not None)

    @property
    def _locks(self) -> bool:
        """Whether steps hold the locks of what they change."""
        return self.use_locking

    def _counts(self) -> list[Variable]:
        """Return the step counts, whose locks stand for everything that steps share."""
        return [self.iterations]

    def _scales_of(self, var: Any) -> tuple[Variable, ...]:
        """Return what the loss has to be multiplied by, for gradients of a variable."""
        return ()

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
        """Check every pair; return what updates them: here, one variable after another.

        As a method that a user has written may raise at any place, and write to any element,
        variables and slots are copied before.
        """
        handles = [as_variable(var) for var in variables]
        refuse_rows(grads, handles)
        grads = scaled(tuple(map(checked_gradient, grads, handles)), route.scale)
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        grads = clipped_gradients(grads, self.merge, *limits)
        self._create_slots(handles)
        commit = Commit([])
        commit.work.append(partial(self._step_each, grads, handles))
        commit.kept += self._written_to(handles)
        return commit

    def _written_to(self, handles: list[Variable]) -> list[np.ndarray]:
        """Return the arrays of variables, of their slots, and of weights that are no slots."""
        slots = {id(slot) for own in self._slots.values() for slot in own.values()}
        others = [weight for weight in self._weights if id(weight) not in slots]
        own = [
            slot for handle in handles for slot in self._slots.get(memory_of(handle), {}).values()
        ]
        return [variable.numpy() for variable in (*handles, *own, *others)]

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

    @writes(returns=lambda given: given["self"].iterations)
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
        if not self._locks:
            return self._step(params, grads)
        with locked(*self._counts(), *(leaf for _, leaf in leaves(params))):
            return self._step(params, grads)

    def _step(self, params: Any, grads: Any) -> Variable | None:
        places = self._places
        pairs, at, moved = places.pairs(params, grads)
        if at is None:
            return self.apply_gradients(pairs)
        self._check_move(moved)
        with Undo([], [places, *(self._holders() if moved else ())]) as undo:
            if moved:
                self._move_state(moved)
            places.at, places.undo = at, undo
            return self.apply_gradients(pairs)

    @writes()
    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows of a variable take the steps they have not taken: there are none here.

        Parameters
        ----------
        var : Variable or ndarray
        rows : array_like of int
        """

    @writes()
    def flush(self) -> None:
        """Let all rows take the steps they have not taken: there are none here."""

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
        pairs = pairs_of_loss(loss, var_list, grad_loss, tape, self._scales_of)
        return self.apply_gradients(pairs, name)


def _unzipped(pairs: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what a hook has returned as gradients, of arrays, and variables."""
    grads, variables = unzipped(pairs)
    return tuple(map(as_gradient, grads)), variables
