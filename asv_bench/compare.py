"""Measure tfopt side by side with TensorFlow, torch, NumPy expressions, scikit-learn and Snap ML.

Every rival has a process of its own, in which it and tfopt take turns, with the threads each uses
by default. One that is not installed is named as missing. The answers are compared too: if they
differ, or a comparison fails, the exit code is 1.

Quartiles are saved in results/compare.*.json for the page of figures, unless they are those of a
quick comparison, or of another tfopt than this checkout's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

from comparison.machine import machine
from comparison.measure import Spread
from comparison.plot import plot
from comparison.report import HEADER, markdown, row
from comparison.results import Facts, Message, Missing, Result, read
from comparison.worker import LIBRARIES
from records import Record, Row, figure, new_run, of_checkout

HERE = Path(__file__).resolve().parent

#: Seconds for all rivals together; those after them share what one leaves over, except with a
#: pattern, which few may match. The rest, up to the 2 min and 20 min promised, is for the
#: comparison in progress when a rival's time is up.
QUICK, FULL = 100.0, 1080.0

#: What results/compare.*.json give of each comparison; a ratio is the rival's time by ours.
FIGURES: dict[str, dict[str, str | None]] = {
    "ours": {"unit": "s", "better": None},
    "theirs": {"unit": "s", "better": None},
    "ratio": {"unit": "times", "better": "more"},
    "percent of the loop": {"unit": "%", "better": "more"},
}

#: Facts of a rival's process that say nothing of what was compared.
ASIDE = ("optional", "platform", "openmp_runtimes")

GRACE = 60.0  # seconds after its time in which a process can finish, before it is stopped


def from_worker(library: str, arguments: Any, seconds: float) -> Iterator[Message]:
    """Run a rival's process; give its messages as they come."""
    command = [sys.executable, "-m", "comparison.worker", library, "--seconds", str(seconds)]
    command += ["--only", arguments.only, *(["--quick"] if arguments.quick else [])]
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    timer = Timer(seconds + GRACE, child.kill)
    timer.start()
    try:
        assert child.stdout is not None
        for text in child.stdout:
            message = read(text)
            if message is not None:
                yield message
        if child.wait() != 0:
            what = "everything not listed"
            yield Missing(library, what, f"its process ended with {child.returncode}", failed=True)
    finally:
        timer.cancel()
        child.kill()
        child.wait()


def parse() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rules and sizes, under 2 min")
    parser.add_argument(
        "--out", type=Path, default=Path("comparison-results"), help="folder of the reports"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="only comparisons with this in 'rule, size against rival'; * stands for anything",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    end = monotonic() + (QUICK if arguments.quick else FULL)
    run = None if arguments.quick or not of_checkout() else new_run()
    on = machine()
    cpus = on["CPUs"]
    print(f"{on['processor']}, {cpus} CPUs, load {on['load before']:.2f}")
    if on["load before"] > 0.25 * cpus:
        print("The machine is busy: expect wide quartiles.")
    results: list[Result] = []
    missing: list[Missing] = []
    facts: dict[str, dict[str, Any]] = {}
    installed = [library for library in LIBRARIES if find_spec(library)]
    for library in LIBRARIES:
        if library not in installed:
            missing.append(Missing(library, "everything", "it is not installed"))
            print(f"missing: {library} is not installed")
    print(HEADER)
    for i, library in enumerate(installed):
        left = max(1.0, end - monotonic())
        share = left if arguments.only else left / (len(installed) - i)
        for message in from_worker(library, arguments, share):
            if isinstance(message, Facts):
                facts[library] = message.facts
            elif isinstance(message, Missing):
                missing.append(message)
                print(f"not compared: {library}: {message.what}: {message.why}")
            else:
                results.append(message)
                print(row(message), flush=True)
    on["load after"] = os.getloadavg()[0]
    save(arguments.out, on, facts, results, missing)
    if run is not None:
        for own in facts.values():
            run |= {key: value for key, value in own.items() if key not in ASIDE}
        record(run, [r for r in results if r.agrees])
    wrong = [r for r in results if not r.agrees]
    if wrong:
        print(f"{len(wrong)} answers differ")
    return 1 if wrong or any(m.failed for m in missing) else 0


def record(run: dict[str, Any], results: list[Result]) -> None:
    """Save the quartiles of the results for the page of figures, a file for each kind."""
    for kind in sorted({result.kind for result in results}):
        rows = {
            f"{result.work} against {result.rival}": row_of(result)
            for result in results
            if result.kind == kind
        }
        kept = Record.load(f"compare.{kind}")
        kept.merge(run, rows, FIGURES)
        kept.save()
        print(f"saved results/compare.{kind}.json; python asv_bench/page.py writes the page")


def row_of(result: Result) -> Row:
    spreads = {
        "ours": Spread.of(result.ours),
        "theirs": Spread.of(result.theirs),
        "ratio": result.ratio,
        "percent of the loop": result.percent,
    }
    figures = {what: figure(spread) for what, spread in spreads.items() if spread is not None}
    labels = {"work": result.work, "library": result.library, "rival": result.rival}
    if result.busy:
        labels["busy"] = f"{result.others:.0%} of the CPUs"
    return Row(figures, labels=labels)


def save(
    folder: Path,
    on: dict[str, Any],
    facts: dict[str, dict[str, Any]],
    results: list[Result],
    missing: list[Missing],
) -> None:
    """Write the reports."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = None
    if find_spec("matplotlib") is None:
        print("missing: matplotlib is not installed, so there is no plot")
    elif results:
        plot(results, folder / "comparison.png")
        drawn = "comparison.png"
    (folder / "comparison.md").write_text(markdown(on, facts, results, missing, drawn))
    everything = {
        "machine": on,
        "processes": facts,
        "results": [asdict(r) for r in results],
        "not compared": [asdict(m) for m in missing],
    }
    (folder / "comparison.json").write_text(json.dumps(everything, indent=1) + "\n")
    print(f"saved in {folder}: {', '.join(sorted(p.name for p in folder.glob('comparison.*')))}")


if __name__ == "__main__":
    sys.exit(main())
