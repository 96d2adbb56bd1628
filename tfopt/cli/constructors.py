"""What a class takes, read from its constructor: the table behind the flags of `tfopt train`.

The signature says what there is, of which type and with which default; the docstring says what it
means. So a new optimizer, schedule or hyperparameter is offered without a word here.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

from tfopt.cli.converters import number, numbers, whole

__all__ = ["Argument", "arguments_of", "needs_objects"]

#: Of the types that a command line can give. The bounds of a value are the constructor's to check.
_CONVERTERS: dict[Any, Callable[[str], Any] | None] = {
    bool: None,
    int: whole,
    float: number,
    float | None: number,
    Iterable[float]: numbers,
    str: str,
    str | None: str,
}
#: Without effect on what is computed, or given by --learning-rate.
_LEFT_OUT = {"learning_rate", "lr", "name", "use_locking"}


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a constructor.

    Attributes
    ----------
    name : str
    convert : callable or None
        From text; None for a bool.
    default : object
        ``inspect.Parameter.empty`` if there is none.
    choices : tuple of str
        Empty if any value of the type will do.
    meaning : str
        Its line in the docstring, or "".
    """

    name: str
    convert: Callable[[str], Any] | None
    default: Any
    choices: tuple[str, ...]
    meaning: str

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


def arguments_of(cls: type) -> list[Argument]:
    """Return what the constructor of a class takes and a command line can give.

    Parameters
    ----------
    cls : type
        If its constructor passes ``**kwargs`` on, the arguments of its base follow.

    Returns
    -------
    list of Argument
    """
    described = _described(cls)
    types = _types(cls)
    parameters = inspect.signature(cls).parameters
    found = []
    for name, parameter in parameters.items():
        if name in _LEFT_OUT or types.get(name) not in _CONVERTERS:
            continue
        if described and name not in described:
            continue  # another name of an argument that the docstring does describe
        values, meaning = described.get(name, ("", ""))
        choices = tuple(re.findall(r'"(\w+)"', values)) if _CONVERTERS[types[name]] is str else ()
        convert = _CONVERTERS[types[name]]
        found.append(Argument(name, convert, parameter.default, choices, meaning))
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        assert cls.__base__ is not None
        found += [one for one in arguments_of(cls.__base__) if one.name not in parameters]
    return found


def needs_objects(cls: type) -> bool:
    """Return whether a class needs something that a command line cannot give."""
    types = _types(cls)
    return any(
        parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
        and types[name] not in _CONVERTERS
        for name, parameter in inspect.signature(cls).parameters.items()
    )


def _types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls.__init__)  # type: ignore[misc]


def _described(cls: type) -> dict[str, tuple[str, str]]:
    """Return the types and meanings of a numpydoc docstring's parameters, by name."""
    doc = inspect.cleandoc(vars(cls).get("__doc__") or "")  # none if Python runs with -OO
    section = doc.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^(\w+(?:, \w+)*) ?:? ?(.*)((?:\n    .*)*)", section, re.MULTILINE)
    return {
        name: (values, " ".join(lines.split()).removesuffix("."))
        for names, values, lines in entries
        for name in names.split(", ")
    }
