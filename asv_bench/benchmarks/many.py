"""Models of many tensors, through an optimizer and by one call with lists."""

from __future__ import annotations

from functools import cache

from .common import RULES, Step, best_times, filled, operands, public, step

#: The rule that each optimizer's step carries out.
OPTIMIZERS = {"Adam": "adam", "Adamax": "adamax", "SGD": "gradient_descent"}

#: Tensors and their size.
MODELS = {
    "1000 x 64": (1000, 64),
    "1000 x 1000": (1000, 1000),
    "200 x 100 000": (200, 100_000),
}


@cache
def _step(optimizer: str, model: str) -> Step:
    """Return the step to time; kept, because asv sets a benchmark up anew for each sample."""
    n, size = MODELS[model]
    variable = public("variable.Variable")
    opt = public(f"optimizers.{optimizer}")()
    pairs = [(filled(size), variable(filled(size))) for _ in range(n)]
    opt.apply_gradients(pairs)  # makes the slots
    return lambda: opt.apply_gradients(pairs)


class ManyTensors:
    params = (list(OPTIMIZERS), list(MODELS))
    param_names = ("optimizer", "model")
    rounds = 1
    repeat = (3, 50, 0.5)

    def setup(self, optimizer: str, model: str) -> None:
        self.step = _step(optimizer, model)

    def time_apply_gradients(self, optimizer: str, model: str) -> None:
        self.step()


class Lists:
    """One call of a rule's function with lists, relative to one with a single array."""

    params = (list(RULES), list(MODELS))
    param_names = ("rule", "model")
    unit = "times"

    def setup(self, rule: str, model: str) -> None:
        n, size = MODELS[model]
        columns = zip(*(operands(rule, size) for _ in range(n)), strict=True)
        try:
            self.step = step(rule, [list(column) for column in columns])
        except TypeError as error:
            raise NotImplementedError("this tfopt takes no lists") from error
        self.single = step(rule, operands(rule, n * size))

    def time_call(self, rule: str, model: str) -> None:
        self.step()

    def track_ratio_to_single_array(self, rule: str, model: str) -> float:
        many, single = best_times(self.step, self.single)
        return many / single


class Ratio:
    """The time of a step relative to one dense call on all the tensors as a single array."""

    params = ManyTensors.params
    param_names = ManyTensors.param_names
    unit = "times"

    def setup(self, optimizer: str, model: str) -> None:
        self.step = _step(optimizer, model)
        n, size = MODELS[model]
        rule = OPTIMIZERS[optimizer]
        self.single = step(rule, operands(rule, n * size))

    def track_ratio_to_single_array(self, optimizer: str, model: str) -> float:
        many, single = best_times(self.step, self.single)
        return many / single
