"""Means of weights from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.optimizers.checkpointed import Checkpointed
from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.optimizer import Commit, Optimizer
from tfopt_ref.optimizers.pairs import as_variable
from tfopt_ref.optimizers.weights import wide
from tfopt_ref.optimizers.wrapper import Own, Wrapper
from tfopt_ref.training_ops import apply_moving_average
from tfopt_ref.variable import Variable

__all__ = ["WeightAverage"]


def _checked_frequency(frequency: Any) -> Any:
    if frequency is not None and not frequency >= 1:
        raise InvalidArgumentError(f"overwrite_frequency must be at least 1, not {frequency}")
    return frequency


class WeightAverage(Wrapper):
    """Keeps the exponential moving average of the weights that another optimizer updates."""

    momentum = Hyper(0, 1, exact=True)
    overwrite_frequency: int | None = Own(_checked_frequency)  # type: ignore[assignment]

    def __init__(
        self,
        optimizer: Optimizer,
        momentum: float = 0.99,
        overwrite_frequency: int | None = None,
        name: str = "WeightAverage",
    ) -> None:
        super().__init__(optimizer, name)
        if _catches_up(optimizer):
            raise InvalidArgumentError(
                'weights whose rows catch up later (sparse="catch_up") cannot be averaged'
            )
        self.momentum = momentum
        self.overwrite_frequency = overwrite_frequency

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool, finite: bool) -> Commit:
        variables = [as_variable(var) for _, var in pairs]
        for variable in variables:
            self._average(variable)
        before = int(self.iterations)
        step = self.optimizer._prepared(pairs, scale, aggregates, finite)

        def commit() -> None:
            step()
            if int(self.iterations) == before:
                return
            momentum = self.momentum if before else 0.0
            for variable in variables:
                apply_moving_average(self._average(variable), variable.numpy(), momentum=momentum)
            if self.overwrite_frequency and int(self.iterations) % self.overwrite_frequency == 0:
                self.assign_averages()

        return commit

    def _average(self, variable: Variable) -> np.ndarray:
        return self.add_slot(variable, "average", variable.numpy()).numpy()

    def assign_averages(self) -> None:
        """Make the weights their averages, as at the end of a training."""
        for variable in self._owners:
            variable.assign(self._average(variable))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Have the averages in the variables while a block runs, then the weights again."""
        weights = [variable.numpy().copy() for variable in self._owners]
        try:
            self.assign_averages()
            yield
        finally:
            for variable, before in zip(self._owners, weights, strict=True):
                variable.assign(before)

    def _slot_dtype(self, variable: Variable) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable))

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"average": variable.shape}

    def _own_config(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "overwrite_frequency": self.overwrite_frequency}


def _catches_up(optimizer: Checkpointed) -> bool:
    """Whether rows may be behind, of an optimizer or of one that it is around."""
    return getattr(optimizer, "sparse", None) == "catch_up" or any(
        map(_catches_up, optimizer._inner().values())
    )
