"""Measured figures: `results/*.json`, a row for each case, with the run that measured it.

A file has `figures`, the unit of each and whether more or less of it is better; `runs`, by date:
commit, machine, compiler, versions, command; and `rows`, each with its `run`, its `parameters`, its
`labels` and its `figures`: lower quartile, median and upper quartile of several turns.

Rows that are measured again replace themselves alone, so that the rows of a file may be of
different runs.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from comparison.machine import machine
from comparison.measure import Spread

__all__ = ["RESULTS", "ROOT", "Figure", "Record", "Row", "figure", "new_run", "of_checkout"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "asv_bench" / "results"

#: Lower quartile, median and upper quartile. What comes from a range over several runs has no
#: median, and what comes from a bound has one end alone.
Figure = tuple[float | None, float | None, float | None]


def figure(spread: Spread) -> Figure:
    """Return quartiles to four digits."""
    low, median, high = (float(f"{value:.4g}") for value in spread)
    return low, median, high


@dataclass
class Row:
    """A case: the figures by name, and what there is to say of it in words."""

    figures: dict[str, Figure]
    run: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Record:
    """A file of results."""

    name: str
    figures: dict[str, dict[str, str | None]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, text: str) -> Record:
        content = json.loads(text)
        rows = {}
        for key, row in content["rows"].items():
            figures = {what: tuple(values) for what, values in row.pop("figures").items()}
            rows[key] = Row(figures=figures, **row)
        return cls(name, content["figures"], content["runs"], rows)

    @classmethod
    def load(cls, name: str) -> Record:
        """Return the record in its file, or an empty one if there is none yet."""
        path = RESULTS / f"{name}.json"
        return cls.parse(name, path.read_text(encoding="utf-8")) if path.exists() else cls(name)

    def text(self) -> str:
        """Return the JSON, with a line for each row."""
        rows = {
            key: {what: value for what, value in vars(row).items() if value}
            for key, row in self.rows.items()
        }
        parts = {"figures": self.figures, "runs": self.runs, "rows": rows}
        return "{\n" + ",\n".join(f'"{part}": {_lines(of)}' for part, of in parts.items()) + "\n}\n"

    def merge(
        self,
        run: dict[str, Any],
        rows: Mapping[str, Row],
        figures: Mapping[str, dict[str, str | None]],
    ) -> None:
        """Replace rows, or add them, and forget runs of which no row is left."""
        self.figures.update(figures)
        self.runs[run["date"]] = run
        for key, row in rows.items():
            row.run = run["date"]
            self.rows[key] = row
        used = {row.run for row in self.rows.values()}
        self.runs = {date: of for date, of in sorted(self.runs.items()) if date in used}

    def save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        path.write_text(self.text(), encoding="utf-8")


def _lines(of: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in of.items())
    return "{\n " + ",\n ".join(lines) + "\n}"


def of_checkout() -> bool:
    """Return whether the tfopt that is measured is that of this checkout, at a known commit."""
    found = find_spec("tfopt")
    origin = found.origin if found else None
    return bool(origin) and ROOT in Path(origin).resolve().parents and Path(ROOT, ".git").exists()


def new_run(**known: Any) -> dict[str, Any]:
    """Return the description of a run that begins: date, commit, machine and command.

    Parameters
    ----------
    **known
        More, as the versions of other libraries.
    """
    if not of_checkout():
        raise SystemExit(f"tfopt is not that of {ROOT}, so its commit is unknown")
    if _stale():
        raise SystemExit("the kernels are older than their sources: build them first")
    on = machine()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _printed("git", "rev-parse", "HEAD")[:12],
        "changed": _printed("git", "status", "--porcelain", "--", ".", *_APART) != "",
        "command": shlex.join(["python", _script(), *sys.argv[1:]]),
        "machine": f"{on['processor']}, {on['CPUs']} cores",
        "memory": on["memory"],
        "load before": on["load before"],
        "OS": on["platform"],
        "compiler": _printed(*shlex.split(os.environ.get("CC", "cc")), "--version").split("\n")[0],
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        **known,
    }


#: Changes in these are no changes of what is measured.
_APART = (":!docs", ":!asv_bench/results")


def _stale() -> bool:
    """Return whether a source has been written after all built kernels."""
    names = _printed("git", "ls-files", *(f"tfopt/*.{kind}" for kind in ("pyx", "pxd", "tp", "h")))
    sources = [ROOT / name for name in names.splitlines()]
    built = [path.stat().st_mtime for path in Path(ROOT, "tfopt").rglob("*.so")]
    return max(path.stat().st_mtime for path in sources) > max(built, default=0.0)


def _script() -> str:
    return str(Path(sys.argv[0]).resolve().relative_to(ROOT))


def _printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
