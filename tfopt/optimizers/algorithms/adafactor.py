"""Adafactor."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Unpack

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import sum_of_squares
from tfopt.kernels.update.commit import Count
from tfopt.optimizers.base.optimizer_v2 import ApplyState, Optimizer
from tfopt.optimizers.options import LearningRateLike, OptionsButWeightDecay
from tfopt.optimizers.settings import Setting, flag
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.clipping import clipped_gradients
from tfopt.optimizers.step.gradients import are_finite, as_taken, refuse_rows
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.variable import Variable

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adafactor: Adam-like steps with factored mean squares, one per row and one per column.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_2_decay : float, default -0.8
        At most 0: at step t the mean squares decay by ``1 - t ** beta_2_decay``.
    epsilon_1 : float, default 1e-30
        Added to the squared gradient.
    epsilon_2 : float, default 1e-3
        Lower bound of the root mean square of a variable, to which step sizes are relative.
    clip_threshold : float, default 1.0
        Upper bound of the root mean square of a step before it is multiplied by the step size;
        greater than 0.
    relative_step : bool, default True
        Limit the learning rate of step t to ``1 / sqrt(t)``. If False, use it as given.
    name : str, default "Adafactor"
    weight_decay : float, optional
        At least 0: before a step the weights are multiplied by ``1 - learning_rate *
        weight_decay``, with the learning rate as given. For weights that are not to decay, use
        another optimizer of `ParameterGroups`.
    **kwargs
        {options}

    Notes
    -----
    As in Keras 3, but without the full mean square that it also keeps for matrices. Slots: ``r``
    and ``c`` (without the last and the second to last axis) for variables with at least two axes,
    ``v`` for others. It has no row in the table of rules: a step needs means over rows and columns
    of the gradient, and over the whole step, before it can write an element. So it is written in
    NumPy, and for a GPU in CUDA, takes several passes, and computes 16-bit variables in float32.
    Variables must be real. The product of the means of a row and a column is at least the smallest
    normal number: where gradients are zero it would vanish.

    A sparse gradient is treated as dense, with zeros in the other rows, as in Keras: the column
    means and the step size depend on the whole variable, so lazy steps would be meaningless.

    References
    ----------
    Shazeer, Stern: Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adafactor
    >>> w = np.ones((2, 3))
    >>> opt = Adafactor(learning_rate=0.5)
    >>> int(opt.apply_gradients([(np.ones((2, 3)), w)]))
    1
    >>> w[0], opt.get_slot_names()
    (array([0.5, 0.5, 0.5]), ['r', 'c'])
    """

    beta_2_decay = Hyper(high=0)
    epsilon_1 = Hyper(above=True, exact=True)
    epsilon_2 = Hyper(0)
    clip_threshold = Hyper(0, above=True)
    relative_step = Setting(flag)
    weight_decay = Hyper(0, instead=0.0, usual=0.0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        name: str = "Adafactor",
        *,
        weight_decay: float | None = None,
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = relative_step
        self.weight_decay = weight_decay

    def _create_slots(self, var_list: list[Variable]) -> None:
        for variable in var_list:
            if variable.dtype.kind == "c":
                raise InvalidTypeError(f"Adafactor takes real variables, not {variable.dtype}")
            for name, shape in self._slot_shapes(variable).items():
                self.add_slot(variable, name, shape=shape)

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        *outer, last = variable.shape or (1,)
        if not outer:
            return {"v": variable.shape}
        return {"r": tuple(outer), "c": (*outer[:-1], last)}

    def _bind(self, request: StepRequest) -> Step:
        takes_all = type(self)._resource_apply_dense is Adafactor._resource_apply_dense
        if takes_all and any(handle.device == "gpu" for handle in request.handles):
            return _StepOnDevice(self, request)
        return super()._bind(request)

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        var = handle.numpy()
        if not var.size:
            return
        real = np.result_type(var.dtype, np.float32).type if var.dtype.itemsize != 2 else np.float32
        w, g = var.astype(real, copy=False), grad.astype(real, copy=False)
        keep, share, _, shortest, rate, _ = self._numbers()
        if keep != 1:
            with np.errstate(all="ignore"):
                w = np.asarray(w * real(keep))
        length = max(shortest, _rms(w)) * rate
        taken = real(share)
        with np.errstate(all="ignore"):
            # in a single array: allocating memory takes longer than the arithmetic; in C order,
            # since the order of sums is that of memory
            step = np.multiply(g, g, out=np.empty(g.shape, real))
            step += real(self.epsilon_1)
            self._take_mean(step, handle, taken)
            np.sqrt(step, out=step)
            np.divide(g, step, out=step)
            step /= real(max(1.0, _rms(step) / self.clip_threshold))
            step *= real(length)
            var[...] = np.subtract(w, step, out=step)

    def _numbers(self) -> tuple[float, ...]:
        """Return the numbers of the next step.

        They are what weights are multiplied by, the share of a new mean square, what is added to
        squares, the lower bound of a variable's length, the rate and the bound of a step's length.
        """
        t = int(self.iterations) + 1
        rate = self._next_rate(t - 1)
        keep = 1 - rate * self.weight_decay
        if self.relative_step:
            rate = min(rate, t**-0.5)
        taken = t**self.beta_2_decay
        return keep, taken, self.epsilon_1, self.epsilon_2, rate, self.clip_threshold

    def _take_mean(self, square: np.ndarray, handle: Variable, taken: Any) -> None:
        """Update means with squares, and replace the squares by the means."""
        if square.ndim < 2:
            square[...] = self._decayed(handle, "v", square, taken)
            return
        r = self._decayed(handle, "r", square.mean(axis=-1), taken)
        c = self._decayed(handle, "c", square.mean(axis=-2), taken)
        r = r / r.mean(axis=-1, keepdims=True)
        np.multiply(r[..., None], c[..., None, :], out=square)
        np.maximum(square, np.finfo(square.dtype).tiny, out=square)  # steps divide by its root

    def _decayed(self, handle: Variable, name: str, new: np.ndarray, taken: Any) -> np.ndarray:
        slot = self.get_slot(handle, name).numpy()
        mean: np.ndarray = (1 - taken) * slot.astype(new.dtype, copy=False) + taken * new
        slot[...] = mean
        return mean

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        whole = np.zeros(handle.shape, grad.dtype)
        whole[indices] = grad
        self._resource_apply_dense(whole, handle, apply_state)


def _rms(x: np.ndarray) -> float:
    return math.sqrt(sum_of_squares(x) / x.size)


class _StepOnDevice(Step):
    """A step of variables on a GPU, which is checked anew each time."""

    def __init__(self, optimizer: Adafactor, request: StepRequest) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        optimizer, handles = self._optimizer, self._request.handles
        for handle in handles:
            if handle.device == "cpu":
                raise InvalidTypeError(
                    f"{handle.name} is in host memory: Adafactor needs all variables on one device"
                )
        grads = as_taken(grads, handles)
        request = self._request._replace(grads=tuple(grads), scale=scale).checked()
        if request.finite and not are_finite(request.grads):
            raise NotFinite
        for grad, handle in zip(grads, handles, strict=True):
            if isinstance(grad, IndexedSlices):
                refuse_rows(handle)
        limits = optimizer.clipvalue, optimizer.clipnorm, optimizer.global_clipnorm
        scaled = request._replace(known=known).scaled()
        clipped, _ = clipped_gradients(scaled.grads, optimizer.merge, limits, scaled.known)
        optimizer._create_slots(handles)
        operands = [
            (handle.value(), *(optimizer.get_slot(handle, name).value() for name in names))
            for handle in handles
            for names in [optimizer._slot_shapes(handle)]
        ]
        backend = backend_of(handles)
        updates = backend.adafactor_updates(operands, clipped, optimizer._numbers())
        count = optimizer._store.weights[0]
        step = PreparedStep([Count(count._array)], [*self._request.variables, count])
        step.launches = True
        step.work.append(partial(_launch, backend, updates, handles))
        return step


def _launch(backend: Any, updates: list[Any], handles: list[Variable], writes: Writes) -> None:
    backend.run_clipped(updates)
    for handle in handles:
        handle.constrain()
