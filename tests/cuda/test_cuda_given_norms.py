"""Steps of variables on a GPU that are scaled, and what is refused there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE

from tfopt import InvalidArgumentError, InvalidTypeError, Variable
from tfopt.optimizers import LAMB, SGD, Adam, GradientAccumulation, LossScaleOptimizer, Mirror

pytestmark = pytest.mark.usefixtures("gradual_underflow")

MAKERS: dict[str, Any] = {
    "Adam": lambda: Adam(0.1),
    "global_clipnorm": lambda: Adam(0.1, global_clipnorm=0.3),
    "both limits": lambda: SGD(0.1, clipvalue=0.2, global_clipnorm=0.3),
    "LAMB": lambda: LAMB(0.1),
    "a batch": lambda: GradientAccumulation(Adam(0.1), 2),
    "a loss scale": lambda: LossScaleOptimizer(Mirror(Adam(0.1)), 4.0),
}


@pytest.mark.parametrize("which", MAKERS)
def test_scaled_steps_have_the_bits_of_the_host(which: str) -> None:
    random = np.random.default_rng(3)
    host, first = MAKERS[which](), random.standard_normal((40, 7)).astype(np.float32)
    there, w = MAKERS[which](), first.copy()
    far = Variable(DEVICE.to(first))
    for scale in (0.75, None, 3.0, 2.0**-20):
        grad = random.standard_normal(w.shape).astype(np.float32)
        host.step(w, grad, grad_scale=scale)
        there.step(far, DEVICE.to(grad), grad_scale=scale)
        assert_same_bits(np.asarray(DEVICE.back(far.value())), w, f"{which}, {scale}")


@pytest.mark.parametrize("first", [True, False])
def test_a_norm_is_not_given_on_a_gpu(first: bool) -> None:
    optimizer, far = SGD(1.0, global_clipnorm=1.0), Variable(DEVICE.to(np.zeros(3, np.float32)))
    grad = DEVICE.to(np.ones(3, np.float32))
    if not first:
        optimizer.step(far, grad)
    before = np.array(DEVICE.back(far.value()))
    with pytest.raises(InvalidArgumentError, match="use_norm is for variables in host memory"):
        optimizer.step(far, grad, use_norm=2.0)
    assert_same_bits(np.asarray(DEVICE.back(far.value())), before, "refused")
    assert int(optimizer.iterations) == (not first)


def test_gradients_do_not_arrive_at_a_gpu() -> None:
    far = Variable(DEVICE.to(np.zeros(3, np.float32)), "far")
    with pytest.raises(InvalidTypeError, match="far is on a GPU, which an arriving step"):
        SGD(1.0).arriving([np.zeros(2), far])
