"""`tfopt train --hash` of tables and Vowpal Wabbit's text, and what is served of its models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt.io import iter_hashed
from tfopt.linear_model import FTRLClassifier, FTRLRegressor, load_model, save_model

FLAGS = ["--solver", "ftrl", "--hash", "64", "--batch-size", "1", "--quiet"]
ROWS = [(k % 2, f"a{k % 7}", f"b{k % 3}", (k * 7 % 5) / 2) for k in range(300)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    body = "".join(f"{y}\t{a}\t{b}\t{x}\n" for y, a, b, x in ROWS)
    (tmp_path / "log.tsv").write_text(f"click\tsite\tdev\tprice\n{body}")
    (tmp_path / "bare.tsv").write_text(body)
    lines = (f"{y} |site {a} |dev {b} | price:{x}\n" for y, a, b, x in ROWS)
    (tmp_path / "log.vw").write_text("".join(lines))
    return tmp_path


TABLE = ["log.tsv", "--label", "click", "--numeric", "price", "--cross", "site,dev"]
READ: dict[str, dict[str, Any]] = {
    "log.tsv": {
        "names": "header", "label": "click", "numeric": ["price"], "crosses": [("site", "dev")],
    },
    "bare.tsv": {"label": "0", "numeric": ["3"]},
    "log.vw": {"format": "vw", "crosses": [("site", "dev")]},
}  # fmt: skip
TRAIN = {
    "log.tsv": TABLE,
    "bare.tsv": ["bare.tsv", "--label", "0", "--numeric", "3", "--no-header"],
    "log.vw": ["log.vw", "--cross", "site,dev"],
}


def by_hand(file: str) -> FTRLClassifier:
    model = FTRLClassifier(batch_size=1, n_hashes=64)
    for block in iter_hashed(file, 64, **READ[file]):
        model.partial_fit(block.X, block.y, classes=[0, 1])
    return model


@pytest.mark.parametrize("file", TRAIN)
def test_the_command_learns_as_the_estimator(cli: Any, folder: Path, file: str) -> None:
    assert cli("train", *TRAIN[file], *FLAGS, "--model", "m.npz").code == 0
    expected = by_hand(file)
    loaded: Any = load_model("m.npz")
    np.testing.assert_array_equal(loaded.coef_.toarray(), expected.coef_)
    assert loaded.reading_ == expected.reading_
    (block,) = iter_hashed(file, 64, **READ[file])
    shown = cli("predict", "m.npz", file)
    np.testing.assert_array_equal(
        [float(x) for x in shown.out.split()], expected.predict_proba(block.X)[:, 1]
    )
    assert "AUC" in shown.err
    save_model("n.npz", expected)
    assert cli("predict", "n.npz", file).out == shown.out
    assert cli("convert", "m.npz", "m.json").code == cli("convert", "m.json", "o.npz").code == 0
    assert (folder / "o.npz").read_bytes() == (folder / "m.npz").read_bytes()


def test_a_file_without_labels(cli: Any, folder: Path) -> None:
    for file in ("log.tsv", "bare.tsv"):
        assert cli("train", *TRAIN[file], *FLAGS, "--model", "m.npz").code == 0
        whole = cli("predict", "m.npz", file)
        rest = [line.split("\t", 1)[1] for line in (folder / file).read_text().splitlines()]
        (folder / "rest.tsv").write_text("\n".join(rest))
        found = cli("predict", "m.npz", "rest.tsv")
        assert found.out == whole.out and found.err == "no scores: the data have no labels\n"
    (folder / "rest.vw").write_text("|site a1 |dev b0 | price:1\n")
    assert cli("train", *TRAIN["log.vw"], *FLAGS, "--model", "m.npz").code == 0
    assert cli("predict", "m.npz", "rest.vw", "--labels").out in ("0\n", "1\n")


def test_predictions_need_no_scikit_learn(cli: Any, folder: Path) -> None:
    assert cli("train", *TABLE, *FLAGS, "--model", "m.npz").code == 0
    expected = cli("predict", "m.npz", "log.tsv", "--proba").out
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from tfopt.cli import main\n"
        "sys.exit(main(['predict', 'm.npz', 'log.tsv', '--proba', '--quiet']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_what_is_shown_of_a_model(cli: Any, folder: Path) -> None:
    assert cli("train", *TABLE, *FLAGS, "--model", "m.npz").code == 0
    facts = json.loads(cli("inspect", "m.npz", "--json", "--top", "3").out)
    coef = by_hand("log.tsv").coef_[0]
    largest = np.argsort(-np.abs(coef), kind="stable")[:3]
    assert [each["feature"] for each in facts["models"][0]["weights"]] == largest.tolist()
    assert facts["reading"]["crosses"] == [["site", "dev"]] and facts["features"] == 64
    shown = cli("inspect", "m.npz").out
    assert "features  64, hashed" in shown and "numeric ('price',)" in shown


def test_weights_columns_left_out_and_other_losses(cli: Any, folder: Path) -> None:
    flags = ["--loss", "squared", "--weight", "price", "--drop", "dev", "--learning-rate", "0.1"]
    assert cli("train", "log.tsv", "--label", "click", *flags, *FLAGS, "--model", "m.npz").code == 0
    model = FTRLRegressor(n_hashes=64, batch_size=1, learning_rate=0.1)
    options: dict[str, Any] = {"names": "header", "label": "click", "weight": "price"}
    for block in iter_hashed("log.tsv", 64, skip=["dev"], **options):
        model.partial_fit(block.X, block.y, block.sample_weight)
    loaded: Any = load_model("m.npz")
    np.testing.assert_array_equal(loaded.coef_.toarray()[0], model.coef_)
    assert "R2" in cli("predict", "m.npz", "log.tsv").err


def test_a_run_that_goes_on(cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [*FLAGS, "--epochs", "2"]
    assert cli("train", *TABLE, *more, "--model", "whole.npz").code == 0
    from tfopt.cli import stream

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stream, "_tell", interrupted)
        saved = [*more, "--model", "m.npz", "--checkpoint-every", "1"]
        assert cli("train", *TABLE, *saved).code == 130
    assert cli("train", *TABLE, *saved, "--resume").code == 0
    assert (folder / "m.npz").read_bytes() == (folder / "whole.npz").read_bytes()


def test_malformed_rows(cli: Any, folder: Path) -> None:
    with open("log.tsv", "a") as file:
        file.write("1\ta\tb\tx\n")
    done = cli("train", *TABLE, *FLAGS)
    assert done.code == 1
    assert done.err == "log.tsv:302:7: the value is not a finite number 'x'\n"
    assert cli("train", *TABLE, *FLAGS, "--on-bad-line", "skip", "--model", "m.npz").code == 0
    assert cli("predict", "m.npz", "log.tsv").code == 1
    assert (
        "1 malformed line left out"
        in cli("predict", "m.npz", "log.tsv", "--on-bad-line", "skip").err
    )
    (folder / "log.vw").write_text("1 |a b\n|a c\n")
    assert cli("train", "log.vw", *FLAGS).err == "log.vw: a row has no label\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train log.vw", "text of Vowpal Wabbit needs --solver ftrl --hash N"),
        ("train log.tsv --solver ftrl --label click --numeric price", "--numeric needs --hash"),
        ("train log.tsv --solver ftrl --label click --no-header", "--no-header needs --hash"),
        ("train log.tsv --solver ftrl --hash 8", "--hash needs --label"),
        ("train log.tsv --hash 8 --label click", "--hash works with --solver ftrl alone"),
        ("train log.tsv --solver ftrl --hash 8 --label click --cross a", "two names, A,B"),
        (
            "train log.tsv --solver ftrl --hash 8 --label click --missing x",
            "--missing does not go with --hash",
        ),
        ("train log.vw --solver ftrl --hash 8 --weight x", "--weight does not go with --hash"),
        ("train log.vw --solver ftrl --hash 8 --numeric x", "--numeric is for CSV files"),
        ("train log.svm --solver ftrl --hash 8 --cross a,b", "--cross is for CSV files and text"),
    ],
)
def test_wrong_usage(cli: Any, folder: Path, line: str, message: str) -> None:
    done = cli(*line.split())
    assert done.code == 2 and message in done.err


def test_models_and_files_that_do_not_fit(cli: Any, folder: Path) -> None:
    save_model("m.npz", FTRLClassifier(n_hashes=8).fit([{"a": 1}, {"b": 1}], [0, 1]))
    assert "it learned no text" in cli("predict", "m.npz", "log.tsv").err
    assert cli("train", *TABLE, *FLAGS, "--model", "m.npz").code == 0
    assert (
        "says how text is read: leave out --label"
        in cli("predict", "m.npz", "log.tsv", "--label", "click").err
    )
    (folder / "other.tsv").write_text("click\tsite\n1\ta\n")
    assert "there is no column 'price'" in cli("predict", "m.npz", "other.tsv").err
    (folder / "none.tsv").write_text("click\tsite\tdev\tprice\n")
    assert cli("predict", "m.npz", "none.tsv").err == "none.tsv: no data rows\n"
    assert "Vowpal Wabbit" in cli("cv", "log.vw").err
