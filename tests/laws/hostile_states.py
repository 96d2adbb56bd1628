"""A state with any value in any place is refused as a whole, or training continues from it.

Refused by the errors of this package; then nothing has changed. One that is loaded takes steps, is
saved and flushed.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.optimizer_arguments import RULES
from common.wrapper_cases import WRAPPERS

from laws.law import Draw, Law

__all__ = ["LAW"]

#: What is put in the place of a leaf, as text; `old` is the leaf.
VALUES = (
    "-1", "None", "'x'", "2**70", "float('nan')", "float('inf')", "1.5", "True", "[]", "{}",
    "'('", "b'x'", "np.zeros(3)", "np.array('x')", "np.array(-2**31)", "filled(old, -1)",
    "filled(old, np.nan)", "filled(old, 2**63 - 1)", "old[:0]", "old.astype('f2')", "[old, old]",
)  # fmt: skip
FACTORS = {
    "optimizer": RULES,
    "wrapper": ("alone", *WRAPPERS),
    "sparse": ("tensorflow", "catch_up"),
    "value": VALUES,
    "loads": ("new", "used"),
}


def possible(levels: Mapping[str, str]) -> bool:
    """Whether levels go together: others than these are refused by the programs."""
    return not (levels.get("sparse") == "catch_up" and levels.get("optimizer") == "Adafactor")


def program(draw: Draw) -> str:
    """Return the text of a program that puts the value into some places of a state in turn."""
    levels = draw.levels
    return f"""
from laws.hostile_run import filled, leaves_refused_or_used, np
leaves_refused_or_used(
    {levels["optimizer"]!r}, {levels["wrapper"]!r}, {levels["sparse"]!r}, {levels["loads"]!r},
    lambda old: {levels["value"]}, {draw.seed},
)
"""


LAW = Law("hostile_states", FACTORS, program, possible)
