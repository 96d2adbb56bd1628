"""Steps where any two features meet, against what they do written out in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from covering import all_pairs

from tfopt import IndexedSlices, Variable, optimizers

RULES: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.5},
    "Adam": {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1e-3},
    "Adagrad": {"initial_accumulator_value": 0.25, "epsilon": 1e-3},
}
FACTORS: dict[str, Any] = {
    "rule": list(RULES),
    "clip": [None, "clipvalue", "clipnorm", "global_clipnorm"],
    "merge": ["after", "before"],
    "decay": [0.0, 0.25],
    "excluded": [False, True],
    "rate": ["number", "schedule", "inverse decay"],
    "sparse": ["tensorflow", "lazy", "catch_up"],
    "gradient": ["dense", "rows", "repeated rows"],
    "width": [1, 3],
    "dtype": ["float64", "float32", "float16", "bfloat16"],
    "layout": ["contiguous", "strided", "reversed"],
    "constrained": [False, True],
    "steps": ["fused", "one by one"],
    "locked": [False, True],
    "observed": [False, True],
    "around": ["nothing", "accumulation", "loss scale", "average", "groups"],
}
LIMIT, ROWS, T = 0.5, 5, 4


def possible(case: dict[str, Any]) -> bool:
    late = case.get("sparse") == "catch_up"
    narrow = case.get("dtype") in ("float16", "bfloat16") and case.get("gradient") != "dense"
    return not (late and (narrow or case.get("around") == "average"))


CASES = all_pairs(FACTORS, possible)


def rate_at(case: dict[str, Any], t: int) -> float:
    return {"number": 0.5, "schedule": 0.5 * 0.5**t, "inverse decay": 0.5 / (1 + 0.5 * t)}[
        case["rate"]
    ]


def made(case: dict[str, Any], table: Variable) -> Any:
    """Return an optimizer of the library."""
    options: dict[str, Any] = dict(RULES[case["rule"]])
    if case["clip"]:
        options[case["clip"]] = LIMIT
    rate: Any = 0.5
    if case["rate"] == "schedule":
        rate = optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    if case["rate"] == "inverse decay":
        options["decay"] = 0.5
    base = getattr(optimizers, case["rule"])
    hook = {"_resource_apply_dense": lambda self, *given: base._resource_apply_dense(self, *given)}
    cls = type("Own", (base,), hook) if case["steps"] == "one by one" else base
    inner = cls(
        rate, **options, merge=case["merge"], sparse=case["sparse"], weight_decay=case["decay"],
        use_locking=case["locked"],
    )  # fmt: skip
    inner.observe = case["observed"]
    if case["excluded"]:
        inner.exclude_from_weight_decay([table])
    around = {
        "nothing": lambda: inner,
        "accumulation": lambda: optimizers.GradientAccumulation(inner, 2, "sum"),
        "loss scale": lambda: optimizers.LossScaleOptimizer(inner, 4.0, 1000),
        "average": lambda: optimizers.WeightAverage(inner, 0.5),
        "groups": lambda: optimizers.ParameterGroups(inner, [("^no variable$", {})]),
    }
    return around[case["around"]]()


class Model:
    """What a step does: to a table, whose gradient may be one of some rows, and another array."""

    def __init__(self, case: dict[str, Any], table: np.ndarray, other: np.ndarray) -> None:
        self.case = case
        self.vars = [table.astype(float), other.astype(float)]
        first = RULES[case["rule"]].get("initial_accumulator_value", 0.0)
        self.slots = [[np.full(var.shape, first) for _ in range(2)] for var in self.vars]
        self.dtypes = [table.dtype, other.dtype]
        self.average = [var.copy() for var in self.vars]

    def step(self, t: int, rows: Any, values: np.ndarray, other: np.ndarray) -> None:
        case = self.case
        grads = [values.astype(float), other.astype(float)]
        if rows is not None and case["merge"] == "before":
            rows, grads[0] = summed(rows, grads[0])
        if case["clip"] == "clipvalue":
            grads = [np.clip(grad, -LIMIT, LIMIT) for grad in grads]
        norms = [np.sqrt((grad**2).sum()) for grad in grads]
        if case["clip"] == "global_clipnorm":
            norms = [np.sqrt(sum(norm**2 for norm in norms))] * 2
        if case["clip"] in ("clipnorm", "global_clipnorm"):
            grads = [g * LIMIT / max(n, LIMIT) for g, n in zip(grads, norms, strict=True)]
        visited = np.ones(ROWS, bool)
        if rows is not None:
            rows, distinct = summed(rows, grads[0])
            grads[0] = np.zeros(self.vars[0].shape)
            grads[0][rows] = distinct
            everywhere = case["sparse"] == "catch_up" or (
                case["sparse"] == "tensorflow" and case["rule"] == "Adam"
            )
            visited = np.isin(np.arange(ROWS), rows) | everywhere
        self.update(0, visited, grads[0], t)
        self.update(1, slice(None), grads[1], t)
        if case["constrained"]:
            self.vars[1] = np.clip(self.vars[1], -0.5, 0.5)
        weight = 0.5 if t else 0.0
        self.average = [
            weight * mean + (1 - weight) * var
            for mean, var in zip(self.average, self.vars, strict=True)
        ]

    def update(self, k: int, rows: Any, grad: np.ndarray, t: int) -> None:
        rate, rule = rate_at(self.case, t), RULES[self.case["rule"]]
        w, g, (a, b) = self.vars[k][rows], grad[rows], (slot[rows] for slot in self.slots[k])
        if not (self.case["excluded"] and k == 0):
            w = w * (1 - rate * self.case["decay"])
        if self.case["rule"] == "SGD":
            a = rule["momentum"] * a - rate * g
            w = w + a
        elif self.case["rule"] == "Adagrad":
            a = a + g**2
            w = w - rate * g / (np.sqrt(a) + rule["epsilon"])
        else:
            a = rule["beta_1"] * a + (1 - rule["beta_1"]) * g
            b = rule["beta_2"] * b + (1 - rule["beta_2"]) * g**2
            length = np.sqrt(1 - rule["beta_2"] ** (t + 1)) / (1 - rule["beta_1"] ** (t + 1))
            w = w - rate * length * a / (np.sqrt(b) + rule["epsilon"])
        self.vars[k][rows] = w.astype(self.dtypes[k])
        for slot, new in zip(self.slots[k], (a, b), strict=True):
            slot[rows] = new.astype(self.dtypes[k])


def summed(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, places = np.unique(rows, return_inverse=True)
    total = np.zeros((len(distinct), *values.shape[1:]))
    np.add.at(total, places, values)
    return distinct, total


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return an array of these values with another layout."""
    if layout == "contiguous":
        return values.copy()
    if layout == "reversed":
        return values[::-1].copy()[::-1]
    memory = np.zeros((2 * len(values), *values.shape[1:]), values.dtype)
    memory[::2] = values
    return memory[::2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_a_step_does_what_is_written_here(case: dict[str, Any]) -> None:
    dtype = np.dtype(getattr(ml_dtypes, case["dtype"], case["dtype"]))
    random = np.random.default_rng(1)
    shape = (ROWS,) if case["width"] == 1 else (ROWS, case["width"])
    start = random.standard_normal(shape).astype(dtype)
    other = random.standard_normal(4)
    array = laid_out(start, case["layout"])
    table = Variable(array, "table")
    bound = Variable(
        other.copy(), "bound", constraint=lambda w: np.clip(w, -0.5, 0.5)
    ) if case["constrained"] else Variable(other.copy(), "free")  # fmt: skip
    opt, model = made(case, table), Model(case, start, other)
    for t in range(T):
        rows = None
        if case["gradient"] != "dense":
            repeated = case["gradient"] == "repeated rows"
            rows = np.array([3, 0, 3, 3] if repeated else [3, 0])[: 4 - t % 2]
        n = ROWS if rows is None else len(rows)
        # quarters, whose sums and halves are exact in every dtype
        values = (random.integers(-8, 9, (n, *shape[1:])) / 4).astype(dtype)
        free = random.integers(-8, 9, 4) / 4
        if case["around"] == "accumulation" and rows is not None:  # kept as they come
            twice = np.concatenate([values, values]).astype(float) / 2
            model.step(t, np.concatenate([rows, rows]), twice, free)
        else:
            model.step(t, rows, values, free)
        if case["around"] == "loss scale":
            values, free = values * dtype.type(4), free * 4
        grads: list[Any] = [values if rows is None else IndexedSlices(values, rows), free]
        halves = [grads]
        if case["around"] == "accumulation":
            half = values / dtype.type(2)
            halves = [[half if rows is None else IndexedSlices(half, rows), free / 2]] * 2
        for grads in halves:
            opt.apply_gradients(list(zip(grads, [table, bound], strict=True)))
    opt.flush()
    rtol = 1e-12 if dtype == np.float64 else 8 * T * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(array.astype(float), model.vars[0], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(bound.numpy(), model.vars[1], rtol=1e-12)
    if case["around"] == "average":
        average = opt.get_slot(table, "average").numpy()
        np.testing.assert_allclose(average, model.average[0], rtol=rtol, atol=rtol)
    assert int(opt.iterations) == T
    if case["observed"] and case["steps"] == "fused":
        report = opt.last_step[-1] if case["around"] == "groups" else opt.last_step
        assert report.nonfinite == 0 and report.gradient_norm > 0


def test_every_pair_of_features_is_met() -> None:
    for first, a_values in FACTORS.items():
        for second, b_values in FACTORS.items():
            for a in a_values:
                for b in b_values:
                    if first < second and possible({first: a, second: b}):
                        assert any(case[first] == a and case[second] == b for case in CASES)
