"""Find figures that are worse than those of earlier commits by more than noise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from statistics import median
from typing import Any

from history_results import KEPT, Commit, benchmarks, load, more_is_better
from page import MARGIN, worse
from page_text import number

__all__ = [
    "ACCEPTED",
    "accepted",
    "check",
    "factors",
    "in_order",
    "in_words",
    "noise",
    "regressions",
    "usual",
]

#: Regressions that were accepted: benchmark, sets of parameters, factor and reason of each.
ACCEPTED = KEPT / "accepted.json"

#: How many commits are the last few that a commit is compared with.
LAST = 5

#: So many times the median difference between neighbouring commits is noise. If errors are normal,
#: that is 3.8 times their standard deviation.
NOISES = 4

Key = tuple[str, tuple[str, ...]]


def in_order(commits: Iterable[Commit]) -> dict[Key, list[float]]:
    """Return the figures of commits by benchmark and parameters, each in the commits' order."""
    found: dict[Key, list[float]] = {}
    for commit in commits:
        for name, figures in commit.figures.items():
            for parameters, value in figures.items():
                found.setdefault((name, parameters), []).append(value)
    return found


def usual(values: Sequence[float], more: bool) -> float:
    """Return a figure's target: the better of the medians of all values and of the last few.

    The median of all does not follow a figure that gets worse; that of the last few is better where
    the figure has improved.
    """
    medians = median(values), median(values[-LAST:])
    return max(medians) if more else min(medians)


def noise(values: Sequence[float]) -> float:
    """Return the factor by which the figures of neighbouring commits differ, in the median."""
    return exp(median(abs(log(b / a)) for a, b in pairwise(values))) if len(values) > 1 else 1.0


def accepted() -> list[dict[str, Any]]:
    """Return the regressions that were accepted: of what, by which factor, and why."""
    if not ACCEPTED.exists():
        return []
    found: list[dict[str, Any]] = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    return found


def in_words(regression: dict[str, Any]) -> str:
    """Return an accepted regression as a line."""
    kind, sets = regression["benchmark"].split(".")[1], regression["parameters"]
    of = "; ".join(map(", ".join, sets))
    return f"{kind} ({of}), by a factor of up to {regression['factor']}: {regression['reason']}"


def factors() -> dict[Key, float]:
    """Return the factors of accepted regressions by benchmark and parameters."""
    return {
        (of["benchmark"], tuple(parameters)): float(of["factor"])
        for of in accepted()
        for parameters in of["parameters"]
    }


def regressions(
    before: Mapping[Key, Sequence[float]],
    new: Commit,
    units: Mapping[str, str],
    allowed: Mapping[Key, float],
) -> Iterator[str]:
    """Yield a line for each figure that is worse than usual by more than is allowed.

    Allowed are a tenth and `NOISES` times the noise, whichever is more, and what `allowed` has.
    """
    for name, figures in new.figures.items():
        more = more_is_better(name, units.get(name, ""))
        for parameters, now in figures.items():
            values = before.get((name, parameters))
            if not values:
                continue
            level = usual(values, more)
            margin = max(MARGIN, noise(values) ** NOISES)
            if worse(level, now, more) > margin * allowed.get((name, parameters), 1.0):
                what = f"{name}({', '.join(parameters)})"
                told = f"usually {number(level)}, is {number(now)} {units.get(name, '')}"
                yield f"{what}: {told}: more than {100 * (margin - 1):.0f} % worse"


def one_of(commits: Sequence[Commit], named: str) -> Commit:
    """Return a commit with results by the beginning of its name."""
    found = [commit for commit in commits if commit.name.startswith(named)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} of the commits with results begin with {named}")
    return found[0]


def check(named: str | None) -> int:
    """Print the regressions of a commit beside those before it; return 1 if there are any."""
    commits = load()
    new = commits[-1] if named is None else one_of(commits, named)
    here = [commit for commit in commits if commit.machine == new.machine]
    before = here[: here.index(new)]
    units = {name: of["unit"] for name, of in benchmarks().items()}
    lines = list(regressions(in_order(before), new, units, factors()))
    for of in accepted():
        print(f"accepted: {in_words(of)}")
    said = f"no figure of {new.name[:7]} is worse than of the {len(before)} commits before it"
    print("\n".join(lines) or said)
    return 1 if lines else 0
