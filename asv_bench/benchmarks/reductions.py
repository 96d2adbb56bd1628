"""Rules that sum over rows or variables, beside others that do the same without, or elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from .common import Step, best_times, filled, public

ROWS, IDS = 1_000_000, 40_960


def _ids(kind: str) -> np.ndarray:
    random = np.random.default_rng(0)
    if kind == "uniform":
        return random.integers(ROWS, size=IDS)
    drawn = random.zipf(1.2, 4 * IDS)
    return np.resize(drawn[drawn < ROWS], IDS) * 7919 % ROWS


def _ours(optimizer: str, width: int, ids: np.ndarray) -> Step:
    table = filled((ROWS, width))
    rows = public("indexed_slices.IndexedSlices")(filled((IDS, width)), ids)
    opt = public(f"optimizers.{optimizer}")(0.01)

    def call() -> None:
        opt.apply_gradients([(rows, table)])

    call()
    return call


class RowwiseAdagrad:
    """The speedup of a step of a table over torch's sparse Adagrad, and over Adagrad's own."""

    params = ([32, 64, 128], ["uniform", "zipf"])
    param_names = ("width", "ids")
    unit = "times"

    def setup(self, width: int, ids: str) -> None:
        self.width, self.ids = width, _ids(ids)
        self.step = _ours("RowwiseAdagrad", width, self.ids)

    def track_speed_relative_to_adagrad(self, width: int, ids: str) -> float:
        step, full = best_times(self.step, _ours("Adagrad", width, self.ids))
        return full / step

    def track_speed_relative_to_torch(self, width: int, ids: str) -> float:
        if find_spec("torch") is None:
            raise NotImplementedError("torch is not installed")
        import torch

        table = torch.nn.Parameter(torch.ones(ROWS, width))
        table.grad = torch.sparse_coo_tensor(
            torch.from_numpy(self.ids)[None], torch.from_numpy(filled((IDS, width))), table.shape
        )
        step, theirs = best_times(self.step, torch.optim.Adagrad([table], lr=0.01).step)
        return theirs / step


class Lamb:
    """The time of a step relative to Adam's, which reads its operands once."""

    params = [1 << 16, 1 << 20, 1 << 24]
    param_names = ("elements",)
    unit = "times"

    def setup(self, elements: int) -> None:
        self.steps: list[Any] = []
        for optimizer in ("LAMB", "Adam"):
            w, g = filled(elements), filled(elements)
            opt = public(f"optimizers.{optimizer}")(0.001)
            opt.apply_gradients([(g, w)])
            self.steps.append(lambda opt=opt, w=w, g=g: opt.apply_gradients([(g, w)]))

    def track_time_relative_to_adam(self, elements: int) -> float:
        lamb, adam = best_times(*self.steps, seconds=1)
        return lamb / adam
