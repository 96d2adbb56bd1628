"""Names and arguments that do not exist: errors say which may be meant."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import tfopt
from tfopt import optimizers
from tfopt.optimizers import schedules

#: Where users look for a name, and the modules whose names they look for there.
HOMES = [
    *[("tfopt", home) for home in ("tfopt.optimizers", "tfopt.optimizers.schedules", "tfopt.io")],
    ("tfopt", "tfopt.linear_model"),
]


@pytest.mark.parametrize(("module", "home"), HOMES)
def test_a_name_that_is_elsewhere(module: str, home: str) -> None:
    if home == "tfopt.linear_model":
        pytest.importorskip("sklearn")
    for name in {*import_module(home).__all__} - {*dir(import_module(module))}:
        with pytest.raises(AttributeError, match=f"{name}': it is in tfopt\\."):
            getattr(import_module(module), name)
        with pytest.raises(ImportError, match=f"{name}': it is in tfopt\\."):
            exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", ["tfopt", "tfopt.optimizers", "tfopt.optimizers.schedules"])
def test_a_misspelt_name(module: str) -> None:
    """With the last but one letter left out."""
    found = import_module(module)
    for name in found.__all__:
        wrong = name[:-2] + name[-1]
        if len(name) > 5 and not hasattr(found, wrong) and not name.startswith("_"):
            with pytest.raises(AttributeError, match=f"{wrong}'(; did you mean|: it is in)"):
                getattr(found, wrong)
    assert not hasattr(found, "__nothing__") and not hasattr(found, "qqqqqq")


def classes() -> list[type]:
    found = [getattr(module, name) for module in (optimizers, schedules) for name in module.__all__]
    return [
        each
        for each in found
        if inspect.isclass(each)
        and issubclass(each, (optimizers.Optimizer, schedules.LearningRateSchedule))
        and not inspect.isabstract(each)
        and each.__init__ is not object.__init__
        and not issubclass(each, optimizers.Wrapper)
        and each is not optimizers.Optimizer
    ]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_a_misspelt_argument(cls: type) -> None:
    n = 0
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or len(name) < 5:
            continue
        wrong = name[:-2] + name[-1]
        with pytest.raises(tfopt.InvalidTypeError, match=f"{wrong}'; did you mean '"):
            cls(**{wrong: 1.0})
        n += 1
    assert n


def test_plurals_of_numbered_arguments() -> None:
    with pytest.raises(tfopt.InvalidTypeError, match="did you mean 'beta_1' and 'beta_2'"):
        optimizers.Adam(betas=(0.9, 0.99))  # type: ignore[call-arg]


def test_misspelt_identifiers() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="Did you mean 'Adam'"):
        optimizers.get("adamm")
    with pytest.raises(tfopt.InvalidArgumentError, match="Did you mean 'CosineDecay'"):
        schedules.deserialize("CosinDecay")
