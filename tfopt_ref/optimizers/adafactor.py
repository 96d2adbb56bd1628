"""Adafactor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidTypeError
from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.optimizer import ApplyState, Optimizer
from tfopt_ref.variable import Variable

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adafactor: mean squares of a matrix kept as those of its rows and of its columns."""

    beta_2_decay = Hyper(high=0)
    epsilon_1 = Hyper(0, exact=True)
    epsilon_2 = Hyper(0)
    clip_threshold = Hyper(0, above=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        name: str = "Adafactor",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = bool(relative_step)

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

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        var = handle.numpy()
        if not var.size:
            return
        real = np.result_type(var.dtype, np.float32).type if var.dtype.itemsize != 2 else np.float32
        w, g = var.astype(real, copy=False), grad.astype(real, copy=False)
        t = int(self.iterations) + 1
        rate = self._next_rate()
        if self.relative_step:
            rate = min(rate, t**-0.5)
        length = max(self.epsilon_2, _rms(w)) * rate
        taken = real(t**self.beta_2_decay)
        with np.errstate(all="ignore"):
            step = g / np.sqrt(self._mean_square(g * g + real(self.epsilon_1), handle, taken))
            step /= real(max(1.0, _rms(step) / self.clip_threshold))
            var[...] = w - real(length) * step

    def _mean_square(self, square: np.ndarray, handle: Variable, taken: Any) -> np.ndarray:
        if square.ndim < 2:
            return self._decayed(handle, "v", square, taken)
        r = self._decayed(handle, "r", square.mean(axis=-1), taken)
        c = self._decayed(handle, "c", square.mean(axis=-2), taken)
        product: np.ndarray = (r / r.mean(axis=-1, keepdims=True))[..., None] * c[..., None, :]
        return product

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

    def get_config(self) -> dict[str, Any]:
        names = ("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold", "relative_step")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x), dtype=np.float64)))
