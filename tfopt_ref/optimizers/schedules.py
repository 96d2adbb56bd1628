"""Learning rates that change with the step: formulas in float64.

In all of them s is the step, the first of which is 0, and d a number of steps. An argument that is
a float must be at least 0, one that is a Length greater.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

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

Length = float


class LearningRateSchedule:
    """Base class: a callable that returns the learning rate of a step."""

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step."""
        raise NotImplementedError("Learning rate schedule must override __call__")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        raise NotImplementedError("Learning rate schedule must override get_config")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateSchedule:
        """Return a schedule with the arguments that `get_config` returned."""
        return cls(**config)


@dataclass(eq=False)
class Checked(LearningRateSchedule):
    """A schedule whose fields are checked whenever they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        annotations = {field.name: field.type for field in fields(self)}
        check = CHECKS.get(annotations.get(name), as_it_is)
        super().__setattr__(name, check(name, value))


class Formula(Checked):
    """A schedule that is an expression in the step."""

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step."""
        s = np.float64(finite("step", step))
        with np.errstate(all="ignore"):
            rate = float(self.rate(s))
        if not math.isfinite(rate):
            raise InvalidArgumentError(f"{self} has no finite learning rate at step {s}")
        return rate

    def rate(self, s: Any) -> Any:
        """Return the learning rate of step s."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(eq=False)
class ExponentialDecay(Formula):
    """Multiplied by decay_rate every decay_steps steps."""

    initial_learning_rate: float
    decay_steps: Length
    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def rate(self, s: Any) -> Any:
        """Return lr * r^(s/d)."""
        q = s / self.decay_steps
        q = np.floor(q) if self.staircase else q
        return self.initial_learning_rate * self.decay_rate**q


@dataclass(eq=False)
class InverseTimeDecay(Formula):
    """Divided by a number that grows by decay_rate every decay_steps steps."""

    initial_learning_rate: float
    decay_steps: Length
    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def rate(self, s: Any) -> Any:
        """Return lr / (1 + r s/d)."""
        q = s / self.decay_steps
        q = np.floor(q) if self.staircase else q
        return self.initial_learning_rate / (1 + self.decay_rate * q)


@dataclass(eq=False)
class PiecewiseConstantDecay(Formula):
    """One value up to the first boundary, the next up to the second, and so on."""

    boundaries: list[float]
    values: list[float]
    name: str | None = None

    def __post_init__(self) -> None:
        self.boundaries = increasing(self.boundaries)
        self.values = [at_least_0("each value", value) for value in self.values]
        one_less("boundaries", self.boundaries, "values", self.values)

    def rate(self, s: Any) -> Any:
        """Return the value of the first boundary that is not below s."""
        for boundary, value in zip(self.boundaries, self.values, strict=False):
            if s <= boundary:
                return value
        return self.values[-1]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        own = {"boundaries": list(self.boundaries), "values": list(self.values)}
        return {**super().get_config(), **own}


@dataclass(eq=False)
class PolynomialDecay(Formula):
    """From one learning rate to another in decay_steps steps, along a line or another power."""

    initial_learning_rate: float
    decay_steps: Length
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str | None = None

    def rate(self, s: Any) -> Any:
        """Return (lr - end) (1 - s/d)^power + end, with d or the multiple of d next to s."""
        d, end = self.decay_steps, self.end_learning_rate
        if self.cycle:
            d = d * np.maximum(1, np.ceil(s / d))
        else:
            s = np.minimum(s, d)
        left = np.maximum(1 - s / d, 0)  # which rounding can make negative
        return (self.initial_learning_rate - end) * left**self.power + end


@dataclass(eq=False)
class CosineDecay(Formula):
    """Half a cosine down to a fraction alpha (Loshchilov, Hutter 2017)."""

    initial_learning_rate: float
    decay_steps: Length
    alpha: float = 0.0
    name: str | None = None
    warmup_target: float | None = None
    warmup_steps: float = 0

    def __post_init__(self) -> None:
        if self.warmup_target is not None:
            self.warmup_target = at_least_0("warmup_target", self.warmup_target)
        elif self.warmup_steps:
            raise InvalidArgumentError("warmup_steps have no effect without a warmup_target")

    def rate(self, s: Any) -> Any:
        """Return lr ((1 - alpha) wave(s/d) + alpha), after a line to lr if there is a target."""
        d, lr, first = self.decay_steps, self.warmup_target, self.initial_learning_rate
        if lr is None:
            lr = first
        elif s < self.warmup_steps:
            return first + (lr - first) * (s / self.warmup_steps)
        else:
            s = s - self.warmup_steps
        c = wave(np.minimum(s, d) / d)
        return lr * ((1 - self.alpha) * c + self.alpha)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        config = super().get_config()
        if self.warmup_target is None:
            del config["warmup_target"], config["warmup_steps"]
        return config


@dataclass(eq=False)
class CosineDecayRestarts(Formula):
    """Half a cosine, again and again (Loshchilov, Hutter 2017)."""

    initial_learning_rate: float
    first_decay_steps: Length
    t_mul: Length = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0
    name: str | None = None

    def rate(self, s: Any) -> Any:
        """Return lr ((1 - alpha) m^i wave(f) + alpha) in period i, of which the part f is over."""
        t, q = self.t_mul, s / self.first_decay_steps

        def before(i: Any) -> Any:
            """Return how long the periods before i are: 1 + t + ... + t^(i - 1) first ones."""
            return i if t == 1 else (1 - t**i) / (1 - t)

        i = np.floor(q) if t == 1 else np.floor(np.log(1 - q * (1 - t)) / np.log(t))
        if q >= before(i + 1):  # the logarithms are rounded
            i = i + 1
        elif q < before(i):
            i = i - 1
        f = (q - before(i)) / t**i
        c = self.m_mul**i * wave(f)
        return self.initial_learning_rate * ((1 - self.alpha) * c + self.alpha)


@dataclass(eq=False)
class LinearCosineDecay(Formula):
    """A line times a cosine (Bello et al. 2017)."""

    initial_learning_rate: float
    decay_steps: Length
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001
    name: str | None = None

    def rate(self, s: Any) -> Any:
        """Return lr ((alpha + (d - s)/d) wave(2 n s/d) + beta)."""
        d = self.decay_steps
        s = np.minimum(s, d)
        c = wave(2 * self.num_periods * (s / d))
        return self.initial_learning_rate * ((self.alpha + (d - s) / d) * c + self.beta)


@dataclass(eq=False)
class NoisyLinearCosineDecay(Formula):
    """LinearCosineDecay with noise that follows from the seed and the step."""

    initial_learning_rate: float
    decay_steps: Length
    initial_variance: float = 1.0
    variance_decay: float = 0.55
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001
    name: str | None = None
    seed: int = field(default=0, kw_only=True)

    def rate(self, s: Any) -> Any:
        """Return lr ((alpha + (d - s)/d + e) wave(2 n s/d) + beta); e has variance v/(1 + s)^r."""
        draw = np.random.default_rng((self.seed, int(abs(s)))).standard_normal()
        d = self.decay_steps
        s = np.minimum(s, d)
        e = np.sqrt(self.initial_variance / (1 + s) ** self.variance_decay) * draw
        c = wave(2 * self.num_periods * (s / d))
        return self.initial_learning_rate * ((self.alpha + ((d - s) / d + e)) * c + self.beta)


@dataclass(eq=False)
class LinearWarmup(Checked):
    """A straight line up to where a schedule starts, then the schedule (Goyal et al. 2017)."""

    schedule: Any
    warmup_steps: Length
    initial_learning_rate: float = 0.0
    name: str | None = None

    def __post_init__(self) -> None:
        self.schedule = part("schedule", self.schedule)

    def __call__(self, step: Any) -> float:
        """Return first + (schedule(0) - first) s/d before step d, then schedule(s - d)."""
        s, d, first = finite("step", step), self.warmup_steps, self.initial_learning_rate
        if s < d:
            return (rate_of(self.schedule, 0) - first) * (s / d) + first
        return rate_of(self.schedule, s - d)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one, the schedule serialized."""
        return {**vars(self), "schedule": serialized(self.schedule)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> LinearWarmup:
        """Return a schedule with the arguments that `get_config` returned."""
        return cls(**{**config, "schedule": deserialized(config["schedule"], custom_objects)})


@dataclass(eq=False)
class Join(LearningRateSchedule):
    """One schedule after another, each counting from its own beginning."""

    schedules: list[Any]
    boundaries: list[float]
    name: str | None = None

    def __post_init__(self) -> None:
        self.schedules = [part("each schedule", schedule) for schedule in self.schedules]
        self.boundaries = increasing(self.boundaries)
        one_less("boundaries", self.boundaries, "schedules", self.schedules)

    def __call__(self, step: Any) -> float:
        """Return the learning rate by the last schedule that has begun."""
        s = elapsed = finite("step", step)
        schedule = self.schedules[0]
        for boundary, following in zip(self.boundaries, self.schedules[1:], strict=True):
            if s >= boundary:
                schedule, elapsed = following, s - boundary
        return rate_of(schedule, elapsed)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one, the schedules serialized."""
        schedules = [serialized(schedule) for schedule in self.schedules]
        return {"schedules": schedules, "boundaries": list(self.boundaries), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Join:
        """Return a schedule with the arguments that `get_config` returned."""
        schedules = [deserialized(part, custom_objects) for part in config["schedules"]]
        return cls(**{**config, "schedules": schedules})


def serialize(learning_rate_schedule: Any) -> Any:
    """Return a schedule's class name and configuration, or a function's name."""
    if learning_rate_schedule is None:
        return None
    if hasattr(learning_rate_schedule, "get_config"):
        name = type(learning_rate_schedule).__name__
        return {"class_name": name, "config": learning_rate_schedule.get_config()}
    if hasattr(learning_rate_schedule, "__name__"):
        return learning_rate_schedule.__name__
    raise InvalidArgumentError(f"Cannot serialize {learning_rate_schedule!r}")


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Return the schedule that `serialize` was given; classes of your own in custom_objects."""
    if config is None or inspect.isfunction(config):
        return config
    known = {name: globals()[name] for name in __all__} | dict(custom_objects or {})
    if not isinstance(config, (dict, str)):
        raise InvalidArgumentError(f"Could not interpret serialized decay: {config!r}")
    if isinstance(config, dict) and not {"class_name", "config"} <= config.keys():
        raise InvalidArgumentError(f"Improper config format: {config}")
    name = config if isinstance(config, str) else config["class_name"]
    if name not in known:
        raise InvalidArgumentError(
            f"Unknown decay: {name}. Please ensure this object is passed to the `custom_objects` "
            "argument."
        )
    if isinstance(config, str):
        return known[name]() if inspect.isclass(known[name]) else known[name]
    make = known[name].from_config
    if "custom_objects" in inspect.signature(make).parameters:
        return make(config["config"], custom_objects=custom_objects)
    return make(config["config"])


# ---- what the schedules share


def wave(x: Any) -> float:
    """Return (1 + cos(pi x)) / 2, which falls from 1 at 0 to 0 at 1."""
    angle = math.pi * x
    return 0.5 * (1 + (math.cos(angle) if math.isfinite(angle) else math.nan))


def is_variable(value: Any) -> bool:
    """Whether something is assigned to, as variables of this and other libraries are."""
    return hasattr(value, "assign")


def refuse_variable(name: str, value: Any) -> None:
    """Refuse a variable where its value would be read but once."""
    if is_variable(value):
        raise InvalidTypeError(
            f"{name} must be a number, not a variable, whose later values would not be seen: give "
            f"float(variable), and set {name} anew where it is to change"
        )


def finite(name: str, value: Any) -> float:
    """Return a finite real number as Python's int or float."""
    number: float = value
    if type(value) not in (int, float):
        array = np.asarray(value)
        if array.shape != () or array.dtype.kind not in "iuf":
            raise InvalidTypeError(f"{name} must be a number, not {value!r}")
        number = float(array) if array.dtype.kind == "f" else int(array)
    if not -sys.float_info.max <= number <= sys.float_info.max:  # an int may also be too large
        raise InvalidArgumentError(f"{name} must be finite, not {number}")
    return number


def constant(name: str, value: Any) -> float:
    """Return a finite number that is no variable's, for it is read once."""
    refuse_variable(name, value)
    return finite(name, value)


def at_least_0(name: str, value: Any) -> float:
    """Return a finite number that is at least 0."""
    number = constant(name, value)
    if number < 0:
        raise InvalidArgumentError(f"{name} must be finite and at least 0, not {number}")
    return number


def above_0(name: str, value: Any) -> float:
    """Return a finite number that is greater than 0."""
    number = constant(name, value)
    if number <= 0:
        raise InvalidArgumentError(f"{name} must be finite and greater than 0, not {number}")
    return number


def whole(name: str, value: Any) -> int:
    """Return an integer that is at least 0."""
    refuse_variable(name, value)
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidTypeError(f"{name} must be an integer, not {value!r}") from None
    if number < 0:
        raise InvalidArgumentError(f"{name} must be at least 0, not {number}")
    return number


def flag(name: str, value: Any) -> bool:
    """Return what Python takes a value for."""
    return bool(value)


def as_it_is(name: str, value: Any) -> Any:
    """Return the value."""
    return value


#: How a field is checked, by its annotation.
CHECKS: dict[Any, Any] = {"float": at_least_0, "Length": above_0, "int": whole, "bool": flag}


def increasing(values: Any) -> list[float]:
    """Return boundaries, each greater than the one before."""
    boundaries = [constant("each boundary", value) for value in values]
    if any(low >= high for low, high in pairwise(boundaries)):
        raise InvalidArgumentError(f"boundaries must increase, not {boundaries}")
    return boundaries


def one_less(name: str, values: list[Any], other: str, others: list[Any]) -> None:
    """Refuse lists that do not fit together."""
    if len(values) != len(others) - 1:
        raise InvalidArgumentError(
            f"The length of {name} should be 1 less than the length of {other}"
        )


def part(name: str, schedule: Any) -> Any:
    """Return a callable as it is, and a constant learning rate if it is at least 0."""
    return schedule if callable(schedule) else at_least_0(name, schedule)


def rate_of(part: Any, step: float) -> float:
    """Return the learning rate of a callable or a constant."""
    return float(part(step) if callable(part) else part)


def serialized(part: Any) -> Any:
    """Return a callable serialized, a constant as it is."""
    return serialize(part) if callable(part) else part


def deserialized(part: Any, custom_objects: Any) -> Any:
    """Return what was serialized; a constant as it is."""
    return deserialize(part, custom_objects) if isinstance(part, (dict, str)) else part
