"""The interface of the rivals' modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from comparison.measure import Side

__all__ = ["Rival", "Unavailable"]


class Unavailable(Exception):
    """The rival, or this version of tfopt, lacks the feature that the message names."""


class Rival(NamedTuple):
    """One way of a rival to do a work."""

    label: str
    side: Callable[[], Side]  # a fresh one
    tolerance: float | None  # of measure.difference; None where the updates are not the same
    note: str = ""
