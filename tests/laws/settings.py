"""A setting is refused, or is saved with the optimizer, no matter when it is set.

Refused is what the constructor refuses, with the same error, and nothing changes; so is a public
attribute that no object knows. What is accepted, the constructor accepts; a run that goes on from a
state, a file, a copy or a pickle takes the same steps, bit for bit, and an optimizer made from the
configuration has the same settings: each program tries all of these. No constant gives NaN with
finite gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from common.optimizer_arguments import RULES, arguments_of
from common.wrapper_cases import WRAPPERS

from laws.law import Draw, Law
from tfopt import optimizers

__all__ = ["LAW", "options_of"]

#: What is assigned: another value; the bounds; what is none at all; a misspelt name.
VALUES = ("other", "lowest", "highest", "zero", "one", "None", "a string", "a class", "misspelt")


@cache
def options_of(name: str) -> tuple[str, ...]:
    """Return the arguments of an optimizer, and its other public attributes that can be set."""
    cls = getattr(optimizers, name)
    return (*arguments_of(cls), *(["observe"] if hasattr(cls, "observe") else []))


def own_of(wrapper: str) -> tuple[str, ...]:
    """Return the arguments of a wrapper itself."""
    if wrapper == "alone":
        return ()
    given = arguments_of(getattr(optimizers, wrapper))
    return tuple(f"own {name}" for name in given if name not in ("optimizer", "groups", "name"))


OPTIONS = dict.fromkeys(option for name in RULES for option in options_of(name))
OWN = dict.fromkeys(option for wrapper in WRAPPERS for option in own_of(wrapper))
FACTORS = {
    "optimizer": RULES,
    "wrapper": ("alone", *WRAPPERS),
    "option": (*OPTIONS, *OWN),
    "value": VALUES,
    "set on": ("the optimizer", "what is around it"),
    "when": ("before a step", "after two", "after a state was loaded"),
}


def possible(levels: Mapping[str, str]) -> bool:
    """Whether the optimizer, or the wrapper, has the option."""
    option, name, wrapper = (levels.get(key) for key in ("option", "optimizer", "wrapper"))
    if option is None:
        return True
    if option.startswith("own "):
        return wrapper is None or option in own_of(wrapper)
    return name is None or option in options_of(name)


def program(draw: Draw) -> str:
    """Return the text of a program that sets the option, saves and goes on."""
    values = ", ".join(f"{level!r}" for level in draw.levels.values())
    return f"""
from laws.settings_run import heard
heard({values}, seed={draw.seed})
"""


LAW = Law("settings", FACTORS, program, possible)
