"""Optimizers that also keep an average of the weights."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from tfopt.core.effects import writes
from tfopt.core.engine import prepare_writes
from tfopt.kernels.update.commit import Assign, Meanwhile, carry_out
from tfopt.optimizers.state.slots import SlotStore
from tfopt.optimizers.state.transaction import Writes
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
        assignments, _ = self._assignments()
        prepare_writes(self._store.owners)
        carry_out(assignments)

    def averaged(self) -> AbstractContextManager[None]:
        """Context manager in which the variables hold their averages instead of their weights.

        No step may be taken inside. All variables have their weights again at the end, also when
        Ctrl-C comes.
        """
        return Meanwhile(self._assignments, partial(prepare_writes, self._store.owners))

    def _assignments(self) -> tuple[Writes, Writes]:
        """Return the assignments of all averages, and of the weights there are."""
        averages: Writes = []
        weights: Writes = []
        for variable in self._store.owners:
            array = variable.numpy()
            averages.append(Assign(array, self._average(variable).astype(array.dtype, copy=False)))
            weights.append(Assign(array, array.copy()))
        return averages, weights
