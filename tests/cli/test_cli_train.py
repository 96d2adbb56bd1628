"""`tfopt train`: the quality it promises, its flags, its outputs."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from cli_samples import TINY

from tfopt import kernels, threads
from tfopt.linear_model.model_file import read_model


def test_without_arguments(cli, folder):
    outcome = cli("train")
    assert outcome.code == 0
    train, test, gap, *why, speed, model = outcome.out.splitlines()
    number = r"0\.\d{4,6}"
    for part, line in (("train", train), ("test ", test)):
        scores = rf"{part}  accuracy {number}  log-loss {number}  AUC {number}"
        assert re.fullmatch(scores, line)
    assert re.fullmatch(r"gap    objective .* above the minimum; \d+ iterations", gap)
    assert why and all(line.startswith("solver ") for line in why)
    assert re.fullmatch(r"speed  [\d,]+ rows/s \(\d+\.\d\d s in training\)", speed)
    assert model == "model  model.npz"
    assert [path.name for path in folder.iterdir()] == ["model.npz"]


def test_nothing_is_left_without_a_model_to_write(cli, folder, tiny) -> None:
    before = {*folder.iterdir()}
    outcome = cli("train", tiny, model=None)
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == "model  not written: --model OUT writes it"
    assert cli("train", tiny, "--json", model=None).json()["model"] is None
    assert {*folder.iterdir()} == before
    refused = cli("train", tiny, "--solver", "ftrl", "--resume", model=None)
    assert (refused.code, "--resume needs --model" in refused.err) == (2, True)
    assert {*folder.iterdir()} == before


def test_scores_on_the_training_data_without_test_data(cli, tiny):
    outcome = cli("train", tiny, "--quiet")
    assert outcome.err == ""
    assert outcome.out.startswith("train  accuracy 1  log-loss 0.")
    assert "test" not in outcome.out


def test_json(cli, tiny):
    arguments = ["--model", "out.npz", "--l1", "0.25", "--l2", "0.5", "--epochs", "3"]
    outcome = cli("train", tiny, "--test", tiny, *arguments, "--json", "--quiet")
    assert outcome.out.count("\n") == 1
    result = outcome.json()
    assert result["settings"] == {
        "loss": "logistic",
        "solver": "auto",
        "l1": 0.25,
        "l2": 0.5,
        "bias": None,
        "tol": 1e-4,
        "epochs": 3,
        "seed": 0,
        "blocks": None,
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
    loss = result["losses"]["test"]
    assert math.isclose(loss, result["scores"]["test"]["log_loss"], rel_tol=1e-9)
    iterations = result["certificate"]["iterations"]
    assert result["rows_per_second"] == pytest.approx(8 * iterations / result["seconds"])
    assert result["versions"]["instruction_set"] == kernels.cpu


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_same_seed_same_file_on_any_threads_and_instruction_set(shell, folder, loss):
    if "v3" not in kernels.available:
        pytest.skip(f"this machine runs {', '.join(kernels.available)} alone, not v3")
    runs = [("1", "baseline"), ("2", "v3"), ("3", "v3")]
    for count, instruction_set in runs:
        arguments = ["train", "--quiet", "--epochs", "2", "--threads", count, "--loss", loss]
        arguments += ["--model", f"{count}.npz"]
        assert shell("tfopt", *arguments, env={"TFOPT_CPU": instruction_set}).code in (0, 3)
    assert len({(folder / f"{count}.npz").read_bytes() for count, _ in runs}) == 1


def test_seed_decides_the_file(cli, folder):
    noisy(folder, 200)
    files = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        flags = ["--blocks", "2", "--epochs", "1", "--seed", seed, "--model", name, "--quiet"]
        assert cli("train", "data.svm", *flags).code in (0, 3)
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


def test_squared_loss_finds_the_weights(cli, folder):
    write(folder / "data.svm", *squared_data())
    outcome = cli("train", "data.svm", "--loss", "squared", "--l2", "1e-6", "--quiet", "--json")
    scores = outcome.json()["scores"]["train"]
    assert scores["rmse"] < 0.12
    assert scores["mae"] < 0.1
    assert scores["r2"] > 0.995
    model = read_model("model.npz")
    np.testing.assert_allclose(model.weights, [1, -2, 0.5], atol=0.05)
    np.testing.assert_allclose(model.bias, [3], atol=0.05)


def test_l2_gives_ridge_regression(cli, folder):
    x, y = squared_data()
    write(folder / "data.svm", x, y)
    flags = ["--loss", "squared", "--l2", "0.5", "--tol", "1e-12", "--quiet"]
    assert cli("train", "data.svm", *flags).code == 0
    centred = x - x.mean(0)
    ridge = np.linalg.solve(centred.T @ centred / 400 + 0.5 * np.eye(3), centred.T @ y / 400)
    np.testing.assert_allclose(read_model("model.npz").weights, ridge, atol=1e-6)


def test_l1_makes_weights_zero(cli):
    result = cli("train", "--json", "--quiet", "--l1", "0.0003").json()
    assert 40 <= result["nonzero_weights"] <= 80  # of 123
    assert result["scores"]["test"]["log_loss"] < 0.327


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
    result = cli("train", "data.svm", "--json", "--quiet").json()
    constant = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert result["scores"]["train"]["log_loss"] == pytest.approx(constant, rel=1e-3)


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")]
)
def test_plot(cli, folder, tiny, suffix, magic):
    outcome = cli("train", tiny, "--test", tiny, "--plot", f"loss{suffix}", "--quiet")
    assert outcome.code == 0
    assert (folder / f"loss{suffix}").read_bytes().startswith(magic)


def test_plot_shows_the_gaps(cli, tiny, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    flags = ["--plot", "x.png", "--quiet", "--json"]
    gaps = cli("train", tiny, *flags).json()["gap_per_iteration"]
    (axes,) = figures[0].axes
    assert axes.get_title() == "logistic loss"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("iteration", "relative gap")
    shown = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert gaps[0] in shown.values() and "tol" in shown


def test_model_header_is_complete(cli, tiny):
    cli("train", tiny, "--quiet")
    with np.load("model.npz", allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        assert archive["coefficients"].shape == (1, 3)
    assert header["optimizer"] == {"name": "SDCA"}
    assert header["settings"]["seed"] == 0
    assert "threads" not in header["settings"]


def noisy(folder, rows, seed=0):
    """Write rows of twenty features, of which one says something of the two classes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 20))
    write(folder / "data.svm", x, (x[:, 0] + random.normal(size=rows) > 0).astype(int))
    return (folder / "data.svm").read_text().splitlines(keepends=True)
