"""Moving averages of weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Launch
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.repetition import Repetition
from tfopt.optimizers.base.averaged import Averaged
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.settings import Setting, optional, whole
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.variables import wide
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step, StepAround
from tfopt.optimizers.wrappers.mirror import Mirror
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.updates.device_rule import DeviceRule
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.variable import Variable

__all__ = ["WeightAverage"]


def _mirrors(optimizer: Any) -> bool:
    """Return whether an optimizer keeps mirrors, itself or through a wrapped optimizer."""
    inside = getattr(optimizer, "optimizers", None) or [getattr(optimizer, "optimizer", None)]
    return isinstance(optimizer, Mirror) or any(map(_mirrors, filter(None, inside)))


class WeightAverage(Averaged, Wrapper):
    """Keeps the exponential moving average of the weights that another optimizer updates.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps; must not have ``sparse="catch_up"``, with which updates are deferred.
    momentum : float, default 0.99
        In [0, 1]: after a step ``average = momentum * average + (1 - momentum) * weights``.
    overwrite_frequency : int, optional
        The weights are overwritten by the averages whenever this number of steps has been taken;
        not around a `Mirror`.
    name : str, default "WeightAverage"

    Raises
    ------
    InvalidArgumentError
        If an argument is invalid.

    Notes
    -----
    Follows Keras 3's ``use_ema``, but averages the weights after constraints. Slot: ``average``,
    float32 for variables of 16 bits; after the first step it equals the weights. It is updated
    while the step's results are in the cache, so the only additional memory traffic is to read and
    write the average; with a constraint, it is updated after it. A sparse step takes a pass over
    the average of the whole variable. On a GPU the average is updated by a launch of its own, which
    follows the step's.

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
    overwrite_frequency = Setting(optional(whole(1)), default=None)

    def __init__(
        self,
        optimizer: OptimizerBase,
        momentum: float = 0.99,
        overwrite_frequency: int | None = None,
        name: str = "WeightAverage",
    ) -> None:
        super().__init__(optimizer, name)
        self.momentum = momentum
        self.overwrite_frequency = overwrite_frequency

    def _check_settings(self) -> None:
        if self.optimizer.capabilities.defers:
            raise InvalidArgumentError(
                'weights with deferred updates (sparse="catch_up") cannot be averaged'
            )
        if self.overwrite_frequency is not None and _mirrors(self.optimizer):
            raise InvalidArgumentError(
                "overwrite_frequency would change weights after they have been mirrored: "
                "put Mirror around WeightAverage"
            )

    def _bind(self, request: StepRequest) -> Step:
        self._check_settings()  # those of the optimizer inside can be set there
        for handle in request.handles:
            self._average_slot(handle)
        return _AveragedStep(self, request)

    @property
    def _overwrites(self) -> bool:
        """Whether the next step overwrites the weights."""
        every = self.overwrite_frequency
        return bool(every and (int(self.iterations._array) + 1) % every == 0)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner optimizer, except following: that is used for the average."""
        return self.optimizer.capabilities._replace(follows=False)

    def _average_slot(self, variable: Variable) -> Variable:
        on_host = variable.device == "cpu"
        first = variable.numpy() if on_host else partial(_copied, variable)
        return self.add_slot(variable, "average", first)

    def _average(self, variable: Variable) -> np.ndarray:
        return self._average_slot(variable).numpy()

    def _device_average(self, variable: Variable) -> Any:
        return self._average_slot(variable).value()

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable, slot_name))

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"average": variable.shape}


def _copied(variable: Variable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return the value of a variable on a GPU, which a slot begins with."""
    array: np.ndarray = backend_of(variable).to_host(variable.value())
    return array.astype(dtype, copy=False)


class _Averaging:
    """Makes the calls that update the averages after the weights, as `StepRequest.after`.

    A bound step asks for the same calls again: these check only what can have changed.
    """

    def __init__(self, wrapper: WeightAverage) -> None:
        self._wrapper = wrapper
        # with the step count, which cannot be replaced as long as steps are repeated
        self._known: dict[
            tuple[int, ...], tuple[list[Variable], list[np.ndarray], Repetition, np.ndarray]
        ] = {}
        self._on_device: dict[tuple[int, ...], tuple[list[Variable], DeviceRule]] = {}

    def __call__(self, variables: list[Variable]) -> Call | Launch:
        """Return what updates the averages of variables of one dtype and device."""
        wrapper = self._wrapper
        if variables[0].device != "cpu":
            return self._launch(variables)
        key = tuple(map(id, variables))  # the list may be a new one in each step
        known = self._known.get(key)
        if known is not None:
            _, weights, repetition, count = known
            if repetition.takes(weights):
                momentum = wrapper.momentum if count else 0.0
                return repetition.call_with({"momentum": momentum}, {}, 1.0, 1.0)
        count = wrapper.iterations._array
        momentum = wrapper.momentum if count else 0.0
        averages = [wrapper._average(variable) for variable in variables]
        weights = [variable.numpy() for variable in variables]
        kernel = kernels["moving_average"]
        call = many_call(kernel, (averages, weights), (momentum,), 0, 1.0)
        self._known[key] = variables, weights, Repetition(kernel, call), count
        return call

    def _launch(self, variables: list[Variable]) -> Launch:
        wrapper, key = self._wrapper, tuple(map(id, variables))
        if key not in self._on_device:
            averages = [wrapper._average_slot(variable)._array for variable in variables]
            self._on_device[key] = variables, DeviceRule((averages,))
        momentum = wrapper.momentum if wrapper.iterations._array else 0.0
        update = RuleUpdate("moving_average", {"momentum": momentum})
        weights = [variable._array for variable in variables]
        step = self._on_device[key][1]
        return step.write(update, 1.0, weights, variables[0].name)


class _AveragedStep(StepAround):
    """A step and the update of the averages, by which the weights may be overwritten."""

    def __init__(self, wrapper: WeightAverage, request: StepRequest) -> None:
        self._wrapper, self._handles, self._after = wrapper, request.handles, _Averaging(wrapper)
        # constraints are applied after the calls that follow updates
        follows = wrapper.optimizer.capabilities.follows
        self._fused = follows and all(handle.constraint is None for handle in self._handles)
        asked = request.replace(after=self._after) if self._fused else request
        super().__init__(wrapper.optimizer.bind(asked))

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        wrapper, step = self._wrapper, self._inner.prepare(grads, scale, known)
        if not step.counts:
            return step
        if not self._fused:
            step.writes += [self._after([handle]) for handle in self._handles]
        if wrapper._overwrites:
            for variable in wrapper._store.owners:
                step.assign(variable, wrapper._average_slot(variable))
        return step
