"""The state of optimizers whose steps are rules: decay, deferred updates, configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, cast

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes, Write, carry_out
from tfopt.optimizers.base.optimizer_v2 import Optimizer
from tfopt.optimizers.options import Sparse, Storage
from tfopt.optimizers.settings import Setting, flag, optional, text, whole
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.config import shallow
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.restoration import (
    LoadedState,
    Restoration,
    as_damage,
    check_known,
    host_array,
)
from tfopt.optimizers.state.slot_storage import check_storage, converted
from tfopt.optimizers.state.variable_set import VariableSet
from tfopt.optimizers.state.variables import as_variable
from tfopt.optimizers.step.checks import refuse_together
from tfopt.optimizers.step.deferred_tables import DeferredUpdates, check_deferred
from tfopt.variable import Variable

__all__ = ["RuleState", "WeightDecay"]

_EXCLUDED = "exclude_from_weight_decay"  # the key of the patterns in a configuration


def _mode(name: str, value: Any) -> Sparse:
    return cast(Sparse, text(name, value))  # `_modes` of the optimizer are looked at later


class SlotStorage(Setting[Storage]):
    """The storage of slots, which cannot be assigned once there are any."""

    def assign(self, owner: Any, value: Any) -> None:
        """Check a value and set the attribute of an optimizer to it."""
        if owner._store.owners and value != owner.storage:
            raise InvalidArgumentError(
                f"{owner.name} has slots already: convert_storage({value!r}) stores them otherwise"
            )
        super().assign(owner, value)


class WeightDecay(Hyper):
    """The weight decay; configurations also have the patterns of variables that are excluded."""

    def __init__(self, usual: float | None = 0.0) -> None:
        super().__init__(0, instead=0.0, usual=usual)

    def in_config(self, owner: Any) -> dict[str, Any]:
        """Return the entries of a configuration."""
        patterns = owner._exclusion.patterns
        return super().in_config(owner) | ({_EXCLUDED: patterns} if patterns else {})


class RuleState(Optimizer, abstract=True):
    """The state of `RuleOptimizer` between steps besides the weights.

    The constructor of `RuleOptimizer` sets its attributes.
    """

    weight_decay: WeightDecay = WeightDecay()
    cautious_weight_decay = Setting(flag, default=False)
    storage = SlotStorage(check_storage, default=None)
    stochastic_rounding = Setting(optional(whole(0, 2**64 - 1)), default=None)  # a seed
    sparse = Setting[Sparse](_mode, default="tensorflow")
    observe = Setting(flag)
    _can_decay = True
    _by_elements = True  # whether the rule has no reduction
    _row_slots: tuple[str, ...]
    _exclusion = Setting[VariableSet]()
    _deferred: DeferredUpdates

    @property
    def _one_by_one(self) -> bool:
        """Whether a method that is called for each variable is overridden."""
        raise NotImplementedError

    def _modes(self) -> tuple[Sparse, ...]:
        """Return what `sparse` can be."""
        raise NotImplementedError

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.weight_decay and not self._can_decay:
            raise InvalidArgumentError(
                f"weight_decay cannot be used with {type(self).__name__}, which computes "
                "the weights from its accumulators"
            )
        if self.cautious_weight_decay and not self.weight_decay:
            raise InvalidArgumentError("cautious_weight_decay needs a weight_decay above 0")
        if self.sparse not in (modes := self._modes()):
            raise InvalidArgumentError(
                f"sparse must be one of {', '.join(modes)} for {type(self).__name__}, "
                f"not {self.sparse!r}"
            )
        if self.sparse == "catch_up" and self.storage is not None:
            raise InvalidArgumentError(
                'sparse="catch_up" needs slots of the dtype of their variables, so it excludes '
                "storage"
            )
        refuse_together(
            {
                "stochastic_rounding": self.stochastic_rounding is not None,
                "cautious_weight_decay": self.cautious_weight_decay,
            },
            {
                'sparse="catch_up"': self.sparse == "catch_up",
                "a rule with a reduction": not self._by_elements,
                "an overridden method for each variable": self._one_by_one,
            },
            type(self).__name__,
        )

    # ---- weight decay

    def exclude_from_weight_decay(
        self, var_list: Iterable[Any] = (), var_names: Iterable[str] = ()
    ) -> None:
        """Exclude variables from weight decay, in addition to those already excluded.

        Parameters
        ----------
        var_list : iterable of Variable or ndarray
        var_names : iterable of str
            Regular expressions; a variable is excluded if one matches anywhere in its name.

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

    # ---- storage

    def _numbers_shape(self, variable: Variable, slot_name: str) -> tuple[int, ...]:
        """Return the shape of a slot's numbers, however they are stored."""
        return variable.shape[:1] if slot_name in self._row_slots else variable.shape

    @writes()
    def convert_storage(self, storage: Storage) -> None:
        """Store the slots otherwise from now on; those there are get converted.

        Parameters
        ----------
        storage : str, dict or None
            As in the constructor.

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            If a slot or a variable does not allow it. Then nothing has changed.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> w = np.ones(10_000, np.float32)
        >>> opt = Adam()
        >>> _ = opt.step(w, np.ones_like(w))
        >>> opt.convert_storage("8bit")
        >>> sum(weight.nbytes for weight in opt.get_weights()[1:]) / w.nbytes
        0.52
        """
        like = shallow(self)
        vars(like)["storage"] = check_storage("storage", storage)
        like._check_settings()
        dtypes = [
            (owner, name, like._slot_dtype(owner, name))
            for owner in self._store.owners
            for name in self._store.of(owner)
        ]
        self.flush()
        new = {}
        for owner, name, dtype in dtypes:
            slot = self._store.of(owner)[name]
            if slot.dtype != dtype:
                array = converted(host_array(slot), dtype, self._numbers_shape(owner, name))
                new[id(slot)] = self._made_slot(owner, name, array)
                new[id(slot)].name = slot.name
        settings = Attributes(self, {"storage": like.storage})
        carry_out([self._store.write_to_replace(new), settings])

    # ---- deferred updates

    @writes()
    def catch_up(self, var: Any, rows: Any) -> None:
        """Apply the deferred updates of some rows of a variable, so that they can be read."""
        self._deferred.catch_up_rows(as_variable(var), rows)

    @writes()
    def flush(self) -> None:
        """Apply all deferred updates."""
        self._deferred.flush()

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`, after a `flush`."""
        self.flush()
        return super().get_weights()

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        super()._set_weights(restoration, weights)
        restoration.add(self._deferred.writes_to_forget())

    # ---- state

    def _holders(self) -> list[Any]:
        return [*super()._holders(), self._deferred]

    def _check_move(self, moved: ByVariable[Variable]) -> None:
        super()._check_move(moved)
        self._deferred.check_move(moved)

    def _move_state(self, moved: ByVariable[Variable]) -> None:
        super()._move_state(moved)
        self._exclusion = self._exclusion.moved(moved)
        self._deferred.drop(moved)

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._exclusion.variables, *self._deferred.tables]

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        own_parts = {
            "excluded": self._exclusion.names_in(names),
            "owed": self._deferred.state(names, self._store),
        }
        return super()._state_parts(names) | {key: part for key, part in own_parts.items() if part}

    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        names, parts, slots = loaded.names, loaded.parts, loaded.slots
        excluded, owed = parts.pop("excluded", []), parts.pop("owed", {})
        with as_damage():
            check_deferred(owed, names, slots)
            check_known(excluded, names)
        exclusion = VariableSet([names[name] for name in excluded], loaded.like._exclusion.patterns)
        return [
            *super()._changes_to_adopt(loaded),
            Attributes(self, {"_exclusion": exclusion}),
            self._deferred.write_to_restore(owed, names, slots),
        ]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an optimizer constructed from the result of `get_config`.

        This includes the patterns of variables excluded from weight decay.
        """
        arguments = dict(config)
        patterns = arguments.pop(_EXCLUDED, ())
        optimizer = super().from_config(arguments)
        optimizer.exclude_from_weight_decay(var_names=patterns)
        return optimizer
