"""Measure linear models for docs/performance.md: CPU time beside the fastest rival's.

The rivals are the solvers of scikit-learn and, where installed, Snap ML, glum, celer and skglm. All
sides take turns in one process, on one thread, so a busy machine changes all alike. A rival has
its loosest tolerance that brings it within the gap of the minimum, which it is spared to look
for; tfopt certifies the gap.

With ``--solvers`` the sides are tfopt's own solvers, and the last column says how far "auto" is
from the fastest of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparison.linear import Fit, fits
from comparison.measure import Spread, ratios
from comparison.rival import Unavailable
from comparison.solvers import SOLVERS, Choice, choices
from comparison.worker import LIBRARIES
from records import Record, Row, figure, new_run

import tfopt

TURNS = 5
RIVALS = [name for name, is_linear in LIBRARIES.items() if is_linear and find_spec(name)]


#: Figures are seconds of CPU time; a ratio is the rival's by ours, or that of "auto" by the least.
SECONDS: dict[str, str | None] = {"unit": "s of CPU time", "better": None}
LINEAR = {"ours": SECONDS, "theirs": SECONDS, "ratio": {"unit": "times", "better": "more"}}
CHOSEN = {**dict.fromkeys(SOLVERS, SECONDS), "ratio": {"unit": "times", "better": "less"}}


def turns(sides: list[Callable[[], object]]) -> np.ndarray:
    """Return the sides' CPU times in seconds, a row for each side, which take turns."""
    seconds = np.zeros((len(sides), TURNS))
    for turn in range(TURNS):
        for k, side in enumerate(sides):
            start = process_time()
            side()
            seconds[k, turn] = process_time() - start
    return seconds


def against_rivals(work: Fit) -> Row:
    """Return the row of a work, with the fastest of the rivals that get there."""
    labels, sides = ["tfopt"], [work.ours().step]
    for library in RIVALS:
        for rival in import_module(f"comparison.{library}_rival").rivals(work):
            if "threads" in rival.label:
                continue
            try:
                sides.append(rival.side().step)
                labels.append(rival.label)
            except Unavailable:
                continue
    ours, *theirs = turns(sides)
    figures = {"ours": figure(Spread.of(ours))}
    if not theirs:
        return Row(figures, labels={"rival": "none gets there"})
    fastest = int(np.argmin(np.median(theirs, axis=1)))
    figures["theirs"] = figure(Spread.of(theirs[fastest]))
    figures["ratio"] = figure(ratios(ours, theirs[fastest]))
    return Row(figures, labels={"rival": labels[1 + fastest]})


def among_solvers(choice: Choice) -> Row:
    """Return the row of a choice of solvers; those that do not get there have no time."""
    fits = [choice.fit(solver) for solver in choice.solvers]
    models = [fit() for fit in fits]
    near = [np.max(model.dual_gap_ / model.objective_) <= choice.TOL for model in models]
    going = {
        solver: fit
        for solver, fit, gets_there in zip(choice.solvers, fits, near, strict=True)
        if gets_there
    }
    spent = dict(zip(going, turns(list(going.values())), strict=True))
    figures = {solver: figure(Spread.of(seconds)) for solver, seconds in spent.items()}
    least = min(spent, key=lambda solver: np.median(spent[solver]))
    figures["ratio"] = figure(ratios(spent[least], spent["auto"]))
    taken = " + ".join(dict.fromkeys(record["solver"] for record in models[0].history_[0]))
    return Row(figures, labels={"taken": taken})


def text(name: str, row: Row) -> str:
    """Return a line: medians in ms, labels and the ratio."""
    cells = [name, *row.labels.values()]
    for what, (_, median, _) in row.figures.items():
        assert median is not None
        cells.append(f"{what} {median:.2f}" if what == "ratio" else f"{what} {1000 * median:.1f}")
    return f"| {' | '.join(cells)} |"


def save_rows(
    file: str,
    works: Iterable[Any],
    measured: Callable[[Any], Row],
    figures: dict[str, dict[str, str | None]],
    run: dict[str, Any],
) -> None:
    """Measure works, print their lines, and save each row."""
    with threadpool_limits(1):
        for work in works:
            try:
                row = measured(work)
            except Unavailable:
                continue
            print(text(work.name, row), flush=True)
            record = Record.load(file)
            record.merge(run, {work.name: row}, figures)
            record.save()
    print(f"saved results/{file}.json; python asv_bench/page.py writes the page")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="names; * stands for anything")
    parser.add_argument("--solvers", action="store_true", help="tfopt's own")
    arguments = parser.parse_args()
    tfopt.threads.set_num_threads(1)
    if arguments.solvers:
        chosen = [it for it in choices() if fnmatch(it.name, arguments.pattern)]
        save_rows("solvers", chosen, among_solvers, CHOSEN, new_run())
        return
    versions = [import_module(f"comparison.{library}_rival").versions() for library in RIVALS]
    run = new_run(**{name: known for each in versions for name, known in each.items()})
    works = [it for it in fits(quick=False) if fnmatch(it.name, arguments.pattern)]
    save_rows("linear", works, against_rivals, LINEAR, run)


if __name__ == "__main__":
    main()
