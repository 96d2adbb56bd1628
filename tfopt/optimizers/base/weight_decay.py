"""Optimizers whose weights may decay: a little smaller before each step, however they step."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Self

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import as_variable
from tfopt.optimizers.base.hyperparameters import Hyper
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.state_parts import as_damage, check_known
from tfopt.optimizers.base.variable_set import VariableSet
from tfopt.variable import Variable

__all__ = ["DecayingOptimizer"]

_EXCLUDED = "exclude_from_weight_decay"  # in a configuration, patterns


class DecayingOptimizer(Optimizer, abstract=True):
    """Base class: knows by how much weights decay, and which do not.

    Parameters
    ----------
    name, learning_rate, **kwargs
        As in `Optimizer`.
    weight_decay : float, optional
        At least 0. Before each step weights are multiplied by
        ``1 - learning_rate * weight_decay``: all of them by a dense gradient, those of the rows
        that the step visits by a sparse one.

    Raises
    ------
    InvalidArgumentError
        If the rule does not go on from the weights there are.
    """

    weight_decay = Hyper(0)
    _can_decay = True

    def __init__(
        self,
        name: str,
        learning_rate: Any,
        *,
        weight_decay: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        if weight_decay and not self._can_decay:
            raise InvalidArgumentError(
                f"weight_decay cannot be used with {type(self).__name__}, which computes "
                "the weights from its accumulators"
            )
        self.weight_decay = weight_decay or 0.0
        self._exclusion = VariableSet()

    def exclude_from_weight_decay(
        self, var_list: Iterable[Any] = (), var_names: Iterable[str] = ()
    ) -> None:
        """Say which variables do not decay, beside those that have been said to.

        Parameters
        ----------
        var_list : iterable of Variable or ndarray
        var_names : iterable of str
            Regular expressions; a variable whose name has a match somewhere does not decay.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import AdamW
        >>> params = {"w": np.ones(2), "bias": np.ones(2)}
        >>> opt = AdamW(0.5, weight_decay=0.2)
        >>> opt.exclude_from_weight_decay(var_names=["bias$"])
        >>> _ = opt.step(params, {"w": np.zeros(2), "bias": np.zeros(2)})
        >>> params["w"].tolist(), params["bias"].tolist()
        ([0.9, 0.9], [1.0, 1.0])
        """
        self._exclusion |= VariableSet(map(as_variable, var_list), var_names)

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._exclusion = self._exclusion.moved(moved)

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._exclusion.variables]

    def _adopt(self, other: Any) -> None:
        super()._adopt(other)
        self._exclusion = VariableSet(self._exclusion.variables, other._exclusion.patterns)

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        excluded = self._exclusion.names_in(names)
        return {**super()._state_parts(names), **({"excluded": excluded} if excluded else {})}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        excluded = parts.pop("excluded", [])
        with as_damage():
            check_known(excluded, names)

        def exclude() -> None:
            given = [names[name] for name in excluded]
            self._exclusion = VariableSet(given, self._exclusion.patterns)

        return [*super()._restoring(parts, names, slots), exclude]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, without its state."""
        own = {"weight_decay": self.weight_decay, _EXCLUDED: self._exclusion.patterns}
        return {**super().get_config(), **{key: value for key, value in own.items() if value}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer with the arguments that `get_config` returned.

        And with its patterns of variables that do not decay.
        """
        given = dict(config)
        patterns = given.pop(_EXCLUDED, ())
        made = super().from_config(given)
        made.exclude_from_weight_decay(var_names=patterns)
        return made
