"""The results that asv has kept of commits, in the folder `history`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

__all__ = [
    "BENCHMARKS",
    "HERE",
    "KEPT",
    "KNOWN",
    "Commit",
    "benchmarks",
    "combinations",
    "load",
    "more_is_better",
    "tried",
]

HERE = Path(__file__).resolve().parent
KEPT = HERE / "history"
KNOWN = KEPT / "benchmarks.json"

#: Which benchmarks are measured: a regular expression, as asv takes it.
BENCHMARKS = r"^(history|imports)\."


@dataclass(frozen=True)
class Commit:
    """The figures of a commit, by benchmark and then by parameters."""

    name: str
    when: datetime
    machine: str
    measured: datetime
    figures: dict[str, dict[tuple[str, ...], float]]


def combinations(parameters: list[list[str]]) -> list[tuple[str, ...]]:
    """Return a benchmark's combinations of parameters, as asv lists these."""
    return [tuple(text.strip("'") for text in key) for key in product(*parameters)]


def of_file(path: Path) -> Commit:
    """Read one of asv's files of results; figures that could not be measured are left out."""
    content = json.loads(path.read_text(encoding="utf-8"))
    columns = content["result_columns"]
    figures: dict[str, dict[tuple[str, ...], float]] = {}
    measured = 0
    for name, values in content["results"].items():
        row = dict(zip(columns, values, strict=False))
        measured = max(measured, row.get("started_at") or 0)
        parameters = combinations(row.get("params") or [])
        figures[name] = {
            key: value
            for key, value in zip(parameters, row["result"] or [], strict=False)
            if value is not None and value == value
        }
    when, last = (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        for milliseconds in (content["date"], measured)
    )
    return Commit(content["commit_hash"], when, path.parent.name, last, figures)


def tried() -> list[Commit]:
    """Return all commits that were built, or could not be, the oldest first."""
    files = (path for path in KEPT.glob("*/*.json") if path.name != "machine.json")
    return sorted(map(of_file, files), key=lambda commit: (commit.machine, commit.when))


def load() -> list[Commit]:
    """Return all commits with results, the oldest first."""
    return [commit for commit in tried() if any(commit.figures.values())]


def benchmarks() -> dict[str, dict[str, Any]]:
    """Return what asv knows of each benchmark: its parameters, unit and code."""
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    return {name: of for name, of in known.items() if re.match(BENCHMARKS, name)}


def more_is_better(name: str, unit: str) -> bool:
    """Return the direction of a figure, as measure.py has it."""
    return unit == "%" or "speed" in name
