"""What is added to a step, relative to the plain step: in one process, one after the other."""

from __future__ import annotations

from typing import Any

from .common import Step, best_times, filled, public

ELEMENTS = 1 << 26
#: What a plain step of Adam moves, in bytes per float32 element.
ADAM = 28
#: A sum begun: a gradient read, a sum written, its lines read first. Added to: read, read, written.
BATCH = 12
LAST_BATCH = ADAM - 4 + BATCH


def _stepping(opt: Any) -> Step:
    grad, w = filled(ELEMENTS), filled(ELEMENTS)

    def step() -> None:
        opt.apply_gradients([(grad, w)])

    return step


def _optimizer(name: str, *arguments: Any, **options: Any) -> Any:
    return public(f"optimizers.{name}")(*arguments, **options)


class Additions:
    """The time of a step with an addition over that of the plain one."""

    params = (["weight_decay", "lion", "loss_scale", "loss_scale_clipped", "average", "observed"],)
    param_names = ("addition",)
    unit = "times"
    timeout = 600

    def setup(self, addition: str) -> None:
        plain = _optimizer("Adam")
        if addition == "weight_decay":
            other = _optimizer("AdamW")
        elif addition == "lion":  # as much traffic as a step with momentum
            plain, other = _optimizer("SGD", momentum=0.9), _optimizer("Lion")
        elif addition == "average":
            other = _optimizer("WeightAverage", _optimizer("Adam"))
        elif addition == "observed":
            other = _optimizer("Adam")
            other.observe = True
        else:
            clipping = {"global_clipnorm": 1e30} if addition == "loss_scale_clipped" else {}
            plain = _optimizer("Adam", **clipping)
            other = _optimizer("LossScaleOptimizer", _optimizer("Adam", **clipping))
        self.steps = _stepping(other), _stepping(plain)

    def track_ratio(self, addition: str) -> float:
        other, plain = best_times(*self.steps)
        return other / plain


class Accumulation:
    """The time of batches that make a step, over what their traffic would take at Adam's speed."""

    params = ([1, 4],)
    param_names = ("batches",)
    unit = "times"
    timeout = 600

    def setup(self, batches: int) -> None:
        one = _stepping(_optimizer("GradientAccumulation", _optimizer("Adam"), batches))

        def all_batches() -> None:
            for _ in range(batches):
                one()

        self.steps = all_batches, _stepping(_optimizer("Adam"))

    def track_ratio(self, batches: int) -> float:
        ours, plain = best_times(*self.steps)
        return ours / (plain * ((batches - 1) * BATCH + LAST_BATCH) / ADAM)
