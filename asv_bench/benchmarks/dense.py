"""Dense updates: their times, and their share of the memory bandwidth."""

from __future__ import annotations

from functools import cache

from .common import RULES, Step, best_times, operands, public, same_traffic_loop, step, times

#: Steps, elements and dtype.
WORK = {
    "1000 steps of 2^12 float32": (1000, 1 << 12, "float32"),
    "100 steps of 2^16 float32": (100, 1 << 16, "float32"),
    "10 steps of 2^20 float32": (10, 1 << 20, "float32"),
    "1 step of 2^26 float32": (1, 1 << 26, "float32"),
    "10 steps of 2^20 float64": (10, 1 << 20, "float64"),
}

#: Elements, whether on one thread only, and steps per measurement.
SIZES = {
    "2^12 on one thread": (1 << 12, True, 1000),
    "2^16 on one thread": (1 << 16, True, 50),
    "2^16": (1 << 16, False, 50),
    "2^20": (1 << 20, False, 5),
    "2^26": (1 << 26, False, 1),
}


@cache
def _steps(rule: str, work: str) -> Step:
    """Return the steps to time; kept, because asv sets a benchmark up anew for each sample."""
    number, size, dtype = WORK[work]
    return times(number, step(rule, operands(rule, size, dtype)))


class Time:
    params = (list(RULES), list(WORK))
    param_names = ("rule", "work")
    rounds = 1
    repeat = (3, 15, 0.5)

    def setup(self, rule: str, work: str) -> None:
        self.steps = _steps(rule, work)

    def time_steps(self, rule: str, work: str) -> None:
        self.steps()


class Bandwidth:
    """The rate of a step in percent of a loop in C that only moves the same arrays."""

    params = (list(RULES), list(SIZES))
    param_names = ("rule", "elements")
    unit = "%"

    def setup(self, rule: str, elements: str) -> None:
        size, single, number = SIZES[elements]
        if single:
            public("threads.set_num_threads")(1)
        arrays = operands(rule, size)
        self.loop = same_traffic_loop(arrays, public("threads.get_num_threads")(), number)
        self.steps = times(number, step(rule, arrays))

    def track_percent_of_same_traffic_loop(self, rule: str, elements: str) -> float:
        loop, steps = best_times(self.loop, self.steps)
        return 100 * loop / steps
