"""The 8-bit storage of bitsandbytes: its tables, codes and optimizer states.

As a script (``python -m golden.bitsandbytes`` in ``tests``), this writes them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "CLASSES", "SAME", "SHAPES", "STEPS",
    "gradients", "recorded", "state_of", "values", "variables",
]  # fmt: skip

FILE = Path(__file__).parent / "data/bitsandbytes.npz"
SHAPES = ((66, 63), (7,))  # more, and fewer elements than bitsandbytes quantizes
STEPS = 3
#: By class: arguments.
CLASSES: dict[str, dict[str, Any]] = {
    "Adam8bit": {"lr": 0.01},
    "AdamW8bit": {"lr": 0.01, "weight_decay": 0.1},
    "Lion8bit": {"lr": 0.001, "weight_decay": 0.1},
    "SGD8bit": {"lr": 0.1, "momentum": 0.9},
    "RMSprop8bit": {"lr": 0.01, "alpha": 0.875},
}
#: Which of these are bit for bit an optimizer of this package.
SAME = {"Adam8bit": "Adam", "AdamW8bit": "AdamW", "Lion8bit": "Lion"}


def gradients(step: int) -> list[np.ndarray]:
    """Return the gradients of a step."""
    random = np.random.default_rng(step)
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def values() -> np.ndarray:
    """Return numbers of many magnitudes, the last block of which is not full."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.integers(-9, 3, 2000)
    return (random.standard_normal(2000) * sizes).astype(np.float32)


@cache
def recorded() -> dict[str, np.ndarray]:
    """Return what was recorded, by name."""
    return dict(np.load(FILE))


def state_of(name: str) -> dict[str, Any]:
    """Return the state that was recorded of an optimizer, as its state_dict() is."""
    state: dict[int, dict[str, Any]] = {}
    for number in range(len(SHAPES)):
        parts = {
            key.rpartition("/")[2]: array.copy()
            for key, array in recorded().items()
            if key.startswith(f"{name}/{number}/")
        }
        if "absmax1" in parts:
            parts["qmap1"] = recorded()["True/map"]
        if "absmax2" in parts:
            parts["qmap2"] = recorded()["False/map"]
        state[number] = parts
    given = dict(CLASSES[name])
    first = given.pop("momentum", given.pop("alpha", 0.9))
    second = {"SGD8bit": 0.0, "RMSprop8bit": 0.0, "Lion8bit": 0.99}.get(name, 0.999)
    group = {"lr": 0.01, "betas": (first, second), "eps": 1e-8, "weight_decay": 0.0, **given}
    return {"state": state, "param_groups": [{**group, "params": [0, 1]}]}


def variables() -> list[np.ndarray]:
    return [np.ones(shape, np.float32) for shape in SHAPES]


def _record() -> dict[str, np.ndarray]:
    import bitsandbytes
    import torch
    from bitsandbytes import functional

    made: dict[str, Any] = {}
    for signed in (True, False):
        table = functional.create_dynamic_map(signed=signed)
        x = values() if signed else values() ** 2
        # on their own, since quantize_blockwise would also quantize absmax
        codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(torch.from_numpy(x), table, 256)
        made |= {f"{signed}/map": table, f"{signed}/codes": codes, f"{signed}/absmax": absmax}
    for name, arguments in CLASSES.items():
        weights = [torch.ones(shape, requires_grad=True) for shape in SHAPES]
        opt = getattr(bitsandbytes.optim, name)(weights, **arguments)
        for step in range(STEPS + 1):
            if step == STEPS:
                state = opt.state_dict()
                for number, part in state["state"].items():
                    part = {**part, **part.get("__bnb_optimizer_quant_state__", {})}
                    for key, value in part.items():
                        if not key.startswith(("qmap", "__")):
                            made[f"{name}/{number}/{key}"] = torch.as_tensor(value).clone()
                made[f"{name}/before"] = weights[0].detach()[:4].clone()
            for weight, g in zip(weights, gradients(step), strict=True):
                weight.grad = torch.from_numpy(g)
            opt.step()
        made[f"{name}/after"] = weights[0].detach()[:4].clone()
    return {key: np.asarray(value.detach()) for key, value in made.items()}


if __name__ == "__main__":
    np.savez_compressed(FILE, **_record())
