"""Learning rate schedules.

A schedule is a callable: ``schedule(step)`` returns the learning rate of a step, counted from 0.
Everything is computed in float64. A step is a Python or NumPy number, a zero-dimensional array, or
a `Variable` such as an optimizer's `iterations`.

>>> from tfopt.optimizers import SGD, schedules
>>> schedule = schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
>>> schedule(0), schedule(10), schedule(20)
(0.1, 0.05, 0.025)
>>> schedule(SGD().iterations)
0.1

Numeric arguments must be finite and at least 0, and numbers of steps greater than 0. Other values
raise `InvalidArgumentError`, also when an attribute is set later, and so does a step at which the
formula has no finite value.
"""

from typing import NoReturn

from tfopt.names import no_attribute
from tfopt.optimizers.schedules.cosines import (
    CosineDecay,
    CosineDecayRestarts,
    LinearCosineDecay,
    NoisyLinearCosineDecay,
)
from tfopt.optimizers.schedules.decays import (
    ExponentialDecay,
    InverseTimeDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
)
from tfopt.optimizers.schedules.joined import Join, LinearWarmup
from tfopt.optimizers.schedules.schedule import LearningRateSchedule
from tfopt.optimizers.schedules.serialization import deserialize, serialize

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "Join",
    "LearningRateSchedule",
    "LinearCosineDecay",
    "LinearWarmup",
    "NoisyLinearCosineDecay",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "deserialize",
    "serialize",
]


def __getattr__(name: str) -> NoReturn:
    raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
