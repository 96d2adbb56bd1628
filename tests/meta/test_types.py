"""What type checkers and editors know of the options, tapes and decorators."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import tfopt
from tfopt import optimizers
from tfopt.clip_ops import clip_by_norm
from tfopt.optimizers import options
from tfopt.optimizers.arguments import constructors_of, parameters_of
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.config import OPTIMIZERS
from tfopt.optimizers.state.slot_storage import IN_BLOCKS
from tfopt.rules import RULES
from tfopt.sdca_ops.losses import LOSS_TYPES, LossName
from tfopt.updates.sparse_update import Duplicates

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(tfopt.__file__).parents[1]
RULED = sorted(cls.__name__ for cls in OPTIMIZERS.values() if issubclass(cls, RuleOptimizer))


def lines_of(program: str) -> set[int]:
    """Return the numbers of the lines that are marked as wrong."""
    return {k for k, line in enumerate(program.splitlines(), 1) if line.endswith("# wrong")}


def run(command: list[str], cwd: Path) -> str:
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=cwd, env=environment
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def reported_by_mypy(folder: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder}"]
    found = re.findall(
        rf"^{PROGRAM.name}:(\d+): error: (.*)", run([*command, PROGRAM.name], folder), re.M
    )
    return {int(line): message for line, message in found}


def reported_by_pyright(folder: Path) -> dict[int, str]:
    command = [shutil.which("pyright") or "", "--outputjson", "--pythonpath", sys.executable]
    found = json.loads(run([*command, PROGRAM.name], folder))["generalDiagnostics"]
    return {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in found
        if each["severity"] == "error"
    }


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_report_the_faults_of_a_program(checker: str, tmp_path: Path) -> None:
    """They report each line with a fault, and no other one."""
    there = find_spec("mypy") if checker == "mypy" else shutil.which("pyright")
    if not there:
        pytest.skip(f"{checker} is not installed")
    if find_spec("sklearn") is None:
        pytest.skip("scikit-learn, which the program imports, is not installed")
    shutil.copy(PROGRAM, tmp_path)
    reported = {"mypy": reported_by_mypy, "pyright": reported_by_pyright}[checker](tmp_path)
    lines = PROGRAM.read_text().splitlines()
    wrong = lines_of(PROGRAM.read_text())
    assert {k: lines[k - 1] for k in wrong - reported.keys()} == {}, "not reported"
    assert {lines[k - 1]: reported[k] for k in reported.keys() - wrong} == {}, "reported"


# ---- the types are those of the arguments that there are


def hints_of(cls: type) -> dict[str, Any]:
    """Return the types of the arguments of a constructor, those of **kwargs among them."""
    hints = get_type_hints(cls.__init__)  # type: ignore[misc]
    passed_on = hints.pop("kwargs", None)
    hints.pop("return")
    if get_origin(passed_on) is not None:  # Unpack[...]
        (table,) = get_args(passed_on)
        assert not hints.keys() & get_type_hints(table).keys()
        hints |= get_type_hints(table)
    return hints


@pytest.mark.parametrize("name", RULED)
def test_options_are_those_that_the_constructor_takes(name: str) -> None:
    """The names are those of the constructors, and the types those of the classes they are of."""
    cls = getattr(optimizers, name)
    hints = hints_of(cls)
    assert hints.keys() == parameters_of(cls).keys()
    bases = [
        get_type_hints(base.__init__) for base in cls.__mro__[1:-1] if "__init__" in vars(base)
    ]
    own = next(constructors_of(cls)).keys()
    for option in hints.keys() - own:
        declared = next(base[option] for base in bases if option in base)
        assert hints[option] == declared, option


def test_each_optimizer_that_takes_options_names_them() -> None:
    """No constructor of the package has options that a checker knows nothing of."""
    for cls in {*OPTIMIZERS.values()} | {RuleOptimizer}:
        for own in constructors_of(cls):
            rest = [each for each in own.values() if each.kind is each.VAR_KEYWORD]
            if rest and rest[0].name != "unknown":  # which raises, unless it is a keyword of none
                assert "Unpack[" in rest[0].annotation, cls


# ---- literals are what is accepted


def choices(annotation: Any) -> set[Any]:
    """Return the values of literals in a type."""
    if get_origin(annotation) is Literal:
        return {*get_args(annotation)}
    if get_origin(annotation) in (Union, UnionType):
        return {value for each in get_args(annotation) for value in choices(each)}
    return set()


def test_sparse_and_storage_name_what_there_is() -> None:
    """Every mode of some optimizer is a literal, and each literal a mode of some."""
    modes = [getattr(optimizers, name)()._modes() for name in RULED]
    assert {mode for each in modes for mode in each} == choices(options.Sparse)
    assert choices(options.StorageKind) == {"float32", "float16", "bfloat16", *IN_BLOCKS}


@pytest.mark.parametrize(
    "name", ["LinearClassifier", "LinearRegressor", "FTRLClassifier", "FTRLRegressor"]
)
def test_losses_and_solvers_of_estimators(name: str) -> None:
    """The literals are the tables that the estimators look their options up in."""
    linear_model = pytest.importorskip("tfopt.linear_model")
    cls = getattr(linear_model, name)
    parameters = inspect.signature(cls).parameters
    hints = get_type_hints(cls.__init__)
    assert choices(hints["loss"]) == {*cls._LOSSES}
    if "solver" in parameters:
        solvers = tfopt.linear_model.parameters.SOLVERS
        assert choices(hints["solver"]) == {"auto", *solvers}
    if hasattr(linear_model, f"{name}CV"):
        tuned = get_type_hints(getattr(linear_model, f"{name}CV").__init__)
        assert (tuned["loss"], tuned["solver"]) == (hints["loss"], hints["solver"])


def test_losses_of_tensorflow() -> None:
    """The literal is the table."""
    assert choices(LossName) == {*LOSS_TYPES}


def test_duplicates_of_rules() -> None:
    """Every function of rows takes the modes of `Duplicates`."""
    for rule in RULES:
        function = getattr(tfopt.training_ops, f"apply_{rule.name}")
        if "duplicates" in inspect.signature(function).parameters:
            assert get_type_hints(function)["duplicates"] == Duplicates
    assert choices(get_type_hints(clip_by_norm)["nonfinite"]) == {"propagate", "raise", "skip"}
