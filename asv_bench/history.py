"""Measure a few quick benchmarks for many commits, and show how they have changed.

``run`` measures commits spaced over the history with airspeed velocity, which builds each, and
keeps the results in `history`; ``page`` writes docs/performance_history.md and its picture;
``check`` fails if a figure of the last commit is worse than those before it by more than noise;
``publish`` writes asv's own pages, in which each figure can be seen against its parameters.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from comparison.machine import machine
from history_check import accepted, check, in_words
from history_results import (
    BENCHMARKS,
    HERE,
    KEPT,
    KNOWN,
    Commit,
    benchmarks,
    combinations,
    load,
    more_is_better,
    tried,
)
from page_text import between, number, table
from records import ROOT

__all__ = ["PAGE", "PICTURE", "farthest", "plausible", "spaced", "written"]

PAGE = ROOT / "docs" / "performance_history.md"
PICTURE = PAGE.with_suffix(".svg")

COMMAND = "python asv_bench/history.py run"

#: So many commits at most are columns of a table.
COLUMNS = 6

#: A figure is left out if it is this many times that of both neighbouring commits, or as much less.
FAR = 4.0

#: Headings, by the benchmarks' classes.
TITLES = {
    "Dense": "Dense steps",
    "Fit": "Logistic regression",
    "Lists": "Lists of small tensors",
    "Rows": "Rows of a table",
    "Tape": "Gradients of a tape",
    "Import": "Import",
}


# ---- the page


def spaced(things: Sequence[Any], count: int) -> list[Any]:
    """Return so many things at most, evenly spaced, the first and the last among them."""
    if len(things) <= count:
        return list(things)
    if count == 1:
        return [things[-1]]
    places = (round(k * (len(things) - 1) / (count - 1)) for k in range(count))
    return [things[place] for place in places]


def farthest(things: Sequence[Any], done: Iterable[Any], count: int) -> list[Any]:
    """Return so many things in the order in which they fill gaps between those that are done.

    The last and the first come first, and then whatever halves the largest gap, the latest of
    those equally large. So any number of them are spaced about evenly.
    """
    taken = {k for k, thing in enumerate(things) if thing in set(done)}
    chosen: list[int] = []
    while len(chosen) < count and len(taken) < len(things):
        ends = [k for k in (len(things) - 1, 0) if k not in taken]
        if ends:
            chosen.append(ends[0])
        else:
            _, low, high = max((b - a, a, b) for a, b in pairwise(sorted(taken)))
            chosen.append((low + high) // 2)
        taken.add(chosen[-1])
    return [things[k] for k in chosen]


def plausible(commits: Sequence[Commit]) -> list[Commit]:
    """Return the commits without the figures that are far from those of both neighbours."""
    kept = []
    for before, commit, after in zip(commits, commits[1:], commits[2:], strict=False):
        figures: dict[str, dict[tuple[str, ...], float]] = {}
        for name, of in commit.figures.items():
            beside = [each.figures.get(name, {}) for each in (before, after)]
            figures[name] = {
                key: value
                for key, value in of.items()
                if not all(key in each for each in beside)
                or min(e[key] for e in beside) / FAR <= value <= max(e[key] for e in beside) * FAR
            }
        kept.append(replace(commit, figures=figures))
    return [*commits[:1], *kept, *commits[1:][-1:]]


def measured(name: str, of: dict[str, Any], commits: Sequence[Commit]) -> list[tuple[str, ...]]:
    """Return the parameters of a benchmark that have figures, in the benchmark's order."""
    found = {key for commit in commits for key in commit.figures.get(name, {})}
    return [key for key in combinations(of["params"]) if key in found]


def table_of(name: str, of: dict[str, Any], commits: Sequence[Commit]) -> str:
    """Return a benchmark's table: a line for its parameters, a column for each commit."""
    columns = [f"{commit.when:%d&nbsp;%b<br>%Y}<br>`{commit.name[:7]}`" for commit in commits]
    head = [*of["param_names"], *columns]
    lines = []
    for key in measured(name, of, commits):
        values = (commit.figures.get(name, {}).get(key) for commit in commits)
        texts = ("\N{EN DASH}" if value is None else number(value) for value in values)
        lines.append([*key, *texts])
    return table(head, lines)


def title(name: str) -> str:
    """Return a benchmark's heading."""
    return TITLES[name.split(".")[1]]


