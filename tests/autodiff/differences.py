"""Gradients of either package against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

import tfopt
import tfopt_ref

__all__ = ["check_grads"]


def check_grads(
    package: ModuleType, f: Callable[..., Any], args: Sequence[Any], order: int = 2,
    **options: Any,
) -> None:  # fmt: skip
    """Compare first and second gradients, along random directions, with differences."""
    if package is tfopt:
        tfopt.autodiff.check_grads(f, args, order=order, **options)
    else:
        _check_random_sum(
            f, [np.array(a, np.float64) for a in args], order, np.random.default_rng(0), **options
        )


def _check_random_sum(
    f: Callable[..., Any], args: list[np.ndarray], order: int, random: np.random.Generator,
    atol: float = 1e-6, rtol: float = 1e-6, step: float = 1e-5,
) -> None:  # fmt: skip
    """Compare the derivative of a random sum of results with a difference; then that of those."""
    weights: list[np.ndarray] = []

    def total(*inputs: Any) -> Any:
        result = f(*inputs)
        leaves = [leaf for leaf in _listed(result) if leaf is not None]
        if not weights:
            weights.extend(random.standard_normal(np.shape(leaf)) for leaf in leaves)
        return sum(np.sum(leaf * w) for leaf, w in zip(leaves, weights, strict=True))

    def gradients(*inputs: Any) -> list[Any]:
        with tfopt_ref.GradientTape() as tape:
            tape.watch(list(inputs))
            y = total(*inputs)
        grads = tape.gradient(y, list(inputs), None, "zero")
        return [tfopt_ref.autodiff.indexed_slices.densified(g) for g in grads]

    def moved(h: float) -> list[Any]:
        return [tfopt_ref.constant(a + h * d) for a, d in zip(args, directions, strict=True)]

    directions = [random.standard_normal(a.shape) for a in args]
    above, below = (float(total(*moved(h))) for h in (step, -step))
    grads = gradients(*map(tfopt_ref.constant, args))
    exact = sum(np.sum(np.asarray(g) * d) for g, d in zip(grads, directions, strict=True))
    np.testing.assert_allclose(exact, (above - below) / (2 * step), rtol, atol)
    if order > 1:
        _check_random_sum(gradients, args, order - 1, random, atol, rtol, step)


def _listed(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in _listed(part)]
    return [result]
