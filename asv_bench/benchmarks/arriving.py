"""Steps of bfloat16 gradients that arrive one by one, with clipping and copies, beside torch's."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from .common import Step, best_times, public

#: A transformer's tensors: the widths of its layers, and their number.
MODELS = {"3 M, 50 tensors": (256, 4), "25 M, 98 tensors": (512, 8)}
_LIMIT = 1.0


def _shapes(model: str) -> dict[str, tuple[int, ...]]:
    width, layers = MODELS[model]
    layer = [(3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,)]
    layer += [(4 * width, width), (4 * width,), (width, 4 * width), (width,), (width,), (width,)]
    shapes = {f"{k}.{part}": shape for k in range(layers) for part, shape in enumerate(layer)}
    return {**shapes, "norm": (width,), "head": (256, width)}


def _ours(shapes: dict[str, tuple[int, ...]], limit: float | None) -> tuple[Step, Step]:
    """Return steps of gradients that arrive, the last one first, and of all of them at once."""
    bfloat16 = import_module("ml_dtypes").bfloat16
    random = np.random.default_rng(0)
    grads = {k: random.standard_normal(shape).astype(bfloat16) for k, shape in shapes.items()}

    def made() -> tuple[Any, dict[str, np.ndarray]]:
        inside = public("optimizers.AdamW")(1e-3, global_clipnorm=limit)
        masters = {k: random.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
        return public("optimizers.Mirror")(inside), masters

    (optimizer, masters), (other, same) = made(), made()
    arriving = optimizer.arriving(masters)

    def arrive() -> None:
        for name in reversed(grads):
            arriving.add(name, grads[name])
        arriving.take()

    return arrive, lambda: other.step(same, grads)


def _torch(shapes: dict[str, tuple[int, ...]], limit: float | None) -> Step:
    """Return a step of torch's fused optimizer, between copies from and to bfloat16."""
    import torch

    masters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes.values()]
    models = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes.values()]
    grads = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes.values()]
    for master in masters:
        master.grad = torch.empty_like(master)
    optimizer = torch.optim.AdamW(masters, lr=1e-3, fused=True)

    @torch.no_grad()
    def step() -> None:
        torch._foreach_copy_([master.grad for master in masters], grads)
        if limit is not None:
            torch.nn.utils.clip_grad_norm_(masters, limit)
        optimizer.step()
        torch._foreach_copy_(models, masters)

    return step


class Arriving:
    """A step of gradients that arrive, the norm summed on the way, on one thread."""

    params = (list(MODELS), ["clipped", "not clipped"])
    param_names = ("model", "limit")
    timeout = 120.0

    def setup(self, model: str, limit: str) -> None:
        if find_spec("ml_dtypes") is None:
            raise NotImplementedError("ml_dtypes is not installed")
        public("optimizers.ArrivingStep")
        public("threads.set_num_threads")(1)
        self.shapes, self.limit = _shapes(model), _LIMIT if limit == "clipped" else None
        self.ours = _ours(self.shapes, self.limit)

    def track_ratio_to_a_step_of_all(self, model: str, limit: str) -> float:
        arrive, step = best_times(*self.ours)
        return arrive / step

    track_ratio_to_a_step_of_all.unit = "times"

    def track_speed_relative_to_torch(self, model: str, limit: str) -> float:
        if find_spec("torch") is None:
            raise NotImplementedError("torch is not installed")
        import torch

        torch.set_num_threads(1)
        ours, theirs = best_times(self.ours[0], _torch(self.shapes, self.limit))
        return theirs / ours

    track_speed_relative_to_torch.unit = "times"
