"""Clipped steps that are taken again, against steps that are all prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bound_anew import sides

from tfopt.optimizers import Adam, LossScaleOptimizer, WeightAverage

AROUND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda inner: inner,
    "scaled": lambda inner: LossScaleOptimizer(inner, 4.0, 5),
    "averaged": lambda inner: WeightAverage(inner, 0.5),
}
TINY = [{"clipnorm": 1e-30}, {"global_clipnorm": 1e-300}]  # factors are not normal numbers
LIMITS = [
    {"clipnorm": 1.0},
    {"global_clipnorm": 1.0},
    {"clipvalue": 0.5},
    {"clipvalue": 0.5, "clipnorm": 1.0},
    *TINY,
]


@pytest.mark.parametrize("arrays", [1, 3])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("limits", LIMITS)
def test_steps_clip_again(limits: dict[str, Any], dtype: str, around: str, arrays: int) -> None:
    """Within the limits and beyond, by factors of all sizes, and by none that is finite."""
    random = np.random.default_rng(0)
    ours, fresh = sides(lambda: AROUND[around](Adam(0.1, **limits)))
    of, others = ([np.ones(5, dtype) for _ in range(arrays)] for _ in range(2))
    top = float(np.finfo(dtype).max)
    for size in (0.01, 1, 30, 0, 0.01, top / 8, top / 8, 1, np.inf, 1, np.nan, 0.5):
        with np.errstate(invalid="ignore"):
            grads = [(size * random.uniform(-1, 1, 5)).astype(dtype) for _ in of]
        ours.apply_gradients(list(zip(grads, of, strict=True)))
        fresh.apply_gradients(list(zip(grads, others, strict=True)))
        for a, b in zip((*of, *ours.get_weights()), (*others, *fresh.get_weights()), strict=True):
            np.testing.assert_array_equal(a, b, str(size))


@pytest.mark.parametrize("limits", [each for each in LIMITS if each not in TINY])
def test_limits_can_be_changed_between_steps(limits: dict[str, Any]) -> None:
    opt, other = sides(lambda: Adam(0.1, **limits))
    w, v, grad = np.ones(4, np.float32), np.ones(4, np.float32), np.full(4, 3, np.float32)
    norm = "global_clipnorm" if "global_clipnorm" in limits else "clipnorm"
    for change in ({}, {}, {"clipvalue": 0.25}, {}, {"clipvalue": None}, {}, {norm: 2.0}, {}):
        for each, array in ((opt, w), (other, v)):
            for name, value in change.items():
                setattr(each, name, value)
            each.apply_gradients([(grad, array)])
        np.testing.assert_array_equal(w, v)
