"""What the other threads bring, for steps of arrays that are about large enough for them."""

from __future__ import annotations

from statistics import median
from time import perf_counter, sleep

from .common import operands, public, step

ROUNDS = 60


class Threads:
    """The speed of a step with all threads relative to one thread's.

    Awake, the threads have just made another step; else they have slept for 2 ms.
    """

    params = (["gradient_descent", "adamax", "ftrl"], [1 << 14, 1 << 16, 1 << 18, 1 << 20])
    param_names = ("rule", "elements")
    unit = "times"

    def setup(self, rule: str, elements: int) -> None:
        self.step = step(rule, operands(rule, elements))
        self.numbers = 1, public("threads.get_num_threads")()

    def speed(self, pause: float) -> float:
        set_num_threads = public("threads.set_num_threads")
        spent: dict[int, list[float]] = {number: [] for number in self.numbers}
        for _ in range(ROUNDS):
            for number in self.numbers:
                set_num_threads(number)
                self.step()
                if pause:
                    sleep(pause)
                start = perf_counter()
                self.step()
                spent[number].append(perf_counter() - start)
        one, all_of_them = (median(spent[number]) for number in self.numbers)
        return one / all_of_them

    def track_speed_awake(self, rule: str, elements: int) -> float:
        return self.speed(0)

    def track_speed_after_sleep(self, rule: str, elements: int) -> float:
        return self.speed(0.002)
