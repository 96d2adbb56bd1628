"""Speedups by threads, for arrays that are about large enough for several."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from .common import operands, public, step

TURNS = 2
SECONDS = 0.1  # of a turn; in training twice as many


class Threads:
    """The speed of a step with all threads relative to one thread's.

    In a loop, one step follows another. In training, a few milliseconds on one thread lie between
    them, in which NumPy computes something and the other threads fall asleep.
    """

    params = (["gradient_descent", "adamax", "ftrl"], [1 << 14, 1 << 16, 1 << 18, 1 << 20])
    param_names = ("rule", "elements")
    unit = "times"

    def setup(self, rule: str, elements: int) -> None:
        self.step = step(rule, operands(rule, elements))
        self.numbers = 1, public("threads.get_num_threads")()
        self.between = np.ones(1 << 19)

    def speed(self, computes: bool) -> float:
        set_num_threads = public("threads.set_num_threads")
        spent: dict[int, list[float]] = {number: [] for number in self.numbers}
        for _ in range(TURNS):
            for number in self.numbers:
                set_num_threads(number)
                self.step()
                end = perf_counter() + SECONDS * (2 if computes else 1)
                while perf_counter() < end:
                    for _ in range(4 * computes):
                        np.sqrt(self.between, out=self.between)
                    start = perf_counter()
                    self.step()
                    spent[number].append(perf_counter() - start)
        one, all_of_them = (median(spent[number]) for number in self.numbers)
        return one / all_of_them

    def track_speed_in_a_loop(self, rule: str, elements: int) -> float:
        return self.speed(False)

    def track_speed_in_training(self, rule: str, elements: int) -> float:
        return self.speed(True)
