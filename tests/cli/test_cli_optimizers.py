"""`tfopt train` with every optimizer, hyperparameter and schedule of the library."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tfopt import optimizers
from tfopt.cli.checkpoints import RunState
from tfopt.cli.optimizers import (
    OPTIMIZERS,
    SCHEDULES,
    Argument,
    collect,
    constructor_arguments,
)
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_data
from tfopt.cli.settings import Settings
from tfopt.cli.train import Examples, train_epochs
from tfopt.optimizers import schedules
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

#: What scripts rely on: these settings stay, also when the library's arguments change their names.
SHARED = "sparse decay clipnorm clipvalue global_clipnorm merge compat"
OPTIMIZER_SETTINGS = {
    "adadelta": "rho epsilon",
    "ademamix": "beta_1 beta_2 beta_3 alpha epsilon warmup_steps",
    "adopt": "beta_1 beta_2 epsilon",
    "adagrad": "initial_accumulator_value epsilon",
    "adam": "beta_1 beta_2 epsilon amsgrad",
    "adamax": "beta_1 beta_2 epsilon",
    "adamw": "beta_1 beta_2 epsilon amsgrad weight_decay",
    "ftrl": "learning_rate_power initial_accumulator_value l1_regularization_strength "
    "l2_regularization_strength l2_shrinkage_regularization_strength beta",
    "lion": "beta_1 beta_2",
    "nadam": "beta_1 beta_2 epsilon schedule_decay",
    "radam": "beta_1 beta_2 epsilon",
    "rmsprop": "rho momentum epsilon centered",
    "sgd": "momentum nesterov",
    "signum": "momentum",
    "yogi": "beta_1 beta_2 epsilon initial_accumulator_value",
}
SCHEDULE_SETTINGS = {
    "cosine_decay": "decay_steps alpha warmup_target warmup_steps",
    "cosine_decay_restarts": "first_decay_steps t_mul m_mul alpha",
    "exponential_decay": "decay_steps decay_rate staircase",
    "inverse_time_decay": "decay_steps decay_rate staircase",
    "linear_cosine_decay": "decay_steps num_periods alpha beta",
    "noisy_linear_cosine_decay": "decay_steps initial_variance variance_decay num_periods "
    "alpha beta seed",
    "piecewise_constant_decay": "boundaries values",
    "polynomial_decay": "decay_steps end_learning_rate power cycle",
}
#: By name: the settings of a schedule, flags, and the schedule they make.
EXAMPLES: dict[str, tuple[str, Any]] = {
    "cosine_decay": (
        "--schedule-set decay_steps=5 --schedule-set alpha=0.1",
        schedules.CosineDecay(0.5, 5, 0.1),
    ),
    "CosineDecayRestarts": (
        "--schedule-set first_decay_steps=3 --schedule-set t_mul=1 --schedule-set m_mul=0.5",
        schedules.CosineDecayRestarts(0.5, 3, 1, 0.5),
    ),
    "exponential-decay": (
        "--schedule-set decay_steps=2 --schedule-set decay_rate=0.5 --schedule-set staircase=True",
        schedules.ExponentialDecay(0.5, 2, 0.5, staircase=True),
    ),
    "inverse_time_decay": (
        "--schedule-set decay_steps=2 --schedule-set decay_rate=0.5 --schedule-set staircase=False",
        schedules.InverseTimeDecay(0.5, 2, 0.5),
    ),
    "linear_cosine_decay": (
        "--schedule-set decay_steps=5 --schedule-set beta=0.25",
        schedules.LinearCosineDecay(0.5, 5, beta=0.25),
    ),
    "noisy_linear_cosine_decay": (
        "--schedule-set decay_steps=5 --schedule-set initial_variance=0.01 --schedule-set seed=7",
        schedules.NoisyLinearCosineDecay(0.5, 5, 0.01, seed=7),
    ),
    "piecewise_constant_decay": (
        "--schedule-set boundaries=[2,4] --schedule-set values=[0.5,0.25,0.125]",
        schedules.PiecewiseConstantDecay([2, 4], [0.5, 0.25, 0.125]),
    ),
    "polynomial_decay": (
        "--schedule-set decay_steps=4 --schedule-set end_learning_rate=0.1 --schedule-set power=2 "
        "--schedule-set cycle=True",
        schedules.PolynomialDecay(0.5, 4, 0.1, 2, cycle=True),
    ),
    "constant": ("--warmup-steps 4", schedules.LinearWarmup(0.5, 4)),
    "cosinedecay": (
        "--schedule-set decay_steps=3 --warmup-steps 2 --warmup-initial-learning-rate 0.1",
        schedules.LinearWarmup(schedules.CosineDecay(0.5, 3), 2, 0.1),
    ),
}


def test_info_lists_what_optimizers_and_schedules_take(cli):
    shown = {getattr(optimizers, name) for name in optimizers.__all__ if name[0].isupper()}
    rules = {
        cls.__name__.lower()
        for cls in shown
        if issubclass(cls, RuleOptimizer) and not hasattr(cls, "averaged") and cls._by_elements
    }
    assert {name.replace("_", "") for name in OPTIMIZERS} == rules
    shared = dict.fromkeys(OPTIMIZERS, SHARED) | dict.fromkeys(SCHEDULES, "")
    shared["nadam"] = SHARED.replace(" decay", "")
    for name, settings in (OPTIMIZER_SETTINGS | SCHEDULE_SETTINGS).items():
        result = cli("info", name, "--json").json()
        taken = [*result["required"], *result["defaults"]]
        assert {*settings.split(), *shared[name].split()} <= {*taken}
        assert result["schema"] == 1 and result["name"] == name
    text = cli("info", "Cosine-Decay").out
    assert text.startswith("--schedule-set NAME=VALUE\n  decay_steps  ")
    assert "required\n" in text and "Parameters\n----------" in text
    assert cli("info", "ADAM").out.startswith("--set NAME=VALUE\n")


def other_value(name: str, argument: Argument) -> Any:
    """Return a value that is not the default, but fits."""
    if name in ("sparse", "merge", "compat"):
        return {"sparse": "lazy", "merge": "before", "compat": "float32"}[name]
    if isinstance(argument.default, bool):
        return not argument.default
    return argument.default / 2 if argument.default else 0.25


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hyperparameters_reach_the_optimizer(cli, tiny, name):
    """As the model file tells; clipnorm and global_clipnorm exclude each other."""
    accepted = constructor_arguments(OPTIMIZERS[name])
    values = {key: other_value(key, argument) for key, argument in accepted.items()}
    del values["compat"]
    for left_out in ("clipnorm", "global_clipnorm"):
        given = {key: value for key, value in values.items() if key != left_out}
        line = [f"--set={key}={value}" for key, value in given.items()]
        outcome = cli("train", tiny, "--optimizer", name, *line, "--quiet", "--json")
        assert (outcome.code, outcome.err) == (0, "")
        with np.load("model.npz") as archive:
            header = json.loads(str(archive["header"]))
        assert header["settings"]["hyperparameters"] == given
        if name == "nadam":  # whose configuration has TensorFlow's name for it
            given["decay"] = given.pop("schedule_decay")
        for key, value in given.items():
            assert header["optimizer"][key] == value
        assert left_out not in header["optimizer"]
        assert cli("predict", "model.npz", tiny).code == 0


def test_neither_the_order_nor_the_type_of_numbers_changes_the_file(cli, tiny, folder):
    files = []
    for line in (["clipnorm=1", "beta_1=0"], ["beta_1=0.0", "clipnorm=1.0"]):
        settings = [f"--set={setting}" for setting in line]
        assert cli("train", tiny, *settings, "--quiet", "--optimizer", "adam").code == 0
        files.append((folder / "model.npz").read_bytes())
    assert files[0] == files[1]


def by_hand(tiny, optimizer: optimizers.Optimizer, **settings: Any) -> np.ndarray:
    data = read_data(str(tiny), ReadOptions())
    labels = (data.labels > 0).astype(float)
    chosen = Settings(schedule="constant", batch_size=3, **settings)
    run = RunState(weights := np.zeros(data.features.shape[1]), np.zeros(1), {})
    examples = Examples(
        labels.shape, weights.size, lambda numbers: iter([(data.features, labels, None)])
    )
    for _ in train_epochs(examples, optimizer, chosen, run, lambda rows: None):
        pass
    return weights


def by_command(cli, tiny, *line: str) -> np.ndarray:
    outcome = cli("train", tiny, "--batch-size", "3", "--quiet", *line)
    assert (outcome.code, outcome.err) == (0, "")
    with np.load("model.npz") as archive:
        return archive["weights"]


@pytest.mark.parametrize("schedule", EXAMPLES)
def test_schedules(cli, tiny, schedule):
    flags, expected = EXAMPLES[schedule]
    rate = [] if "values=" in flags else ["--learning-rate", "0.5"]
    line = ["--schedule", schedule, *flags.split(), *rate]
    weights = by_command(cli, tiny, *line)
    assert (weights == by_hand(tiny, optimizers.Adamax(expected))).all()
    with np.load("model.npz") as archive:
        saved = json.loads(str(archive["header"]))["optimizer"]["learning_rate"]
    assert saved == schedules.serialize(expected)
    assert cli("predict", "model.npz", tiny).code == 0
    assert (weights != by_command(cli, tiny, "--learning-rate", "0.5")).any()


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("--optimizer sgd --set clipnorm=0.1", lambda rate: optimizers.SGD(rate, clipnorm=0.1)),
        ("--optimizer sgd --set clipvalue=0.1", lambda rate: optimizers.SGD(rate, clipvalue=0.1)),
        (
            "--optimizer SGD --set global_clipnorm=0.1 --set merge=before",
            lambda rate: optimizers.SGD(rate, global_clipnorm=0.1, merge="before"),
        ),
        (
            "--optimizer adam --set amsgrad=True --set beta_1=0.5",
            lambda rate: optimizers.Adam(rate, beta_1=0.5, amsgrad=True),
        ),
        ("--optimizer adagrad --set decay=0.5", lambda rate: optimizers.Adagrad(rate, decay=0.5)),
    ],
)
def test_a_run_is_the_librarys(cli, tiny, line, made):
    """With decay the rate does not fall over the epochs as well; else constant says so."""
    schedule = [] if "decay=" in line else ["--schedule", "constant"]
    weights = by_command(cli, tiny, *line.split(), *schedule, "--learning-rate", "0.5")
    assert (weights == by_hand(tiny, made(0.5))).all()
    assert (weights != by_hand(tiny, optimizers.SGD(0.5))).any()


def test_rows_that_catch_up_have_done_so_when_they_are_read(cli, tiny):
    line = ["--optimizer", "adam", "--learning-rate", "0.5", "--batch-size", "1"]
    weights = by_command(cli, tiny, *line)
    late = by_command(cli, tiny, *line, "--set", "sparse=catch_up")
    np.testing.assert_allclose(late, weights, rtol=1e-12)
    lazy = by_command(cli, tiny, *line, "--set", "sparse=lazy")
    assert (np.abs(lazy - weights) > 1e-3).any()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--l1 1", "--l1 works with --optimizer ftrl or --solver sdca alone"),
        ("--set rho=0.5 --optimizer sgd", "SGD takes decay, clipnorm, "),
        ("--set rho=0.5 --optimizer sgd", "momentum, nesterov, not --set rho"),
        ("--set learning_rate=1", "not --set learning_rate"),
        ("--set decay=1 --optimizer nadam", "schedule_decay, not --set decay"),
        ("--optimizer ftrl --l1 -1", "argument --l1: must not be negative, not -1"),
        (
            "--optimizer ftrl --l1 1 --set l1_regularization_strength=1",
            "--set l1_regularization_strength is given twice",
        ),
        ("--optimizer ftrl --set beta=-1", ": beta must be finite and at least 0, not -1.0"),
        ("--set beta_1=2", "beta_1 must be at least 0 and less than 1, not 2.0"),
        ("--set beta_1=x", "beta_1 must be a number, not 'x'"),
        ("--set beta_1", "argument --set: must be NAME=VALUE, not 'beta_1'"),
        ("--set beta-1=0", "argument --set: must be NAME=VALUE, not 'beta-1=0'"),
        ("--set beta_2=nan", "beta_2 must be a number, not 'nan'"),
        ("--set beta_2=1e999", "argument --set: beta_2 must be a finite number, a list"),
        ("--set beta_2={1}", "argument --set: beta_2 must be a finite number, a list"),
        ("--set beta_1=0.5 --set beta_1=0.5", "--set beta_1 is given twice"),
        ("--set amsgrad=3 --optimizer adam", "amsgrad must be True or False, not 3"),
        ("--set clipnorm=-1", "clipnorm >= 0, received: -1.0"),
        ("--set clipnorm=1 --set global_clipnorm=2", "both `clipnorm` and `global_clipnorm`"),
        ("--optimizer ftrl --set sparse=catch_up", "sparse must be one of tensorflow, lazy for"),
        ("--set merge=never", "merge"),
        ("--schedule cosine", "argument --schedule: invalid choice: 'cosine'"),
        ("--schedule join", "argument --schedule: invalid choice: 'join'"),
        ("--schedule exponential_decay", "ExponentialDecay needs --schedule-set decay_steps=VALUE"),
        ("--schedule-set decay_rate=2", "--schedule-set does not go with --schedule auto"),
        (
            "--schedule cosine_decay --schedule-set decay_steps=5 --schedule-set power=2",
            "CosineDecay takes decay_steps, alpha, warmup_target, warmup_steps, not --schedule-set",
        ),
        (
            "--schedule cosine_decay --schedule-set decay_steps=0",
            "decay_steps must be finite and greater than 0, not 0",
        ),
        (
            "--schedule piecewise_constant_decay --schedule-set boundaries=[5] "
            "--schedule-set values=[1,2,3]",
            "The length of boundaries should be 1 less than the length of values",
        ),
        (
            "--schedule piecewise_constant_decay --schedule-set boundaries=5 "
            "--schedule-set values=[1,2]",
            "boundaries must be a list of numbers such as [1,2], not 5",
        ),
        (
            "--schedule piecewise_constant_decay --schedule-set boundaries=[5] "
            "--schedule-set values=[1,2] --learning-rate 3",
            "--learning-rate does not go with piecewise_constant_decay, which has its own",
        ),
        (
            "--warmup-steps 3",
            "--warmup-steps needs a --schedule to follow it, constant for instance",
        ),
        (
            "--schedule constant --warmup-initial-learning-rate 1",
            "--warmup-initial-learning-rate needs --warmup-steps",
        ),
        (
            "--optimizer ftrl --schedule constant --warmup-steps 3",
            "at the first step learning_rate must be finite and greater than 0, not 0.0",
        ),
        (
            "--optimizer nadam --schedule cosine_decay --schedule-set decay_steps=5",
            "Nadam does not take a schedule as its learning rate",
        ),
        ("--patience 3", "--patience needs --holdout or --valid"),
        ("--holdout 3 --valid missing", "--holdout and --valid do not go together"),
    ],
)
def test_wrong_combinations_are_refused_before_any_work(cli, folder, line, message):
    """DATA does not even exist."""
    outcome = cli("train", "missing.svm", *line.split())
    assert (outcome.code, outcome.out) == (2, "")
    (complaint,) = outcome.err.splitlines()
    assert complaint.startswith("tfopt train: error: ")
    assert message in complaint
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--optimizer ftrl --schedule cosine_decay --schedule-set decay_steps=3",
            "at step 3: learning_rate must be finite and greater than 0, not 0.0",
        ),
        (
            "--schedule cosine_decay_restarts --schedule-set first_decay_steps=2 "
            "--schedule-set t_mul=0.5",
            "at step 4: CosineDecayRestarts(0.05, 2.0, t_mul=0.5) has no finite learning rate at "
            "step 4.0",
        ),
    ],
)
def test_a_schedule_that_comes_to_a_bad_rate(cli, folder, tiny, line, message):
    outcome = cli("train", tiny, *line.split(), "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (1, "", f"{message}\n")
    assert list(folder.iterdir()) == [tiny]


def test_divergence_under_a_schedule_with_rates_of_its_own(cli, folder):
    (folder / "data.svm").write_text("1 1:3\n2 1:5\n")
    rates = ["--schedule", "PiecewiseConstantDecay", "--schedule-set", "boundaries=[1]"]
    rates += ["--schedule-set", "values=[1e200,1e200]"]
    outcome = cli("train", "data.svm", "--loss", "squared", "--optimizer", "sgd", *rates, "--quiet")
    assert outcome.err.endswith("lower the learning rates of the schedule or scale the features\n")
    assert outcome.code == 1


class Tiger(RuleOptimizer):
    """An optimizer that the command line has never heard of."""

    def __init__(
        self,
        marks: Iterable[float],
        learning_rate: float = 0.1,
        beta: float = 0.5,
        kind: str = "plain",
        fast: bool = False,
        hook: object = None,
        name: str = "Tiger",
        **kwargs: Any,
    ) -> None: ...


def test_a_new_class_is_offered_as_its_constructor_says():
    taken = constructor_arguments(Tiger)
    assert {*SHARED.split(), "marks", "beta", "kind", "fast"} <= {*taken}
    assert not {"learning_rate", "hook", "name"} & {*taken}
    given = [("beta", 1), ("marks", (1, 2.5)), ("kind", "odd")]
    expected = {"marks": [1.0, 2.5], "beta": 1.0, "kind": "odd"}
    assert collect(Tiger, given, "--set") == expected
    assert list(collect(Tiger, given, "--set")) == list(expected)
