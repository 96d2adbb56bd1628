"""Measure a few quick benchmarks for many commits, and show how they have changed.

``run`` measures commits evenly spaced over the history with airspeed velocity, which builds each,
and keeps the results in `history`; ``page`` writes docs/performance_history.md and its picture from
them; ``check`` fails if a figure of a commit is more than 10 % worse than that of another;
``publish`` writes asv's own pages, in which each figure can be seen against its parameters.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from comparison.machine import machine
from page import MARGIN, number
from records import ROOT

__all__ = ["KEPT", "PAGE", "Commit", "load", "regressions", "spaced", "written"]

HERE = Path(__file__).resolve().parent
KEPT = HERE / "history"
KNOWN = KEPT / "benchmarks.json"
PAGE = ROOT / "docs" / "performance_history.md"
PICTURE = PAGE.with_suffix(".svg")

#: Which benchmarks are measured: a regular expression, as asv takes it.
BENCHMARKS = r"^(history|imports)\."

#: So many commits at most are columns of a table.
COLUMNS = 6


@dataclass(frozen=True)
class Commit:
    """What has been measured of a commit, by benchmark and then by parameters."""

    name: str
    when: datetime
    machine: str
    figures: dict[str, dict[tuple[str, ...], float]]


def of_file(path: Path) -> Commit:
    """Read one of asv's files of results; figures that could not be measured are left out."""
    content = json.loads(path.read_text(encoding="utf-8"))
    columns = content["result_columns"]
    figures: dict[str, dict[tuple[str, ...], float]] = {}
    for name, values in content["results"].items():
        row = dict(zip(columns, values, strict=False))
        parameters = product(*(row.get("params") or []))
        figures[name] = {
            tuple(text.strip("'") for text in key): value
            for key, value in zip(parameters, row["result"] or [], strict=False)
            if value is not None and value == value
        }
    when = datetime.fromtimestamp(content["date"] / 1000, UTC)
    return Commit(content["commit_hash"], when, path.parent.name, figures)


def load() -> list[Commit]:
    """Return all commits with results, the oldest first."""
    files = (path for path in KEPT.glob("*/*.json") if path.name != "machine.json")
    return sorted(map(of_file, files), key=lambda commit: (commit.machine, commit.when))


def benchmarks() -> dict[str, dict[str, Any]]:
    """Return what asv knows of each benchmark: its parameters, unit and code."""
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    return {name: of for name, of in known.items() if re.match(BENCHMARKS, name)}


def more_is_better(name: str, unit: str) -> bool:
    """Return the direction of a figure, as measure.py has it."""
    return unit == "%" or "speed" in name


# ---- regressions


def regressions(old: Commit, new: Commit, units: dict[str, str]) -> Iterator[str]:
    """Yield a line for each figure that is more than 10 % worse."""
    for name, figures in new.figures.items():
        for key, now in figures.items():
            before = old.figures.get(name, {}).get(key)
            if before is None:
                continue
            worse = before / now if more_is_better(name, units.get(name, "")) else now / before
            if worse > MARGIN:
                what = f"{name}({', '.join(key)})"
                yield f"{what}: was {number(before)}, is {number(now)} {units.get(name, '')}"


def one_of(commits: Sequence[Commit], named: str) -> Commit:
    """Return a commit with results by the path of its file, or by the beginning of its name."""
    if Path(named).is_file():
        return of_file(Path(named))
    found = [commit for commit in commits if commit.name.startswith(named)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} of the commits with results begin with {named}")
    return found[0]


def check(named: Sequence[str]) -> int:
    """Print the regressions from one commit to another; return 1 if there are any."""
    commits = load()
    if named:
        old, new = (one_of(commits, name) for name in named)
    else:
        *_, old, new = [commit for commit in commits if commit.machine == commits[-1].machine]
    units = {name: of["unit"] for name, of in benchmarks().items()}
    lines = list(regressions(old, new, units))
    print(
        "\n".join(lines)
        or f"no figure of {new.name[:7]} is more than 10 % worse than of {old.name[:7]}"
    )
    return 1 if lines else 0


