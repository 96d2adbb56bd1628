"""`tfopt train`: the quality it promises, its flags, its outputs."""

from __future__ import annotations

import functools
import json
import math
import re

import numpy as np
import pytest
from cli_samples import TINY

from tfopt import kernels, threads
from tfopt.cli import readers
from tfopt.cli.optimizers import OPTIMIZERS
from tfopt.cli.readers import read_data
from tfopt.linear_model.model_file import read_model


@pytest.fixture(scope="module")
def a9a_once():
    """Have a9a read once for all trainings of this module that ask for it."""
    return functools.cache(read_data)


# The optimum of the problem: log-loss 0.3241, accuracy 84.98 %; a constant predictor: 0.5467.
@pytest.mark.parametrize(
    ("optimizer", "seed"), [*((name, 0) for name in OPTIMIZERS), ("adamax", 1), ("ftrl", 1)]
)
def test_defaults_reach_the_optimum_of_a9a(cli, a9a_once, monkeypatch, optimizer, seed):
    monkeypatch.setattr(readers, "read_data", a9a_once)
    outcome = cli("train", "--optimizer", optimizer, "--seed", seed, "--json", "--quiet")
    assert outcome.code == 0
    assert outcome.err == ""
    result = outcome.json()
    assert result["rows"] == {"train": 32561, "test": 16281}
    scores = result["scores"]["test"]
    # ADOPT's beta_2 remembers 10 000 steps, more than these epochs have
    assert scores["log_loss"] <= 0.3241 * (1.01 if optimizer == "adopt" else 1.005)
    assert scores["accuracy"] >= 0.848
    assert scores["auc"] >= 0.9


def test_without_arguments(cli, folder):
    outcome = cli("train")
    assert outcome.code == 0
    test, speed, model = outcome.out.splitlines()[1:]
    number = r"0\.\d{4,6}"
    assert re.fullmatch(rf"test   accuracy {number}  log-loss {number}  AUC {number}", test)
    assert re.fullmatch(r"speed  [\d,]+ rows/s \(\d+\.\d\d s in training\)", speed)
    assert model == "model  model.npz"
    assert [path.name for path in folder.iterdir()] == ["model.npz"]
    # not a terminal: one row per epoch
    rows = outcome.err.splitlines()
    assert len(rows) == 10
    for epoch, row in enumerate(rows, start=1):
        assert re.fullmatch(rf"epoch +{epoch}  train loss {number}  test loss {number}", row)


def test_scores_on_the_training_data_without_test_data(cli, tiny):
    outcome = cli("train", tiny, "--quiet")
    assert outcome.err == ""
    assert outcome.out.startswith("train  accuracy 1  log-loss 0.")
    assert "test" not in outcome.out


def test_json(cli, tiny):
    arguments = ["--model", "out.npz", "--optimizer", "ftrl", "--l1", "0.25", "--l2", "0.5"]
    outcome = cli("train", tiny, "--test", tiny, *arguments, "--epochs", "3", "--json", "--quiet")
    assert outcome.out.count("\n") == 1
    result = outcome.json()
    assert result["settings"] == {
        "optimizer": "ftrl",
        "loss": "logistic",
        "l2": 0.5,
        "learning_rate": 0.1,
        "hyperparameters": {"l1_regularization_strength": 0.25},
        "schedule": "auto",
        "schedule_arguments": {},
        "warmup_arguments": {},
        "batch_size": 256,
        "epochs": 3,
        "seed": 0,
    }
    assert result["command"] == "train"
    assert result["data"] == result["test_data"] == str(tiny)
    assert result["model"] == "out.npz"
    assert result["rows"] == {"train": 8, "test": 8}
    assert result["features"] == 3
    assert result["classes"] == [-1, 1]
    assert result["zero_based"] is False
    assert result["seed"] == 0
    assert result["threads"] == threads.get_num_threads()
    assert result["scores"]["train"] == result["scores"]["test"]
    assert len(result["loss_per_epoch"]["train"]) == 3
    last_loss = result["loss_per_epoch"]["test"][-1]
    assert math.isclose(last_loss, result["scores"]["test"]["log_loss"], rel_tol=1e-9)
    assert result["rows_per_second"] == pytest.approx(24 / result["seconds"])
    assert result["versions"]["instruction_set"] == kernels.cpu


def test_same_seed_same_file_on_any_threads_and_instruction_set(shell, folder):
    if "v3" not in kernels.available:
        pytest.skip(f"this machine runs {', '.join(kernels.available)} alone, not v3")
    runs = [("1", "baseline"), ("2", "v3"), ("3", "v3")]
    for count, instruction_set in runs:
        arguments = ["train", "--quiet", "--epochs", "2", "--threads", count, "--l2", "1e-4"]
        arguments += ["--model", f"{count}.npz"]
        done = shell("tfopt", *arguments, env={"TFOPT_CPU": instruction_set})
        assert (done.code, done.err) == (0, "")
    assert len({(folder / f"{count}.npz").read_bytes() for count, _ in runs}) == 1


