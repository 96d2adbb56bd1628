"""No flag is taken and ignored: it changes what is written, or is refused by its name."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tfopt.cli.options import LOSSES, OPTIONS
from tfopt.cli.parser import COMMANDS
from tfopt.selftest.cases import CASES

#: By option: values that differ from the default; None for a flag without one.
VALUES = {
    "--test": "test.svm",
    "--format": "csv",
    "--label": "y",
    "--weight": "w.txt",
    "--on-bad-line": "skip",
    "--solver": "sdca",
    "--offset": "w.txt",
    "--loss": "squared",
    "--epsilon": "0.3",
    "--quantile": "0.3",
    "--gamma": "0.3",
    "--power": "1.3",
    "--class-weight": "1=3",
    "--sep": ";",
    "--drop": "a",
    "--categorical": "a",
    "--missing": "a",
    "--scale": None,
    "--l1": "0.01",
    "--positive": None,
    "--l2": "0.3",
    "--bias": "2",
    "--epochs": "2",
    "--tol": "0.3",
    "--learning-rate": "0.7",
    "--beta": "0.5",
    "--batch-size": "7",
    "--hash": "2",
    "--numeric": "a",
    "--cross": "a,b",
    "--no-header": None,
    "--seed": "5",
    "--threads": "1",
    "--blocks": "3",
    "--zero-based": "yes",
    "--model": "other.npz",
    "--checkpoint": "c.npz",
    "--checkpoint-every": "2",
    "--plot": "p.svg",
    "--json": None,
}
#: What decides nothing of what is written, and why.
SILENT = {
    "--threads": "results do not depend on their number, which --json tells",
    "--quiet": "shows no progress",
    "--checkpoint-every": "a run that is done removes what it saved",
    "--checkpoint": "a run that is done removes what it saved",
    "--resume": "begins anew if nothing was saved",
    "--dask": "a cluster of one's own",
    "--workers": "processes; test_cli_cluster.py has them",
}


def options(command):
    """Return the flags of a command."""
    return [row.flag for row in OPTIONS if command in row.commands and not row.is_positional]


def written(folder):
    """Return what a run has left, but for its speed."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npz":
            with np.load(path) as archive:
                files[path.name] = {name: archive[name].tobytes() for name in archive.files}
        else:
            files[path.name] = path.read_bytes()
    return files


def told(outcome):
    try:
        facts = json.loads(outcome.out)
    except ValueError:
        return "text"
    return {key: facts[key] for key in facts if key not in ("seconds", "rows_per_second")}


@pytest.fixture
def data(folder):
    random = np.random.default_rng(0)
    for name in ("data.svm", "test.svm"):
        X = random.standard_normal((40, 3)).round(2)
        y = (X[:, 0] + random.standard_normal(40) > 0).astype(int)
        rows = (" ".join(f"{k}:{v}" for k, v in enumerate(row, 1)) for row in X)
        text = "".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True))
        (folder / name).write_text(text)
    (folder / "bad.svm").write_text(text + "1 1:x\n")
    numbers = random.uniform(0.5, 2, 40)
    (folder / "w.txt").write_text("".join(f"{number!r}\n" for number in numbers.tolist()))
    return folder


@pytest.mark.parametrize("solver", ["auto", "ftrl"])
def test_every_flag_has_an_effect_or_is_refused(cli, data, solver):
    names = options("train")
    assert {*VALUES} | {*SILENT} >= {*names}
    # few iterations, so that what changes the way changes the end
    base = ["train", "data.svm", "--solver", solver, "--quiet", "--epochs", "3", "--json"]
    inputs = written(data)
    expected = told(cli(*base)), written(data)
    for name in names:
        if name in SILENT:
            continue
        for path in {*data.iterdir()} - {data / known for known in inputs}:
            path.unlink()
        flag = [name] if VALUES[name] is None else [name, VALUES[name]]
        if name == "--solver":
            flag = [name, {"auto": "sdca", "ftrl": "auto"}[solver]]
        outcome = cli(*(base[:-1] if name == "--json" else [*base, *flag]))
        if name in ("--format", "--on-bad-line"):  # of other data
            assert outcome.code in {"--format": (1, 2), "--on-bad-line": (0, 3)}[name]
            bad = [*base[:1], "bad.svm", *base[2:]]
            assert cli(*bad).code == 1 and cli(*bad, "--on-bad-line", "skip").code in (0, 3)
        elif outcome.code in (0, 3):
            assert (told(outcome), written(data)) != expected, name
        else:
            assert outcome.code == 2 and name in outcome.err.splitlines()[-1], (name, outcome.err)
            assert written(data) == inputs


