"""Default names of optimizers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

__all__ = ["made_unique"]

#: The numbers of the names to come: to take one is a single operation, whatever threads do.
_NUMBERS: dict[str, Iterator[int]] = {}


def made_unique(class_name: str) -> str:
    """Return a class name in snake case, with a number from the second use on."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", class_name)
    name = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()
    number = next(_NUMBERS.setdefault(name, itertools.count()))
    return f"{name}_{number}" if number else name
