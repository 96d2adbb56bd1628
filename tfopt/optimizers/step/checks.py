"""Checks that the settings of steps suit the variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.variable import Variable

__all__ = ["check_rounding", "check_signed", "refuse_together"]


def check_rounding(variables: Sequence[Variable], operands: Sequence[Sequence[Any]]) -> None:
    """Raise if the numbers of a step are not rounded stochastically.

    Parameters
    ----------
    variables : sequence of Variable
    operands : sequence of sequence of ndarray
        For each variable, its array and those of its slots.
    """
    rounds = False
    for variable, arrays in zip(variables, operands, strict=True):
        names = {str(array.dtype).removeprefix("torch.") for array in arrays}
        if "float16" in names:
            raise InvalidTypeError(
                f"{variable.name} or a slot of it is float16: stochastic_rounding is for bfloat16"
            )
        rounds = rounds or "bfloat16" in names
    if not rounds:
        named = ", ".join(variable.name for variable in variables)
        raise InvalidTypeError(
            f"stochastic_rounding would change nothing: neither {named} nor their slots are "
            "bfloat16"
        )


def check_signed(variables: Sequence[Variable]) -> None:
    """Raise unless variables are real, for their cautious decay."""
    for variable in variables:
        if variable.dtype.kind == "c":
            raise InvalidTypeError(
                f"{variable.name}: cautious_weight_decay is for real variables, not "
                f"{variable.dtype}"
            )


def refuse_together(settings: Mapping[str, bool], others: Mapping[str, bool], name: str) -> None:
    """Raise if any of some settings and any of some other properties of an optimizer are given."""
    for other, is_other in others.items():
        for setting, is_given in settings.items():
            if is_other and is_given:
                raise InvalidArgumentError(f"{name}: {other} excludes {setting}")
