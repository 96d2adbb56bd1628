"""`tfopt train --checkpoint-every`, `--resume`: killed anywhere, a run ends with the same file."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tfopt import checkpoints
from tfopt.cli.optimizers import OPTIMIZERS
from tfopt.cli.report import Progress


@pytest.fixture
def data(folder) -> Path:
    """Sixty rows of ten features, of two classes."""
    random = np.random.default_rng(0)
    rows = []
    for label in random.integers(2, size=60):
        columns = np.flatnonzero(random.random(10) < 0.4) + 1
        values = random.standard_normal(columns.size) + label
        rows.append(
            f"{label} " + " ".join(f"{c}:{v:.6g}" for c, v in zip(columns, values, strict=True))
        )
    path = folder / "data.svm"
    path.write_text("\n".join(rows) + "\n")
    return path


FLAGS = ["--batch-size", "8", "--epochs", "3", "--quiet"]


def test_killed_at_six_points(shell, data):
    arguments = ["train", data.name, "--test", data.name, *FLAGS, "--optimizer", "adam"]
    arguments += ["--set", "sparse=catch_up", "--checkpoint-every", "2"]
    script = Path(__file__).with_name("killed.py")
    done = shell(script, "1", "6", *arguments)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert len(lines) == 6
    assert {verdict for *_, verdict in lines} == {"same"}, done.out
    assert any("model.checkpoint.npz" in left for _, left, _ in lines)


@pytest.fixture
def half(cli, data, monkeypatch):
    """Train until a checkpoint after some steps; return the arguments of the run."""

    def run(*flags, steps=10):
        arguments = ["train", data, *FLAGS, *flags, "--checkpoint-every", steps]
        save = checkpoints.save

        def save_once(path, tree):
            save(path, tree)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", save_once)
            assert cli(*arguments).code == 130
        return arguments

    return run


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_resumes(cli, half, folder, optimizer):
    arguments = half("--optimizer", optimizer)
    resumed = cli(*arguments, "--resume", "--json").json()
    model = (folder / "model.npz").read_bytes()
    assert not (folder / "model.checkpoint.npz").exists()
    whole = cli(*arguments, "--json").json()
    assert (folder / "model.npz").read_bytes() == model
    assert resumed["loss_per_epoch"] == whole["loss_per_epoch"]
    assert resumed["scores"] == whole["scores"]


@pytest.mark.parametrize("steps", [7, 8, 9, 16])  # the last of an epoch is number 8
def test_at_the_end_of_an_epoch(cli, half, folder, steps):
    arguments = half("--schedule", "cosine_decay", "--schedule-set", "decay_steps=20", steps=steps)
    assert cli(*arguments, "--resume").code == 0
    model = (folder / "model.npz").read_bytes()
    assert cli(*arguments).code == 0
    assert (folder / "model.npz").read_bytes() == model


@pytest.mark.parametrize("step", [1, 8, 13])
def test_an_interrupt_saves_between_two_steps(cli, data, folder, monkeypatch, step):
    arguments = ["train", data, *FLAGS, "--optimizer", "adam"]
    assert cli(*arguments).code == 0
    whole = (folder / "model.npz").read_bytes()
    (folder / "model.npz").unlink()
    rows, calls = Progress.advance, []

    def count(progress, number):
        rows(progress, number)
        calls.append(number)
        if len(calls) == step + 1:  # the first tells where the run begins
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", count)
        outcome = cli(*arguments, "--checkpoint", "saved.npz")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "interrupted; --resume goes on from saved.npz\n"
    assert signal.getsignal(signal.SIGINT) is handler
    assert cli(*arguments, "--checkpoint", "saved.npz", "--resume").code == 0
    assert (folder / "model.npz").read_bytes() == whole
    assert not (folder / "saved.npz").exists()


def test_another_file(cli, half, folder):
    arguments = half("--checkpoint", "here.safetensors")
    assert (folder / "here.safetensors").exists()
    assert cli(*arguments, "--resume").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["data.svm", "model.npz"]


def test_without_a_checkpoint_it_begins(cli, data, folder):
    flags = [flag for flag in FLAGS if flag != "--quiet"]
    outcome = cli("train", data, *flags, "--resume")
    assert outcome.code == 0
    assert outcome.err.startswith("model.checkpoint.npz: not there, so training begins anew\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "9"], "with other settings: batch_size was 8 and is 9 now"),
        (["--optimizer", "adam"], "with other settings: optimizer was adamax and is adam now"),
        (
            ["--set", "beta_1=.8"],
            "with other settings: hyperparameters was {} and is {'beta_1': 0.8} now",
        ),
        (["--test", "data.svm"], "on other test data"),
        (["--valid", "data.svm"], "on other valid data"),
        (["--zero-based", "yes"], "on other train data"),
    ],
)
def test_another_run_is_refused(cli, half, folder, flags, message):
    arguments = half()
    before = (folder / "model.checkpoint.npz").read_bytes()
    outcome = cli(*arguments, *flags, "--resume")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"model.checkpoint.npz: belongs to a run {message}\n"
    assert (folder / "model.checkpoint.npz").read_bytes() == before
    assert not (folder / "model.npz").exists()


def test_a_changed_row_is_refused(cli, half, data):
    arguments = half()
    data.write_text(data.read_text().replace("1 ", "0 ", 1))
    outcome = cli(*arguments, "--resume")
    assert outcome.err == "model.checkpoint.npz: belongs to a run on other train data\n"
    assert outcome.code == 1


def test_damaged_and_foreign_files_are_refused(cli, half, folder):
    arguments, path = half(), folder / "model.checkpoint.npz"
    path.write_bytes(path.read_bytes()[:-1])
    outcome = cli(*arguments, "--resume")
    assert outcome.err.startswith("model.checkpoint.npz: the file has ")
    assert outcome.code == 1
    checkpoints.save(path, {"w": np.ones(3)})
    outcome = cli(*arguments, "--resume")
    assert outcome.err == "model.checkpoint.npz: is not a checkpoint of tfopt train\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--checkpoint", "x.pt", "--resume"], "--checkpoint needs a name that ends in .npz or"),
        (["--checkpoint", "./model.npz", "--resume"], "cannot be one file"),
        (
            ["--resume", "--solver", "sdca"],
            "--resume is for --solver optimizer; --solver sdca has it on a cluster",
        ),
        (["--checkpoint-every", "0"], "must be at least 1, not 0"),
    ],
)
def test_wrong_usage(cli, data, flags, message):
    outcome = cli("train", data, *flags)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_checkpoint_that_cannot_be_written(cli, data, folder):
    outcome = cli("train", data, "--checkpoint-every", 1, "--checkpoint", "none/x.npz")
    assert outcome.code == 1
    assert outcome.err.startswith("none/x.npz: no such folder")


def test_what_a_checkpoint_holds(half, folder):
    half(steps=10)
    tree = checkpoints.load(folder / "model.checkpoint.npz")
    assert (tree["run"]["epoch"], tree["run"]["row"]) == (1, 16)
    assert int(tree["optimizer"]["weights"]["iterations"]) == 10
    assert len(tree["run"]["history"]["train"]) == 1
    assert json.loads(json.dumps(tree["settings"])) == tree["settings"]
