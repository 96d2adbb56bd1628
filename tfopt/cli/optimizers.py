"""Optimizers and schedules by name, and the arguments of their constructors, given as text."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tfopt import optimizers
from tfopt.cli.files import print_json
from tfopt.core.versions import show_versions, versions
from tfopt.errors import InvalidTypeError
from tfopt.optimizers import Optimizer, schedules
from tfopt.optimizers.base.averaged import Averaged
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.schedules import LearningRateSchedule, LinearWarmup

if TYPE_CHECKING:
    from tfopt.cli.settings import Settings

#: Values of --schedule besides the library's schedules.
AUTO, CONSTANT = "auto", "constant"


class Argument(NamedTuple):
    """An argument of a constructor that can be given as text."""

    hint: Any
    default: Any  # inspect.Parameter.empty if there is none


_SIMPLE = (bool, int, float, float | None, str, str | None, Iterable[float])
#: Arguments without effect on the result, or set by --learning-rate.
_EXCLUDED = ("learning_rate", "initial_learning_rate", "lr", "name", "use_locking")


def constructor_arguments(cls: type) -> dict[str, Argument]:
    """Return the constructor arguments of a class that text can give, by name."""
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    parameters = inspect.signature(cls).parameters
    arguments = {
        name: Argument(hints[name], parameter.default)
        for name, parameter in parameters.items()
        if name not in _EXCLUDED and hints.get(name) in _SIMPLE
    }
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        assert cls.__base__ is not None
        arguments = constructor_arguments(cls.__base__) | arguments
    if "schedule_decay" in arguments:  # of Nadam, whose `decay` is another name for it
        arguments.pop("decay", None)
    if not getattr(cls, "_can_decay", True):
        arguments.pop("weight_decay", None)
        arguments.pop("cautious_weight_decay", None)
    return arguments


def _classes(module: Any, base: type) -> dict[str, Any]:
    """Return the public subclasses of `base` in a module, by lower-case names."""
    classes = (getattr(module, name) for name in module.__all__)
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", cls.__name__).lower(): cls
        for cls in filter(inspect.isclass, classes)
        if issubclass(cls, base) and cls is not base
    }


#: Without those whose averages are the result, as the commands keep the weights of the steps, and
#: without those that sum over tables' rows: the rows here have one element.
OPTIMIZERS: dict[str, type[RuleOptimizer]] = {
    name: cls
    for name, cls in _classes(optimizers, RuleOptimizer).items()
    if not issubclass(cls, Averaged) and cls._by_elements
}
#: Without those made of other schedules.
SCHEDULES: dict[str, type[LearningRateSchedule]] = {
    name: cls
    for name, cls in _classes(schedules, LearningRateSchedule).items()
    if not {"schedule", "schedules"} & {*inspect.signature(cls).parameters}
}
_INITIAL_RATE = "initial_learning_rate"
#: Tuned on a9a (logistic) and abalone (squared). The squared loss has an unbounded gradient, and
#: labels may be far from 0: most optimizers need larger steps there, sgd smaller ones.
_LEARNING_RATES = {
    "adadelta": {"logistic": 3.0, "squared": 100.0},
    "adagrad": {"logistic": 0.2, "squared": 1.0},
    "adam": {"logistic": 0.01, "squared": 0.3},
    "adamax": {"logistic": 0.05, "squared": 0.3},
    "adamw": {"logistic": 0.01, "squared": 0.3},
    "ademamix": {"logistic": 0.003, "squared": 0.1},
    "adopt": {"logistic": 0.03, "squared": 0.3},
    "ftrl": {"logistic": 0.1, "squared": 0.5},
    "lion": {"logistic": 0.003, "squared": 0.1},
    "nadam": {"logistic": 0.01, "squared": 0.3},
    "radam": {"logistic": 0.02, "squared": 0.3},
    "rmsprop": {"logistic": 0.005, "squared": 0.1},
    "sgd": {"logistic": 1.0, "squared": 0.1},
    "signum": {"logistic": 0.003, "squared": 0.1},
    "yogi": {"logistic": 0.01, "squared": 0.3},
}
#: Optimizers that lower the rate of each weight by themselves. adagrad does so, too, but comes
#: closer to the optimum of a9a with a decreasing rate.
_LOWER_THEIR_RATE = ("ftrl",)


def setting(text: str) -> tuple[str, Any]:
    """Convert NAME=VALUE, for argparse: a Python literal, or a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value
    try:
        json.dumps(literal, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise argparse.ArgumentTypeError(
            f"{name} must be a finite number, a list of them, True, False or a word, not {value}"
        ) from None
    return name, literal


def name_of(names: dict[str, Any]) -> Callable[[str], str]:
    """Return a converter that ignores case, hyphens and underscores in names."""

    def normalized(text: str) -> str:
        return text.replace("-", "").replace("_", "").lower()

    by_normalized_name = {normalized(name): name for name in names}
    return lambda text: by_normalized_name.get(normalized(text), text)


def collect(cls: type, given: Iterable[tuple[str, Any]], flag: str) -> dict[str, Any]:
    """Return settings as arguments of a constructor, in its order; it checks the values itself.

    Raises
    ------
    InvalidTypeError
        If it takes no argument of a name, lacks one, or one is given twice.
    """
    accepted = constructor_arguments(cls)
    values: dict[str, Any] = {}
    for name, value in given:
        if name in values:
            raise InvalidTypeError(f"{flag} {name} is given twice")
        if name not in accepted:
            raise InvalidTypeError(f"{cls.__name__} takes {', '.join(accepted)}, not {flag} {name}")
        # so that 1 and 1.0 give one model file
        is_float = accepted[name].hint in (float, float | None) and type(value) is int
        if accepted[name].hint == Iterable[float]:
            value = _numbers(name, value)
        elif accepted[name].hint is bool and type(value) is not bool:
            raise InvalidTypeError(f"{name} must be True or False, not {value!r}")
        values[name] = float(value) if is_float else value
    missing = [
        name
        for name, argument in accepted.items()
        if argument.default is inspect.Parameter.empty and name not in values
    ]
    if missing:
        raise InvalidTypeError(f"{cls.__name__} needs {flag} {missing[0]}=VALUE")
    return {name: values[name] for name in accepted if name in values}


def _numbers(name: str, value: Any) -> list[float]:
    if not isinstance(value, (list, tuple)) or not all(type(x) in (int, float) for x in value):
        raise InvalidTypeError(f"{name} must be a list of numbers such as [1,2], not {value!r}")
    return [float(number) for number in value]


def default_learning_rate(optimizer: str, loss: str) -> float:
    """Return the default learning rate of an optimizer for a loss."""
    default: float = inspect.signature(OPTIMIZERS[optimizer]).parameters["learning_rate"].default
    return _LEARNING_RATES.get(optimizer, {}).get(loss, default)


def takes_learning_rate(schedule: str) -> bool:
    """Return whether a schedule takes an initial rate, instead of having its own rates."""
    cls = SCHEDULES.get(schedule)
    return cls is None or _INITIAL_RATE in inspect.signature(cls).parameters


def set_learning_rate(optimizer: Optimizer, settings: Settings, epoch: int) -> None:
    """Decrease the rate linearly to 0 over the epochs, unless something else changes it."""
    changed = settings.optimizer in _LOWER_THEIR_RATE or "decay" in settings.hyperparameters
    if settings.schedule == AUTO and settings.learning_rate is not None and not changed:
        optimizer.learning_rate = settings.learning_rate * (1 - epoch / settings.epochs)


def make_learning_rate(settings: Settings) -> Any:
    """Return the learning rate of the settings: a number or a schedule, which checks itself."""
    rate: Any = settings.learning_rate
    if settings.schedule in SCHEDULES:
        start = {_INITIAL_RATE: rate} if takes_learning_rate(settings.schedule) else {}
        rate = SCHEDULES[settings.schedule](**start, **settings.schedule_arguments)
    if settings.warmup_arguments:
        rate = LinearWarmup(rate, **settings.warmup_arguments)
    return rate


def make_optimizer(settings: Settings) -> RuleOptimizer:
    """Return the optimizer of the settings, which checks itself."""
    rate = make_learning_rate(settings)
    arguments: dict[str, Any] = settings.hyperparameters
    return OPTIMIZERS[settings.optimizer](learning_rate=rate, **arguments)


# ---- the command


def info(arguments: argparse.Namespace) -> int:
    """Run `tfopt info`: show versions, or what an optimizer or a schedule takes."""
    if arguments.name is not None:
        _show_arguments(arguments.name, arguments.json)
    elif arguments.json:
        print_json(versions())
    else:
        show_versions()
    return 0


def _show_arguments(name: str, as_json: bool) -> None:
    """Print what --set or --schedule-set takes, and the documentation of the class."""
    cls = OPTIMIZERS.get(name) or SCHEDULES[name]
    taken = constructor_arguments(cls).items()
    required = {key for key, each in taken if each.default is inspect.Parameter.empty}
    if as_json:
        defaults = {key: each.default for key, each in taken if key not in required}
        print_json({"name": name, "required": sorted(required), "defaults": defaults})
        return
    print(f"{'--set' if name in OPTIMIZERS else '--schedule-set'} NAME=VALUE")
    for key, each in taken:
        print(f"  {key:<38}{'required' if key in required else each.default}")
    print(f"\n{inspect.getdoc(cls) or ''}")
