"""No flag is taken and ignored: it changes what is written, or is refused by its name."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest

from tfopt.cli import arguments as flags_of

#: By option: values that differ from the default; None for a flag without one.
VALUES = {
    "--test": "test.svm",
    "--solver": "steps",
    "--optimizer": "adam",
    "--loss": "squared",
    "--l2": "0.3",
    "--learning-rate": "0.7",
    "--bias": "2",
    "--batch-size": "7",
    "--epochs": "2",
    "--tol": "0.3",
    "--seed": "5",
    "--threads": "1",
    "--blocks": "3",
    "--zero-based": "yes",
    "--schedule": "constant",
    "--model": "other.npz",
    "--checkpoint": "c.npz",
    "--checkpoint-every": "2",
    "--plot": "p.svg",
    "--json": None,
    "--l1": "0.01",
    "--l1-regularization-strength": "0.01",
}
#: What decides nothing of what is written, and why.
SILENT = {
    "--help": "prints and ends",
    "--threads": "results do not depend on their number, which --json tells",
    "--quiet": "shows no progress",
    "--checkpoint-every": "a run that is done removes what it saved",
    "--resume": "begins anew if nothing was saved",
    "--dask": "a cluster of one's own",
    "--workers": "processes; test_cli_cluster.py has them",
}


def parsers(monkeypatch):
    """Return the parser of each command."""
    found = {}
    add = flags_of._add_command

    def added(commands, name, *texts):
        found[name] = add(commands, name, *texts)
        return found[name]

    monkeypatch.setattr(flags_of, "_add_command", added)
    with pytest.raises(SystemExit):
        flags_of.parse(["--help"])
    return found


def options(parser):
    """Return the options that are no optimizer's or schedule's own, and those that are."""
    common, own = [], []
    for action in parser._actions:
        if action.option_strings:
            (own if " " in action.dest else common).append(action)
    return common, own


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
    return folder


@pytest.mark.parametrize("solver", ["steps", "sdca"])
def test_every_flag_has_an_effect_or_is_refused(cli, data, capsys, monkeypatch, solver):
    with monkeypatch.context() as patch:
        common, _ = options(parsers(patch)["train"])
    capsys.readouterr()
    names = [action.option_strings[-1] for action in common]
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
            flag = [name, {"steps": "sdca", "sdca": "steps"}[solver]]
        outcome = cli(*(base[:-1] if name == "--json" else [*base, *flag]))
        if outcome.code == 0:
            assert (told(outcome), written(data)) != expected, name
        else:
            assert outcome.code == 2 and name in outcome.err.splitlines()[-1], (name, outcome.err)
            assert written(data) == inputs


#: The other commands: the arguments of a plain call, and values of the flags.
OTHERS = {
    "predict": (["model.npz", "test.svm"], {"--output": "p.txt", "--quiet": None}),
    "info": ([], {"--json": None}),
}


def test_every_flag_of_the_other_commands_has_an_effect(cli, data, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        known = parsers(patch)
    capsys.readouterr()
    assert known.keys() == {"train", *OTHERS}
    assert cli("train", "data.svm", "--quiet").code == 0
    for command, (inputs, values) in OTHERS.items():
        plain = cli(command, *inputs)
        assert plain == cli(command, *inputs)
        common, own = options(known[command])
        assert {action.option_strings[-1] for action in common} == {"--help", *values}
        assert own == []
        for name, value in values.items():
            flag = [name] if value is None else [name, value]
            before = written(data)
            outcome = cli(command, *inputs, *flag)
            assert outcome.code == 0
            assert outcome != plain or written(data) != before, name


def test_sdca_refuses_what_optimizers_and_schedules_take(cli, data, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        _, own = options(parsers(patch)["train"])
    capsys.readouterr()
    assert len(own) > 20
    before = written(data)
    for action in own:
        if action.option_strings[-1] == "--l1-regularization-strength":
            continue  # which it takes
        values = [] if isinstance(action, argparse.BooleanOptionalAction) else ["1"]
        if action.choices:
            values = [next(iter(action.choices))]
        outcome = cli("train", "data.svm", "--solver", "sdca", action.option_strings[0], *values)
        assert outcome.code == 2, action.option_strings
        last = outcome.err.splitlines()[-1]
        assert action.option_strings[0] in last
        assert written(data) == before
