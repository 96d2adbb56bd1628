"""`tfopt train --solver ftrl`: rows that are learned as they are read, and runs that go on."""

from __future__ import annotations

import functools
import json
import os
import signal
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tfopt import checkpoints
from tfopt.cli import readers, stream
from tfopt.cli.report import Progress
from tfopt.io import hash_features, iter_libsvm, libsvm, read_libsvm
from tfopt.linear_model import FTRLClassifier, FTRLRegressor, load_model
from tfopt.linear_model.model_file import read_model

#: Bytes of a block: a dozen rows of the data below.
SMALL = 512


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    small = functools.partial(iter_libsvm, block_size=SMALL)
    monkeypatch.setattr(readers.io, "iter_libsvm", small)
    monkeypatch.setattr(libsvm, "BLOCK", SMALL)


def write(path, classes=2, rows=60, first=1):
    """Write rows of ten features, and return the path; a feature says something of the label."""
    random = np.random.default_rng(0)
    lines = []
    for label in random.integers(classes, size=rows):
        columns = np.flatnonzero(random.random(10) < 0.4)
        values = random.standard_normal(columns.size) + label
        pairs = (f"{c + first}:{v:.6g}" for c, v in zip(columns, values, strict=True))
        lines.append(" ".join([str(label), *pairs]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def data(folder) -> Path:
    return write(folder / "data.svm")


FLAGS = ["--solver", "ftrl", "--batch-size", "8", "--epochs", "3", "--quiet"]


def by_hand(path, model, classes=None, epochs=3, n_hashes=None):
    """Learn the blocks of a file, and return the model."""
    width = read_libsvm(path).X.shape[1]
    more = {} if classes is None else {"classes": classes}
    for _ in range(epochs):
        for block in iter_libsvm(path, n_features=width, zero_based=False, block_size=SMALL):
            X = block.X if n_hashes is None else hash_features(block.X, n_hashes)
            model.partial_fit(X, block.y, **more)
    return model


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
def test_the_model_is_that_of_partial_fit(cli, folder, loss, classes):
    """Penalties are for the mean loss, as with other solvers; the estimator's are for a sum."""
    path = write(folder / "data.svm", classes)
    flags = ["--l1", "1e-3", "--l2", "0.02", "--loss", loss, "--learning-rate", "0.25"]
    outcome = cli("train", path, *FLAGS, *flags, "--beta", "0.5", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    options = {"learning_rate": 0.25, "beta": 0.5, "batch_size": 8, "l1": 0.18, "l2": 1.8}
    if loss == "logistic":
        expected = by_hand(path, FTRLClassifier(**options), np.arange(float(classes)))
    else:
        expected = by_hand(path, FTRLRegressor(loss, **options))
    found = load_model("model.npz")
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(np.ravel(found.intercept_), expected.intercept_)
    facts = outcome.json()
    rows, mean = facts["progressive_losses"][-1]
    assert (rows, mean) == (180, expected.progressive_loss_)
    assert {60, 120} <= {rows for rows, _ in facts["progressive_losses"]}
    assert facts["rows"] == {"train": 60} and facts["scores"] == {}


@pytest.mark.parametrize(
    ("flags", "kind", "options"),
    [
        ("--loss smooth_hinge --gamma 0.3", FTRLClassifier, {"gamma": 0.3}),
        ("--loss hinge --class-weight 1=3,0=0.5", FTRLClassifier, {"class_weight": {0: 0.5, 1: 3}}),
        ("--loss huber --epsilon 0.2", FTRLRegressor, {"epsilon": 0.2}),
        ("--loss quantile --quantile 0.2", FTRLRegressor, {"quantile": 0.2}),
    ],
)
def test_options_of_losses_and_weights_of_classes(cli, data, flags, kind, options):
    assert cli("train", data, *FLAGS, *flags.split()).code == 0
    classes = [0.0, 1.0] if kind is FTRLClassifier else None
    expected = by_hand(data, kind(flags.split()[1], batch_size=8, **options), classes)
    np.testing.assert_array_equal(load_model("model.npz").coef_, expected.coef_)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("skip", [[], ["--on-bad-line", "skip"]])
def test_balanced_classes_are_so_over_all_rows(cli, folder, classes, weighted, skip):
    path = write(folder / "data.svm", classes)
    read, weights = read_libsvm(path), np.ones(60)
    flags = [*FLAGS, *skip, "--class-weight", "balanced"]
    if weighted:
        weights = np.arange(60) % 4 / 2
        (folder / "w").write_text("".join(f"{weight}\n" for weight in weights))
        flags += ["--weight", "w"]
    assert cli("train", path, *flags).code == 0
    totals = np.bincount(read.y.astype(int), weights)
    factors = weights.sum() / classes / totals
    expected, start = FTRLClassifier(batch_size=8, class_weight=dict(enumerate(factors))), 0
    for _ in range(3):
        start = 0
        for block in iter_libsvm(path, n_features=10, zero_based=False, block_size=SMALL):
            rows, start = slice(start, start + block.y.size), start + block.y.size
            given = {"sample_weight": weights[rows], "classes": np.arange(float(classes))}
            expected.partial_fit(block.X, block.y, **given)
    np.testing.assert_allclose(load_model("model.npz").coef_, expected.coef_, rtol=1e-12)


@pytest.mark.parametrize("form", ["svm", "csv", "parquet"])
@pytest.mark.parametrize("flags", [[], ["--checkpoint-every", "2"]])
def test_the_files_of_a_folder_are_one_stream(cli, folder, form, flags):
    """Row by row, for batches end where blocks do."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.standard_normal((40, 3)).round(3), columns=["a", "b", "c"])
    frame["kind"] = np.where(np.arange(40) < 12, "x", random.choice([*"uvx"], 40))
    frame["y"] = np.where(np.arange(40) < 12, "no", random.choice(["no", "yes"], 40))
    (folder / "parts").mkdir()
    ends = [0, 12, 24, 40]
    for k in range(3):
        part = frame[ends[k] : ends[k + 1]]
        if form == "svm":
            lines = [
                f"{int(row.y == 'yes')} {k + 1}:{row.a} 9:{row.b}\n" for row in part.itertuples()
            ]
            (folder / "parts" / f"{k}.svm").write_text("".join(lines))
        elif form == "csv":
            part.to_csv(f"parts/{k}.csv", index=False)
        else:
            part.to_parquet(f"parts/{k}.parquet", index=False)
    if form == "svm":
        names = [folder / "parts" / f"{k}.svm" for k in range(3)]
        (folder / "all.svm").write_text("".join(name.read_text() for name in names))
    else:
        getattr(frame, f"to_{form}")(f"all.{form}", index=False)
    more = [] if form == "svm" else ["--format", form, "--label", "y"]
    more += ["--solver", "ftrl", "--batch-size", "1", "--epochs", "2", "--json", "--quiet", *flags]
    more += ["--class-weight", "balanced"]
    found = [cli("train", name, *more, "--model", "m.json").json() for name in (
        "parts", f"all.{form}"
    )]  # fmt: skip
    assert found[0]["classes"] == found[1]["classes"] and found[0]["rows"] == found[1]["rows"]
    cli("train", "parts", *more, "--model", "parts.npz")
    cli("train", f"all.{form}", *more, "--model", "all.npz")
    one, all_of_it = load_model("parts.npz"), load_model("all.npz")
    np.testing.assert_allclose(one.coef_, all_of_it.coef_, rtol=1e-9)
    (folder / "parts" / "empty").write_text("# nothing\n" if form == "svm" else "")
    if form != "parquet":
        outcome = cli("train", "parts", *more)
        assert (outcome.code, outcome.err) == (1, "parts/empty: no data rows\n")
    (folder / "parts" / "empty").unlink()
    if form == "csv":
        frame[["b", "a", "c", "kind", "y"]].to_csv("parts/9.csv", index=False)
        outcome = cli("train", "parts", *more)
        assert outcome.err == "parts/9.csv: has other columns than parts/0.csv\n"


@pytest.mark.parametrize("epochs", ["1", "3"])
def test_standard_input_is_a_stream(shell, cli, folder, data, epochs):
    flags = ["--solver", "ftrl", "--epochs", epochs, "--batch-size", "1", "--quiet"]
    flags += ["--model", "model.npz"]
    assert cli("train", data, *flags).code == 0
    expected = (folder / "model.npz").read_bytes()
    (folder / "model.npz").unlink()
    before = {*Path(tempfile.gettempdir()).glob("tfopt-*")}
    with open(data, "rb") as stream:
        done = shell("tfopt", "train", "-", *flags, "--checkpoint-every", "2", stdin=stream)
    assert (done.code, done.err) == (0, "")
    assert (folder / "model.npz").read_bytes() == expected
    (folder / "bad.svm").write_text("1 1:1\n0 2:x\n")
    with open(folder / "bad.svm", "rb") as stream:
        done = shell("tfopt", "train", "-", *flags, stdin=stream)
    assert done.code == 1 and done.err.startswith("<stdin>:2:3: ")
    assert {*Path(tempfile.gettempdir()).glob("tfopt-*")} <= before


def test_the_progressive_loss_is_of_rows_that_are_not_yet_learned(cli, data):
    flags = ["--solver", "ftrl", "--batch-size", "1", "--quiet", "--json"]
    ((rows, mean),) = cli("train", data, *flags).json()["progressive_losses"][-1:]
    read = read_libsvm(data)
    model, losses = FTRLClassifier(batch_size=1), [np.log(2)]
    for k in range(60):
        if k:
            p = model.predict_proba(read.X[k])[0, int(read.y[k])]
            losses.append(-np.log(p))
        model.partial_fit(read.X[k], read.y[k : k + 1], classes=[0.0, 1.0])
    assert rows == 60 and mean == pytest.approx(np.mean(losses), rel=1e-12)


def test_the_minimum_is_near(cli):
    """Of a9a, with penalties: that of the solvers that prove it."""
    penalties = ["--l1", "1e-4", "--l2", "1e-4", "--quiet", "--json"]
    proved = cli("train", *penalties).json()["scores"]["test"]["log_loss"]
    streamed = cli("train", "--solver", "ftrl", "--epochs", "2", *penalties).json()
    assert streamed["scores"]["test"]["log_loss"] <= 1.01 * proved
    assert streamed["scores"].keys() == {"test"}


def test_what_is_said(cli, data):
    outcome = cli("train", data, *FLAGS[:-1], "--test", data)
    test, loss, _, model = outcome.out.splitlines()
    assert test.startswith("test   accuracy ") and model == "model  model.npz"
    assert loss.endswith(", the mean of 180 rows, each before it was learned")
    lines = outcome.err.splitlines()
    assert all(line.startswith("rows ") and "  loss 0." in line for line in lines)
    assert [int(line.split()[1].replace(",", "")) for line in lines][-1] == 180


def test_hashed_features(cli, data, folder):
    """The model has the hashed columns, and predictions hash, too."""
    assert cli("train", data, *FLAGS, "--hash", "16").code == 0
    expected = by_hand(data, FTRLClassifier(batch_size=8), [0.0, 1.0], n_hashes=16)
    model = read_model("model.npz")
    np.testing.assert_array_equal(model.weights, expected.coef_[0])
    (folder / "new.svm").write_text("1 3:1 77:2\n0 1:0.5 1000000:1\n")
    read = read_libsvm(folder / "new.svm")
    probabilities = expected.predict_proba(hash_features(read.X, 16))[:, 1]
    outcome = cli("predict", "model.npz", "new.svm", "--quiet")
    found = np.array(outcome.out.split(), float)
    np.testing.assert_allclose(found, probabilities, rtol=1e-13)
    assert cli("convert", "model.npz", "m.json").code == 0
    assert cli("predict", "m.json", "new.svm", "--quiet").out == outcome.out


@pytest.mark.parametrize("first", [0, 1])
def test_features_count_from_where_the_file_says(cli, folder, first):
    path = write(folder / "data.svm", first=first)
    for flags in ([], ["--on-bad-line", "skip"]):  # which surveys in another way
        facts = cli("train", path, *FLAGS, *flags, "--json").json()
        assert (facts["zero_based"], facts["features"]) == (not first, 10)


def test_weights_and_classes_of_a_table(cli, folder):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((50, 3)).round(3), columns=["a", "b", "c"])
    frame["b"] = frame["b"] * 1e3 + 1e5
    X = ((frame - frame.mean()) / frame.std(ddof=0)).to_numpy()  # as a stream needs it
    frame["y"] = np.where(frame["a"] + random.standard_normal(50) > 0, "yes", "no")
    frame["w"] = random.integers(1, 4, 50)
    frame.to_csv("data.csv", index=False)
    flags = ["--label", "y", "--weight", "w", *FLAGS, "--json"]
    facts = cli("train", "data.csv", *flags).json()
    assert facts["classes"] == ["no", "yes"]
    expected = FTRLClassifier(batch_size=8)
    for _ in range(3):
        weights = frame["w"].to_numpy(float)
        expected.partial_fit(X, frame["y"], ["no", "yes"], weights)
    np.testing.assert_allclose(load_model("model.npz").coef_, expected.coef_, rtol=1e-9)
    assert facts["progressive_losses"][-1][1] == pytest.approx(expected.progressive_loss_)
    assert cli("predict", "model.npz", "data.csv", "--labels").err.startswith("accuracy 0.")


@pytest.mark.parametrize("line", ["1 1:x", "1 3:1 2:1", "1 134217729:1", "x 1:1"])
def test_a_bad_line_of_any_block(cli, data, folder, line):
    lines = data.read_text().splitlines()
    lines[45] = line
    data.write_text("\n".join(lines) + "\n")
    outcome = cli("train", data.name, *FLAGS)
    assert outcome.code == 1 and outcome.err.startswith("data.svm:46:")
    assert outcome.err.count("\n") == 1 and not (folder / "model.npz").exists()
    facts = cli("train", data, *FLAGS, "--on-bad-line", "skip", "--json").json()
    assert (facts["bad_lines"], facts["rows"]) == ({"train": 1}, {"train": 59})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([".", "--weight", "two.svm"], 1, ".: is a folder, whose rows have no files of numbers"),
        (["."], 1, "model.npz: is in ., where all files are data\n"),
        (["one.svm"], 1, "one.svm: logistic loss needs two classes or more, the labels have 1: 1"),
        (["none.svm"], 1, "none.svm: no data rows\n"),
        (["two.svm", "--loss", "poisson"], 1, "two.svm: loss='poisson' needs non-negative"),
        (["two.svm", "--class-weight", "2=1"], 1, "two.svm: no label 2 (from --class-weight)"),
        (["two.svm", "--tol", "1"], 2, "--tol works with --solver auto or sdca or"),
        (["two.svm", "--plot", "x.png"], 2, "--plot works with --solver auto"),
        (["two.svm", "--workers", "2"], 2, "--workers works with --solver auto alone"),
        (["two.svm", "--checkpoint", "x.pt"], 2, "--checkpoint needs a name that ends in .npz or"),
        (["two.svm", "--checkpoint", "model.npz"], 2, "--checkpoint and --model cannot be one"),
        (["two.svm", "--checkpoint", "no/x.npz"], 1, "no/x.npz: no such folder"),
    ],
)
def test_what_is_refused(cli, folder, arguments, code, message):
    (folder / "one.svm").write_text("1 1:1\n1 1:2\n")
    (folder / "two.svm").write_text("1 1:1\n-1 1:2\n")
    (folder / "none.svm").write_text("# nothing\n")
    before = sorted(path.name for path in folder.iterdir())
    outcome = cli("train", *arguments, "--solver", "ftrl", "--quiet")
    assert outcome.code == code and message in outcome.err and outcome.err.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_divergence_is_refused(cli, folder):
    write(folder / "data.svm")
    outcome = cli("train", "data.svm", *FLAGS, "--loss", "squared", "--learning-rate", "1e300")
    assert outcome.code == 1 and outcome.err.startswith("data.svm: the weights are no longer")
    assert not (folder / "model.npz").exists()


def test_memory_is_that_of_a_block(cli, folder):
    random = np.random.default_rng(0)
    labels, columns = random.integers(2, size=8000), random.integers(1, 50, size=(8000, 40))
    (folder / "data.svm").write_text(
        "".join(
            f"{label} " + " ".join(f"{column}:1" for column in np.unique(row)) + "\n"
            for label, row in zip(labels, columns, strict=True)
        )
    )
    peaks = []
    for solver in ("sdca", "ftrl"):
        flags = ["--solver", solver, "--epochs", "1", "--quiet"]
        cli("train", "data.svm", *flags)  # what is loaded or kept once
        tracemalloc.start()
        try:
            assert cli("train", "data.svm", *flags).code in (0, 3)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 2**20 < peaks[0]


# ---- runs that stop


def test_killed_at_six_points(shell, data):
    """Here a file is a block, and each pass a checkpoint."""
    arguments = ["train", data.name, "--test", data.name, *FLAGS, "--checkpoint-every", "1"]
    arguments += ["--model", "model.npz"]
    script = Path(__file__).with_name("killed.py")
    done = shell(script, "1", "6", *arguments)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert len(lines) == 6
    assert {verdict for *_, verdict in lines} == {"same"}, done.out
    assert any("model.checkpoint.npz" in left for _, left, _ in lines)


@pytest.fixture
def half(cli, data, monkeypatch):
    """Train until a checkpoint after some blocks; return the arguments of the run."""

    def run(*flags, blocks=4):
        arguments = ["train", data, *FLAGS, *flags, "--checkpoint-every", blocks]
        save = checkpoints.save

        def save_once(path, tree):
            save(path, tree)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", save_once)
            assert cli(*arguments).code == 130
        return arguments

    return run


@pytest.mark.parametrize("flags", [[], ["--loss", "squared"], ["--hash", "8", "--l1", "1e-4"]])
@pytest.mark.parametrize("blocks", [1, 4, 5])
def test_a_run_that_was_stopped_goes_on(cli, half, folder, flags, blocks):
    arguments = half(*flags, blocks=blocks)
    resumed = cli(*arguments, "--resume", "--json").json()
    model = (folder / "model.npz").read_bytes()
    assert not (folder / "model.checkpoint.npz").exists()
    whole = cli(*arguments, "--json").json()
    assert (folder / "model.npz").read_bytes() == model
    for name in ("progressive_losses", "scores", "rows"):
        assert resumed[name] == whole[name]


@pytest.mark.parametrize("block", [1, 7, 9])
def test_an_interrupt_saves_the_run(cli, data, folder, monkeypatch, block):
    arguments = ["train", data, *FLAGS, "--checkpoint", "saved.safetensors"]
    assert cli(*arguments).code == 0
    whole = (folder / "model.npz").read_bytes()
    (folder / "model.npz").unlink()
    handler, left, advance = signal.getsignal(signal.SIGINT), [block + 1], Progress.advance

    def count(self, rows):
        advance(self, rows)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", count)
        outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "interrupted; --resume goes on from saved.safetensors\n"
    assert signal.getsignal(signal.SIGINT) is handler
    assert sorted(path.name for path in folder.iterdir()) == ["data.svm", "saved.safetensors"]
    assert cli(*arguments, "--resume").code == 0
    assert (folder / "model.npz").read_bytes() == whole
    assert sorted(path.name for path in folder.iterdir()) == ["data.svm", "model.npz"]


def test_without_a_checkpoint_it_begins(cli, data):
    outcome = cli("train", data, *FLAGS[:-1], "--resume")
    assert outcome.code == 0
    assert outcome.err.startswith("model.checkpoint.npz: not there, so training begins anew\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "9"], "with other settings: batch_size was 8 and is 9 now"),
        (["--epochs", "4"], "with other settings: epochs was 3 and is 4 now"),
        (["--hash", "9"], "with other settings: hash was None and is 9 now"),
        (["--loss", "squared"], "with other settings: loss was logistic and is squared now"),
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


def test_what_a_checkpoint_holds(half, folder):
    half()
    tree = checkpoints.load(folder / "model.checkpoint.npz")
    assert (tree["at"]["passes"], tree["at"]["blocks"]) == (0, 4)
    assert tree["format"] == stream._FORMAT and "coef_" in tree["model"]
    assert json.loads(json.dumps(tree["settings"])) == tree["settings"]
