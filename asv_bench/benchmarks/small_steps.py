"""Steps of an optimizer whose arrays are so small that calls and checks take the time."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from .common import Step, best_times, public, step, times


def _arrays() -> dict[str, np.ndarray]:
    return {"w": np.ones(64, np.float32), "b": np.ones(64, np.float32)}


def _applied(tensors: int, size: int) -> Step:
    variable = public("variable.Variable")
    pairs: list[Any] = [
        (np.ones(size, np.float32), variable(np.ones(size, np.float32))) for _ in range(tensors)
    ]
    opt = public("optimizers.Adam")()
    return lambda: opt.apply_gradients(pairs)


def _stepped(tree: Any, grads: Any) -> Step:
    opt = public("optimizers.Adam")()
    return lambda: opt.step(tree, grads)


#: What is stepped by Adam in float32, not for the first time.
STEPS = {
    "apply_gradients, one array of 16": lambda: _applied(1, 16),
    "step, one array of 16": lambda: _stepped(np.ones(16, np.float32), np.ones(16, np.float32)),
    "apply_gradients, 1000 variables of 64": lambda: _applied(1000, 64),
    "step, 500 dicts of two arrays of 64": lambda: _stepped(
        [_arrays() for _ in range(500)], [_arrays() for _ in range(500)]
    ),
}


class SmallSteps:
    params = list(STEPS)
    param_names = ("step",)
    rounds = 1
    repeat = (3, 50, 0.5)

    def setup(self, step: str) -> None:
        self.step = STEPS[step]()
        for _ in range(3):
            self.step()

    def time_step(self, step: str) -> None:
        self.step()


def _optimizer(name: str, *arguments: Any, **options: Any) -> Any:
    return public(f"optimizers.{name}")(*arguments, **options)


def _traced(opt: Any) -> Step:
    w = public("variable.Variable")(np.ones(16, np.float32))
    train = public("autodiff.function")(lambda grad: opt.apply_gradients([(grad, w)]))
    grad = np.ones(16, np.float32)
    return lambda: train(grad)


def _observed() -> Any:
    opt = _optimizer("Adam")
    opt.observe = True
    return opt


def _of(opt: Any, dtype: str = "float32") -> Step:
    pairs = [(np.ones(16, dtype), np.ones(16, dtype))]
    return lambda: opt.apply_gradients(pairs)


#: Steps of one array of 16 elements that do more than a plain one.
AROUND: dict[str, Callable[[], Step]] = {
    "loss scale": lambda: _of(_optimizer("LossScaleOptimizer", _optimizer("Adam"))),
    "accumulation, a batch of four": lambda: _of(
        _optimizer("GradientAccumulation", _optimizer("Adam"), 4)
    ),
    "moving average": lambda: _of(_optimizer("WeightAverage", _optimizer("Adam"))),
    "groups, of which one has variables": lambda: _of(
        _optimizer("ParameterGroups", _optimizer("Adam"), [])
    ),
    "moving average around a loss scale": lambda: _of(
        _optimizer("WeightAverage", _optimizer("LossScaleOptimizer", _optimizer("Adam")))
    ),
    "tfopt.function": lambda: _traced(_optimizer("Adam")),
    "weight decay": lambda: _of(_optimizer("AdamW", weight_decay=0.1)),
    "float16": lambda: _of(_optimizer("Adam"), "float16"),
    "locks": lambda: _of(_optimizer("Adam", use_locking=True)),
    "clipnorm": lambda: _of(_optimizer("Adam", clipnorm=1.0)),
    "global_clipnorm": lambda: _of(_optimizer("Adam", global_clipnorm=1.0)),
    "clipvalue": lambda: _of(_optimizer("Adam", clipvalue=1.0)),
    "observe": lambda: _of(_observed()),
}


class Around:
    """A small step that does more, relative to a plain one."""

    params = list(AROUND)
    param_names = ("around",)
    unit = "times"

    def setup(self, around: str) -> None:
        self.calls = [times(100, AROUND[around]()), times(100, _applied(1, 16))]

    def track_ratio_to_plain_step(self, around: str) -> float:
        ours, plain = best_times(*self.calls, seconds=1.0)
        return ours / plain


def _theirs() -> list[Step]:
    """Return the fastest steps of torch; without torch, the rule's call by itself."""
    if find_spec("torch") is None:
        arrays = [np.ones(16, np.float32) for _ in range(4)]
        return [step("adam", arrays)]
    import torch

    steps: list[Step] = []
    for way in ({"fused": True}, {"foreach": True}):
        parameter = torch.nn.Parameter(torch.ones(16))
        parameter.grad = torch.ones(16)
        steps.append(torch.optim.Adam([parameter], **way).step)
    return steps


class BesideOthers:
    """A plain step of one array, relative to torch's fastest or, without torch, the bare call."""

    unit = "times"

    def setup(self) -> None:
        self.calls = [times(100, call) for call in (_applied(1, 16), *_theirs())]

    def track_ratio_to_fastest(self) -> float:
        ours, *theirs = best_times(*self.calls, seconds=1.0)
        return ours / min(theirs)


def _gradient(function: Callable[[Any], Any], asked: bool) -> Step:
    tape_of, x = public("autodiff.GradientTape"), public("autodiff.constant")(np.ones(4))

    def call() -> None:
        with tape_of() as tape:
            tape.watch(x)
            y = function(x)
        if asked:
            tape.gradient(y, x)

    return call


def _custom() -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = public("autodiff.custom_gradient")(lambda x: (x, lambda d: d))
    return function


def _unrecorded() -> Step:
    function, x = _custom(), public("autodiff.constant")(np.ones(4))
    return lambda: function(x)


#: Calls of a function with a custom gradient, beside what takes place without one.
CUSTOM: dict[str, Callable[[], Step]] = {
    "custom_gradient, nothing recording": _unrecorded,
    "tape alone": lambda: _gradient(lambda x: x, False),
    "tape, custom_gradient": lambda: _gradient(_custom(), False),
    "tape and gradient alone": lambda: _gradient(lambda x: x, True),
    "tape, custom_gradient and its gradient": lambda: _gradient(_custom(), True),
}


class CustomGradients:
    params = list(CUSTOM)
    param_names = ("call",)
    rounds = 1
    repeat = (3, 50, 0.5)

    def setup(self, call: str) -> None:
        self.calls = times(100, CUSTOM[call]())

    def time_100_calls(self, call: str) -> None:
        self.calls()
