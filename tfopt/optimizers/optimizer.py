"""The contract of OptimizerV2: variables, slots, steps."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.training import run
from tfopt.optimizers.clipping import Checked, Limit, clipped_calls
from tfopt.optimizers.hyper import Hyper, LearningRate, rate_config
from tfopt.optimizers.names import made_unique
from tfopt.optimizers.pairs import any_overlap, as_array, as_variable, memory_of, unzipped
from tfopt.optimizers.schedules import deserialize
from tfopt.optimizers.steps import Update, step_of
from tfopt.optimizers.weights import fitting
from tfopt.variable import Variable

__all__ = ["Optimizer", "Update"]


class _Dense(NamedTuple):
    """Variables that one call updates together, and the places of their gradients in a step."""

    operands: tuple[list[np.ndarray], ...]  # the variables, the first slots, the second ones, ...
    places: list[int]
    dtype: np.dtype[Any] | None  # for gradients that are no arrays; None if all are


class _Rows(NamedTuple):
    """A variable with its slots, some rows of which are updated, and its gradient's place."""

    arrays: tuple[np.ndarray, ...]
    place: int


class _Plan(NamedTuple):
    """What a step did, which the next one repeats if it has the same variables.

    A training loop passes the same variables each time; then only the gradients are looked at.
    """

    rule: str
    types: tuple[type, ...]  # of the gradients
    variables: tuple[Any, ...]
    parts: list[_Dense | _Rows]

    def fits(self, rule: str, types: tuple[type, ...], variables: tuple[Any, ...]) -> bool:
        return (
            self.rule == rule
            and self.types == types
            and all(map(operator.is_, self.variables, variables))
        )