def described(name: str) -> str:
    """Return the docstring of a benchmark's class, or else of its method."""
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
    shown = spaced(plausible(commits), COLUMNS)
    parts = []
    for name, of in known.items():
        better = "higher" if more_is_better(name, of["unit"]) else "lower"
        words = f"{described(name)} Unit: {of['unit']}; {better} is better."
        if any(name in commit.figures for commit in commits):
            figures = f":::{{dropdown}} Figures\n{table_of(name, of, shown)}\n:::"
            parts.append(f"## {title(name)}\n\n{words}\n\n{figures}\n")
    known_ones = "\n".join(f"- {in_words(of)}" for of in accepted())
    if known_ones:
        words = "These figures are worse than they were, for the reasons given:"
        parts.append(f"## Accepted regressions\n\n{words}\n\n{known_ones}\n")
    machines = "; ".join(sorted({described_machine(commit.machine) for commit in commits}))
    days = sorted({f"{commit.measured:%Y-%m-%d}" for commit in commits})
    span = " to ".join(dict.fromkeys((days[0], days[-1])))
    last = f"*{len(commits)} commits; measured {span}; {machines}:* `{COMMAND}`"
    return between(page, "history", "\n".join([*parts, last]))


def draw(commits: Sequence[Commit], known: dict[str, dict[str, Any]]) -> None:
    """Draw a picture with a part for each benchmark and kind, and in it a line for each size."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "tfopt", "svg.fonttype": "none", "font.size": 11})
    import matplotlib.pyplot as plt

    commits = plausible(commits)
    parts: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for name, of in known.items():
        for key in measured(name, of, commits):
            kind = " ".join(text for text in key if not text.isdigit())
            parts.setdefault((name, kind), []).append(key)
    figure, axes = plt.subplots(
        len(parts), 1, figsize=(6.5, 2.7 * len(parts)), layout="constrained", squeeze=False
    )
    ticks = spaced(range(len(commits)), COLUMNS)
    labels = [f"{commits[k].when:%d %b}\n{commits[k].name[:7]}" for k in ticks]
    for axis, ((name, kind), keys) in zip(axes.flat, parts.items(), strict=False):
        for key in keys:
            values = [commit.figures.get(name, {}).get(key, float("nan")) for commit in commits]
            axis.plot(range(len(commits)), values, ".-", label=", ".join(filter(str.isdigit, key)))
        unit = known[name]["unit"]
        better = "more" if more_is_better(name, unit) else "less"
        axis.set_title(": ".join(filter(None, [title(name), kind])), fontsize=12)
        axis.set_ylabel(f"{unit}, {better} is better")
        low, high = axis.get_ylim()
        if low < high / 50:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set_xticks(ticks, labels, fontsize=9)
        axis.grid(alpha=0.3)
        if len(keys) > 1:
            place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            numbers = known[name]["param_names"][-1]
            axis.legend(**place, fontsize=9, title=numbers, title_fontsize=9, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


# ---- asv


def sparing() -> dict[str, str]:
    """Return the environment variables that make builds of commits cheap.

    What has been translated and compiled for one commit serves others, for neighbours have most of
    it in common; the compiler's wrapper needs a few GNU tools. Early commits built the CUDA library
    wherever there was a compiler for it.
    """
    objects = HERE / ".asv" / "objects"
    objects.mkdir(exist_ok=True)
    variables = {"CYTHON_CACHE_DIR": str(objects / "cython"), "TFOPT_CUDA": "0"}
    if sys.platform == "linux":
        variables |= {"CC": str(ROOT / ".ci" / "cc"), "TFOPT_CI_CACHE": str(objects)}
    return variables


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
    environment = {**sparing(), **os.environ, "PYTHONPATH": ""}
    return subprocess.run(command, cwd=HERE, env=environment).returncode


def run(count: int, since: str | None, name: str) -> int:
    """Measure so many more commits of the branch main on this machine, the last one first."""
    from asv.machine import MachineCollection

    span = "main" if since is None else f"{since}..main"
    listed = subprocess.run(
        ["git", "rev-list", "--first-parent", "--reverse", span],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    chosen = HERE / ".asv" / "commits"
    chosen.parent.mkdir(exist_ok=True)
    measured = {commit.name for commit in tried() if commit.machine == name}
    wanted = farthest(listed.stdout.split(), measured, count)
    chosen.write_text("".join(f"{commit}\n" for commit in wanted))
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
    runs.add_argument("--commits", type=int, default=8, help="how many more (8)")
    runs.add_argument("--since", metavar="COMMIT", help="after this one; default: all")
    runs.add_argument("--machine", required=True, metavar="NAME", help="its folder in history")
    parts.add_parser("page", help="write docs/performance_history.md and its picture")
    checks = parts.add_parser("check", help="fail if a figure is worse by more than noise")
    checks.add_argument("of", nargs="?", metavar="COMMIT", help="which one; default: the last")
    publishes = parts.add_parser("publish", help="write asv's pages")
    publishes.add_argument("folder", help="which is made anew")
    arguments = parser.parse_args()
    if arguments.part == "run":
        return run(arguments.commits, arguments.since, arguments.machine)
    if arguments.part == "check":
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
