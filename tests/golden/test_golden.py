"""Both packages against TensorFlow's answers, from the golden files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from common.updates import update
from golden.compare import Case, check
from golden.differences import DIFFERENCES, Difference
from golden.optimizers import REPLAYS, check_states, conditioning, reasons_of
from golden.reasons import OTHER_ORDER

import tfopt
from tfopt.rules import DTYPES, OPS, RULES, Rule

DATA = Path(__file__).parents[1] / "golden" / "data"


@cache
def load(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)


SETTINGS: dict[str, list[dict[str, Any]]] = json.loads((DATA / "settings.json").read_text())
STORED = [
    (rule, name)
    for rule in RULES
    if rule.name in OPS
    if (DATA / f"{rule.name}.npz").exists()
    for name in load(rule.name)
]


def test_every_rule_has_golden_files():
    missing = (
        {rule.name for rule in RULES if rule.name in OPS}
        - {rule.name for rule, _ in STORED}
        - set(SETTINGS)
    )
    assert not missing, f"run python -m golden.make in tests/: {missing} came after the last run"


def cases(rule: Rule, name: str) -> list[tuple[Case, list[np.ndarray]]]:
    """Return every step of a file's member with TensorFlow's answer, from its answer before."""
    inputs = load("inputs")
    first = [np.asarray(x) for x in inputs[f"{name}/variables"][: 1 + len(rule.slots)]]
    found = []
    for setting, answers in zip(SETTINGS[rule.name], load(rule.name)[name], strict=True):
        old = first
        for step, answer in enumerate(answers):
            indices = inputs[f"{name}/indices"][step] if f"{name}/indices" in inputs else None
            grad = inputs[f"{name}/grads"][step]
            case = Case(
                rule, setting["hypers"], setting["flags"], old, grad, indices, f"step {step + 1}"
            )
            old = [np.asarray(state) for state in answer]
            found.append((case, old))
    return found


@pytest.mark.sampled_whole
@pytest.mark.parametrize(
    ("rule", "name"), STORED, ids=[f"{rule.name}-{name.replace('/', '-')}" for rule, name in STORED]
)
def test_training_op(impl: ModuleType, rule: Rule, name: str):
    for case, answer in cases(rule, name):
        check(case, case.apply(impl), answer)


OPTIMIZERS: dict[str, Any] = json.loads((DATA / "optimizers.json").read_text())
NUMBERED = list(enumerate(OPTIMIZERS["optimizers"]))


def optimizer_inputs() -> dict[str, dict[str, np.ndarray]]:
    """Return first values, gradients and indices of the optimizers' variables."""
    inputs: dict[str, dict[str, np.ndarray]] = {}
    for key, array in load("optimizers").items():
        variable, kind = key.split("/", 1)
        if kind in ("first", "grads", "indices"):
            inputs.setdefault(variable, {})[kind] = array
    return inputs


LIMITS = ("clipnorm", "clipvalue", "global_clipnorm")


def test_every_optimizer_is_run_with_every_option():
    """Fifty steps, dense and sparse. Nadam has no decay of its learning rate, and no schedule."""
    expected = {
        (name, option)
        for name in ("SGD", "Adam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Nadam", "Ftrl")
        for option in ("nothing", "decay", "a schedule", *LIMITS)
    } - {("Nadam", "decay"), ("Nadam", "a schedule")}
    found = set()
    for name, config in (made.values() for made in OPTIMIZERS["optimizers"]):
        options = [limit for limit in LIMITS if limit in config]
        options += ["a schedule"] if isinstance(config["learning_rate"], dict) else []
        options += ["decay"] if config["decay"] and name != "Nadam" else []
        found.add((name, " and ".join(options) or "nothing"))
    assert found >= expected
    assert OPTIMIZERS["steps"][-1] == 50
    sparse = {v for v, given in optimizer_inputs().items() if "indices" in given}
    assert sparse and optimizer_inputs().keys() - sparse


@pytest.mark.parametrize("option", LIMITS)
def test_limits_clip_some_gradients_of_every_variable_and_not_others(option: str):
    (limit,) = {
        made["config"][option] for made in OPTIMIZERS["optimizers"] if option in made["config"]
    }
    grads = [given["grads"].reshape(50, -1) for given in optimizer_inputs().values()]
    if option == "global_clipnorm":
        grads = [np.concatenate(grads, axis=1)]
    for rows in grads:
        sizes = np.abs(rows) if option == "clipvalue" else np.linalg.norm(rows, axis=1)
        assert 0.1 < np.mean(sizes > limit) < 0.9


@pytest.mark.parametrize("package", REPLAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("number", "made"), NUMBERED, ids=[f"{made['class']}-{number}" for number, made in NUMBERED]
)
def test_optimizer(package: str, number: int, made: dict[str, Any], dtype: str):
    stored, (name, config) = load("optimizers"), made.values()
    inputs = optimizer_inputs()
    scale: dict[str, Any] = dict.fromkeys(inputs, 0.0)
    for step, states in enumerate(REPLAYS[package](name, config, inputs, dtype), start=1):
        for v, ours in states.items():
            scale[v] = np.maximum(scale[v], conditioning(config, dtype) * np.abs(ours))
            if step in OPTIMIZERS["steps"]:
                theirs = stored[f"{number}/{dtype}/{v}"][OPTIMIZERS["steps"].index(step)]
                found = reasons_of(name, config, dtype, ours[0].shape, "indices" in inputs[v])
                what = f"{name}({config}) {dtype} {v} after step {step}"
                check_states(ours, theirs, scale[v], found, what)


def last_elements(state: list[np.ndarray]) -> list[float]:
    return [float(array[-1]) for array in state]


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_difference(impl: ModuleType, case: Difference):
    state, grad, indices = case.arrays()
    update(impl, case.rule, *state, grad, **case.options, indices=indices)
    assert last_elements(state) == case.ours


@pytest.mark.parametrize("name", OTHER_ORDER)
def test_every_other_order_has_an_example(name: str):
    examples = [case for case in DIFFERENCES if case.rule == name and case.sparse]
    assert any(case.ours != case.theirs for case in examples)


def test_denormals_are_kept_on_request(impl: ModuleType):
    """TensorFlow always takes this variable for a zero."""
    for flush, expected in ((True, 0.0), (False, 1e-310)):
        impl.set_flush_denormals(flush)
        var = np.array([1e-310])
        update(impl, "gradient_descent", var, np.zeros(1), alpha=0.1)
        assert var[0] == expected


def test_hyperparameters_keep_their_precision():
    """TensorFlow rounds Python floats to float32, and has 0.9000000985097854 here."""
    var = np.ones(1)
    tfopt.optimizers.Adamax(0.1).apply_gradients([(np.array([0.1]), var)])
    assert var[0] == pytest.approx(0.9000000999999, rel=1e-15)
