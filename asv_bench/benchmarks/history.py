"""A few quick figures that ../history.py keeps for many commits.

Each is a ratio to something measured beside it, so that it says little about the machine, and
each depends on a number, against which asv plots it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import (
    best_times,
    filled,
    operands,
    public,
    random_rows_loop,
    same_traffic_loop,
    step,
    times,
)


def of_package(name: str) -> Any:
    """Return what `import tfopt` offers; skip the benchmark if this tfopt does not."""
    import tfopt

    try:
        return getattr(tfopt, name)
    except AttributeError as error:
        raise NotImplementedError(f"this tfopt has no {name}") from error


class Dense:
    """A step on one thread, in percent of a loop in C that only moves the same arrays."""

    params = (["gradient_descent", "adam", "adamax", "ftrl"], [2**8, 2**12, 2**16, 2**20])
    param_names = ("rule", "elements")
    unit = "%"

    def setup(self, rule: str, elements: int) -> None:
        public("threads.set_num_threads")(1)
        arrays, number = operands(rule, elements), max(1, 2**20 // elements // 4)
        self.loop = same_traffic_loop(arrays, 1, number)
        self.steps = times(number, step(rule, arrays))

    def track_percent_of_same_traffic_loop(self, rule: str, elements: int) -> float:
        loop, steps = best_times(self.loop, self.steps)
        return 100 * loop / steps


class Rows:
    """Adagrad on distinct rows of a table, in percent of a loop in C that only moves them."""

    params = ([2**8, 2**12, 2**16],)
    param_names = ("rows",)
    unit = "%"

    def setup(self, rows: int) -> None:
        public("threads.set_num_threads")(1)
        table, ids = (2**18, 32), np.random.default_rng(0).permutation(2**18)[:rows]
        tables = operands("adagrad", table)[:-1]
        self.loop = random_rows_loop(tables, ids, 1)
        self.step = step("adagrad", [*tables, filled((rows, 32))], indices=ids)

    def track_percent_of_random_rows(self, rows: int) -> float:
        loop, steps = best_times(self.loop, self.step)
        return 100 * loop / steps


class Lists:
    """A step of Adam for many small tensors, relative to adding to each of them by NumPy."""

    params = ([1, 16, 256, 4096],)
    param_names = ("tensors",)
    unit = "times"

    def setup(self, tensors: int) -> None:
        optimizer = public("optimizers.Adam")()
        variables = [filled(64, seed=seed % 8) for seed in range(tensors)]
        pairs = [(filled(64), variable) for variable in variables]
        number = max(1, 1024 // tensors)
        self.steps = times(number, lambda: optimizer.apply_gradients(pairs))
        self.steps()

        def add() -> None:
            for gradient, variable in pairs:
                np.add(variable, gradient, out=variable)

        self.additions = times(number, add)

    def track_ratio_to_numpy(self, tensors: int) -> float:
        additions, steps = best_times(self.additions, self.steps)
        return steps / additions


class Tape:
    """The gradient of a chain of products, relative to the products alone by NumPy."""

    params = ([2**4, 2**8, 2**12],)
    param_names = ("operations",)
    unit = "times"

    def setup(self, operations: int) -> None:
        new_tape, factor = of_package("GradientTape"), np.array([0.9, 1.0, 1.1])
        x = of_package("constant")(factor)

        def forward(y: Any) -> Any:
            for _ in range(operations):
                y = y * factor
            return y

        def gradient() -> None:
            with new_tape() as tape:
                tape.watch(x)
                y = forward(x)
            tape.gradient(y, x)

        self.forward, self.gradient = lambda: forward(factor), gradient

    def track_ratio_to_numpy(self, operations: int) -> float:
        forward, gradient = best_times(self.forward, self.gradient)
        return gradient / forward


class Fit:
    """Logistic regression on one thread, beside scikit-learn's; each to its default tolerance."""

    params = ([2**10, 2**14],)
    param_names = ("rows",)
    unit = "times"

    def setup(self, rows: int) -> None:
        from sklearn.linear_model import LogisticRegression

        public("threads.set_num_threads")(1)
        random = np.random.default_rng(0)
        X = random.standard_normal((rows, 20))
        y = X @ np.linspace(-1, 1, 20) + random.standard_normal(rows) > 0
        ours, theirs = public("linear_model.SDCAClassifier")(), LogisticRegression()
        self.fits = (lambda: theirs.fit(X, y)), (lambda: ours.fit(X, y))

    def track_speed_over_lbfgs(self, rows: int) -> float:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            theirs, ours = best_times(*self.fits, seconds=1.0)
        return theirs / ours
