"""A check: a series of cases, each of which raises if it is lost."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from typing import NamedTuple

import numpy as np

__all__ = ["CHECKS", "Case", "Check", "drawn", "found"]

#: Tries something; returns how many things it tried, or None for one.
Case = Callable[[], int | None]


class Check(NamedTuple):
    """A series of cases, the same ones for a seed.

    Attributes
    ----------
    cases : callable
        Returns the cases for a seed, in order: endless ones are drawn, others are all there are.
    tries : str
        What a case is, for the report.
    patience : float
        Seconds after which a case hangs.
    numerical : bool
        Whether it is run on each instruction set that the machine has.
    """

    cases: Callable[[int], Iterator[Case]]
    tries: str
    patience: float = 60.0
    numerical: bool = False


#: The checks by name: each is `CHECK` of the module of that name.
CHECKS = (
    "updates",
    "digests",
    "extremes",
    "sizes",
    "refusals",
    "steps",
    "programs",
    "interruptions",
    "storms",
    "damaged_files",
    "damaged_models",
    "libsvm_text",
    "certificates",
    "failing_disks",
    "power_losses",
    "failing_allocations",
    "kills",
    "forks",
    "crowds",
    "clusters",
    "leaks",
    "properties",
)


def found(name: str) -> Check:
    """Return a check by its name."""
    check: Check = import_module(f"campaign.{name}").CHECK
    return check


def drawn(
    name: str, case: Callable[[np.random.Generator], int | None], numerical: bool = False
) -> Check:
    """Return the check whose cases differ in their random numbers, without end."""

    def cases(seed: int) -> Iterator[Case]:
        for number in count():
            key = (seed, zlib.crc32(name.encode()), number)
            yield lambda key=key: case(np.random.default_rng(key))

    tries = (case.__doc__ or "").partition("\n")[0].rstrip(".")
    return Check(cases, tries, numerical=numerical)
