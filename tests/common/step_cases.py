"""Optimizers for tests of steps, and everything that a step can change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from common.wrapper_cases import USERS, WRAPPERS
from tfopt import IndexedSlices, Variable, optimizers
from tfopt.optimizers import Optimizer
from tfopt.optimizers.state.config import OPTIMIZERS

#: Arguments of every optimizer that takes steps by itself.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ADOPT": {"learning_rate": 0.5},
    "AdEMAMix": {"learning_rate": 0.5, "warmup_steps": 3},
    "Adadelta": {"learning_rate": 0.5},
    "Adafactor": {"learning_rate": 0.5},
    "Adagrad": {"learning_rate": 0.5},
    "Adam": {"learning_rate": 0.5, "amsgrad": True},
    "AdamMini": {"learning_rate": 0.5},
    "AdamW": {"learning_rate": 0.5, "weight_decay": 0.25},
    "Adamax": {"learning_rate": 0.5},
    "Ftrl": {"learning_rate": 0.5},
    "LAMB": {"learning_rate": 0.5},
    "LARS": {"learning_rate": 0.5},
    "Lion": {"learning_rate": 0.5},
    "Nadam": {"learning_rate": 0.5},
    "RMSprop": {"learning_rate": 0.5, "momentum": 0.5, "centered": True},
    "RAdam": {"learning_rate": 0.5},
    "RowwiseAdagrad": {"learning_rate": 0.5, "l2": 0.25},
    "RowwiseAdam": {"learning_rate": 0.5},
    "SGD": {"learning_rate": 0.5, "momentum": 0.5},
    "ScheduleFreeAdamW": {"learning_rate": 0.5},
    "ScheduleFreeSGD": {"learning_rate": 0.5},
    "Signum": {"learning_rate": 0.5},
    "Yogi": {"learning_rate": 0.5},
}


class Written(Optimizer):
    """A user-defined optimizer with a slot."""

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
    """A library optimizer whose steps call a user-defined method."""

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
        super()._resource_apply_dense(grad / 2, handle, apply_state)


def public() -> set[str]:
    """Return the names of all public optimizers."""
    return {name for name in optimizers.__all__ if name.lower() in OPTIMIZERS}


def every_optimizer(**options: Any) -> dict[str, Callable[[], Optimizer]]:
    """Return factories of every kind of optimizer, public and user-defined."""
    assert public() == {*ARGUMENTS, *WRAPPERS}

    def alone(name: str) -> Optimizer:
        made: Optimizer = getattr(optimizers, name)(**{**ARGUMENTS[name], **options})
        return made

    own = {cls.__name__: cls for cls in (Written, Overridden)}
    return {
        **{name: lambda name=name: alone(name) for name in ARGUMENTS},
        **{
            name: lambda case=case: case.busy(alone("Adam"))
            for name, case in {**WRAPPERS, **USERS}.items()
        },
        **{name: lambda cls=cls: cls(0.5, **options) for name, cls in own.items()},
    }


def params(constrained: bool = False) -> dict[str, Any]:
    """Return variables of several kinds: dense, a table, 16-bit, optionally a constrained one."""
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
    """Return their gradients: sparse for tables, with a duplicate row."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {
        name: random.standard_normal(var.shape).astype(var.dtype) for name, var in variables.items()
    }
    rows = np.array([4, 1, 4])
    for name in ("table", "column"):
        found[name] = IndexedSlices(found[name][rows], rows)
    return found


def frozen(value: Any) -> Any:
    """Return a value that compares equal only if all bits are equal."""
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
