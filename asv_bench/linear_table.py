"""Print the tables of linear models in docs/performance.md: CPU time beside the fastest rival's.

The rivals are the solvers of scikit-learn and, where installed, Snap ML, glum, celer and skglm. All
sides take turns in one process, on one thread, so a busy machine changes all alike. A rival has
its loosest tolerance that brings it within the gap of the minimum, which it is spared to look
for; tfopt certifies the gap.

With ``--solvers`` the sides are tfopt's own solvers, and the last column says how far "auto" is
from the fastest of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparison.linear import Fit, fits
from comparison.rival import Unavailable
from comparison.solvers import SOLVERS, Choice, choices
from comparison.worker import LIBRARIES

import tfopt

TURNS = 5
RIVALS = [name for name, is_linear in LIBRARIES.items() if is_linear and find_spec(name)]


def medians(sides: list[Callable[[], object]]) -> list[float]:
    """Return the medians of the sides' CPU times in ms, which take turns."""
    seconds = np.zeros((TURNS, len(sides)))
    for turn in range(TURNS):
        for k, side in enumerate(sides):
            start = process_time()
            side()
            seconds[turn, k] = process_time() - start
    return (1000 * np.median(seconds, axis=0)).tolist()


def row(work: Fit) -> str:
    """Return the line of a work, with the fastest of the rivals that get there."""
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
    ours, *theirs = medians(sides)
    if not theirs:
        return f"| {work.name} | {ours:.1f} | none gets there | | |"
    fastest = int(np.argmin(theirs))
    least = theirs[fastest]
    return (
        f"| {work.name} | {ours:.1f} | {labels[1 + fastest]} | {least:.1f} | {least / ours:.2f} |"
    )


def solvers_row(choice: Choice) -> str:
    """Return the line of a choice of solvers; those that do not get there have no time."""
    fits = [choice.fit(solver) for solver in choice.solvers]
    models = [fit() for fit in fits]
    near = [np.max(model.dual_gap_ / model.objective_) <= choice.TOL for model in models]
    going = [fit for fit, gets_there in zip(fits, near, strict=True) if gets_there]
    times = iter(medians(list(going)))
    spent = {
        solver: next(times)
        for solver, gets_there in zip(choice.solvers, near, strict=True)
        if gets_there
    }
    cells = [f"{spent[solver]:.1f}" if solver in spent else "" for solver in SOLVERS]
    taken = " + ".join(dict.fromkeys(record["solver"] for record in models[0].history_[0]))
    ratio = spent["auto"] / min(spent.values())
    return f"| {choice.name} | {taken} | {' | '.join(cells)} | {ratio:.2f} |"


def print_solvers(pattern: str) -> None:
    """Print the table of tfopt's own solvers."""
    print(f"| objective, data | auto takes | {', ms | '.join(SOLVERS)}, ms | auto / fastest |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for choice in choices():
            if fnmatch(choice.name, pattern):
                try:
                    print(solvers_row(choice), flush=True)
                except Unavailable:
                    continue


def main() -> None:
    patterns = [argument for argument in sys.argv[1:] if argument != "--solvers"]
    pattern = patterns[0] if patterns else "*"
    tfopt.threads.set_num_threads(1)
    if "--solvers" in sys.argv:
        print_solvers(pattern)
        return
    versions = [import_module(f"comparison.{library}_rival").versions() for library in RIVALS]
    print("rivals:", ", ".join(f"{name} {v}" for each in versions for name, v in each.items()))
    print("| objective, data | tfopt, ms | fastest rival | its ms | its time / ours |")
    print("|---|---|---|---|---|")
    with threadpool_limits(1):
        for work in fits(quick=False):
            if fnmatch(work.name, pattern):
                try:
                    print(row(work), flush=True)
                except Unavailable:
                    continue


if __name__ == "__main__":
    main()
