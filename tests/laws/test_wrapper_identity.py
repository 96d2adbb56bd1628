"""A wrapper without an effect gives the bits of its optimizer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.optimizer_arguments import RULES
from common.wrapper_cases import USERS, WRAPPERS

import tfopt

CASES = {**WRAPPERS, **USERS}
NAMES = [*CASES]
#: From the inside out.
STACKS = [
    *((which,) for which in NAMES),
    *zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True),
    *((which, which) for which in NAMES),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"clipvalue": 0.5, "use_locking": True},
    {"clipnorm": 0.5, "merge": "before"},
    {"global_clipnorm": 0.5, "decay": 0.25},
    {
        "compat": "tensorflow",
        "gradient_transformers": [lambda pairs: [(g * 3, v) for g, v in pairs]],
    },
    {"gradient_aggregator": lambda pairs: [(grad * 3, var) for grad, var in pairs]},
]


class Run:
    """Steps of every kind, of dense variables and rows, large and small."""

    def __init__(self, name: str, stack: tuple[str, ...], options: dict[str, Any]) -> None:
        self.name, self.stack, self.options = name, stack, options
        random = np.random.default_rng(3)
        self.values = {
            "a": random.normal(size=(3, 4)).astype(np.float32),
            "half": random.normal(size=5).astype(np.float16),
            "b": random.normal(size=(2, 6)).T,
            "table": random.normal(size=(6, 2)).astype(np.float32),
        }
        self.variables = {key: tfopt.Variable(array, key) for key, array in self.values.items()}
        self.inner, self.opt = self.made()

    def made(self) -> tuple[Any, Any]:
        inner = getattr(tfopt.optimizers, self.name)(0.125, **self.options)
        outer = inner
        for which in self.stack:
            outer = CASES[which].idle(outer)
        return inner, outer

    def grads(self, k: int) -> dict[str, Any]:
        random = np.random.default_rng([k, 7])
        found: dict[str, Any] = {
            key: random.normal(size=array.shape).astype(array.dtype)
            for key, array in self.values.items()
        }
        rows = random.integers(0, 6, 4)
        found["table"] = tfopt.IndexedSlices(found["table"][:4], rows)
        return found

    def apply(self, k: int) -> None:
        grads = self.grads(k)
        self.opt.apply_gradients([(grads[key], v) for key, v in self.variables.items()])

    def minimize(self, k: int) -> None:
        shared, rows = self.variables, np.array([k % 6, 1, 1])

        def loss() -> Any:
            dense = np.sum(shared["a"] * shared["a"]) + np.sum(shared["half"] * np.float16(0.5))
            return dense + np.sum(shared["b"] ** 2) + np.sum(shared["table"][rows] ** 2)

        self.opt.minimize(loss, list(shared.values()))

    def step(self, k: int) -> None:
        self.opt.step(self.variables, self.grads(k))

    def traced(self, k: int) -> None:
        function = tfopt.function(lambda: (self.apply(k), self.minimize(k))[1:1])
        function()
        function()

    def restored(self, k: int) -> None:
        state = copy.deepcopy(self.opt.state_dict(self.variables))
        self.inner, self.opt = self.made()
        self.opt.load_state_dict(state, self.variables)
        self.apply(k)

    def all(self) -> dict[str, np.ndarray]:
        for k, kind in enumerate(
            (self.apply, self.minimize, self.step, self.traced, self.restored, self.apply)
        ):
            kind(k)
        state = {str(k): array for k, array in enumerate(self.inner.get_weights())}
        return {**self.values, **state}


_PLAIN: dict[Any, dict[str, np.ndarray]] = {}


@pytest.mark.parametrize("stack", STACKS, ids="-".join)
@pytest.mark.parametrize("name", RULES)
def test_it_is_the_optimizer_inside(name: str, stack: tuple[str, ...]) -> None:
    which = STACKS.index(stack) % len(OPTIONS)
    key = name, which
    if key not in _PLAIN:
        _PLAIN[key] = Run(name, (), OPTIONS[which]).all()
    made = Run(name, stack, OPTIONS[which]).all()
    assert made.keys() == _PLAIN[key].keys()
    for part, expected in _PLAIN[key].items():
        assert_same_bits(made[part], expected, part)
