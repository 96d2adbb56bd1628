"""Clipping: norms and scaling relative to memory bandwidth."""

from __future__ import annotations

from .common import Step, best_times, clip_traffic_loop, filled, operands, public, step, times

#: Elements, and calls per measurement.
SIZES = {
    "2^16": (1 << 16, 50),
    "2^20": (1 << 20, 5),
    "2^26": (1 << 26, 1),
    "2^26 on one thread": (1 << 26, 1),
}


def clipping(tensors: list, above: bool) -> Step:
    """Return a call that clips in place, to a slightly lower limit each time if `above`."""
    clip = public("clip_ops.clip_by_global_norm")
    limit = 1e-3 if above else 1e30

    def call() -> None:
        nonlocal limit
        clip(tensors, limit, out=tensors)
        limit *= 0.9999

    call()
    return call


class Bandwidth:
    """The rate in percent of a loop in C that only moves the same data."""

    params = (["global_norm", "clip in place", "nothing to clip"], list(SIZES))
    param_names = ("call", "elements")
    unit = "%"

    def setup(self, call: str, elements: str) -> None:
        size, number = SIZES[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        array = filled(size)
        threads = public("threads.get_num_threads")()
        self.loop = clip_traffic_loop(array, call == "clip in place", threads, number)
        norm = public("clip_ops.global_norm")
        tensors = [array]
        steps = {
            "global_norm": lambda: norm(tensors),
            "clip in place": clipping(tensors, True),
            "nothing to clip": clipping(tensors, False),
        }
        self.steps = times(number, steps[call])

    def track_percent_of_loop(self, call: str, elements: str) -> float:
        loop, steps = best_times(self.loop, self.steps)
        return 100 * loop / steps


class ManyTensors:
    """1000 small tensors."""

    params = ([64, 1000],)
    param_names = ("elements of each",)

    def setup(self, size: int) -> None:
        self.call = clipping([filled(size) for _ in range(1000)], True)

    def time_clip_in_place(self, size: int) -> None:
        self.call()


class ByValue:
    """The time of clip_by_value relative to a gradient descent step of the same array."""

    params = (["float32", "float64", "int32", "float16"],)
    param_names = ("dtype",)
    unit = "times"

    def setup(self, dtype: str) -> None:
        array = (filled(1 << 24) * 100).astype(dtype)
        clip = public("clip_ops.clip_by_value")
        self.clip = lambda: clip(array, 20, 80, out=array)
        self.step = step("gradient_descent", operands("gradient_descent", array.size))

    def track_ratio_to_gradient_descent(self, dtype: str) -> float:
        clip, other = best_times(self.clip, self.step)
        return clip / other


class Fused:
    """The time of an optimizer's step with clipping relative to one without."""

    params = (["clipvalue", "clipnorm", "global_clipnorm"],)
    param_names = ("clipping",)
    unit = "times"

    def setup(self, clipping: str) -> None:
        pairs = [(filled(1 << 24), filled(1 << 24, seed=1))]
        optimizer = public("optimizers.Adamax")()
        if not hasattr(optimizer, clipping):
            raise NotImplementedError("this tfopt's optimizers do not clip")

        def step(limit: float | None) -> None:  # on the same arrays: location matters more
            setattr(optimizer, clipping, limit)
            optimizer.apply_gradients(pairs)

        self.steps = [lambda: step(None), lambda: step(0.5)]

    def track_ratio_to_unclipped(self, clipping: str) -> float:
        plain, clipped = best_times(*self.steps, seconds=1)
        return clipped / plain
