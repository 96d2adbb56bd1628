"""Print the tables of linear models in docs/performance.md: CPU time beside the fastest rival's.

The rivals are the solvers of scikit-learn and, where installed, Snap ML, glum, celer and skglm. All
sides take turns in one process, on one thread, so a busy machine changes all alike. A rival has
its loosest tolerance that brings it within the gap of the minimum, which it is spared to look
for; tfopt certifies the gap.
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


def main() -> None:
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    tfopt.threads.set_num_threads(1)
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