# ---- the page


def spaced(things: Sequence[Any], count: int) -> list[Any]:
    """Return so many things at most, evenly spaced, the first and the last among them."""
    if len(things) <= count:
        return list(things)
    if count == 1:
        return [things[-1]]
    places = (round(k * (len(things) - 1) / (count - 1)) for k in range(count))
    return [things[place] for place in places]


def table(name: str, of: dict[str, Any], commits: Sequence[Commit]) -> str:
    """Return a benchmark's table: a line for its parameters, a column for each commit."""
    keys = dict.fromkeys(key for commit in commits for key in commit.figures.get(name, {}))
    columns = [f"{commit.when:%Y-%m-%d}<br>`{commit.name[:7]}`" for commit in commits]
    head = [*of["param_names"], *columns]
    lines = []
    for key in keys:
        values = (commit.figures.get(name, {}).get(key) for commit in commits)
        texts = ("\N{EN DASH}" if value is None else number(value) for value in values)
        lines.append([*key, *texts])
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def title(name: str) -> str:
    """Return a benchmark's name in a heading: its class."""
    return name.split(".")[1]


def described(name: str) -> str:
    """Return what a benchmark's class, or else its method, says of itself."""
    module, kind, method = name.split(".")
    tree = ast.parse((HERE / "benchmarks" / f"{module}.py").read_text(encoding="utf-8"))
    (found,) = (of for of in tree.body if isinstance(of, ast.ClassDef) and of.name == kind)
    inner = (of for of in found.body if isinstance(of, ast.FunctionDef) and of.name == method)
    said = ast.get_docstring(found) or ast.get_docstring(next(inner)) or ""
    return " ".join(said.split())


def described_machine(name: str) -> str:
    """Return what asv keeps of a machine, in words."""
    known = json.loads((KEPT / name / "machine.json").read_text(encoding="utf-8"))
    return f"{known['cpu']}, {known['num_cpu']} cores"


def written(page: str, commits: Sequence[Commit], known: dict[str, dict[str, Any]]) -> str:
    """Return the page with what stands between its markers regenerated."""
    shown = spaced(commits, COLUMNS)
    parts = []
    for name, of in known.items():
        better = "more" if more_is_better(name, of["unit"]) else "less"
        words = f"{described(name)} In {of['unit']}; {better} is better."
        if any(name in commit.figures for commit in commits):
            parts.append(f"## {title(name)}\n\n{words}\n\n{table(name, of, shown)}\n")
    machines = "; ".join(sorted({described_machine(commit.machine) for commit in commits}))
    last = f"{len(commits)} commits have been measured, on: {machines}.\n"
    opening, closing = "<!-- history -->\n", "<!-- end of history -->"
    before, _, rest = page.partition(opening)
    text = "\n".join([*parts, last])
    return f"{before}{opening}\n{text}\n{closing}{rest.partition(closing)[2]}"


