"""`tfopt train --chunk-size`: files that are read again in each epoch, part by part."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from tfopt import checkpoints
from tfopt.cli import rows
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import cut
from tfopt.io import libsvm
from tfopt.linear_model.model_file import read_model

ROWS = 90


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(libsvm, "BLOCK", 4096)


@pytest.fixture
def frame(folder):
    """Rows of two classes in a LIBSVM file, a CSV file and a Parquet file."""
    random = np.random.default_rng(0)
    values = random.standard_normal((ROWS, 3)).round(3)
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    frame["y"] = (values[:, 0] + random.standard_normal(ROWS) > 0).astype(int)
    frame["w"] = random.integers(1, 4, ROWS)
    lines = (
        f"{int(row.y)} 1:{row.a} 2:{row.b} 3:{row.c}\n" for row in frame.itertuples(index=False)
    )
    (folder / "data.svm").write_text("".join(lines))
    for name, table in (("data", frame.drop(columns="w")), ("weighted", frame)):
        table.to_csv(f"{name}.csv", index=False)
        table.to_parquet(f"{name}.parquet", index=False, row_group_size=20)
    return frame


FLAGS = ["--batch-size", "8", "--epochs", "3", "--quiet", "--json", "--l2", "0.01"]


@pytest.mark.parametrize("name", ["data.svm", "weighted.csv", "weighted.parquet"])
def test_one_part_is_the_file_in_memory(cli, frame, name):
    flags = FLAGS if name == "data.svm" else [*FLAGS, "--label", "y", "--weight", "w"]
    whole = cli("train", name, *flags).json()
    weights = read_model("model.npz").weights
    part = cli("train", name, *flags, "--chunk-size", "1GB").json()
    assert (read_model("model.npz").weights == weights).all()
    assert part["loss_per_epoch"] == whole["loss_per_epoch"]
    assert part["scores"]["train"].pop("auc") is None and whole["scores"]["train"].pop("auc")
    assert part["scores"]["train"] == pytest.approx(whole["scores"]["train"], rel=1e-12)
    assert part["settings"].pop("chunk_size") == 10**9
    assert part["settings"] == whole["settings"]


def specified(X, y, lengths, rate, epochs, size):
    """Return what SGD makes of rows in parts: parts in random order, the rows of each shuffled."""
    starts, shuffle = np.cumsum([0, *lengths]), np.random.default_rng(0)
    w, b = np.zeros(X.shape[1]), 0.0
    for epoch in range(epochs):
        step = rate * (1 - epoch / epochs)
        for part in shuffle.permutation(len(lengths)):
            order = starts[part] + shuffle.permutation(lengths[part])
            for k in range(0, len(order), size):
                batch = order[k : k + size]
                residuals = (expit(X[batch] @ w + b) - y[batch]) / len(batch)
                w, b = w - step * residuals @ X[batch], b - step * residuals.sum()
    return w, b


@pytest.mark.parametrize("name", ["data.svm", "data.csv", "data.parquet"])
def test_parts_are_visited_in_random_order(cli, frame, folder, name):
    lengths, size = [20, 20, 20, 20, 10], 1  # one group of rows of Parquet's
    if name != "data.parquet":
        text, size = (folder / name).read_bytes(), 400
        parts = [text[part.start : part.stop] for part in cut(name, ReadOptions(), size)]
        assert b"".join(parts) == text and len(parts) > 3
        lengths = [part.count(b"\n") for part in parts]
        lengths[0] -= name == "data.csv"
    flags = ["--optimizer", "sgd", "--learning-rate", "0.5", "--batch-size", "8", "--epochs", "3"]
    flags += [] if name == "data.svm" else ["--label", "y"]
    files = []
    for _ in range(2):
        assert cli("train", name, *flags, "--chunk-size", size, "--quiet").code == 0
        files.append((folder / "model.npz").read_bytes())
    assert files[0] == files[1]
    model = read_model("model.npz")
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy()
    weights, bias = specified(X, y, lengths, 0.5, 3, 8)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(model.bias, [bias], rtol=1e-9)


def test_scores_are_those_of_the_model_in_memory(cli, frame):
    flags = [*FLAGS, "--test", "data.svm", "--valid", "data.svm", "--patience", "1"]
    result = cli("train", "data.svm", *flags, "--chunk-size", "300").json()
    scores = cli("predict", "model.npz", "data.svm", "--json").json()["scores"]
    for part in ("train", "valid", "test"):
        if part == "train":
            assert result["scores"][part].pop("auc") is None
            result["scores"][part]["auc"] = scores["auc"]
        assert result["scores"][part] == pytest.approx(scores, rel=1e-12)
        assert result["loss_per_epoch"][part][-1] == pytest.approx(scores["log_loss"], rel=1e-12)
    assert result["rows"] == {"train": ROWS, "valid": ROWS, "test": ROWS}


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_run_that_was_stopped_goes_on(cli, frame, folder, monkeypatch, loss):
    arguments = ["train", "data.svm", *FLAGS, "--loss", loss, "--chunk-size", "400"]
    assert cli(*arguments).code == 0
    whole = (folder / "model.npz").read_bytes()
    save = checkpoints.save
    for steps in (5, 16, 20):

        def save_once(path, tree):
            save(path, tree)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", save_once)
            assert cli(*arguments, "--checkpoint-every", steps).code == 130
        assert cli(*arguments, "--resume").code == 0
        assert (folder / "model.npz").read_bytes() == whole


def test_features_of_any_part_count(cli, folder):
    comments = "# a part without rows\n" * 20
    (folder / "data.svm").write_text("1 1:1\n0 2:1\n" * 20 + comments + "1 0:1 7:1\n")
    result = cli("train", "data.svm", *FLAGS, "--chunk-size", "60").json()
    assert (result["features"], result["zero_based"]) == (8, True)
    assert result["rows"] == {"train": 41} and result["loss_per_epoch"]["train"][-1] < 1


@pytest.mark.parametrize("suffix", [".svm", ".csv"])
def test_the_line_of_a_bad_row_in_any_part(cli, frame, folder, suffix):
    path = folder / f"data{suffix}"
    lines = path.read_text().splitlines(keepends=True)
    if suffix == ".csv":
        lines[30] = lines[30].replace("\n", ',"a\nb"\n')
        lines = [lines[0].replace("\n", ",text\n")] + [
            line if k == 29 else line.replace("\n", ",t\n") for k, line in enumerate(lines[1:])
        ]
        flags, message = ["--label", "text"], "82:1: the value of 'a' is not a number 'x'"
        lines[80] = "x" + lines[80][lines[80].index(",") :]
    else:
        flags, message = [], "81:3: the value is not a number '1:x'"
        lines[80] = "1 1:x\n"
    path.write_text("".join(lines))
    outcome = cli("train", path.name, *flags, *FLAGS, "--chunk-size", "500")
    assert (outcome.code, outcome.err) == (1, f"{path.name}:{message}\n")
    result = cli("train", path.name, *flags, *FLAGS, "--chunk-size", "500", "--on-bad-line", "skip")
    assert result.json()["bad_lines"] == {"train": 1}


def test_the_first_of_several_bad_rows_is_named(cli, frame, folder):
    path = folder / "data.svm"
    lines = path.read_text().splitlines(keepends=True)
    for k in (20, 40, 60, 80):
        lines[k] = "1 1:1 3:x\n"
    path.write_text("".join(lines))
    for seed in range(3):  # of the order in which parts are read
        outcome = cli("train", "data.svm", "--chunk-size", "200", "--seed", seed, "--quiet")
        message = "data.svm:21:7: the value is not a number '3:x'\n"
        assert (outcome.code, outcome.err) == (1, message)


@pytest.mark.parametrize(
    ("flags", "line", "message"),
    [
        (["--zero-based", "no"], "1 0:1", "index 0 in a one-based file '0:1'"),
        ([], "1 1:1 2:1 1:1", "the indices are not in ascending order '1:1'"),
        ([], "1 2:1 134217729:1", "the index is above 134217728 '134217729:1'"),
    ],
)
def test_bad_indices_of_a_part(cli, frame, folder, flags, line, message):
    with (folder / "data.svm").open("a") as file:
        file.write(line + "\n")
    outcome = cli("train", "data.svm", *flags, "--chunk-size", "200", "--quiet")
    assert outcome.code == 1 and outcome.err.startswith(f"data.svm:{ROWS + 1}:")
    assert outcome.err.endswith(f"{message}\n")


def test_divergence_is_refused(cli, frame):
    flags = ["--loss", "squared", "--optimizer", "sgd", "--learning-rate", "1e200", "--quiet"]
    outcome = cli("train", "data.svm", *flags, "--chunk-size", "500")
    assert outcome.err == (
        "the train loss is not finite after epoch 1: "
        "lower --learning-rate (1e+200 here) or scale the features\n"
    )


def test_text_classes_of_parts(cli, folder):
    rows = [f"{k % 7},{'no' if k < 30 else 'yes'}\n" for k in range(60)]
    (folder / "data.csv").write_text("a,kind\n" + "".join(rows))
    flags = ["--label", "kind", *FLAGS, "--chunk-size", "50"]
    assert cli("train", "data.csv", *flags).json()["classes"] == ["no", "yes"]


def test_what_cannot_be_read_in_parts(cli, frame, folder):
    (folder / "data.gz").write_bytes(gzip.compress((folder / "data.svm").read_bytes()))
    (folder / "data.csv.gz").write_bytes(gzip.compress((folder / "data.csv").read_bytes()))
    for name, flags in [("data.gz", []), ("data.csv.gz", ["--label", "y"]), ("-", [])]:
        outcome = cli("train", name, *flags, "--chunk-size", "1MB")
        shown = "<stdin>" if name == "-" else name
        message = f"{shown}: --chunk-size needs an uncompressed file of this machine\n"
        assert (outcome.code, outcome.err) == (1, message)
    for name, text in [("empty.svm", ""), ("blank.svm", "\n# nothing\n" * 9)]:
        (folder / name).write_text(text)
        outcome = cli("train", name, "--chunk-size", "20")
        assert (outcome.code, outcome.err) == (1, f"{name}: no data rows\n")


def test_a_file_that_changes_is_refused(cli, frame, folder, monkeypatch):
    path, evaluate = folder / "data.svm", rows.Rows.evaluate

    def change(self, model):
        path.write_text(path.read_text().replace("1 1:", "0 1:", 1))
        return evaluate(self, model)

    monkeypatch.setattr(rows.Rows, "evaluate", change)
    outcome = cli("train", "data.svm", *FLAGS, "--chunk-size", "300")
    assert (outcome.code, outcome.err) == (1, "data.svm: has changed since it was read first\n")
    assert not (folder / "model.npz").exists()


def test_memory_is_that_of_the_parts(cli, folder):
    random = np.random.default_rng(0)
    labels, columns = random.integers(2, size=5000), random.integers(1, 50, size=(5000, 40))
    (folder / "data.svm").write_text(
        "".join(
            f"{label} " + " ".join(f"{column}:1" for column in np.unique(row)) + "\n"
            for label, row in zip(labels, columns, strict=True)
        )
    )
    cli("train", "data.svm", "--epochs", "1", "--quiet", "--chunk-size", "10KB")  # loads modules
    peaks = []
    for flags in ([], ["--chunk-size", "10KB"]):
        tracemalloc.start()
        assert cli("train", "data.svm", "--epochs", "1", "--quiet", *flags).code == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 3
