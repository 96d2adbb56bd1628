"""The gradient of a table that is looked up in bags, summed by the step that takes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from tfopt.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from tfopt.bags.bags import Bags

__all__ = ["Beside", "SummedLater"]


class Beside(ABC):
    """Bags, and an array of a row for each of them, with the ids in the same memory."""

    def __init__(self, bags: Bags, array: Any, name: str) -> None:
        self.bags, self.array, self.name = bags, array, name

    @property
    @abstractmethod
    def can_wait(self) -> bool:
        """Whether a step can sum the rows itself, to the same bits."""

    @abstractmethod
    def of_rows(self) -> Any:
        """Return the gradient of the distinct rows of the table."""

    @abstractmethod
    def divided(self) -> Self:
        """Return the same beside a copy of the array, divided if means are looked up."""

    @abstractmethod
    def sums(self) -> Any:
        """Return the sum for each distinct id of the rows of its bags."""

    @property
    @abstractmethod
    def rows(self) -> Any:
        """The distinct ids."""

    @property
    @abstractmethod
    def shared(self) -> tuple[Any, Any]:
        """The bag of each id, and the ids."""


class SummedLater(IndexedSlices):
    """The gradient of a table, whose rows are summed by the step that takes it, or when asked for.

    Parameters
    ----------
    of_bags : Beside
        The gradient of the rows of each bag, which nobody else has.
    """

    __slots__ = ("_of_bags", "_summed")

    def __init__(self, of_bags: Beside) -> None:
        self._of_bags = of_bags
        self._summed: Any = None
        self.dense_shape = of_bags.bags.n_rows, *of_bags.array.shape[1:]

    @property
    def values(self) -> Any:
        if self._summed is None:
            self._summed = self._of_bags.sums()
        return self._summed

    @values.setter
    def values(self, values: Any) -> None:
        self._summed = values

    @property
    def indices(self) -> Any:
        return self._of_bags.rows

    @property
    def dtype(self) -> Any:
        return self._of_bags.array.dtype

    @property
    def _memory(self) -> Any:
        return self._of_bags.array

    def _concrete(self) -> IndexedSlices:
        return self

    def _shared_rows(self) -> tuple[Any, Any, Any] | None:
        rows = self._of_bags.array
        if self._summed is not None or 0 in rows.shape:
            return None
        return rows, *self._of_bags.shared