def test_seed_decides_the_file(cli, folder, tiny):
    files = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        cli("train", tiny, "--batch-size", "3", "--seed", seed, "--model", name, "--quiet")
        files[name] = (folder / name).read_bytes()
    assert files["a"] == files["b"] != files["c"]


def test_threads_are_restored(cli, tiny):
    before = threads.get_num_threads()
    result = cli("train", tiny, "--threads", before + 1, "--json", "--quiet").json()
    assert result["threads"] == before + 1
    assert threads.get_num_threads() == before


def squared_data(rows=400):
    random = np.random.default_rng(5)
    x = random.normal(size=(rows, 3))
    y = x @ [1.0, -2.0, 0.5] + 3 + random.normal(scale=0.1, size=rows)
    return x, y


def write(path, x, y):
    path.write_text(
        "".join(
            f"{label!r} " + " ".join(f"{i}:{v!r}" for i, v in enumerate(row, 1)) + "\n"
            for row, label in zip(x.tolist(), y.tolist(), strict=True)
        )
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_squared_loss_finds_the_weights(cli, folder, optimizer):
    write(folder / "data.svm", *squared_data())
    outcome = cli(
        *("train", "data.svm", "--loss", "squared", "--optimizer", optimizer),
        *("--batch-size", "16", "--epochs", "40", "--quiet", "--json"),
    )
    scores = outcome.json()["scores"]["train"]
    assert scores["rmse"] < 0.12
    assert scores["mae"] < 0.1
    assert scores["r2"] > 0.995
    model = read_model("model.npz")
    np.testing.assert_allclose(model.weights, [1, -2, 0.5], atol=0.05)
    np.testing.assert_allclose(model.bias, [3], atol=0.05)


@pytest.mark.parametrize("optimizer", ["adamax", "ftrl", "sgd"])
def test_l2_gives_ridge_regression(cli, folder, optimizer):
    x, y = squared_data()
    write(folder / "data.svm", x, y)
    cli(
        *("train", "data.svm", "--loss", "squared", "--optimizer", optimizer, "--l2", "0.5"),
        *("--batch-size", "100", "--epochs", "400", "--learning-rate", "0.2", "--quiet"),
    )
    centred = x - x.mean(0)
    ridge = np.linalg.solve(centred.T @ centred / 400 + 0.5 * np.eye(3), centred.T @ y / 400)
    np.testing.assert_allclose(read_model("model.npz").weights, ridge, atol=0.02)


def test_l1_makes_weights_zero(cli):
    common = ["train", "--optimizer", "ftrl", "--json", "--quiet"]
    result = cli(*common, "--l1", "1").json()
    assert 40 <= result["nonzero_weights"] <= 80  # of 123
    assert result["scores"]["test"]["log_loss"] < 0.327


def test_divergence_is_refused(cli, folder):
    write(folder / "data.svm", *squared_data())
    arguments = ["--loss", "squared", "--optimizer", "sgd", "--learning-rate", "1e200", "--quiet"]
    outcome = cli("train", "data.svm", *arguments)
    assert outcome.code == 1
    assert outcome.err == (
        "the train loss is not finite after epoch 1: "
        "lower --learning-rate (1e+200 here) or scale the features\n"
    )
    assert not (folder / "model.npz").exists()


@pytest.mark.parametrize("labels", [("1", "2"), ("0", "1"), ("-1", "1"), ("-0.5", "7")])
def test_any_two_labels_are_classes(cli, folder, labels):
    low, high = labels
    text = TINY.replace("-1 ", "low ").replace("+1 ", "high ")
    (folder / "data.svm").write_text(text.replace("low", low).replace("high", high))
    result = cli("train", "data.svm", "--json", "--quiet").json()
    assert result["classes"] == [float(low), float(high)]
    assert result["scores"]["train"]["accuracy"] == 1


def test_test_rows_may_have_more_and_fewer_features(cli, folder, tiny):
    (folder / "wide.svm").write_text("1 1:1 99:1\n-1 2:1\n")
    (folder / "same.svm").write_text("1 1:1\n-1 2:1\n")
    wide = cli("train", tiny, "--test", "wide.svm", "--json", "--quiet").json()
    same = cli("train", tiny, "--test", "same.svm", "--json", "--quiet").json()
    assert wide["scores"]["test"] == same["scores"]["test"]


def test_undefined_scores(cli, folder, tiny):
    (folder / "one.svm").write_text("1 1:1\n")
    outcome = cli("train", tiny, "--test", "one.svm", "--quiet")
    assert outcome.out.splitlines()[1].endswith("AUC undefined")
    result = cli("train", tiny, "--test", "one.svm", "--json", "--quiet").json()
    assert result["scores"]["test"]["auc"] is None
    result = cli(
        "train", tiny, "--test", "one.svm", "--loss", "squared", "--json", "--quiet"
    ).json()
    assert result["scores"]["test"]["r2"] is None


def test_rows_without_features(cli, folder):
    (folder / "data.svm").write_text("1\n0\n1\n1\n")
    result = cli("train", "data.svm", "--epochs", "200", "--json", "--quiet").json()
    constant = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert result["scores"]["train"]["log_loss"] == pytest.approx(constant, rel=1e-3)


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")]
)
def test_plot(cli, folder, tiny, suffix, magic):
    outcome = cli("train", tiny, "--test", tiny, "--plot", f"loss{suffix}", "--quiet")
    assert outcome.code == 0
    assert (folder / f"loss{suffix}").read_bytes().startswith(magic)


