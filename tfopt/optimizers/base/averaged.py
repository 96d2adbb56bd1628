"""Optimizers that know an average of the weights beside the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tfopt.core.effects import writes
from tfopt.optimizers.base.slots import SlotStore
from tfopt.variable import Variable

__all__ = ["Averaged"]


class Averaged:
    """Base of optimizers whose averages replace the weights for a while, or at the end."""

    _store: SlotStore

    def _average(self, variable: Variable) -> np.ndarray:
        """Return the average of a variable's weights."""
        raise NotImplementedError(f"{type(self).__name__} does not define its average")

    @writes()
    def assign_averages(self) -> None:
        """Assign the averages to the weights, for example at the end of training."""
        averages = [self._average(variable) for variable in self._store.owners]
        for variable, average in zip(self._store.owners, averages, strict=True):
            variable.assign(average)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Context manager in which the variables hold their averages instead of their weights.

        No step may be taken inside.
        """
        weights = [variable.numpy().copy() for variable in self._store.owners]
        try:
            self.assign_averages()
            yield
        finally:
            for variable, before in zip(self._store.owners, weights, strict=True):
                variable.assign(before)
