"""A program for type checkers: what they must report, and what they must find to be right.

A line with ``# wrong`` has a fault that every checker reports; no other line has one.
`test_types.py` reads this file, and nothing runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import tfopt
from tfopt import Tensor, Variable
from tfopt.linear_model import (
    FTRLClassifier,
    LinearClassifierCV,
    LinearRegressor,
    SDCAClassifier,
    sdca_path,
)
from tfopt.optimizers import (
    SGD,
    Adam,
    AdamW,
    GradientAccumulation,
    Mirror,
    Nadam,
    Optimizer,
    WeightAverage,
)
from tfopt.optimizers.schedules import CosineDecay, LearningRateSchedule

# ---- options

Adam(learning_rat=0.1)  # wrong
Adam("0.1")  # wrong
Adam(sparse="lasy")  # wrong
Adam(merge="later")  # wrong
Adam(storage="8 bit")  # wrong
Adam(clipnorm="1")  # wrong
AdamW(0.1, weight_deacy=0.1)  # wrong
Nadam(0.1, use_loking=True)  # wrong
GradientAccumulation(SGD(0.1), 4, "maen")  # wrong
GradientAccumulation(SGD(0.1), setps=4)  # wrong
Mirror(SGD(0.1), "float64")  # wrong
SDCAClassifier("logit")  # wrong
SDCAClassifier("squared")  # wrong
SDCAClassifier(solver="newton")  # wrong
LinearRegressor("logistic")  # wrong
LinearClassifierCV("logit")  # wrong
FTRLClassifier("multinomial")  # wrong
sdca_path(np.ones((2, 2)), np.ones(2), "logit")  # wrong
tfopt.clip_by_norm(np.ones(2), 1.0, nonfinite="ignore")  # wrong
tfopt.training_ops.apply_gradient_descent(
    np.ones(2),
    np.ones(2),
    alpha=0.1,
    duplicates="add",  # wrong
)

rate = Variable(np.array(0.1))
for given in (0.1, np.float32(0.1), CosineDecay(0.1, 10), rate, lambda: 0.1, lambda step: 1 / step):
    Adam(given)
SDCAClassifier("hinge", solver="interior-point")
Mirror(AdamW(1e-3, 0.1, merge="before", storage={"m": "8bit"}, sparse="lazy", lr=None))
WeightAverage(Nadam(CosineDecay(0.1, 10), weight_decay=0.1, global_clipnorm=1.0))

# ---- attributes

opt = Adam(0.1, clipnorm=1.0)
opt.clip_norm = 1  # wrong
opt.clipnorm = "1"  # wrong
opt.learning_rate = "0.1"  # wrong
opt = Adam(0.1)
opt.clipnorm = None
opt.learning_rate = CosineDecay(0.1, 10)
opt = Adam(0.1)  # the checkers know what was assigned
assert_type(opt.clipnorm, float | None)
assert_type(opt.amsgrad, bool)
assert_type(opt.beta_1, float)


class Harmonic(LearningRateSchedule):
    """A schedule of a user."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, step: Any) -> float:
        return self.rate / (1 + float(step))


class Own(Optimizer):
    """An optimizer of a user."""

    def __init__(self, learning_rate: float = 0.1, **kwargs: Any) -> None:
        super().__init__("Own", learning_rate, **kwargs)
        self.mine = 3


Own().mine = 4
Own().mien = 4  # wrong
Harmonic(0.1).rat = 1.0  # wrong
Adam(Harmonic(0.1)).step([np.ones(2)], [np.ones(2)])
Adam.step(opt)  # wrong

# ---- tapes and tensors

w = Variable(np.ones(3))
with tfopt.GradientTape() as tape:
    assert_type(tape, tfopt.GradientTape)
    loss = w @ w + 1.0
assert_type(loss, Tensor)
assert_type(2.0 * loss - w[0] ** 2, Tensor)
assert_type(w == 1.0, Tensor)
assert_type(w.T, Tensor)
assert_type(tape.gradient(loss, w), Tensor | Any)
assert_type(tape.gradient(loss, [w, w]), list[Tensor | Any])
assert_type(tape.gradient(loss, (w, w)), tuple[Tensor | Any, ...])
assert_type(tape.gradient(loss, {"w": w}, unconnected_gradients="zero"), dict[str, Tensor | Any])
assert_type(tape.batch_jacobian(loss, w), Tensor)
tape.gradient(loss, w, unconnected_gradients="zeros")  # wrong

# ---- decorators

Pair = tuple[Tensor, Callable[[Tensor], Tensor]]


@tfopt.function
def traced(x: Tensor, n: int = 2) -> Tensor:
    """Return a multiple."""
    return x * n


@tfopt.function(reduce_retracing=True)
def traced_too(x: Tensor) -> Tensor:
    """Return the same."""
    return x


@tfopt.custom_gradient
def custom(x: Tensor) -> Pair:
    """Return the same, with a gradient."""
    return x, lambda upstream: upstream


@tfopt.recompute_grad
def cheap(x: Tensor) -> Tensor:
    """Return the same."""
    return x


class Model:
    """Methods are decorated, too."""

    @tfopt.function
    def traced(self, x: Tensor) -> Tensor:
        """Return the same."""
        return x

    @tfopt.custom_gradient
    def custom(self, x: Tensor) -> Pair:
        """Return the same, with a gradient."""
        return x, lambda upstream: upstream


assert_type(traced(loss), Tensor)
assert_type(traced.trace_count, int)
assert_type(traced_too(loss), Tensor)
assert_type(custom(loss), Tensor)
assert_type(cheap(loss), Tensor)
assert_type(Model().traced(loss), Tensor)
assert_type(Model().custom(loss), Tensor)
traced(loss, "2")  # wrong
traced()  # wrong
custom(loss, loss)  # wrong
cheap("x")  # wrong
Model().traced("x")  # wrong