class Optimizer:
    """Base class of the optimizers.

    A subclass says which slots a variable gets (`_slot_values`) and which rule makes a step
    (`_update`); everything else is here.

    Parameters
    ----------
    name : str
        Part of the slots' names.
    learning_rate : float, LearningRateSchedule or callable
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
    gradient_aggregator : callable, optional
        Gets the list of pairs and returns the gradients that take their place, first of all.
    gradient_transformers : list of callable, optional
        Each gets the list of pairs and returns one, in turn; not together with clipping.
    lr : float, optional
        An old name of `learning_rate`, with a warning.
    merge : {"after", "before"}
        Whether gradient rows of one index are summed after the clipping, as in TensorFlow, or
        before it, so that the norm is the one of the true gradient.

    Attributes
    ----------
    iterations : Variable
        The number of steps taken, int64.
    """

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
        self._slots: dict[tuple[Any, ...], dict[str, Variable]] = {}
        self._owners: list[Variable] = []  # keeps each slot's variable, hence its address, alive
        self._plan: _Plan | None = None

    @property
    def lr(self) -> Any:
        """Another name of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    # ---- what a subclass defines

    def _slot_values(self) -> dict[str, float]:
        """Return the names of a variable's slots, in the rule's order, and their first values."""
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> Update:
        """Return what step number t (the first is 1) does at learning rate lr."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    def _rule_slots(self) -> tuple[str, ...]:
        """Return the names of the slots in the order in which the rule takes them."""
        return tuple(self._slot_values())

    def _stepped(self, update: Update) -> None:
        """Keep what a step leaves for the next one, beside slots."""

    def _create_slots(self, variables: list[Variable]) -> None:
        """Make the slots of variables that have none, in the order of `weights`."""
        for slot, value in self._slot_values().items():
            for variable in variables:
                self.add_slot(variable, slot, value)

    # ---- slots

    def add_slot(self, var: Any, slot_name: str, initial_value: float = 0.0) -> Variable:
        """Return the slot of a variable; make it, of the variable's shape, if there is none."""
        variable = as_variable(var)
        slots = self._slots.get(memory_of(variable))
        if slots is None:
            slots = self._slots[memory_of(variable)] = {}
            self._owners.append(variable)
        if slot_name not in slots:
            array = np.full(variable.shape, initial_value, variable.dtype)
            name = f"{self.name}/{variable.name}/{slot_name}"
            slots[slot_name] = Variable(array, name)
            self._weights.append(slots[slot_name])
        return slots[slot_name]

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable.

        Raises
        ------
        KeyError
            If the variable has no such slot; slots are made by the first step.
        """
        return self._slots[memory_of(as_variable(var))][slot_name]

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots this optimizer gives to each variable."""
        return list(self._slot_values())

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
        """
        pairs = list(grads_and_vars)
        if not pairs:
            return None
        grads, variables = unzipped(pairs)
        if self.gradient_aggregator is not None and experimental_aggregate_gradients:
            grads = tuple(self.gradient_aggregator(list(zip(grads, variables, strict=True))))
        for transform in self.gradient_transformers:
            grads, variables = unzipped(transform(list(zip(grads, variables, strict=True))))
        step = int(self.iterations)
        lr = type(self).learning_rate.at(self, step) / (1 + self.decay * step)
        update = self._update(step + 1, lr)
        for call in self._calls(update, grads, variables):
            run(call)
        self._stepped(update)
        self.iterations.assign(step + 1)
        return self.iterations

    def minimize(
        self, loss: Callable[[], tuple[Any, Sequence[Any]]], var_list: Any, name: str | None = None
    ) -> Variable | None:
        """Take one step down a loss.

        Parameters
        ----------
        loss : callable
            Without arguments; returns the loss, which is not used, and its gradients.
        var_list : list of variables, a variable, or callable
            The variables the gradients are of; a function is called after the loss.
        name : str, optional
            Accepted for compatibility, without effect.

        Returns
        -------
        iterations : Variable or None
            As `apply_gradients` returns it.

        Raises
        ------
        InvalidArgumentError
            If the loss is not callable, or returns something else.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import SGD
        >>> w = np.array([3.0, -4.0])
        >>> _ = SGD(0.25).minimize(lambda: (w @ w, [2 * w]), [w])
        >>> w
        array([ 1.5, -2. ])
        """
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

    def _calls(
        self, update: Update, grads: tuple[Any, ...], variables: tuple[Any, ...]
    ) -> list[Call]:
        """Check a step; return the calls that carry it out."""
        whole = step_of(update.rule, update)
        some = whole if update.rows is None else step_of(update.rows, update)
        types = tuple(map(type, grads))
        plan = self._plan
        if plan is None or not plan.fits(update.rule, types, variables):
            parts = self._parts(types, variables)
            plan = self._plan = _Plan(update.rule, types, variables, parts)
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        clips = limits != (None, None, None)
        calls: list[Call] = []
        checked: list[Checked] = []
        for part in plan.parts:
            if isinstance(part, _Dense):
                dense = [grads[place] for place in part.places]
                if part.dtype is not None:
                    dense = [as_array(grad, part.dtype) for grad in dense]
                calls.append(whole.dense(part.operands, dense))
                if clips:
                    remake = partial(whole.dense, part.operands)
                    checked.append(Checked(calls[-1], gradients_of(calls[-1]), remake, None))
            elif clips:
                checked.append(some.clipped_rows(part.arrays, grads[part.place], self.merge))
            else:
                calls.append(some.rows(part.arrays, grads[part.place]))
        return clipped_calls(checked, *limits) if clips else calls

    def _parts(self, types: tuple[type, ...], variables: tuple[Any, ...]) -> list[_Dense | _Rows]:
        """Sort a step's variables into as few calls as there can be."""
        listed = [as_variable(var) for var in variables]
        self._create_slots(listed)
        operands = [self._operands(variable) for variable in listed]
        dense: dict[np.dtype[Any], list[int]] = {}
        parts: list[_Dense | _Rows] = []
        for place, kind in enumerate(types):
            if issubclass(kind, IndexedSlices):
                parts.append(_Rows(operands[place], place))
            else:
                dense.setdefault(operands[place][0].dtype, []).append(place)

        def together(places: list[int]) -> _Dense:
            columns = zip(*(operands[place] for place in places), strict=True)
            arrays = all(types[place] is np.ndarray for place in places)
            dtype = None if arrays else operands[places[0]][0].dtype
            return _Dense(tuple(map(list, columns)), places, dtype)

        if not any_overlap([arrays[0] for arrays in operands]):
            return [*map(together, dense.values()), *parts]
        # A variable that comes twice, or shares memory with another: one call each, in turn.
        parts += [together([place]) for places in dense.values() for place in places]
        return sorted(parts, key=lambda part: part[1] if isinstance(part, _Rows) else part[1][0])

    def _operands(self, variable: Variable) -> tuple[np.ndarray, ...]:
        slots = (self.get_slot(variable, slot).numpy() for slot in self._rule_slots())
        return (variable.numpy(), *slots)

    # ---- state

    @property
    def weights(self) -> list[Variable]:
        """The state: the step count, then the slots in the order in which they were made."""
        return list(self._weights)

    def variables(self) -> list[Variable]:
        """Return `weights`, as TensorFlow's method does."""
        return self.weights

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        return [weight.numpy().copy() for weight in self._weights]

    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them.

        Parameters
        ----------
        weights : list of array_like
            As many as `weights`, which the first step makes, and of their shapes; converted to
            their dtypes.

        Raises
        ------
        InvalidArgumentError
            If they are not; nothing has changed.
        """
        for weight, array in zip(
            self._weights, fitting(self.name, self._weights, weights), strict=True
        ):
            weight.assign(array)

    # ---- configuration

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
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
