"""Means of weights from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import scale_call
from tfopt.kernels.commit import Assign
from tfopt.kernels.groups import many_call
from tfopt.optimizers.base.gradients import as_variable
from tfopt.optimizers.base.hyperparameters import Hyper
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.state_dict import Checkpointed
from tfopt.optimizers.base.weights import wide
from tfopt.optimizers.execution.commit import Commit, Writes
from tfopt.optimizers.execution.route import Route
from tfopt.optimizers.wrappers.wrapper import Own, Wrapper
from tfopt.variable import Variable

__all__ = ["WeightAverage"]


def _checked_frequency(frequency: Any) -> Any:
    if frequency is not None and not frequency >= 1:
        raise InvalidArgumentError(f"overwrite_frequency must be at least 1, not {frequency}")
    return frequency


class WeightAverage(Wrapper):
    """Keeps the exponential moving average of the weights that another optimizer updates.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps; not one with ``sparse="catch_up"``, whose rows may be behind.
    momentum : float, default 0.99
        In [0, 1]: after a step ``average = momentum * average + (1 - momentum) * weights``.
    overwrite_frequency : int, optional
        After so many steps, each time, the weights become the averages.
    name : str, default "WeightAverage"

    Raises
    ------
    InvalidArgumentError
        If an argument does not fit.

    Notes
    -----
    As Keras 3's ``use_ema``, but of the weights that constraints leave. Slot: ``average``, float32
    for variables of 16 bits; after the first step it is the weights. It is updated while the step's
    results are in the cache, so it is read and written once more, and nothing else; where there is
    a constraint, after it. A step of some rows takes a pass over the average of the whole variable.
    For variables in the host's memory.

    References
    ----------
    Polyak, Juditsky: Acceleration of Stochastic Approximation by Averaging, 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, WeightAverage
    >>> w = np.array([8.0])
    >>> opt = WeightAverage(SGD(1.0), momentum=0.5)
    >>> for _ in range(3):
    ...     _ = opt.apply_gradients([(np.ones(1), w)])
    >>> w, opt.get_slot(w, "average").numpy()
    (array([5.]), array([5.75]))
    >>> with opt.averaged():
    ...     print(w)
    [5.75]
    """

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

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        handles = [as_variable(var) for var in variables]
        for handle in handles:
            if handle.device != "cpu":
                raise InvalidTypeError(f"{handle.name} is on a GPU: its average cannot be kept")
            self._average(handle)
        # a constraint comes after what follows updates
        along = self.optimizer._follows and all(handle.constraint is None for handle in handles)
        before = int(self.iterations)
        follow = partial(self._follow, before == 0)
        asked = route._replace(follow=follow) if along else route
        commit: Commit = self.optimizer._prepared(grads, variables, asked)
        if not commit.steps:
            return commit
        if not along:
            commit.writes += [follow([handle]) for handle in handles]
        if self.overwrite_frequency and (before + 1) % self.overwrite_frequency == 0:
            commit.variables += self._owners
            commit.writes += self._overwriting()
        return commit

    def _overwriting(self) -> Writes:
        """Return the writes that make weights their averages, which a step is about to change."""
        writes: Writes = []
        for variable in self._owners:
            weights, average = variable.numpy(), self._average(variable)
            if average.dtype == weights.dtype:
                writes.append(Assign(weights, average))
            else:
                writes.append(scale_call([weights], [average], 1.0, 1.0, True))
        return writes

    @property
    def _follows(self) -> bool:
        return False

    def _follow(self, first: bool, variables: list[Variable]) -> Call:
        """Return the call that takes new weights of one dtype into their averages."""
        averages = [self._average(variable) for variable in variables]
        weights = [variable.numpy() for variable in variables]
        momentum = 0.0 if first else self.momentum
        return many_call(kernels["moving_average"], (averages, weights), (momentum,), 0, 1.0)

    def _average(self, variable: Variable) -> np.ndarray:
        return self.add_slot(variable, "average", variable.numpy()).numpy()

    @writes()
    def assign_averages(self) -> None:
        """Make the weights their averages, as at the end of a training."""
        for variable in self._owners:
            variable.assign(self._average(variable))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Have the averages in the variables while a block runs, then the weights again.

        No step may be taken in it.
        """
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
