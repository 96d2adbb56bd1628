"""Dictionaries with variables as keys; variables of the same memory are one key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from tfopt.optimizers.state.variables import memory_of
from tfopt.variable import Variable

__all__ = ["ByVariable"]

T = TypeVar("T")


class ByVariable(Generic[T]):
    """Values by variable: the same one for all variables of the same memory (`memory_of`).

    The variables are kept alive, so that no other one gets their addresses. A copy has its keys
    from the addresses of its own variables.

    Parameters
    ----------
    pairs : iterable of (Variable, object)

    Attributes
    ----------
    by_memory : dict of (Variable, object)
        The pairs, by the memory of the variables.
    """

    def __init__(self, pairs: Iterable[tuple[Variable, T]] = ()) -> None:
        self.by_memory = {memory_of(variable): (variable, value) for variable, value in pairs}

    def __reduce__(self) -> tuple[Any, ...]:
        return ByVariable, ([*self.items()],)

    def __len__(self) -> int:
        return len(self.by_memory)

    def __iter__(self) -> Iterator[Variable]:
        return (variable for variable, _ in self.items())

    def __contains__(self, variable: Variable) -> bool:
        return memory_of(variable) in self.by_memory

    def __getitem__(self, variable: Variable) -> T:
        return self.by_memory[memory_of(variable)][1]

    def __setitem__(self, variable: Variable, value: T) -> None:
        self.by_memory[memory_of(variable)] = variable, value

    def get(self, variable: Variable, default: Any = None) -> Any:
        """Return the value of a variable, or another one if it has none."""
        return self.by_memory.get(memory_of(variable), (None, default))[1]

    def items(self) -> Iterable[tuple[Variable, T]]:
        """Return the variables with their values."""
        return self.by_memory.values()

    def values(self) -> list[T]:
        """Return the values."""
        return [value for _, value in self.items()]

    def moved(self, new: ByVariable[Variable]) -> ByVariable[T]:
        """Return the values with some variables replaced by others."""
        return ByVariable((new.get(variable, variable), value) for variable, value in self.items())
