"""Steps of an optimizer whose arrays are so small that calls and checks take the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import Step, public


def _arrays() -> dict[str, np.ndarray]:
    return {"w": np.ones(64, np.float32), "b": np.ones(64, np.float32)}


def _applied(tensors: int, size: int) -> Step:
    variable = public("variable.Variable")
    pairs: list[Any] = [
        (np.ones(size, np.float32), variable(np.ones(size, np.float32))) for _ in range(tensors)
    ]
    opt = public("optimizers.Adam")()
    return lambda: opt.apply_gradients(pairs)


def _stepped(tree: Any, grads: Any) -> Step:
    opt = public("optimizers.Adam")()
    return lambda: opt.step(tree, grads)


#: What is stepped by Adam in float32, not for the first time.
STEPS = {
    "apply_gradients, one array of 16": lambda: _applied(1, 16),
    "step, one array of 16": lambda: _stepped(np.ones(16, np.float32), np.ones(16, np.float32)),
    "apply_gradients, 1000 variables of 64": lambda: _applied(1000, 64),
    "step, 500 dicts of two arrays of 64": lambda: _stepped(
        [_arrays() for _ in range(500)], [_arrays() for _ in range(500)]
    ),
}


class SmallSteps:
    params = list(STEPS)
    param_names = ("step",)
    rounds = 1
    repeat = (3, 50, 0.5)

    def setup(self, step: str) -> None:
        self.step = STEPS[step]()
        for _ in range(3):
            self.step()

    def time_step(self, step: str) -> None:
        self.step()
