"""Default names of optimizers, and errors about unknown argument names."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from difflib import get_close_matches

from tfopt.errors import InvalidTypeError

__all__ = ["made_unique", "unknown_argument"]

#: The numbers of the names to come: to take one is a single operation, whatever threads do.
_NUMBERS: dict[str, Iterator[int]] = {}


def made_unique(class_name: str) -> str:
    """Return a class name in snake case, with a number from the second use on."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", class_name)
    name = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()
    number = next(_NUMBERS.setdefault(name, itertools.count()))
    return f"{name}_{number}" if number else name


def unknown_argument(cls: type, name: str) -> InvalidTypeError:
    """Return the error for a keyword that no constructor of an optimizer accepts."""
    accepted = {
        parameter.name: None
        for base in cls.__mro__
        if "__init__" in vars(base)
        for parameter in list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    close = get_close_matches(name, accepted, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(accepted)}"
    return InvalidTypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}; {hint}")
