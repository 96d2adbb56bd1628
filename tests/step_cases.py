"""Optimizers as tests of their steps make them, and the whole of what a step can change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt import IndexedSlices, Variable, optimizers
from tfopt.optimizers import Optimizer

#: Arguments of every optimizer that takes steps by itself.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Adadelta": {"learning_rate": 0.5},
    "Adafactor": {"learning_rate": 0.5},
    "Adagrad": {"learning_rate": 0.5},
    "Adam": {"learning_rate": 0.5, "amsgrad": True},
    "AdamW": {"learning_rate": 0.5, "weight_decay": 0.25},
    "Adamax": {"learning_rate": 0.5},
    "Ftrl": {"learning_rate": 0.5},
    "Lion": {"learning_rate": 0.5},
    "Nadam": {"learning_rate": 0.5},
    "RMSprop": {"learning_rate": 0.5, "momentum": 0.5, "centered": True},
    "SGD": {"learning_rate": 0.5, "momentum": 0.5},
}
#: What is around an optimizer, in tests of wrappers.
WRAPPERS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "GradientAccumulation": lambda inner: optimizers.GradientAccumulation(inner, 2),
    "LossScaleOptimizer": lambda inner: optimizers.LossScaleOptimizer(inner, 4.0, 2),
    "ParameterGroups": lambda inner: optimizers.ParameterGroups(
        inner, [("table", optimizers.SGD(0.5, momentum=0.5, use_locking=inner.use_locking))]
    ),
    "WeightAverage": lambda inner: optimizers.WeightAverage(inner, 0.5, 2),
}


class Written(Optimizer):
    """A user's own optimizer, with a slot."""

    def __init__(self, learning_rate: Any = 0.5, name: str = "Written", **kwargs: Any) -> None:
        super().__init__(name, learning_rate, **kwargs)

    def _create_slots(self, var_list: Any) -> None:
        for var in var_list:
            self.add_slot(var, "m")

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
        m = self.get_slot(handle, "m").numpy()
        m += grad
        handle.assign_sub(apply_state["cpu", handle.dtype]["lr_t"] * m)

    def _resource_apply_sparse(
        self, grad: Any, handle: Any, indices: Any, apply_state: Any
    ) -> None:
        self.get_slot(handle, "m").numpy()[indices] += grad
        handle.numpy()[indices] -= apply_state["cpu", handle.dtype]["lr_t"] * grad


class Overridden(optimizers.Adam):
    """An optimizer of the library whose steps go through a user's method."""

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
        super()._resource_apply_dense(grad / 2, handle, apply_state)


def public() -> set[str]:
    """Return the names of the optimizers in the package's list."""
    found = {name: getattr(optimizers, name) for name in optimizers.__all__}
    return {
        name
        for name, cls in found.items()
        if isinstance(cls, type) and issubclass(cls, Optimizer) and cls is not Optimizer
    }


def every_optimizer(**options: Any) -> dict[str, Callable[[], Optimizer]]:
    """Return what makes each kind of optimizer: all there are in the package, and users' own."""
    assert public() == {*ARGUMENTS, *WRAPPERS}

    def alone(name: str) -> Optimizer:
        made: Optimizer = getattr(optimizers, name)(**{**ARGUMENTS[name], **options})
        return made

    own = {cls.__name__: cls for cls in (Written, Overridden)}
    return {
        **{name: lambda name=name: alone(name) for name in ARGUMENTS},
        **{name: lambda name=name: WRAPPERS[name](alone("Adam")) for name in WRAPPERS},
        **{name: lambda cls=cls: cls(0.5, **options) for name, cls in own.items()},
    }


def params(constrained: bool = False) -> dict[str, Any]:
    """Return variables of several kinds: dense, a table, of 16 bits, and maybe one constrained."""
    random = np.random.default_rng(3)
    made: dict[str, Any] = {
        "dense": random.standard_normal(5),
        "table": random.standard_normal((6, 2)).astype(np.float32),
        "half": random.standard_normal(3).astype(np.float16),
        "column": random.standard_normal(6),
    }
    if constrained:
        made["bound"] = Variable(np.array([0.5, 2.0]), constraint=lambda w: np.clip(w, 0, 1))
    return made


def gradients(variables: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return gradients of these: of some rows, one of them twice, where there are tables."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {
        name: random.standard_normal(var.shape).astype(var.dtype) for name, var in variables.items()
    }
    rows = np.array([4, 1, 4])
    for name in ("table", "column"):
        found[name] = IndexedSlices(found[name][rows], rows)
    return found


def frozen(value: Any) -> Any:
    """Return a value whose comparison compares all bits."""
    if isinstance(value, dict):
        return {key: frozen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(each) for each in value]
    if isinstance(value, Variable):
        return frozen(value.numpy())
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.name, value.tobytes()
    return value


def everything(optimizer: Optimizer, variables: Any, settled: bool = False) -> Any:
    """Return all that a step can change: variables, weights, slots, what rows owe, and names.

    Where it is to be `settled`, after all rows have taken the steps they owe, in a copy.
    """
    if settled:
        optimizer, variables = copy.deepcopy((optimizer, variables))
        optimizer.flush()
    weights = [(weight.name, frozen(weight)) for weight in optimizer.weights]
    return frozen(variables), weights, frozen(optimizer.state_dict(variables))
