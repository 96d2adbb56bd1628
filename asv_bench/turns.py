"""Compare two builds by asv's benchmarks, each in its own process, taking turns.

    python asv_bench/turns.py OLD NEW small_steps many.ManyTensors

OLD and NEW are folders with a built `tfopt`; the rest are modules or classes of `benchmarks`. Each
line is a benchmark: the least time in OLD and in NEW, in us, and the median of the ratios of turns,
NEW's time to OLD's. Times are those that the calling thread computes, so that a busy machine
changes them less; so use one thread (OMP_NUM_THREADS=1). The last line is the median of all ratios.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

HERE = Path(__file__).parent
SECONDS = 0.02  # of a turn


# ---- one of the two processes


def cases(benchmark: str) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    """Yield the names of a module's or a class's benchmarks, and functions that set them up."""
    name, _, wanted = benchmark.partition(".")
    module = importlib.import_module(f"benchmarks.{name}")
    for cls in vars(module).values():
        if not isinstance(cls, type) or cls.__module__ != module.__name__:
            continue
        if wanted not in ("", cls.__name__) or not hasattr(cls, "setup"):
            continue
        params = getattr(cls, "params", [[]])
        lists = params if params and isinstance(params[0], (list, tuple)) else [params]
        for values in itertools.product(*lists):
            yield (
                f"{name}.{cls.__name__} {values}",
                lambda cls=cls, values=values: _set_up(cls, values),
            )


def _set_up(cls: type, values: tuple[Any, ...]) -> Callable[[], Any]:
    """Return what a benchmark times: its first call, or else its method."""
    made = cls()
    made.setup(*values)
    calls = getattr(made, "calls", None)
    if isinstance(calls, (list, tuple)):
        first: Callable[[], Any] = calls[0]
        return first
    methods = [getattr(made, name) for name in dir(made) if name.startswith("time_")]
    if not methods:
        raise NotImplementedError("it has no call to time")
    return lambda: methods[0](*values)


def serve(benchmarks: list[str]) -> None:
    """Time benchmarks as they are asked for: (name, number of calls), one JSON line each."""
    made = dict(itertools.chain.from_iterable(map(cases, benchmarks)))
    print(json.dumps([*made]), flush=True)
    ready: dict[str, Callable[[], Any] | None] = {}
    for line in sys.stdin:
        name, number = json.loads(line)
        if name not in ready:
            ready.clear()
            try:
                ready[name] = made[name]()
                ready[name]()  # type: ignore[misc]
            except NotImplementedError:  # which this build may not have, either
                ready[name] = None
        call = ready[name]
        print(json.dumps(None if call is None else _time(call, number)), flush=True)


def _time(call: Callable[[], Any], number: int) -> float:
    begin = thread_time()
    for _ in range(number):
        call()
    return (thread_time() - begin) / number


# ---- both


class Build:
    """A build of tfopt in a process of its own."""

    def __init__(self, folder: str, benchmarks: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", "", "", *benchmarks],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": folder},
        )
        self.names: list[str] = json.loads(self._line())

    def time(self, name: str, number: int) -> Any:
        """Return the time of a call in seconds; None if this build does not have it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, number]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def compare(old: Build, new: Build, name: str, turns: int) -> tuple[float, float, float] | None:
    """Return the least times of two builds and the median of their ratios."""
    first = old.time(name, 1), new.time(name, 1)
    if None in first:
        return None
    number = max(1, int(SECONDS / max(1e-7, old.time(name, 3))))
    times = []
    for k in range(turns):
        one, other = (old, new) if k % 2 else (new, old)
        pair = one.time(name, number), other.time(name, number)
        times.append(pair if k % 2 else pair[::-1])
    ours, theirs = (min(each) for each in zip(*times, strict=True))
    return ours, theirs, statistics.median(b / a for a, b in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("benchmarks", nargs="+")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if args.serve:
        serve(args.benchmarks)
        return
    old, new = (Build(folder, args.benchmarks) for folder in (args.old, args.new))
    ratios = []
    for name in old.names:
        found = compare(old, new, name, args.turns)
        if found is None:
            print(f"{name:70s} not in both")
            continue
        ratios.append(found[2])
        print(f"{name:70s} {found[0] * 1e6:10.2f} {found[1] * 1e6:10.2f} {found[2]:7.3f}")
    print(f"median of {len(ratios)} ratios: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
