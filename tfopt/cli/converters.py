"""Converters of the values of flags, for argparse: they refuse what does not fit."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import Any


def count(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """Return a converter to integers within bounds."""

    def parse_count(text: str) -> int:
        value = int(text)
        if not smallest <= value <= largest:
            limits = f"at least {smallest}" if largest == math.inf else f"{smallest} to {largest}"
            raise argparse.ArgumentTypeError(f"must be {limits}, not {text}")
        return value

    parse_count.__name__ = "integer"  # argparse's word for it: "invalid integer value: 'x'"
    return parse_count


def number(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be finite, not {text}")
    return value


def positive(text: str) -> float:
    """Return a positive finite number."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def non_negative(text: str) -> float:
    """Return a non-negative finite number."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, not {text}")
    return value


def share(text: str) -> float:
    """Return a number between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, not {text}")
    return value


def size(text: str) -> int:
    """Return a number of bytes, of which KB, MB and GB are powers of 1000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a size such as 256MB, not {text}")
    n_bytes = float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " ")
    if n_bytes < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte, not {text}")
    return int(n_bytes)


def positives(text: str) -> list[float]:
    """Return distinct positive numbers, separated by commas, in ascending order."""
    return sorted({positive(part) for part in text.split(",")})


def name_of(names: dict[str, Any]) -> Callable[[str], str]:
    """Return a converter that ignores case, hyphens and underscores in names."""

    def normalized(text: str) -> str:
        return text.replace("-", "").replace("_", "").lower()

    by_normalized_name = {normalized(name): name for name in names}
    return lambda text: by_normalized_name.get(normalized(text), text)


positive.__name__ = non_negative.__name__ = "number"
positives.__name__ = "list of numbers"