#: The other commands: the arguments of a plain call, and values of the flags.
READING = {
    "--offset": "w.txt",
    "--sep": ";",
    "--format": "csv",
    "--label": "y",
    "--weight": "w.txt",
    "--on-bad-line": "skip",
}
#: What is for tables, or for losses that are not the default one.
OF_OTHERS = {
    row.flag for row in OPTIONS if "csv" in row.formats or "logistic" not in (row.losses or LOSSES)
}
OTHERS = {
    "predict": (
        ["model.npz", "test.svm"],
        {"--output": "p.txt", "--quiet": None, "--labels": None, "--proba": None, "--json": None},
    ),
    "cv": (
        ["test.svm", "--quiet", "--epochs", "3", "--tol", "1e-9"],
        {
            "--folds": "4",
            "--loss": "hinge",
            "--epsilon": "0.3",
            "--quantile": "0.3",
            "--gamma": "0.3",
            "--power": "1.3",
            "--class-weight": "1=3",
            "--drop": "a",
            "--categorical": "a",
            "--missing": "a",
            "--scale": None,
            "--l1": "0.01",
            "--positive": None,
            "--l2": "1,2",
            "--C": "1,2",
            "--tol": "1e-1",
            "--epochs": "5",
            "--seed": "1",
            "--model": "o.npz",
            "--json": None,
            "--zero-based": "yes",
        },
    ),
    "inspect": (["model.npz"], {"--top": "1", "--json": None}),
    "convert": (["model.npz", "out.json"], {}),
    "info": ([], {"--json": None}),
    "selftest": ([], {"--json": None, "--gpu": None}),
}


def test_every_flag_of_the_other_commands_has_an_effect(cli, data, monkeypatch):
    for name in [*CASES][3:]:  # of the self-test: three say what all would
        monkeypatch.delitem(CASES, name)
    assert COMMANDS.keys() == {"train", *OTHERS}
    assert cli("train", "data.svm", "--quiet").code == 0
    for command, (inputs, values) in OTHERS.items():
        plain = cli(command, *inputs)
        assert plain == cli(command, *inputs)
        assert {*options(command)} <= {"--threads", "--quiet", *values, *READING}
        flags = values | ({"--weight": "w.txt"} if "--weight" in options(command) else {})
        for name, value in flags.items():
            flag = [name] if value is None else [name, value]
            before = written(data)
            outcome = cli(command, *inputs, *flag)
            if name in OF_OTHERS:  # tables; other losses
                assert outcome.code == 2 and name in outcome.err
                continue
            if name == "--gpu" and outcome.code:
                assert outcome.err.startswith("there is no GPU")
                continue
            assert outcome.code in (0, plain.code)
            changes = name == "--zero-based" or outcome != plain or written(data) != before
            assert changes, (command, name)


@pytest.mark.parametrize("command", ["cv", "predict", "inspect", "info", "selftest"])
def test_json_says_which_schema_it_has(cli, data, command, monkeypatch):
    for name in [*CASES][3:]:
        monkeypatch.delitem(CASES, name)
    assert cli("train", "data.svm", "--quiet").code == 0
    inputs, _ = OTHERS[command]
    outcome = cli(command, *inputs, "--json")
    facts = json.loads(outcome.out, parse_constant=lambda name: pytest.fail(name))
    assert facts["schema"] == 2
