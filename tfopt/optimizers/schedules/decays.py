"""Exponential, inverse time, piecewise constant and polynomial decay."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.schedules.schedule import Formula, Number, increasing, power
from tfopt.optimizers.settings import Setting, elements, flag, not_negative

__all__ = ["ExponentialDecay", "InverseTimeDecay", "PiecewiseConstantDecay", "PolynomialDecay"]


class ExponentialDecay(Formula):
    """Exponential decay: multiply the rate by `decay_rate` every `decay_steps` steps.

    The rate at step s is ``initial_learning_rate * decay_rate ** (s / decay_steps)``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    decay_rate : float
    staircase : bool, default False
        Round ``s / decay_steps`` down, so that the rate falls in steps.
    name : str, optional
        Ignored.

    Notes
    -----
    The TensorFlow class of the same name.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import ExponentialDecay
    >>> schedule = ExponentialDecay(0.1, 10, 0.5, staircase=True)
    >>> schedule(9), schedule(10)
    (0.1, 0.05)
    """

    initial_learning_rate = Number()
    decay_steps = Number(above=True)
    decay_rate = Number()
    staircase = Setting(flag)

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str | None = None,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def _rate(self, s: float) -> float:
        q = s / self.decay_steps
        if self.staircase:
            q = math.floor(q)
        return self.initial_learning_rate * power(self.decay_rate, q)


class InverseTimeDecay(Formula):
    """Inverse time decay: divide by a number that grows by `decay_rate` every `decay_steps` steps.

    The rate at step s is ``initial_learning_rate / (1 + decay_rate * s / decay_steps)``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    decay_rate : float
    staircase : bool, default False
        Round ``s / decay_steps`` down, so that the rate falls in steps.
    name : str, optional
        Ignored.

    Notes
    -----
    The TensorFlow class of the same name.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import InverseTimeDecay
    >>> schedule = InverseTimeDecay(0.1, 10, 1.0)
    >>> schedule(0), schedule(10), schedule(40)
    (0.1, 0.05, 0.02)
    """

    initial_learning_rate = Number()
    decay_steps = Number(above=True)
    decay_rate = Number()
    staircase = Setting(flag)

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str | None = None,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def _rate(self, s: float) -> float:
        q = s / self.decay_steps
        if self.staircase:
            q = math.floor(q)
        return self.initial_learning_rate / (1 + self.decay_rate * q)


class PiecewiseConstantDecay(Formula):
    """Piecewise constant decay: a constant rate between successive boundaries.

    The rate at step s is ``values[0]`` if ``s <= boundaries[0]``, ``values[1]`` if
    ``boundaries[0] < s <= boundaries[1]``, and ``values[-1]`` after the last boundary.

    Parameters
    ----------
    boundaries : list of float
        Each greater than the one before.
    values : list of float
        One more than boundaries.
    name : str, optional
        Ignored.

    Raises
    ------
    InvalidArgumentError
        If the number of values is wrong, or the boundaries do not increase.

    Notes
    -----
    The TensorFlow class of the same name. In contrast, a boundary of `Join` is the first step of
    the following schedule.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import PiecewiseConstantDecay
    >>> schedule = PiecewiseConstantDecay([100, 110], [1.0, 0.5, 0.1])
    >>> schedule(100), schedule(101), schedule(1000)
    (1.0, 0.5, 0.1)
    """

    boundaries = Setting[list[float]](once=True)
    values = Setting[list[float]](once=True)

    def __init__(
        self, boundaries: Iterable[float], values: Iterable[float], name: str | None = None
    ) -> None:
        self.boundaries = increasing(boundaries)
        self.values = [
            not_negative("each value", each) for each in elements("values", values, "numbers")
        ]
        if len(self.boundaries) != len(self.values) - 1:
            raise InvalidArgumentError(
                "The length of boundaries should be 1 less than the length of values"
            )
        self.name = name

    def _rate(self, s: float) -> float:
        value: float = self.values[bisect_left(self.boundaries, s)]
        return value


class PolynomialDecay(Formula):
    """Polynomial decay from one learning rate to another in `decay_steps` steps.

    The rate at step s is ``(initial_learning_rate - end_learning_rate) * (1 - p) ** power +
    end_learning_rate``, where ``p = min(s, decay_steps) / decay_steps``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    end_learning_rate : float, default 0.0001
    power : float, default 1.0
        With 0 the rate stays at `initial_learning_rate`.
    cycle : bool, default False
        Restart instead of staying at the end: ``p = s / d``, where d is s rounded up to a multiple
        of `decay_steps`, so that each cycle starts lower than the previous one.
    name : str, optional
        Ignored.

    Notes
    -----
    The TensorFlow class of the same name.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import PolynomialDecay
    >>> schedule = PolynomialDecay(0.5, 4, end_learning_rate=0.25)
    >>> [schedule(s) for s in range(6)]
    [0.5, 0.4375, 0.375, 0.3125, 0.25, 0.25]
    >>> schedule.cycle = True
    >>> [schedule(s) for s in range(6)]
    [0.5, 0.4375, 0.375, 0.3125, 0.25, 0.34375]
    """

    initial_learning_rate = Number()
    decay_steps = Number(above=True)
    end_learning_rate = Number()
    power = Number()
    cycle = Setting(flag)

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str | None = None,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self.name = name

    def _rate(self, s: float) -> float:
        if self.cycle:
            d = self.decay_steps * max(1, math.ceil(s / self.decay_steps))
            p = s / d
        else:
            p = min(s, self.decay_steps) / self.decay_steps
        left = max(1 - p, 0)  # can be negative because d is rounded
        end = self.end_learning_rate
        return (self.initial_learning_rate - end) * power(left, self.power) + end
