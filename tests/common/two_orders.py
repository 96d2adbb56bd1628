"""Gradients of the first and the second order, of a tensor and a variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tfopt

__all__ = ["gradients_of_two_orders"]


def gradients_of_two_orders(f: Callable[[Any], Any], at: np.ndarray) -> list[np.ndarray]:
    """Return those of a sum of cubes of f(x * v): of x and v, then of these gradients' sum."""
    x, v = tfopt.constant(at), tfopt.Variable(at.copy())
    with tfopt.GradientTape() as outer:
        outer.watch(x)
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(f(x * v) ** 3)
        first = [np.add(g, 0.0) for g in tape.gradient(y, [x, v])]
    second = outer.gradient(first, [x, v])
    return [g.numpy() for g in (*first, *second)]
