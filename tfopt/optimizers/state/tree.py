"""Arrays in nested structures, and the variables last seen at their positions."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfopt.core.engine import Tensor
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Attributes, Undo
from tfopt.kernels.update.repetition import gradients_in
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.variables import as_variable, memory_of, sharing
from tfopt.variable import Variable

__all__ = ["Places", "leaves", "named_variable"]

_NONE: ByVariable[Variable] = ByVariable()
_KINDS = (np.ndarray, IndexedSlices, Tensor)  # of gradients that need no conversion


def leaves(structure: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the leaves of nested dicts, lists and tuples."""
    if isinstance(structure, Mapping):
        items: Any = structure.items()
    elif isinstance(structure, (list, tuple)):
        items = enumerate(structure)
    else:
        yield name, structure
        return
    for key, value in items:
        yield from leaves(value, f"{name}/{key}" if name else str(key))


class Places:
    """The variables at the positions of a structure, as of the last step or loaded state."""

    def __init__(self) -> None:
        self.at: dict[str, Variable] = {}
        self.undo: Undo | None = None  # of a step that has changed `at` and is not yet taken
        # of the last structure whose variables were those in `at` already, which is kept, too
        self.variables: tuple[Variable, ...] = ()
        self._pattern: Any = None
        self._apart: list[Variable] = []  # variables that have been found to share no memory
        self._known: dict[str, Variable] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "variables": (), "_pattern": None, "_apart": [], "_known": None}

    def repeated(self, params: Any, grads: Any) -> list[Any] | None:
        """Return the gradients of `variables`; None if the structure is another one."""
        if self._known is not self.at:
            return None
        return gradients_in(params, grads, self._pattern, _KINDS)

    def pairs(
        self, params: Any, grads: Any
    ) -> tuple[list[tuple[Any, Variable]], dict[str, Variable] | None, ByVariable[Variable]]:
        """Pair gradients with the variables at their positions, and detect replaced arrays.

        Returns
        -------
        pairs : list of (gradient, variable)
            Without those whose gradient is None, unless all gradients are None.
        at : dict of Variable or None
            The new value of `at`; None if it does not change.
        moved : ByVariable
            The variables that replace others.
        """
        repeated = self.repeated(params, grads)
        if repeated is not None:
            return list(zip(repeated, self.variables, strict=True)), None, _NONE
        values: dict[str, Any] = {}
        for name, value in leaves(params):
            if name in values:
                raise InvalidArgumentError(f"two entries of the structure have the name {name!r}")
            values[name] = value
        gradients = dict(_gradients(params, grads, ""))
        variables = {name: self._variable(name, value) for name, value in values.items()}
        taking = {name: v for name, v in variables.items() if gradients[name] is not None}
        self._refuse_shared(taking)
        pairs = [(gradients[name], variable) for name, variable in (taking or variables).items()]
        if all(self.at.get(name) is variable for name, variable in variables.items()):
            if self._known is not self.at and len(taking) == len(variables):
                self.variables = tuple(variables.values())
                self._pattern, self._known = _pattern(params), self.at
            return pairs, None, _NONE
        return pairs, {**self.at, **variables}, self._moved(variables)

    def _refuse_shared(self, variables: dict[str, Variable]) -> None:
        """Refuse a step of variables of which two share memory."""
        stepped = list(variables.values())
        if len(stepped) == len(self._apart) and all(map(operator.is_, stepped, self._apart)):
            return
        shared = sharing(stepped)
        if shared is not None:
            first, second = (list(variables)[k] or "the variable" for k in shared)
            same = memory_of(stepped[shared[0]]) == memory_of(stepped[shared[1]])
            raise InvalidArgumentError(
                f"{first} and {second} are the same array: add up their gradients, and pass it once"
                if same
                else f"{first} and {second} overlap in memory: pass the whole array, with one "
                "gradient, or take a step of each"
            )
        self._apart = stepped

    def write_to_place(self, params: Any) -> Attributes:
        """Return the write after which the variables of a structure are those at its positions."""
        at = {name: named_variable(name, value) for name, value in leaves(params)}
        return Attributes(self, {"at": at})

    def _moved(self, variables: dict[str, Variable]) -> ByVariable[Variable]:
        """Return the variables that replace others."""
        moved: ByVariable[Variable] = ByVariable()
        new_of: dict[Any, Any] = {}
        old_of: dict[Any, Any] = {}
        for name, variable in variables.items():
            if name not in self.at:
                continue
            old, new = memory_of(self.at[name]), memory_of(variable)
            if new_of.setdefault(old, new) != new or old_of.setdefault(new, old) != old:
                raise InvalidArgumentError(
                    f"{name or 'the variable'} has another array than at the last step, and one of "
                    "the two also occurs elsewhere: the state cannot be assigned unambiguously"
                )
            if old != new:
                moved[self.at[name]] = variable
        return moved

    def _variable(self, name: str, value: Any) -> Variable:
        last = self.at.get(name)
        if last is not None and last.value() is value:
            return last
        variable = named_variable(name, value)
        if last is not None and (last.shape, last.dtype) != (variable.shape, variable.dtype):
            raise InvalidArgumentError(
                f"{name or 'the variable'} was {last.dtype} of shape {list(last.shape)} at the "
                f"last step, and is {variable.dtype} of shape {list(variable.shape)}"
            )
        return variable


