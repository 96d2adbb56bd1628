"""Schedules composed of other schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.schedules.schedule import Described, Number, increasing
from tfopt.optimizers.schedules.serialization import deserialize, serialize
from tfopt.optimizers.settings import Setting, elements, finite, not_negative, refuse_class

__all__ = ["Join", "LinearWarmup"]

Part = Callable[[Any], Any] | float


def _checked(name: str, part: Any) -> Part:
    refuse_class(name, part)
    return part if callable(part) else not_negative(name, part)


class _Composed(Described, abstract=True):
    """A schedule that consists of others, which are serialized in its configuration."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one, the schedules serialized."""
        return {name: _serialized(value) for name, value in super().get_config().items()}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return a schedule with the arguments that `get_config` returned."""
        names = config.keys() & {"schedule", "schedules"}
        parts = {name: _deserialized(config[name], custom_objects) for name in names}
        return cls(**config | parts)


class LinearWarmup(_Composed):
    """Linear warm-up to the initial rate of a schedule, then the schedule.

    At step ``s < warmup_steps`` the rate is ``initial_learning_rate + (schedule(0) -
    initial_learning_rate) * s / warmup_steps``, from then on ``schedule(s - warmup_steps)``: the
    schedule starts at its step 0 when the warm-up is over.

    Parameters
    ----------
    schedule : callable or float
        Any callable of a step, or a constant learning rate.
    warmup_steps : float
        Greater than 0.
    initial_learning_rate : float, default 0.0
    name : str, optional
        Ignored.

    Notes
    -----
    Not in TensorFlow's OptimizerV2. With a `CosineDecay` it is equivalent to Keras 3's
    ``CosineDecay`` with ``warmup_target`` and ``warmup_steps``, and to optax's
    ``warmup_cosine_decay_schedule``, whose ``decay_steps`` include the warm-up.

    References
    ----------
    Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import CosineDecay, LinearWarmup
    >>> schedule = LinearWarmup(CosineDecay(0.5, decay_steps=10), warmup_steps=4)
    >>> [schedule(s) for s in range(5)]
    [0.0, 0.125, 0.25, 0.375, 0.5]
    >>> schedule(9), schedule(14)
    (0.25, 0.0)
    >>> LinearWarmup(0.5, warmup_steps=2)(1)
    0.25
    """

    schedule = Setting(_checked)
    warmup_steps = Number(above=True)
    initial_learning_rate = Number()

    def __init__(
        self,
        schedule: Part,
        warmup_steps: float,
        initial_learning_rate: float = 0.0,
        name: str | None = None,
    ) -> None:
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.initial_learning_rate = initial_learning_rate
        self.name = name

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step; the first step is number 0."""
        s = finite("step", step)
        if s >= self.warmup_steps:
            return _rate(self.schedule, s - self.warmup_steps)
        first = self.initial_learning_rate
        return (_rate(self.schedule, 0) - first) * (s / self.warmup_steps) + first


class Join(_Composed):
    """A sequence of schedules.

    The first is used for steps before ``boundaries[0]``, the second from there until before
    ``boundaries[1]``, and so on. Each schedule counts steps from its own start: at step s the
    second one is called with ``s - boundaries[0]``.

    Parameters
    ----------
    schedules : list of callable or float
        Callables of a step, or constant learning rates.
    boundaries : list of float
        One less than schedules, each greater than the one before.
    name : str, optional
        Ignored.

    Raises
    ------
    InvalidArgumentError
        If the number of boundaries is wrong, or they do not increase.

    Notes
    -----
    Not in TensorFlow. Steps are counted as in optax's ``join_schedules``. In contrast, a boundary
    of `PiecewiseConstantDecay` is the last step of the preceding value.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import Join, PolynomialDecay
    >>> line = PolynomialDecay(0.5, decay_steps=4, end_learning_rate=0.25)
    >>> schedule = Join([0.5, line, lambda step: 0.25 / (1 + step)], boundaries=[2, 6])
    >>> [schedule(s) for s in range(9)]
    [0.5, 0.5, 0.5, 0.4375, 0.375, 0.3125, 0.25, 0.125, 0.08333333333333333]
    """

    schedules = Setting[Any](once=True)
    boundaries = Setting[Any](once=True)

    def __init__(
        self, schedules: Iterable[Part], boundaries: Iterable[float], name: str | None = None
    ) -> None:
        self.schedules = [
            _checked("each schedule", part)
            for part in elements("schedules", schedules, "schedules")
        ]
        self.boundaries = increasing(boundaries)
        if len(self.boundaries) != len(self.schedules) - 1:
            raise InvalidArgumentError(
                "The length of boundaries should be 1 less than the length of schedules"
            )
        self.name = name

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step; the first step is number 0."""
        s = finite("step", step)
        k = bisect_right(self.boundaries, s)
        return _rate(self.schedules[k], s - self.boundaries[k - 1] if k else s)


def _rate(part: Part, step: float) -> float:
    return float(part(step) if callable(part) else part)


def _serialized(value: Any) -> Any:
    if isinstance(value, list):
        return [_serialized(each) for each in value]
    return serialize(value) if callable(value) else value


def _deserialized(value: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_deserialized(each, custom_objects) for each in value]
    return deserialize(value, custom_objects) if isinstance(value, (dict, str)) else value
