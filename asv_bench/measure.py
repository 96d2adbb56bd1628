"""Measure benchmarks of `benchmarks` in this process, without asv, and save results/*.json.

A name is a module, or a class of one: ``measure.py calls dense.Bandwidth``. Each method is called
several times for each combination of parameters; the turns' quartiles are saved as the figures of
a row, which replaces the row of that name in the file of the class. ``--only`` chooses rows:
their names are the parameters, joined by commas.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import version
from itertools import product
from typing import Any

from benchmarks.common import public
from comparison.measure import Spread, timed
from comparison.quiet import BUSY, Others
from records import Figure, Record, Row, figure, new_run

__all__ = ["classes", "combinations", "meaning", "row_name"]

TURNS = 5

#: Libraries that benchmarks use, by the module that they import.
LIBRARIES = {
    "bitsandbytes": "bitsandbytes",
    "flwr": "flwr",
    "ml_dtypes": "ml_dtypes",
    "sklearn": "scikit-learn",
    "torch": "torch",
    "torchao": "torchao",
    "vowpalwabbit": "vowpalwabbit",
}

#: A turn's time is the shortest of so many: another program may take part of the others.
BEST_OF = 10


def classes(name: str) -> list[tuple[str, type]]:
    """Return the classes that a name stands for, with their full names."""
    module, _, one = name.partition(".")
    members = inspect.getmembers(import_module(f"benchmarks.{module}"), inspect.isclass)
    found = [
        (f"{module}.{label}", kind)
        for label, kind in members
        if kind.__module__ == f"benchmarks.{module}" and methods(kind) and one in ("", label)
    ]
    if not found:
        raise SystemExit(f"there is no benchmark {name}")
    return found


def methods(kind: type) -> list[str]:
    """Return the names of the methods that give a number."""
    return [name for name in dir(kind) if name.startswith(("time_", "track_"))]


def combinations(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the parameters of each row by name."""
    lists = getattr(kind, "params", [])
    if lists and not isinstance(lists[0], list | tuple):
        lists = [lists]
    for values in product(*lists):
        yield dict(zip(getattr(kind, "param_names", ()), values, strict=True))


def row_name(parameters: dict[str, Any]) -> str:
    return ", ".join(map(str, parameters.values())) or "all"


def meaning(kind: type, method: str) -> dict[str, str | None]:
    """Return the unit of a method's figure, and which of two is better if it is a ratio.

    Times are no ratios: they depend on the machine, and on what else it does. A class says it
    by an attribute `better`; else speeds and percentages are to be high, and other ratios low.
    """
    if method.startswith("time_"):
        return {"unit": "s", "better": None}
    unit = getattr(kind, "unit", "times")
    usual = "more" if unit == "%" or "speed" in method else "less"
    return {"unit": unit, "better": getattr(kind, "better", usual)}


def measured(kind: type, parameters: dict[str, Any], turns: int) -> dict[str, Figure]:
    """Return the figures of a row, by method."""
    benchmark: Any = kind()
    values = parameters.values()
    if hasattr(benchmark, "setup"):
        benchmark.setup(*values)
    figures = {}
    for name in methods(kind):
        method = getattr(benchmark, name)
        if name.startswith("time_"):
            steps = timed(lambda method=method: method(*values))
            often = 1 if steps.long else BEST_OF
            samples = [min(steps.seconds() for _ in range(often)) for _ in range(turns)]
        else:
            samples = [method(*values) for _ in range(turns)]
        figures[name] = figure(Spread.of(samples))
    return figures


def put_back(module: Any, threads: int) -> None:
    """Undo what a benchmark changes for its process: asv gives each one of its own."""
    public("threads.set_num_threads")(threads)
    public("denormals.set_flush_denormals")(True)
    for value in vars(module).values():
        if hasattr(value, "cache_clear"):  # steps kept for asv's samples: gigabytes
            value.cache_clear()


def measure(name: str, kind: type, patterns: list[str], turns: int) -> None:
    """Measure the rows of a class, print and save them."""
    run = new_run()
    module = import_module(kind.__module__)
    threads = public("threads.get_num_threads")()
    rows = {}
    for parameters in combinations(kind):
        label = row_name(parameters)
        if not any(fnmatchcase(label, pattern) for pattern in patterns):
            continue
        watch = Others()
        try:
            figures = measured(kind, parameters, turns)
        except NotImplementedError as error:
            print(f"{name}: {label}: {error}")
            continue
        finally:
            put_back(module, threads)
        others = watch.share() or 0.0
        busy = {"busy": f"{others:.0%} of the CPUs"} if others > BUSY else {}
        rows[label] = Row(figures, parameters=parameters, labels=busy)
        medians = ", ".join(f"{what} {values[1]:.4g}" for what, values in figures.items())
        print(f"{name}: {label}: {medians}", flush=True)
    if rows:
        used = (library for module, library in LIBRARIES.items() if module in sys.modules)
        run |= {library: version(library) for library in used}
        record = Record.load(name)
        record.merge(run, rows, {method: meaning(kind, method) for method in methods(kind)})
        record.save()
        print(f"saved results/{name}.json; python asv_bench/page.py writes the page")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="a module, or module.Class")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="PATTERN", help="rows; * stands for anything"
    )
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each is measured")
    arguments = parser.parse_args()
    for name in arguments.names:
        for label, kind in classes(name):
            measure(label, kind, arguments.only, arguments.turns)


if __name__ == "__main__":
    main()
