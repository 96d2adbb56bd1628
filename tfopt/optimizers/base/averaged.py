"""Optimizers that also keep an average of the weights."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from tfopt.core.effects import writes
from tfopt.core.engine import prepare_writes
from tfopt.kernels.update.commit import Assign, Meanwhile, carry_out
from tfopt.optimizers.state.slots import SlotStore
from tfopt.optimizers.state.transaction import Writes
from tfopt.updates.device_copy import DeviceCopy, copies_of
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
        on_device: list[Variable] = []
        for variable in self._store.owners:
            if variable.device == "gpu":
                on_device.append(variable)
                continue
            array = variable.numpy()
            averages.append(Assign(array, self._average(variable).astype(array.dtype, copy=False)))
            weights.append(Assign(array, array.copy()))
        if on_device:
            arrays, name = [variable.value() for variable in on_device], on_device[0].name
            sources = [self._device_average(variable) for variable in on_device]
            averages.append(DeviceCopy(arrays, name).launch(sources))
            last = DeviceCopy(arrays, name).launch(copies_of(arrays, name))
            last.asks = True  # the arrays of a library may be elsewhere at the end of a block
            weights.append(last)
        return averages, weights

    def _device_average(self, variable: Variable) -> Any:
        """Return the average of the weights of a variable on a GPU, in its dtype or a wider one."""
        raise NotImplementedError(f"{type(self).__name__} does not define its average on a GPU")