def test_plot_shows_the_losses(cli, tiny, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    flags = ["--plot", "x.png", "--quiet", "--json"]
    history = cli("train", tiny, "--test", tiny, *flags).json()["loss_per_epoch"]
    gaps = cli("train", tiny, "--solver", "sdca", *flags).json()["gap_per_iteration"]
    (axes,) = figures[0].axes
    assert axes.get_title() == "adamax, logistic loss"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "mean loss")
    for line in axes.lines:
        points = list(enumerate(history[line.get_label()], start=1))
        assert line.get_xydata().tolist() == [list(point) for point in points]
    (axes,) = figures[1].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("iteration", "relative gap")
    shown = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert gaps[0] in shown.values() and "tol" in shown


def test_model_header_is_complete(cli, tiny):
    cli("train", tiny, "--quiet")
    with np.load("model.npz", allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        assert archive["coefficients"].shape == (1, 3)
    assert header["optimizer"]["learning_rate"] == 0.05
    assert header["settings"]["seed"] == 0
    assert "threads" not in header["settings"]


# ---- validation


def noisy(folder, rows, seed=0):
    """Write rows of twenty features, of which one says something of the two classes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 20))
    write(folder / "data.svm", x, (x[:, 0] + random.normal(size=rows) > 0).astype(int))
    return (folder / "data.svm").read_text().splitlines(keepends=True)


def test_rows_that_are_held_out_are_those_of_a_file(cli, folder):
    lines = noisy(folder, 50)
    (folder / "rest").write_text("".join(x for k, x in enumerate(lines) if k % 4 != 3))
    (folder / "held").write_text("".join(x for k, x in enumerate(lines) if k % 4 == 3))
    split = cli("train", "data.svm", "--holdout", "4", "--json", "--quiet").json()
    weights = read_model("model.npz").weights
    named = cli("train", "rest", "--valid", "held", "--json", "--quiet").json()
    assert split["rows"] == {"train": 38, "valid": 12} == named["rows"]
    for key in ("scores", "loss_per_epoch"):
        assert split[key] == named[key]
    assert (weights == read_model("model.npz").weights).all()
    outcome = cli("train", "data.svm", "--holdout", "51")
    assert outcome.err == "data.svm: has 50 rows, of which --holdout 51 takes none\n"


def test_patience_ends_training_and_keeps_the_best_weights(cli, folder):
    noisy(folder, 60)
    flags = ["--holdout", "2", "--learning-rate", "0.2", "--batch-size", "4"]
    common = ["train", "data.svm", *flags, "--json", "--quiet", "--schedule", "constant"]
    result = cli(*common, "--epochs", "50", "--patience", "3").json()
    losses = result["loss_per_epoch"]["valid"]
    best = result["best_epoch"]
    assert losses[best - 1] == min(losses) and len(losses) == best + 3 < 50
    assert result["scores"]["valid"]["log_loss"] == pytest.approx(min(losses))
    stopped = read_model("model.npz")
    assert cli(*common, "--epochs", best).code == 0
    assert (stopped.weights == read_model("model.npz").weights).all()
    text = cli(*common[:-4], "--schedule", "constant", "--epochs", 50, "--patience", 3).out
    assert f"best   epoch {best} of {best + 3}, whose weights are the model's\n" in text


def test_a_run_with_patience_resumes(cli, folder, monkeypatch):
    from tfopt import checkpoints

    noisy(folder, 60)
    flags = ["--holdout", "2", "--learning-rate", "0.2", "--batch-size", "4", "--patience", "3"]
    common = ["train", "data.svm", *flags, "--quiet", "--epochs", "50", "--schedule", "constant"]
    assert cli(*common).code == 0
    whole = (folder / "model.npz").read_bytes()
    save, left = checkpoints.save, [3]

    def save_some(path, tree):
        save(path, tree)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", save_some)
        assert cli(*common, "--checkpoint-every", "9").code == 130
    assert cli(*common, "--checkpoint-every", "9", "--resume").code == 0
    assert (folder / "model.npz").read_bytes() == whole
