"""Steps whose gradients are scaled by the caller, or whose norm is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common.step_cases import Written, every_optimizer, everything, gradients, params

import tfopt
from tfopt import IndexedSlices, InvalidArgumentError, InvalidTypeError
from tfopt.optimizers import (
    SGD,
    Adam,
    GradientAccumulation,
    LossScaleOptimizer,
    Mirror,
    ParameterGroups,
    PreparedStep,
    StepRequest,
    Wrapper,
)

CLIPPED = every_optimizer(global_clipnorm=0.25)


def norm_of(grads: dict[str, Any]) -> float:
    return float(tfopt.global_norm(list(grads.values()), dtype=np.float64))


@pytest.mark.parametrize(
    "which",
    [
        name
        for name in CLIPPED
        # a batch has no norm; a group has its own; one of them changes gradients
        if name not in ("GradientAccumulation", "ParameterGroups", "Skipping")
    ],
)
def test_the_norm_that_a_step_would_compute_changes_nothing(which: str) -> None:
    """It is that of the gradients as they are given, whatever they are multiplied by."""
    optimizer, variables = CLIPPED[which](), params()
    other, same = CLIPPED[which](), params()
    for seed in range(4):
        scale, grads = 2.0 ** (seed - 2), gradients(variables, seed)
        optimizer.step(variables, grads, grad_scale=scale, use_norm=norm_of(grads))
        other.step(same, gradients(same, seed), grad_scale=scale)
        assert everything(optimizer, variables) == everything(other, same)


@pytest.mark.parametrize("which", every_optimizer())
def test_a_scale_is_a_step_of_scaled_gradients(which: str) -> None:
    """A power of two multiplies without rounding."""
    optimizer, variables = every_optimizer()[which](), params()
    other, same = every_optimizer()[which](), params()
    for seed in range(3):
        grads = gradients(variables, seed)
        optimizer.step(variables, grads, grad_scale=0.25)
        scaled = {
            name: IndexedSlices(grad.values / 4, grad.indices)
            if isinstance(grad, IndexedSlices)
            else grad / grad.dtype.type(4)
            for name, grad in grads.items()
        }
        other.step(same, scaled)
    assert everything(optimizer, variables) == everything(other, same)


def test_groups_are_clipped_by_one_norm() -> None:
    w = {"a": np.zeros(1), "b": np.zeros(1)}
    groups = ParameterGroups(SGD(1.0, global_clipnorm=1.0), [("b", {})])
    groups.step(w, {"a": np.array([3.0]), "b": np.array([4.0])}, use_norm=5.0)
    np.testing.assert_allclose([w["a"][0], w["b"][0]], [-0.6, -0.8])


class Doubling(Wrapper):
    """Multiplies gradients, as a request does or by itself."""

    def __init__(self, optimizer: Any, how: str = "scale", name: str = "Doubling") -> None:
        super().__init__(optimizer, name)
        self.how = how

    def prepare(self, request: StepRequest) -> PreparedStep:
        if self.how == "scale":
            request = request.replace(scale=2 * request.scale)
        elif self.how == "map":
            request = request.map(lambda grad: 2 * grad)
        else:
            request = request.replace(grads=tuple(2 * grad for grad in request.grads))
        return self.optimizer.prepare(request)


def test_a_wrapper_that_scales_passes_the_norm_on() -> None:
    w, g = np.zeros(2), np.array([3.0, 4.0])
    Doubling(SGD(1.0, global_clipnorm=20.0)).step(w, g, use_norm=20.0)
    assert w.tolist() == [-3, -4]


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    **{
        f"a scale of {scale}": (lambda: SGD(1.0), {"grad_scale": scale}, "grad_scale must be")
        for scale in (0, -1.0, math.inf, math.nan, 1e-320, 1e308)
    },
    "an array as scale": (
        lambda: SGD(1.0), {"grad_scale": np.ones(2)}, "grad_scale must be a scalar",
    ),
    "a text as scale": (lambda: SGD(1.0), {"grad_scale": "2"}, "grad_scale must be a real number"),
    "a negative norm": (
        lambda: SGD(1.0, global_clipnorm=1.0), {"use_norm": -1.0}, "use_norm must not be negative",
    ),
    "two norms": (
        lambda: SGD(1.0, global_clipnorm=1.0), {"use_norm": [1.0, 2.0]}, "must be a scalar",
    ),
    "a norm and no limit": (
        lambda: SGD(1.0), {"use_norm": 1.0}, "SGD does not clip the gradients",
    ),
    "a norm and another limit": (
        lambda: Mirror(SGD(1.0, clipnorm=1.0)), {"use_norm": 1.0}, "set global_clipnorm",
    ),
    "the norm of a batch": (
        lambda: GradientAccumulation(SGD(1.0, global_clipnorm=1.0), 2), {"use_norm": 1.0},
        "GradientAccumulation does not clip the gradients that it is given",
    ),
    "a norm of gradients that are mapped": (
        lambda: Doubling(SGD(1.0, global_clipnorm=1.0), "map"), {"use_norm": 1.0},
        "a wrapper changes them",
    ),
    "a norm of gradients that are replaced": (
        lambda: Doubling(SGD(1.0, global_clipnorm=1.0), "replace"), {"use_norm": 1.0},
        "a wrapper changes them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("called", ["step", "apply_gradients"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_means_nothing_is_refused(case: str, called: str) -> None:
    make, asked, message = REFUSED[case]
    for first in (True, False):
        optimizer, w = make(), np.ones(2, np.float32)
        grad = np.full(2, 0.5, np.float32)
        if not first:
            optimizer.step(w, grad)
        before = everything(optimizer, w)
        with pytest.raises((InvalidArgumentError, InvalidTypeError), match=message):
            if called == "step":
                optimizer.step(w, grad, **asked)
            else:
                optimizer.apply_gradients([(grad, w)], **asked)
        assert everything(optimizer, w) == before


@pytest.mark.parametrize("cls", [SGD, Adam, Written])
@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_loss_scale_falls_with_a_norm_that_is_not_finite(cls: Any, norm: float) -> None:
    """Another shard has had the infinite gradient; or these have, and the norm is wrong."""
    w, good = np.ones(3), np.ones(3)
    optimizer = LossScaleOptimizer(cls(0.5, global_clipnorm=1.0), 4.0)
    optimizer.step(w, good, use_norm=norm)
    optimizer.step(w, np.array([1.0, norm, 1.0]), use_norm=1.0)
    assert w.tolist() == [1, 1, 1]
    assert float(optimizer.dynamic_scale) == 1 and int(optimizer.iterations) == 0


def test_a_traced_step_takes_numbers_of_the_trace() -> None:
    def train(optimizer: Any, variable: Any, grads: list[Any]) -> None:
        @tfopt.function
        def step(grad: Any) -> None:
            norm = tfopt.global_norm([grad]) * 2
            scale = 1 / np.sum(grad * grad)
            optimizer.apply_gradients([(grad, variable)], grad_scale=scale, use_norm=norm)

        for grad in grads:
            step(tfopt.constant(grad))

    grads = [np.array([3.0, 4.0]), np.array([0.5, 1.0])]
    traced = tfopt.Variable(np.zeros(2))
    train(SGD(1.0, global_clipnorm=0.125), traced, grads)
    plain, optimizer = np.zeros(2), SGD(1.0, global_clipnorm=0.125)
    for grad in grads:
        norm = tfopt.global_norm([grad]) * 2
        optimizer.step(plain, grad, grad_scale=1 / np.sum(grad * grad), use_norm=norm)
    assert traced.numpy().tolist() == plain.tolist() != [0, 0]
