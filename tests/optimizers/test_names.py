"""Errors about names and arguments that do not exist suggest the right ones."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from common.step_cases import ARGUMENTS, every_optimizer

import tfopt
from tfopt import optimizers
from tfopt.optimizers import schedules

MAKERS = every_optimizer()

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


@pytest.mark.parametrize("which", MAKERS)
def test_slots_that_do_not_exist(which: str) -> None:
    opt, w = MAKERS[which](), tfopt.Variable(np.ones(2), "w")
    with pytest.raises(KeyError, match="no slots of w: its first step makes them"):
        opt.get_slot(w, "nothing")
    opt.apply_gradients([(np.ones(2), w)])
    with pytest.raises(KeyError, match="no slot 'nothing' of w: its slots are") as refused:
        opt.get_slot(w, "nothing")
    for name in str(refused.value).partition("slots are ")[2].rstrip("\"'").split(", "):
        assert opt.get_slot(w, name).name.endswith(name)


@pytest.mark.parametrize("which", ARGUMENTS)
@pytest.mark.parametrize("parameters", [[np.ones(2)], (np.ones(2),), iter([np.ones(2)])])
def test_variables_are_no_learning_rate(which: str, parameters: Any) -> None:
    """As those who come from torch pass them."""
    with pytest.raises(tfopt.InvalidTypeError, match=r"passed to step .*interop\.torch has"):
        getattr(optimizers, which)(parameters)


def test_what_cannot_be_updated_is_named() -> None:
    read_only = np.ones(2)
    read_only.flags.writeable = False
    for says, value in {
        "layers/0/w: a Variable cannot wrap a read-only array: pass a copy, np": read_only,
        "layers/0/w must be a numpy.ndarray, .* not float64, which cannot be": np.float64(1),
        "layers/0/w must be a numpy.ndarray, .* not float, which cannot be": 1.0,
        "layers/0/w must be a numpy.ndarray, .* not str, which cannot be": "x",
    }.items():
        for opt in (optimizers.Adam(), optimizers.WeightAverage(optimizers.SGD(use_locking=True))):
            with pytest.raises(tfopt.InvalidArgumentError, match=says):
                opt.step({"layers": [{"w": value}]}, {"layers": [{"w": np.ones(2)}]})
            assert int(opt.iterations) == 0 and len(opt.weights) == 1
