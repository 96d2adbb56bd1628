"""Conversion of the texts of flags to numbers."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


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


def count_or(word: str) -> Callable[[str], int | str]:
    """Return a converter to positive integers, or a word."""

    def parse(text: str) -> int | str:
        return text if text == word else count(1)(text)

    parse.__name__ = f"integer, or {word},"
    return parse


def _number(requirement: str, is_met: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a converter to finite numbers that meet a requirement."""

    def parse_number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"must be finite, not {text}")
        if not is_met(value):
            raise argparse.ArgumentTypeError(f"must {requirement}, not {text}")
        return value

    parse_number.__name__ = "number"
    return parse_number


number = _number("be finite", math.isfinite)
positive = _number("be above 0", lambda value: value > 0)
non_negative = _number("not be negative", lambda value: value >= 0)
share = _number("be above 0 and below 1", lambda value: 0 < value < 1)
power = _number("be above 1 and below 2", lambda value: 1 < value < 2)


def numbers(text: str) -> list[float]:
    """Return distinct positive numbers, separated by commas, in ascending order."""
    return sorted({positive(part) for part in text.split(",")})


numbers.__name__ = "list of numbers"


def separator(text: str) -> str:
    """Return what is between the fields of a line: a character, or "tab"."""
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise argparse.ArgumentTypeError(f"must be a character such as ; or tab, not {text!r}")
    return found


def class_weights(text: str) -> str:
    """Return the text itself, if it is "balanced" or LABEL=WEIGHT,..."""
    if text != "balanced":
        factors_of(text)
    return text


class_weights.__name__ = "list of weights"


def pair(text: str) -> tuple[str, str]:
    """Return two names in A,B."""
    one, comma, other = text.partition(",")
    if not comma or not one or one == other or "," in other:
        raise argparse.ArgumentTypeError(f"must be two names, A,B, not {text!r}")
    return one, other


def factors_of(text: str) -> dict[str, float]:
    """Return the weights in LABEL=WEIGHT,... by the texts of labels."""
    factors: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = part.rpartition("=")
        if not label or label in factors:
            raise argparse.ArgumentTypeError(f"must be balanced, or LABEL=WEIGHT,..., not {text!r}")
        factors[label] = non_negative(weight)
    return factors
