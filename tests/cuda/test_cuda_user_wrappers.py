"""A user's wrapper, whose updates and assignments are of variables on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE
from test_cuda_averages import compared, variables
from test_cuda_bound_steps import there
from test_cuda_optimizers import each_dtype

import tfopt
from tfopt.optimizers import SGD, Adam, GradientAccumulation, Wrapper

pytestmark = pytest.mark.usefixtures("gradual_underflow")


class Lookahead(Wrapper):
    """That of the docs, but for what its slots begin with."""

    def __init__(
        self, optimizer: Any, period: int = 2, alpha: float = 0.5, name: str = "Lookahead"
    ):
        super().__init__(optimizer, name)
        self.period, self.alpha = period, alpha

    def prepare(self, request: Any) -> Any:
        slots = [(self.add_slot(v, "slow"), v) for v in request.handles]
        step = self.optimizer.prepare(request)
        if step.counts and (int(self.iterations) + 1) % self.period == 0:
            for slow, fast in slots:
                step.update("moving_average", slow, fast, momentum=1 - self.alpha)
                step.assign(fast, slow)
        return step


@each_dtype
@pytest.mark.parametrize("inner", [lambda: Adam(0.1), lambda: GradientAccumulation(SGD(0.5), 2)])
def test_lookahead(inner: Any, dtype: str) -> None:
    compared(Lookahead(inner()), Lookahead(inner()), *variables(dtype), 6)


class Assigning(Wrapper):
    """Assigns a value after each step."""

    def __init__(self, optimizer: Any, value: Any = None, name: str = "Assigning"):
        super().__init__(optimizer, name)
        self.value = value

    def prepare(self, request: Any) -> Any:
        step = self.optimizer.prepare(request)
        step.assign(request.handles[0], self.value)
        return step


def test_what_cannot_be_assigned() -> None:
    var = there(np.ones(3, np.float32))
    for value in (1.5, np.zeros(3, np.float32), there(np.zeros(4, np.float32))):
        opt = Assigning(SGD(0.5), value)
        with pytest.raises(tfopt.InvalidArgumentError, match=r"on (a|the) GPU|cannot be updated"):
            opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        assert_same_bits(DEVICE.back(var), np.ones(3, np.float32), str(value))
        assert int(opt.iterations) == 0
    opt = Assigning(SGD(0.5), there(np.full(3, 7, np.float32)))
    opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
    assert_same_bits(DEVICE.back(var), np.full(3, 7, np.float32), "assigned")
