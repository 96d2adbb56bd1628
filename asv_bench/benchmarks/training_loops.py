"""Additions to a step relative to the plain step, in one process, alternating."""

from __future__ import annotations

from typing import Any

from .common import Step, best_times, filled, public

ELEMENTS = 1 << 26
#: The traffic of a plain step of Adam, in bytes per float32 element.
ADAM = 28
#: A sum begun: a gradient read, a sum written, its lines read first. Added to: read, read, written.
BATCH = 12
LAST_BATCH = ADAM - 4 + BATCH


def _optimizer(name: str, *arguments: Any, **options: Any) -> Any:
    return public(f"optimizers.{name}")(*arguments, **options)


def _stepping(pairs: Any, opt: Any, **settings: Any) -> Step:
    """Return a step of an optimizer after setting attributes."""

    def step() -> None:
        for name, value in settings.items():
            setattr(opt, name, value)
        opt.apply_gradients(pairs)

    return step


class Additions:
    """The time of a step with an addition relative to the plain one.

    Both are steps of the same arrays, and where it can be of the same slots: other memory, with
    other pages, may be faster or slower by more than what is to be measured.
    """

    params = (
        [
            *("weight_decay", "cautious_weight_decay", "lion"),
            *("loss_scale", "loss_scale_clipped", "average", "observed"),
        ],
    )
    param_names = ("addition",)
    unit = "times"
    timeout = 600

    def setup(self, addition: str) -> None:
        pairs = [(filled(ELEMENTS), filled(ELEMENTS))]
        clipping = {"global_clipnorm": 1e30} if addition == "loss_scale_clipped" else {}
        plain = other = _optimizer("Adam", **clipping)
        settings = {
            "weight_decay": [{"weight_decay": 0.004}, {"weight_decay": 0.0}],
            "cautious_weight_decay": [
                {"weight_decay": 0.004, "cautious_weight_decay": True},
                {"weight_decay": 0.0, "cautious_weight_decay": False},
            ],
            "observed": [{"observe": True}, {"observe": False}],
        }.get(addition, [{}, {}])
        if addition == "lion":  # it has the traffic of a step with momentum
            plain, other = _optimizer("SGD", momentum=0.9), _optimizer("Lion")
        elif addition == "average":
            other = _optimizer("WeightAverage", plain)
        elif addition.startswith("loss_scale"):
            other = _optimizer("LossScaleOptimizer", plain)
        self.steps = _stepping(pairs, other, **settings[0]), _stepping(pairs, plain, **settings[1])

    def track_ratio(self, addition: str) -> float:
        other, plain = best_times(*self.steps, rounds=15)
        return other / plain


class LossScaling:
    """The time of a step with a loss scale relative to the plain one, by gradient dtype."""

    params = (["SGD", "momentum", "Adam", "Adam clipped"], ["float16", "float32"])
    param_names = ("step", "gradients")
    unit = "times"
    timeout = 600

    def setup(self, step: str, gradients: str) -> None:
        name = "SGD" if step == "momentum" else step.split(" ")[0]
        options = {"momentum": {"momentum": 0.9}, "Adam clipped": {"global_clipnorm": 1e30}}
        plain = _optimizer(name, **options.get(step, {}))
        pairs = [(filled(ELEMENTS, gradients), filled(ELEMENTS))]
        scaled = _optimizer("LossScaleOptimizer", plain)
        self.steps = _stepping(pairs, scaled), _stepping(pairs, plain)

    def track_ratio(self, step: str, gradients: str) -> float:
        other, plain = best_times(*self.steps, rounds=15)
        return other / plain


class Accumulation:
    """The time of the batches of a step relative to their traffic at Adam's speed."""

    params = ([1, 4],)
    param_names = ("batches",)
    unit = "times"
    timeout = 600

    def setup(self, batches: int) -> None:
        pairs, plain = [(filled(ELEMENTS), filled(ELEMENTS))], _optimizer("Adam")
        one = _stepping(pairs, _optimizer("GradientAccumulation", plain, batches))

        def all_batches() -> None:
            for _ in range(batches):
                one()

        self.steps = all_batches, _stepping(pairs, plain)

    def track_ratio(self, batches: int) -> float:
        ours, plain = best_times(*self.steps, rounds=15)
        return ours / (plain * ((batches - 1) * BATCH + LAST_BATCH) / ADAM)
