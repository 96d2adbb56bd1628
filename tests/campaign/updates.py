"""Calls of every rule against the formulas of the twin."""

from __future__ import annotations

import numpy as np
from common.cases import assert_same_bits, lay_out, whole

import tfopt
import tfopt_ref
from campaign.calls import drawn_call, memory, settings
from campaign.check import drawn


def _case(random: np.random.Generator) -> None:
    """Any rule, dtype and layout: compares every byte, including gaps between elements."""
    call = drawn_call(random)
    settings(random, (tfopt, tfopt_ref))
    expected = [value.copy() for value in call.values]
    with np.errstate(all="ignore"):
        call.carry_out(tfopt_ref, expected)
    operands = call.operands()
    gradient = memory(operands[-1:])[0]
    call.carry_out(tfopt, operands)
    for name, got, want, layout in zip(
        call.rule.operands[:-1], operands, expected, call.layouts, strict=False
    ):
        assert_same_bits(whole(got), whole(lay_out(want, layout)), f"{call}: {name}")
    assert_same_bits(whole(operands[-1]), gradient, f"{call}: the gradient")


CHECK = drawn("updates", _case, numerical=True)