def named_variable(name: str, value: Any) -> Variable:
    """Return a variable unchanged, and an array wrapped in one with the name of its position."""
    if isinstance(value, Variable):
        return value
    return Variable(as_variable(value, name or "var").value(), name or None)


def _gradients(params: Any, grads: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names of a structure's positions and their gradients; raise if it differs."""
    if isinstance(params, Mapping):
        if not isinstance(grads, Mapping) or set(grads) != set(params):
            raise _differs(params, grads, name)
        items: Any = [(key, value, grads[key]) for key, value in params.items()]
    elif isinstance(params, (list, tuple)):
        if not isinstance(grads, (list, tuple)) or len(grads) != len(params):
            raise _differs(params, grads, name)
        items = [(k, *both) for k, both in enumerate(zip(params, grads, strict=True))]
    else:
        if isinstance(grads, Mapping):
            raise _differs(params, grads, name)
        yield name, grads
        return
    for key, value, grad in items:
        yield from _gradients(value, grad, f"{name}/{key}" if name else str(key))


def _pattern(structure: Any) -> Any:
    """Return a structure as `gradients_in` takes it; keys other than strings match nothing."""
    if isinstance(structure, Mapping):
        return {
            key if type(key) is str else object(): _pattern(value)
            for key, value in structure.items()
        }
    if isinstance(structure, (list, tuple)):
        return [_pattern(value) for value in structure]
    return (structure,)


def _differs(params: Any, grads: Any, name: str) -> InvalidArgumentError:
    """Return the error for two nodes at the same position that differ in their own structure."""
    if isinstance(params, Mapping) and isinstance(grads, Mapping):
        lacking = [("grads", key) for key in params if key not in grads]
        lacking += [("params", key) for key in grads if key not in params]
        how = f"{lacking[0][0]} lacks {lacking[0][1]!r}"
    elif isinstance(params, (list, tuple)) and isinstance(grads, (list, tuple)):
        entries = "1 entry" if len(grads) == 1 else f"{len(grads)} entries"
        how = f"grads has {entries}, params {len(params)}"
    else:
        how = f"grads has {_kind(grads)}, params {_kind(params)}"
    where = f", at {name}" if name else ""
    return InvalidArgumentError(f"params and grads differ in structure: {how}{where}")


def _kind(node: Any) -> str:
    if isinstance(node, Mapping):
        return "a dict"
    if isinstance(node, (list, tuple)):
        return f"a {'list' if isinstance(node, list) else 'tuple'}"
    return "None" if node is None else f"the value of type {type(node).__name__}"
