"""Names of optimizers that were given none."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["made_unique"]

_TAKEN: Counter[str] = Counter()


def made_unique(class_name: str) -> str:
    """Return a class's name in small letters, with a number from the second one on."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", class_name)
    name = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()
    _TAKEN[name] += 1
    return name if _TAKEN[name] == 1 else f"{name}_{_TAKEN[name] - 1}"
