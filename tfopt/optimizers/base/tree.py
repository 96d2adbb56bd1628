"""Arrays in nested structures, and what their places in them remember."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.commit import Undo
from tfopt.optimizers.base.gradients import as_variable, memory_of
from tfopt.variable import Variable

__all__ = ["Places", "leaves"]


def leaves(structure: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in a structure of dicts, lists and tuples, with the names of its places."""
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
    """The variables of a structure's places at the last step."""

    def __init__(self) -> None:
        self.at: dict[str, Variable] = {}
        self.undo: Undo | None = None  # of a step that has changed `at` and is not yet taken

    def pairs(
        self, params: Any, grads: Any
    ) -> tuple[list[tuple[Any, Variable]], dict[str, Variable] | None, dict[Any, Variable]]:
        """Return gradients that there are with the variables of their places, and what is new.

        Returns
        -------
        pairs : list of (gradient, variable)
            Without those whose gradient is None, unless all are.
        at : dict of Variable or None
            What is to be `at` from now on, if it is not as it was.
        moved : dict of Variable
            Those that have come in the place of others, by the memory of these.
        """
        given: dict[str, Any] = {}
        for name, value in leaves(params):
            if name in given:
                raise InvalidArgumentError(f"two entries of the structure have the name {name!r}")
            given[name] = value
        gradients = dict(_gradients(params, grads, ""))
        found = {name: self._variable(name, value) for name, value in given.items()}
        pairs = [(gradients[name], variable) for name, variable in found.items()]
        pairs = [pair for pair in pairs if pair[0] is not None] or pairs
        if all(self.at.get(name) is variable for name, variable in found.items()):
            return pairs, None, {}
        return pairs, {**self.at, **found}, self._moved(found)

    def _moved(self, found: dict[str, Variable]) -> dict[Any, Variable]:
        """Return the variables that have come in the place of others, by the memory of those."""
        moved: dict[Any, Variable] = {}
        new_of: dict[Any, Any] = {}
        old_of: dict[Any, Any] = {}
        for name, variable in found.items():
            if name not in self.at:
                continue
            old, new = memory_of(self.at[name]), memory_of(variable)
            if new_of.setdefault(old, new) != new or old_of.setdefault(new, old) != old:
                raise InvalidArgumentError(
                    f"{name or 'the variable'} has another array than at the last step, and shares "
                    "the one or the other with another place: it is not clear whose state is whose"
                )
            if old != new:
                moved[old] = variable
        return moved

    def _variable(self, name: str, value: Any) -> Variable:
        before = self.at.get(name)
        if isinstance(value, Variable):
            variable = value
        elif before is not None and before.value() is value:
            return before
        else:
            variable = Variable(as_variable(value).value(), name or None)
        if before is not None and (before.shape, before.dtype) != (variable.shape, variable.dtype):
            raise InvalidArgumentError(
                f"{name or 'the variable'} was {before.dtype} of shape {list(before.shape)} at the "
                f"last step, and is {variable.dtype} of shape {list(variable.shape)}"
            )
        return variable


def _gradients(params: Any, grads: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the gradients of a structure's places; their structure is that of the variables."""
    if isinstance(params, Mapping):
        if not isinstance(grads, Mapping) or set(grads) != set(params):
            raise _differs(name)
        items: Any = [(key, value, grads[key]) for key, value in params.items()]
    elif isinstance(params, (list, tuple)):
        if not isinstance(grads, (list, tuple)) or len(grads) != len(params):
            raise _differs(name)
        items = [(k, *both) for k, both in enumerate(zip(params, grads, strict=True))]
    else:
        if isinstance(grads, Mapping):
            raise _differs(name)
        yield name, grads
        return
    for key, value, grad in items:
        yield from _gradients(value, grad, f"{name}/{key}" if name else str(key))


def _differs(name: str) -> InvalidArgumentError:
    where = f" at {name}" if name else ""
    return InvalidArgumentError(f"params and grads differ in structure{where}")
