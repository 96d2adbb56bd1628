"""The interface shared by optimizers and wrappers: steps, slots and state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

from tfopt.autodiff.tape import GradientTape
from tfopt.core.backends import is_device_array
from tfopt.core.effects import writes
from tfopt.core.locks import locked
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.update.commit import Attributes, Undo
from tfopt.kernels.update.repetition import Apart, Bound, Unchanged
from tfopt.optimizers.base.arriving_step import ArrivingStep
from tfopt.optimizers.base.minimize import pairs_of_loss
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.config import OPTIMIZERS
from tfopt.optimizers.state.stateful import Stateful
from tfopt.optimizers.state.tree import leaves
from tfopt.optimizers.step.gradients import host_arrays, split_pairs
from tfopt.optimizers.step.known_norms import KnownNorms, as_known, as_scale
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Preparing, Step, repeats
from tfopt.variable import Variable

__all__ = ["OptimizerBase"]

#: Methods that OptimizerV2 calls but these optimizers do not, and their replacements.
_NOT_CALLED = {
    "_compute_gradients": "override minimize, or let its loss return gradients",
    "_get_gradients": "override minimize, or let its loss return gradients",
    "_transform_loss": "change the loss that minimize is given",
    "_transform_unaggregated_gradients": "override _aggregate_gradients",
    "_transform_gradients": "give gradient_transformers",
}

#: What most steps are asked for: by what gradients are multiplied, and what is known of them.
_PLAIN: tuple[float, KnownNorms | None] = (1.0, None)


class OptimizerBase(Stateful):
    """Base class of everything that takes steps: `Optimizer` and `Wrapper`.

    Parameters
    ----------
    name : str
        Prefix of the slots' names.

    Attributes
    ----------
    name : str
    """

    _HAS_AGGREGATE_GRAD = True  # what TensorFlow's training loops look for
    _overrides_prepare = False  # as a user's wrapper does

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("tfopt.optimizers.") and not abstract:
            OPTIMIZERS[cls.__name__.lower()] = cls
        cls._overrides_prepare = cls.prepare is not OptimizerBase.prepare
        for name, instead in _NOT_CALLED.items():
            if name in vars(cls):
                raise InvalidTypeError(
                    f"{cls.__name__} overrides {name}, which is never called: {instead}"
                )

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._repeated = repeats()  # of whole steps
        self._prepared = repeats()  # of steps inside other optimizers

    def __copy__(self) -> NoReturn:
        raise InvalidTypeError(
            f"a shallow copy of {type(self).__name__} would share its slots and step count: use "
            "copy.deepcopy((optimizer, variables)), or from_config(optimizer.get_config()) for a "
            "new one"
        )

    # ---- the parts of a step

    def prepare(self, request: StepRequest) -> PreparedStep:
        """Check a step and return it; nothing changes except that missing slots are created.

        Parameters
        ----------
        request : StepRequest

        Returns
        -------
        PreparedStep
            The checked step, not yet carried out.

        Raises
        ------
        InvalidArgumentError
            If an argument does not fit.
        NotFinite
            If the request requires finite gradients and they are not finite.
        """
        request = self._hooked(request)
        bound = self._prepared.of_request(request)
        if bound is None:
            mark = self._mark()
            stripped = request.without_gradients()
            bound = Bound(self._bind(stripped), stripped, request.variables, mark)
        step: PreparedStep = bound.step.prepare(list(request.grads), request.scale, request.known)
        step.after.append(partial(self._keep, bound))
        return step

    def _keep(self, bound: Bound) -> None:
        if self._prepared.keep(bound):
            self._settle(bound, [])

    @abstractmethod
    def _bind(self, request: StepRequest) -> Step:
        """Return the step of a request, bound to its variables and all else that is constant.

        The gradients of the request do not matter: the step gets those of each time.
        """

    def bind(self, request: StepRequest) -> Step:
        """Return the step of a request for an optimizer around this one."""
        prepares = self._overrides_prepare or self._has_hooks
        return Preparing(self, request) if prepares else self._bind(request)

    @property
    @abstractmethod
    def iterations(self) -> Variable:
        """The number of steps taken, int64."""

    @iterations.setter
    @abstractmethod
    def iterations(self, variable: Variable) -> None: ...

    @abstractmethod
    def _decayed_lr(self, var_dtype: Any) -> Any:
        """Return the learning rate of the next step in a dtype; it is computed in float64."""

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of a `StepRequest` that steps support."""
        return Capabilities()

    def loss_scales(self, var: Any) -> tuple[Variable, ...]:
        """Return the scales of the loss for the gradient of a variable, or of all if None."""
        return ()

    def _hooked(self, request: StepRequest) -> StepRequest:
        """Return a request after its gradients have been aggregated and transformed."""
        return request

    @property
    def _has_hooks(self) -> bool:
        """Whether there are functions that get the gradients of a step first."""
        return False

    @property
    @abstractmethod
    def _locks(self) -> bool:
        """Whether steps hold the locks of the variables they change."""

    def _counts(self) -> list[Variable]:
        """Return the step counts, whose locks protect all state shared between steps."""
        return [each.iterations for each in self._tree() if each._counts_steps]

    # ---- steps

    @writes(returns=lambda args: args["self"].iterations if args["grads_and_vars"] else None)
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
        *,
        grad_scale: Any = None,
        use_norm: Any = None,
    ) -> Variable | None:
        """Take one step: update every variable by its gradient.

        Every pair is checked before any variable is touched, so a rejected call changes nothing.

        Parameters
        ----------
        grads_and_vars : iterable of (gradient, variable)
            The gradient is an array of the variable's shape and dtype, or `IndexedSlices`; pairs
            whose gradient is None are skipped. The variable is a `Variable`, an array, or what
            shares memory with one, as a torch tensor does. One that occurs twice is updated twice.
        name : str, optional
            Accepted for compatibility; has no effect.
        experimental_aggregate_gradients : bool, default True
            If False, the `gradient_aggregator` is not called.
        grad_scale : float, optional
            Greater than 0: multiplies the gradients before they are clipped or accumulated. The
            step does so while it reads them.
        use_norm : float, optional
            At least 0: what clipping by `global_clipnorm` takes for the norm of the given gradients
            before `grad_scale`, instead of computing it; that of all shards of a model, for
            example. Of parameter groups, each group takes it.

        Returns
        -------
        iterations : Variable or None
            The step count, shown as ``<step 12 of Adam>``; None if there are no pairs, in which
            case no step is taken.

        Raises
        ------
        InvalidArgumentError
            If all gradients are None, or an argument is invalid; if there is a `use_norm`, but the
            gradients are not clipped by their global norm, or a wrapper changes them before, or
            they are on a GPU.
        RuntimeError
            If a variable with a constraint has a sparse gradient.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import SGD
        >>> w, opt = np.zeros(2), SGD(1.0, global_clipnorm=1.0)
        >>> _ = opt.apply_gradients([(np.array([3.0, 4.0]), w)], grad_scale=0.125)
        >>> w
        array([-0.375, -0.5  ])
        >>> _ = opt.apply_gradients([(np.array([3.0, 4.0]), w)], use_norm=10.0)
        >>> w
        array([-0.675, -0.9  ])
        """
        scale, known = _PLAIN
        if grad_scale is not None or use_norm is not None:
            scale, known = self._asked(grad_scale, use_norm)
        aggregates = bool(experimental_aggregate_gradients)
        taken = self._apply(grads_and_vars, aggregates, scale, known)
        return None if taken is None else self.iterations

    def _asked(self, grad_scale: Any, use_norm: Any) -> tuple[float, KnownNorms | None]:
        """Return what a caller multiplies gradients by, and what is known of them."""
        if use_norm is not None and not self.capabilities.takes_norm:
            raise InvalidArgumentError(
                f"use_norm would change nothing: {type(self).__name__} does not clip the gradients "
                "that it is given by their global norm; set global_clipnorm"
            )
        return as_scale(grad_scale), as_known(use_norm)

    def _apply(
        self, grads_and_vars: Any, aggregates: bool, scale: float, known: KnownNorms | None
    ) -> PreparedStep | None:
        """Take one step of pairs; return it, or None if there are no pairs."""
        pairs = grads_and_vars
        if type(pairs) is not list:
            if not isinstance(pairs, Iterable):
                kind = type(pairs).__name__
                raise InvalidTypeError(f"grads_and_vars must be a list of pairs, not {kind}")
            pairs = list(pairs)
        repeated = self._repeated.of_pairs(pairs, aggregates)
        if repeated is not None:
            bound, grads = repeated
            if bound.locks:
                return self._take_locked(bound, grads, scale, known)
            return self._carry_out(bound, grads, scale, known)
        if not pairs:
            return None
        given = split_pairs(pairs)
        return self._take_new(StepRequest(*given, scale, known, aggregates=aggregates))

    def _take_new(self, request: StepRequest) -> PreparedStep:
        """Take a step whose gradients have not passed the hooks yet."""
        if not self._overrides_prepare:  # which calls the hooks itself
            request = self._hooked(request)
        bound, grads = self._repeated.of_request(request), list(request.grads)
        how = request.scale, request.known
        if self._locks:
            stripped = request.without_gradients()
            unbound = Bound(None, stripped, request.variables, None)
            return self._take_locked(bound or unbound, grads, *how)
        return self._carry_out(bound or self._newly_bound(request), grads, *how)

    def _take_locked(
        self, bound: Bound, grads: list[Any], scale: float, known: KnownNorms | None
    ) -> PreparedStep:
        """Take a step while the locks of its variables are held; bind it anew if it has changed."""
        with locked(*self._counts(), *bound.variables):
            held = bound if bound.holds() else self._newly_bound(bound.request)
            return self._carry_out(held, grads, scale, known)

    def _carry_out(
        self, bound: Bound, grads: list[Any], scale: float, known: KnownNorms | None
    ) -> PreparedStep:
        """Take a bound step, or raise and leave everything unchanged."""
        moved = self._places.undo
        taken = bound.begin() if moved is None else moved
        try:
            step: PreparedStep = bound.step.prepare(grads, scale, known)
            if moved is not None:
                step.writes.append(Attributes(self._places, {"undo": None}))
            if known is not None:
                step.writes += known.writes
            step.carry_out(taken)
        except BaseException:
            if not taken.done:  # an error raised after the writes does not undo the step
                self._withdraw(bound.mark)
            raise
        if self._repeated.keep(bound):
            self._settle(bound, grads)
        return step

    def _newly_bound(self, request: StepRequest) -> Bound:
        """Return the step of a request whose gradients have passed the hooks."""
        mark = self._mark()
        try:
            step = Preparing(self, request) if self._overrides_prepare else self._bind(request)
        except BaseException:
            self._withdraw(mark)
            raise
        return Bound(step, request.without_gradients(), request.variables, mark)

    def _settle(self, bound: Bound, grads: list[Any]) -> None:
        """Record the dependencies of a bound step that was taken, and that it had gradients."""
        tree = list(self._tree())
        unchanged = Unchanged(
            [holder for each in tree for holder in each._holders() if hasattr(holder, "_version")],
            [each.gradient_transformers for each in tree if each._counts_steps],
        )
        several = len(bound.variables) > 1
        hosted = host_arrays(bound.variables)
        apart = Apart(hosted) if several else None
        kinds = None if hosted else {type(grad) for grad in grads if is_device_array(grad)}
        bound.settle(self._mark(), unchanged, apart, kinds, not self._has_hooks, self._locks)

    @writes(returns=lambda args: args["self"].iterations)
    def step(
        self, params: Any, grads: Any, *, grad_scale: Any = None, use_norm: Any = None
    ) -> Variable | None:
        """Take one step with arrays in (nested) dicts, lists and tuples.

        Parameters
        ----------
        params : array, Variable, or (nested) dict, list or tuple of them
            Updated in place.
        grads : the same structure of gradients
            As in `apply_gradients`; a variable whose gradient is None is skipped.
        grad_scale, use_norm : float, optional
            As in `apply_gradients`.

        Returns
        -------
        iterations : Variable or None
            As returned by `apply_gradients`.

        Raises
        ------
        InvalidArgumentError
            If the structures differ, if two entries have the same name or share memory (of tied
            weights, add up the gradients, and pass None for all entries but one), if the shape or
            dtype of an entry has changed since the last step, or if arrays have been moved in such
            a way that two of them would share the state of one.

        Notes
        -----
        The state of an array belongs to its entry in the structure. So between two steps, or after
        a state has been loaded for the same structure, an array may be replaced by another one of
        the same shape and dtype, including the array of another entry; the slots remain. The name
        of an entry consists of its keys and indices, such as ``layers/0/w``.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> params = {"layers": [{"w": np.ones((2, 2)), "b": np.zeros(2)}]}
        >>> grads = {"layers": [{"w": np.ones((2, 2)), "b": None}]}
        >>> opt = Adam(0.5)
        >>> opt.step(params, grads)
        <step 1 of Adam>
        >>> params["layers"][0]["w"].round(3).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        """
        scale, known = _PLAIN
        if grad_scale is not None or use_norm is not None:
            scale, known = self._asked(grad_scale, use_norm)
        taken = self._step_tree(params, grads, scale, known)
        return None if taken is None else self.iterations

    def _step_tree(
        self, params: Any, grads: Any, scale: float, known: KnownNorms | None, held: bool = False
    ) -> PreparedStep | None:
        """Take one step of a structure; return it, or None if that is empty."""
        if self._locks and not held:
            with locked(*self._counts(), *(leaf for _, leaf in leaves(params))):
                return self._step_tree(params, grads, scale, known, True)
        places = self._places
        found = places.repeated(params, grads)
        repeated = self._repeated.of_variables(places.variables, found) if found else None
        if repeated is not None:
            return self._carry_out(*repeated, scale, known)  # locks are held
        pairs, at, moved = places.pairs(params, grads)
        if at is None:
            return self._apply(pairs, True, scale, known)
        moving = [*self._tree()] if moved else []
        for each in moving:
            each._check_move(moved)
        with Undo([], [places, *(holder for each in moving for holder in each._holders())]) as undo:
            for each in moving:
                each._move_state(moved)
            places.at, places.undo = at, undo
            return self._apply(pairs, True, scale, known)

    def arriving(self, params: Any) -> ArrivingStep:
        """Return a step whose gradients arrive one by one, in any order, as from hooks.

        Parameters
        ----------
        params : array, Variable, or (nested) dict, list or tuple of them
            As in `step`; in host memory.

        Returns
        -------
        ArrivingStep
            It takes one step after another.

        Raises
        ------
        InvalidArgumentError
            If two entries have the same name.
        InvalidTypeError
            If an entry is on a GPU, or is not a variable.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import SGD
        >>> params = {"w": np.zeros(2), "b": np.zeros(1)}
        >>> step = SGD(1.0, global_clipnorm=1.0).arriving(params)
        >>> step.add("b", np.array([0.0]))
        >>> step.add("w", np.array([3.0, 4.0]))
        >>> step.take()
        ArrivedStep(norm=5.0, clipped=True, nonfinite=(), counted=True)
        >>> params["w"]
        array([-0.6, -0.8])
        """
        return ArrivingStep(self, params)

    @writes()
    def catch_up(self, var: Any, rows: Any) -> None:
        """Apply the deferred updates of some rows of a variable, so that they can be read.

        Has no effect unless ``sparse="catch_up"``.

        Parameters
        ----------
        var : Variable or ndarray
        rows : array_like of int
            Duplicates are allowed.

        Raises
        ------
        InvalidArgumentError
            If `rows` are not integers.
        IndexOutOfRangeError
            If a row is out of range.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt import IndexedSlices
        >>> from tfopt.optimizers import Adam
        >>> table = np.ones((1000, 2))
        >>> opt = Adam(0.1, sparse="catch_up")
        >>> for row in (3, 5):
        ...     _ = opt.apply_gradients([(IndexedSlices(np.ones((1, 2)), np.array([row])), table)])
        >>> before = table[3, 0]
        >>> opt.catch_up(table, [3])
        >>> bool(table[3, 0] < before)
        True
        """

    @writes()
    def flush(self) -> None:
        """Apply all deferred updates.

        Call it before variables are read or saved as a whole; `get_weights` calls it, too.
        """
        for inner in self._inner().values():
            inner.flush()

    def minimize(
        self,
        loss: Any,
        var_list: Any,
        grad_loss: Any = None,
        name: str | None = None,
        tape: GradientTape | None = None,
    ) -> Variable | None:
        """Take one step that decreases a loss.

        Parameters
        ----------
        loss : callable or Tensor
            A function without arguments that returns either the loss as a tensor, which is then
            recorded by a tape, or a pair of the loss and its gradients; or a tensor recorded by
            `tape`. Of a tensor of torch, torch computes the gradients.
        var_list : list of variables, a variable, or callable
            The variables to update; a function is called after the loss. Arrays are allowed if
            the loss returns their gradients, torch's parameters if the loss is torch's.
        grad_loss : tensor, optional
            The upstream gradient of the loss; ones by default.
        name : str, optional
            Accepted for compatibility; has no effect.
        tape : GradientTape, optional
            The tape that records the loss, or that has recorded it if it is a tensor.

        Returns
        -------
        iterations : Variable or None
            As returned by `apply_gradients`.

        Raises
        ------
        InvalidArgumentError
            If the loss is a tensor and there is no tape, or if the loss returns anything else; or
            if the loss or a variable is a tensor of torch that requires no gradient.
        InvalidTypeError
            If an array is among the variables and the loss does not return gradients.

        Examples
        --------
        >>> import numpy as np
        >>> import tfopt
        >>> w = tfopt.Variable(np.array([3.0, -4.0]))
        >>> _ = tfopt.optimizers.SGD(0.25).minimize(lambda: np.sum(w * w), [w])
        >>> w.numpy()
        array([ 1.5, -2. ])
        """
        pairs = pairs_of_loss(loss, var_list, grad_loss, tape, self.loss_scales)
        return self.apply_gradients(pairs, name)

    # ---- failed steps and replaced variables

    def _mark(self) -> list[int]:
        """Return the argument of `_withdraw` in case a step that begins now fails."""
        return [len(each._store.weights) for each in self._tree()]

    def _withdraw(self, mark: list[int]) -> None:
        """Remove the slots that a failed step has created."""
        for each, n_weights in zip(self._tree(), mark, strict=True):
            each._withdraw_own(n_weights)

    def _withdraw_own(self, n_weights: int) -> None:
        """Remove this optimizer's own weights after the first ones."""
        self._store.withdraw(n_weights)

    def _check_move(self, moved: ByVariable[Variable]) -> None:
        """Refuse to move its own state (`_move_state`) to variables that already have some."""
        self._store.check_move(moved)

    def _move_state(self, moved: ByVariable[Variable]) -> None:
        """Move its own state of variables to others of the same shapes."""
        self._store.move(moved)
