"""A value that a constructor refuses is refused in the same words when it is set later."""

from __future__ import annotations

import fractions
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.optimizer_arguments import RULES, USUAL
from common.wrapper_cases import WRAPPERS

import tfopt
from tfopt import InvalidArgumentError, InvalidTypeError, optimizers
from tfopt.optimizers import SGD, schedules
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.schedules.schedule import SCHEDULES

VALUES = (
    -1, 0, 1, 2.5, 1e-40, 1 - 1e-9, np.nan, np.inf, -np.inf, 10**400, 2**64, -(2**64), 1j,
    True, False, None, "x", "lazy", b"x", (), [1], [len], [list], {}, {"m": "x"},
    np.array([0.5]), np.array(0.5), np.array(2), np.array("1"), np.True_, np.float32(0.5),
    np.float16(0.25), np.int64(3), np.uint8(3), np.complex128(0.5), np.timedelta64(1, "s"),
    ml_dtypes.bfloat16(0.5), fractions.Fraction(1, 4), list, SGD, len, tfopt.Variable(np.ones(())),
)  # fmt: skip

#: What stands for another argument in a constructor alone, as in Keras.
ONLY_AT_FIRST = [("name", None), ("lr", None), ("decay", None)]


def made(cls: type, **given: Any) -> Any:
    """Return an object of a class with usual values of those arguments that are required."""
    usual = {**USUAL, "optimizer": SGD(0.5), "steps": 2, "groups": []}
    required = [name for name, each in parameters_of(cls).items() if each.default is each.empty]
    return cls(**{**{name: usual[name] for name in required}, **given})


def outcome(cls: type, argument: str, value: Any, late: bool) -> str:
    """Return what becomes of a value, or why it is refused."""
    try:
        thing = made(cls) if late else made(cls, **{argument: value})
        if late:
            setattr(thing, argument, value)
        return repr(getattr(thing, argument))
    except (InvalidArgumentError, InvalidTypeError) as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:The `lr` argument is deprecated")
@pytest.mark.parametrize("name", [*RULES, *WRAPPERS, *SCHEDULES])
def test_it_is_refused_as_by_the_constructor(name: str) -> None:
    cls = getattr(optimizers, name, None) or getattr(schedules, name)
    skipped = {"optimizer", "groups"}
    if name != "AdamW":  # one is enough for what all of them share
        skipped |= parameters_of(optimizers.Optimizer).keys()
    refused = 0
    for argument in parameters_of(cls).keys() - skipped:
        for value in VALUES:
            first = outcome(cls, argument, value, late=False)
            late = outcome(cls, argument, value, late=True)
            refused += " must " in first
            is_replaced = f"{argument} of {name} cannot be replaced" in late
            assert first == late or is_replaced or (argument, value) in ONLY_AT_FIRST, argument
    assert refused > 20 or name == "ParameterGroups"


@pytest.mark.parametrize(
    "value", [1, None, 0.5, np.array(2.0), "x", len, tfopt.Variable(np.ones(()))]
)
def test_other_values_than_lists_are_refused(value: Any) -> None:
    for make in (
        lambda: schedules.Join(value, []),
        lambda: schedules.Join([0.5, 0.25], value),
        lambda: schedules.PiecewiseConstantDecay(value, [0.5, 0.25]),
        lambda: schedules.PiecewiseConstantDecay([1.0], value),
        lambda: SGD(gradient_transformers=value or 1),
    ):
        with pytest.raises(InvalidTypeError, match="must be a "):
            make()
