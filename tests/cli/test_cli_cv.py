"""`tfopt cv`: the best penalty of a path, on folds that the fits have not seen."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold


@pytest.fixture
def rows(folder):
    """Return sixty rows of four features; write them with classes, and with numbers."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4)).round(3)
    y = (X[:, 0] + random.normal(size=60)).round(3)
    for name, labels in (("numbers", y), ("classes", (y > 0).astype(int))):
        lines = (
            f"{label} " + " ".join(f"{k}:{v}" for k, v in enumerate(row, 1))
            for label, row in zip(labels, X, strict=True)
        )
        (folder / name).write_text("\n".join(lines) + "\n")
    return X, y


PATH = [1.0, 0.1, 0.01]


def test_the_losses_are_those_of_scikit_learn(cli, rows):
    X, y = rows
    flags = ["--l2", "0.01,1,0.1", "--tol", "1e-10", "--folds", "4", "--json", "--quiet"]
    result = cli("cv", "classes", *flags).json()
    folds = [*StratifiedKFold(4, shuffle=True, random_state=0).split(X, y > 0)]
    for line, l2 in zip(result["path"], PATH, strict=True):
        losses = []
        for fitted, held in folds:
            C = 1 / (l2 * 60)  # the same in all folds, as with liblinear
            theirs = LogisticRegression(C=C, tol=1e-10).fit(X[fitted], y[fitted] > 0)
            losses.append(log_loss(y[held] > 0, theirs.predict_proba(X[held])[:, 1]))
        assert line["loss_per_fold"] == pytest.approx(losses, rel=1e-5)
        assert line["l2"] == l2 and line["C"] == pytest.approx(1 / (60 * l2))
        assert line["loss"] == pytest.approx(np.mean(losses))
        assert line["standard_error"] == pytest.approx(np.std(losses, ddof=1) / 2, rel=1e-3)
        assert line["relative_gap"] <= 1e-10
    assert result["best"] == min(result["path"], key=lambda line: line["loss"])
    assert result["schema"] == 2 and result["folds"] == 4


def test_regression(cli, rows):
    X, y = rows
    flags = ["--loss", "squared", "--C", "1,0.1", "--tol", "1e-12", "--json", "--quiet"]
    result = cli("cv", "numbers", *flags).json()
    assert [line["C"] for line in result["path"]] == pytest.approx([0.1, 1])
    (line, _) = result["path"]
    losses = []
    for fitted, held in KFold(5, shuffle=True, random_state=0).split(X):
        theirs = Ridge(alpha=line["l2"] * 60).fit(X[fitted], y[fitted])
        losses.append(np.mean((theirs.predict(X[held]) - y[held]) ** 2) / 2)
    assert line["loss_per_fold"] == pytest.approx(losses, rel=1e-5)
    assert line["scores"].keys() == {"rmse", "mae", "r2"}


def test_the_table_and_the_model(cli, rows, folder):
    outcome = cli("cv", "classes", "--model", "best.npz")
    assert outcome.code == 0
    title, *lines, last = outcome.out.splitlines()
    assert title.split() == ["l2", "C", "loss", "s.e.", "accuracy", "auc", "iterations"]
    assert [line.split()[1] for line in lines] == ["0.001", "0.01", "0.1", "1", "10", "100", "1000"]
    (best,) = (line for line in lines if line.endswith("  <- best"))
    assert last == "model  best.npz"
    assert len(outcome.err.splitlines()) == 7 * 5
    assert all(line.startswith("fold ") and " loss 0." in line for line in outcome.err.splitlines())
    l2 = cli("cv", "classes", "--json", "--quiet").json()["best"]["l2"]
    assert float(best.split()[0]) == pytest.approx(l2, rel=1e-5)
    assert cli("train", "classes", "--l2", repr(l2)).code == 0
    assert (folder / "best.npz").read_bytes() == (folder / "model.npz").read_bytes()


def test_a_tolerance_that_is_not_reached_is_said(cli, rows):
    flags = ["--loss", "hinge", "--epochs", "1", "--tol", "1e-14", "--json", "--quiet"]
    outcome = cli("cv", "classes", *flags)
    assert outcome.code == 3
    assert outcome.err.startswith("warning: the largest gap is ")
    assert max(line["relative_gap"] for line in json.loads(outcome.out)["path"]) > 1e-14


def test_what_cannot_be_divided_is_refused(cli, folder, rows):
    (folder / "few").write_text("1 1:1\n0 1:2\n1 1:3\n")
    for data, flags, message in [
        ("few", [], "few: has 3 rows, too few for --folds 5\n"),
        ("few", ["--loss", "squared"], "few: has 3 rows, too few for --folds 5\n"),
        ("numbers", ["--model", "numbers"], "numbers: is also an input and would be overwritten"),
        (
            "few",
            ["--folds", "2"],
            "few: each class needs two rows, and that of the label 0 has one\n",
        ),
        ("missing", [], "missing: No such file or directory"),
        (".", [], ".: Is a directory"),
    ]:
        outcome = cli("cv", data, *flags, "--quiet")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(message) and outcome.err.count("\n") == 1


def test_a_fold_without_weight_says_nothing(cli, folder):
    lines = [f"{k % 7},{('no', 'yes')[k % 2]},{int(k < 9)}\n" for k in range(20)]
    (folder / "w.csv").write_text("a,y,w\n" + "".join(lines))
    outcome = cli(
        "cv", "w.csv", "--label", "y", "--weight", "w", "--folds", "10", "--json", "--quiet"
    )
    best = outcome.json()["best"]
    assert 0.0 in best["loss_per_fold"] and max(best["loss_per_fold"]) > 0
    assert best["scores"]["accuracy"] is None