def draw(commits: Sequence[Commit], known: dict[str, dict[str, Any]]) -> None:
    """Draw a picture with a part for each benchmark and kind, and in it a line for each size."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "tfopt", "svg.fonttype": "none", "font.size": 8})
    import matplotlib.pyplot as plt

    parts: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for name in known:
        for key in dict.fromkeys(key for commit in commits for key in commit.figures.get(name, {})):
            kind = " ".join(text for text in key if not text.isdigit())
            parts.setdefault((name, kind), []).append(key)
    rows = -(-len(parts) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(9, 2.3 * rows), layout="constrained")
    labels = [f"{commit.when:%d %b}\n{commit.name[:7]}" for commit in commits]
    for axis, ((name, kind), keys) in zip(axes.flat, parts.items(), strict=False):
        for key in keys:
            values = [commit.figures.get(name, {}).get(key, float("nan")) for commit in commits]
            axis.plot(range(len(commits)), values, ".-", label=", ".join(filter(str.isdigit, key)))
        axis.set_title(f"{title(name)} {kind}".strip(), fontsize=9)
        axis.set_ylabel(known[name]["unit"])
        axis.set_ylim(bottom=0)
        axis.set_xticks(range(len(commits)), labels, fontsize=5)
        if len(keys) > 1:
            axis.legend(fontsize=5, title=known[name]["param_names"][-1], title_fontsize=5)
    for axis in axes.flat[len(parts) :]:
        axis.remove()
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


# ---- asv


def asv(*arguments: str) -> int:
    """Run asv with its usual configuration, but for the folder in which results are kept."""
    from asv import util

    settings = util.load_json(str(HERE / "asv.conf.json"), js_comments=True)
    settings |= {
        "repo": str(ROOT),
        "benchmark_dir": str(HERE / "benchmarks"),
        "results_dir": str(KEPT),
        "env_dir": str(HERE / ".asv" / "env"),
        "html_dir": str(HERE / ".asv" / "history"),
    }
    config = HERE / ".asv" / "history.conf.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(settings, indent=1))
    command = [sys.executable, "-m", "asv", "--config", str(config), *arguments]
    return subprocess.run(command, cwd=HERE, env={**os.environ, "PYTHONPATH": ""}).returncode


def run(count: int, since: str | None, name: str) -> int:
    """Measure commits of the branch main that have no results on this machine yet."""
    from asv.machine import MachineCollection

    span = "main" if since is None else f"{since}..main"
    listed = subprocess.run(
        ["git", "rev-list", "--first-parent", "--reverse", span],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    chosen = HERE / ".asv" / "commits"
    chosen.parent.mkdir(exist_ok=True)
    chosen.write_text("\n".join(reversed(spaced(listed.stdout.split(), count))) + "\n")
    facts = machine()
    known = {
        "machine": name,
        "arch": platform.machine(),
        "cpu": facts["processor"],
        "num_cpu": str(facts["CPUs"]),
        "os": facts["platform"],
        "ram": facts["memory"] or "",
    }
    MachineCollection.save(name, known)
    failed = asv(
        *("run", f"HASHFILE:{chosen}", "--bench", BENCHMARKS, "--machine", name),
        *("--skip-existing-commits", "--show-stderr"),
    )
    # asv describes all benchmarks there
    kept = {"version": json.loads(KNOWN.read_text(encoding="utf-8"))["version"], **benchmarks()}
    KNOWN.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    runs = parts.add_parser("run", help="build and measure commits")
    runs.add_argument("--commits", type=int, default=24, help="how many, evenly spaced (24)")
    runs.add_argument("--since", metavar="COMMIT", help="after this one; default: all")
    runs.add_argument("--machine", required=True, metavar="NAME", help="its folder in history")
    parts.add_parser("page", help="write docs/performance_history.md and its picture")
    checks = parts.add_parser("check", help="fail if a figure is more than 10 %% worse")
    checks.add_argument(
        "of", nargs="*", metavar="COMMIT", help="the old one and the new one, or their files"
    )
    publishes = parts.add_parser("publish", help="write asv's pages")
    publishes.add_argument("folder", help="which is made anew")
    arguments = parser.parse_args()
    if arguments.part == "run":
        return run(arguments.commits, arguments.since, arguments.machine)
    if arguments.part == "check":
        if len(arguments.of) not in (0, 2):
            parser.error("check takes two commits or none")
        return check(arguments.of)
    if arguments.part == "publish":
        return asv("publish", "--no-pull", "--html-dir", str(Path(arguments.folder).resolve()))
    commits, known = load(), benchmarks()
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(written(page, commits, known), encoding="utf-8")
    draw(commits, known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
