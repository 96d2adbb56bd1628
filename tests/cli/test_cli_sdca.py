"""`tfopt train`: the minimum, its proof, and models of every loss."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import warnings

import numpy as np
import pytest
from common.linear_losses import phi
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tfopt.cli import report
from tfopt.cli.options import CLASSIFICATION, LOSSES
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_data
from tfopt.linear_model import LinearClassifier, LinearRegressor
from tfopt.linear_model.model_file import read_model

ROWS = "3 1:1\n0 2:1\n2 1:.5 2:.5\n5 1:2\n1 3:.1\n0 2:2\n"


def test_the_minimum_of_a9a_and_its_proof(cli):
    outcome = cli("train", "--tol", "1e-9", "--json", "--quiet")
    result = outcome.json()
    assert result["certificate"]["objective"] * 32561 == pytest.approx(10528.57243054, rel=1e-9)
    assert 0 <= result["certificate"]["relative_gap"] <= 1e-9
    assert result["settings"]["l2"] == 1 / 32561 and "optimizer" not in result["settings"]
    assert result["scores"]["test"]["accuracy"] == pytest.approx(0.8498, abs=1e-4)
    assert result["scores"]["test"]["log_loss"] == pytest.approx(0.3241, abs=1e-4)


def test_the_proof_is_printed(cli, tiny):
    outcome = cli("train", tiny, "--quiet")
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("gap "))
    assert "above the minimum; " in line and line.endswith(" iterations")
    assert re.search(
        r"^solver newton-cholesky: \d+ features, \d+ rows; .* ms expected$", outcome.out, re.M
    )
    outcome = cli("train", tiny, "--epochs", "1", "--tol", "1e-14")
    assert "above the minimum, which is above tol 1e-14; 1 iterations" in outcome.out


def test_progress_and_a_gap_that_is_not_reached_are_said(cli, tiny):
    outcome = cli("train", tiny)
    lines = outcome.err.splitlines()
    assert lines and all(line.startswith("iteration ") and " gap " in line for line in lines)
    assert cli("train", tiny, "--quiet").err == ""
    few = (
        "train",
        tiny,
        "--epochs",
        "1",
        "--tol",
        "1e-14",
        "--json",
        "--quiet",
    )
    outcome = cli(*few)
    assert outcome.json()["certificate"]["converged"] is False
    assert outcome.err.startswith("warning: the gap is ") and len(outcome.err.splitlines()) == 1
    assert "after 1 iterations, above --tol 1e-14: raise --epochs or --tol" in outcome.err
    assert cli("train", tiny, "--json").json()["certificate"]["converged"]


def test_json_has_no_numbers_that_json_has_not(cli, tiny, monkeypatch):
    certificate = report.Certificate(
        0.0, 1.0, 1e-4, 1, classes={1.0: report.Certificate(math.inf, math.nan, 1e-4, 1)}
    )
    assert certificate.relative_gap == math.inf

    def told(result, *rest):
        broken = dataclasses.replace(result, certificate=certificate, seconds=math.nan)
        return train_facts(broken, *rest)

    train_facts = report.train_facts
    monkeypatch.setattr("tfopt.cli.train.train_facts", told)
    out = cli("train", tiny, "--json", "--quiet").out
    facts = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert facts["seconds"] is None and facts["certificate"]["relative_gap"] is None
    assert facts["certificate"]["classes"][0]["gap"] is None


def test_a_loss_that_is_not_finite_is_refused(cli, folder):
    (folder / "train").write_text("".join(f"{k % 3} 1:{k % 3}\n" for k in range(30)))
    (folder / "test").write_text("1 1:1\n2 1:1e6\n")
    outcome = cli("train", "train", "--loss", "poisson", "--test", "test", "--quiet")
    assert outcome.err == "the test loss is not finite: scale the features or raise --l2\n"
    assert outcome.code == 1 and not (folder / "model.npz").exists()
    assert cli("train", "train", "--loss", "poisson", "--quiet").code == 0
    outcome = cli("predict", "model.npz", "test", "--output", "p")
    assert outcome.err == "test:2: the model's prediction is not finite\n"
    assert outcome.code == 1 and not (folder / "p").exists()


def test_a_large_model_is_announced(cli, tiny, monkeypatch):
    monkeypatch.setattr(report, "MANY", 3)
    note = "note: with 3 features a model takes 0.0 GB for each class, in memory and in its file"
    assert cli("train", tiny).err.startswith(note)
    assert cli("train", tiny, "--quiet").err == ""


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l1", ["0", "0.05"])
def test_models_of_every_loss_predict(cli, tiny, folder, loss, l1):
    data = tiny
    if loss not in CLASSIFICATION:
        data = folder / "counts"
        rows = ROWS.replace("\n0 ", "\n1 ") if loss == "gamma" else ROWS
        data.write_text(rows)
    trained = cli("train", data, "--loss", loss, "--l1", l1, "--json").json()
    predicted = cli("predict", "model.npz", data)
    values = np.array(predicted.out.split(), float)
    scores = trained["scores"]["train"]
    if loss not in CLASSIFICATION:
        truth = np.array([float(row.split()[0]) for row in rows.splitlines()])
        assert np.sqrt(np.mean((values - truth) ** 2)) == pytest.approx(scores["rmse"])
    else:
        assert scores["accuracy"] == 1
        assert (
            (values > (0.5 if loss in ("logistic", "multinomial") else 0)) == [True, False] * 4
        ).all()
    assert "accuracy" in predicted.err or "RMSE" in predicted.err


@pytest.mark.parametrize(
    ("loss", "flag", "value"),
    [
        ("huber", "--epsilon", 0.4),
        ("epsilon_insensitive", "--epsilon", 0.4),
        ("quantile", "--quantile", 0.8),
        ("smooth_hinge", "--gamma", 0.4),
        ("tweedie", "--power", 1.8),
    ],
)
def test_parameters_of_losses(cli, folder, loss, flag, value):
    """They stay with the model, and are of the mean loss that is told."""
    rows = ROWS if loss not in CLASSIFICATION else "1 1:1\n0 2:1\n1 1:2\n0 3:.1\n" * 3
    (folder / "counts").write_text(rows)
    call = ("train", "counts", "--loss", loss, flag, value, "--l2", "0.1")
    trained = cli(*call, "--json").json()
    model = read_model("model.npz")
    assert model.settings[flag[2:]] == value == trained["settings"][flag[2:]]
    truth = np.array([float(row.split()[0]) for row in rows.splitlines()])
    truth = 2 * truth - 1 if loss in CLASSIFICATION else truth
    predicted = np.array(cli("predict", "model.npz", "counts").out.split(), float)
    margins = np.log(predicted) if loss == "tweedie" else predicted
    mean = phi(loss, margins, truth, value).mean()
    assert trained["losses"]["train"] == pytest.approx(mean)
    found = cli("cv", "counts", "--loss", loss, flag, value, "--folds", "2", "--json").json()
    assert found[flag[2:]] == value


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared", "poisson", "quantile"])
@pytest.mark.parametrize("l1", ["0", "0.01"])
def test_no_weight_is_negative(cli, folder, loss, l1):
    """As of the estimators; and in the choice of the penalty."""
    random = np.random.default_rng(5)
    X = random.standard_normal((60, 4)).round(3)
    y = (X[:, 0] - X[:, 1] + random.standard_normal(60) > 0).astype(int)
    lines = [
        f"{k} " + " ".join(f"{j}:{x}" for j, x in enumerate(row, 1))
        for k, row in zip(y, X, strict=True)
    ]
    (folder / "data").write_text("\n".join(lines) + "\n")
    more = ("--loss", loss, "--l1", l1, "--l2", "0.1", "--tol", "1e-9", "--positive")
    told = cli("train", "data", *more, "--json").json()
    model = read_model("model.npz")
    assert model.settings["positive"] is True is told["settings"]["positive"]
    kind = LinearClassifier if loss in CLASSIFICATION else LinearRegressor
    options = {"l1": float(l1) * 60, "l2": 6.0, "tol": 1e-9, "positive": True}
    expected = kind(loss, **options).fit(X, y)
    np.testing.assert_allclose(model.weights, np.ravel(expected.coef_), atol=1e-6)
    assert (model.weights >= 0).all() and model.weights[1] == 0
    chosen = cli("cv", "data", *more, "--model", "cv.npz", "--json").json()
    assert chosen["positive"] is True
    assert (read_model("cv.npz").weights >= 0).all()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--workers", "2"), "not allowed with argument --positive"),
        (("--solver", "sdca"), "works with --solver auto or cd or interior-point alone"),
        (("--solver", "ftrl"), "works with --solver auto or cd or interior-point alone"),
        (("--bias", "1"), "does not go with --bias"),
        (("--blocks", "2"), "in blocks"),
        (("--loss", "multinomial"), "not loss='multinomial'"),
    ],
)
def test_where_weights_may_be_negative_all_the_same_it_is_refused(cli, folder, flags, message):
    (folder / "data").write_text("1 1:1\n0 2:1\n2 1:2\n0 3:.1\n" * 3)
    outcome = cli("train", "data", "--positive", *flags)
    assert outcome.code in (1, 2) and message in outcome.err
    assert not (folder / "model.npz").exists()


@pytest.mark.parametrize("text", ["balanced", "yes=3,no=0.25", "1=3"])
def test_weights_of_classes(cli, folder, text):
    """They are the estimator's; the labels are those of the file, text or numbers."""
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 2)).round(3)
    y = (X[:, 0] + random.standard_normal(40) > 0.5).astype(int)
    names = np.array(["0", "1"] if text == "1=3" else ["no", "yes"])
    if text == "1=3":
        lines = (f"{label} 1:{a} 2:{b}\n" for label, (a, b) in zip(y, X.tolist(), strict=True))
        path, flags = folder / "d.svm", []
        path.write_text("".join(lines))
    else:
        lines = (f"{names[k]},{a},{b}\n" for k, (a, b) in zip(y, X.tolist(), strict=True))
        path, flags = folder / "d.csv", ["--label", "y"]
        path.write_text("y,a,b\n" + "".join(lines))
    own = [*flags, "--class-weight", text]
    assert cli("train", path, *own, "--tol", "1e-12", "--l2", "0.1", "--quiet").code == 0
    weights = "balanced"
    if text != "balanced":
        factors = dict(part.split("=") for part in text.split(","))
        weights = {k: float(factors[name]) for k, name in enumerate(names) if name in factors}
    expected = LinearClassifier(l2=4.0, class_weight=weights, tol=1e-12).fit(X, y)
    model = read_model("model.npz")
    np.testing.assert_allclose(model.weights, expected.coef_[0], rtol=1e-6)
    assert model.settings["class_weight"] == text
    losses = [
        cli("cv", path, *each, "--l2", "0.1", "--json", "--quiet").json()["best"]["loss"]
        for each in (flags, own)
    ]
    assert losses[0] != losses[1]


def test_labels_that_a_loss_forbids(cli, folder):
    (folder / "negative").write_text("-1 1:1\n2 1:2\n3 1:1\n")
    (folder / "one").write_text("3 1:1\n3 1:2\n")
    for data, loss, message in [
        ("negative", "poisson", "negative: loss='poisson' needs non-negative targets"),
        ("one", "hinge", "one: hinge loss needs two classes or more, the labels have 1: 3"),
    ]:
        outcome = cli("train", data, "--loss", loss)
        assert outcome.code == 1 and message in outcome.err


def test_threads_change_no_bytes(cli, tiny, folder):
    for threads in (1, 2):
        cli("train", tiny, "--threads", threads, "--model", f"{threads}.npz")
    assert (folder / "1.npz").read_bytes() == (folder / "2.npz").read_bytes()


# ---- more than two classes


@pytest.fixture
def glass(folder):
    """Five classes, whose labels are out of order and not all whole, of rows of one to 6 features.

    With what else liblinear takes: rows without features, Windows' line ends, signs, exponents.
    """
    random = np.random.default_rng(0)
    labels = ["3", "+1", "-2", "10", "1e1", "2.5"]
    centres = random.standard_normal((6, 6))
    centres[4] = centres[3]  # the same class
    lines = []
    for k in random.integers(6, size=120):
        values = centres[k] + random.standard_normal(6)
        kept = np.flatnonzero(random.uniform(size=6) < 0.6)
        lines.append(" ".join([labels[k], *(f"{j + 1}:{values[j]:.4e}" for j in kept)]))
    path = folder / "glass"
    path.write_bytes("\r\n".join([*lines, "3", "-2  "]).encode() + b"\r\n\r\n")
    return path


def two_classes(path, own):
    """Write the file "two" with the label 1 for one class and 0 for the others."""
    lines = [line.split() for line in path.read_text().splitlines() if line]
    text = [" ".join([str(int(float(label) == own)), *rest]) for label, *rest in lines]
    path.with_name("two").write_text("\n".join(text))


@pytest.mark.parametrize("loss", [loss for loss in CLASSIFICATION if loss != "multinomial"])
def test_one_versus_rest(cli, glass, loss):
    """The model of each class is that of a file where the others have one label in common."""
    outcome = cli("train", glass, "--loss", loss, "--tol", "1e-9", "--json")
    result = outcome.json()
    assert result["classes"] == [-2, 1, 2.5, 3, 10] and result["features"] == 6
    model = read_model("model.npz")
    assert model.weights.shape == (5, 6) and model.bias.shape == (5,)
    objectives = []
    for k, each in enumerate(result["certificate"]["classes"]):
        two_classes(glass, model.classes[k])
        options = ("--loss", loss, "--tol", "1e-9", "--model", "two.npz")
        alone = cli("train", "two", *options, "--json").json()["certificate"]
        assert each["label"] == model.classes[k] and 0 <= each["relative_gap"] <= 1e-9
        assert each["objective"] == pytest.approx(alone["objective"], rel=1e-8)
        np.testing.assert_allclose(model.weights[k], read_model("two.npz").weights, atol=1e-3)
        objectives.append(each["objective"])
    assert result["certificate"]["objective"] == pytest.approx(sum(objectives), rel=1e-12)
    penalty = np.square(model.weights).sum() / 2 / 122
    loss_per_row = result["losses"]["train"]
    assert loss_per_row + penalty == pytest.approx(sum(objectives), rel=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "hinge"])
def test_predictions_of_more_than_two_classes(cli, glass, loss):
    result = cli("train", glass, "--loss", loss, "--json").json()
    model, data = read_model("model.npz"), read_data(str(glass), ReadOptions())
    predicted = cli("predict", "model.npz", glass)
    table = np.array([line.split() for line in predicted.out.splitlines()], float)
    assert table.shape == (122, 6)
    margins = data.features.toarray() @ model.weights.T + model.bias
    p = np.exp(margins) if loss == "multinomial" else 1 / (1 + np.exp(-margins))
    expected = p / p.sum(axis=1, keepdims=True) if loss != "hinge" else margins
    np.testing.assert_allclose(table[:, 1:], expected, rtol=1e-13)
    assert (table[:, 0] == np.array(model.classes)[expected.argmax(axis=1)]).all()
    accuracy = np.mean(table[:, 0] == data.labels)
    assert 0.5 < accuracy == result["scores"]["train"]["accuracy"]
    assert f"accuracy {accuracy:.6g}" in predicted.err
    if loss != "hinge":
        own = np.searchsorted(model.classes, data.labels)
        expected = -np.log((p / p.sum(axis=1, keepdims=True))[np.arange(122), own]).mean()
        assert result["scores"]["train"]["log_loss"] == pytest.approx(expected, rel=1e-12)
    assert cli("predict", "model.npz", glass, "--output", "p", "--quiet").code == 0
    assert (glass.parent / "p").read_text() == predicted.out
    assert predicted.out.splitlines()[-1].startswith(f"{table[-1, 0]:g} ")  # -2, not -2.0


def test_the_multinomial_loss(cli, glass):
    """Its minimum is scikit-learn's, and its model goes through all commands."""
    flags = ["--loss", "multinomial", "--l2", "0.05", "--tol", "1e-10", "--quiet"]
    result = cli("train", glass, *flags, "--json").json()
    data = read_data(str(glass), ReadOptions())
    theirs = LogisticRegression(C=1 / (0.05 * 122), tol=1e-10, max_iter=10_000)
    theirs.fit(data.features, np.unique(data.labels, return_inverse=True)[1])
    np.testing.assert_allclose(read_model("model.npz").weights, theirs.coef_, atol=1e-5)
    assert 0 <= result["certificate"]["relative_gap"] <= 1e-10
    assert cli("convert", "model.npz", "m.json").code == 0
    labels, *rows = cli("predict", "m.json", glass, "--proba").out.splitlines()
    assert labels == "labels -2 1 2.5 3 10"
    expected = theirs.predict_proba(data.features)
    np.testing.assert_allclose(np.array([row.split() for row in rows], float), expected, atol=1e-5)
    outcome = cli("train", glass, *flags, "--blocks", "2")
    assert outcome.code == 1 and "loss='multinomial'" in outcome.err
    sparse = cli("train", glass, *flags, "--l1", "0.01", "--json").json()
    assert 0 <= sparse["certificate"]["relative_gap"] <= 1e-10
    assert (read_model("model.npz").weights == 0).any()
    assert cli("cv", glass, "--loss", "multinomial", "--quiet").code == 0


def test_the_farthest_class_is_named(cli, glass):
    outcome = cli("train", glass, "--test", glass)
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("gap "))
    assert "above the minimum, class " in line and "which is above" not in line
    outcome = cli("train", glass, "--epochs", "1", "--tol", "1e-14")
    assert "), which is above tol 1e-14; 5 iterations" in outcome.out


def test_labels_that_a_model_of_several_classes_has_not(cli, glass, folder):
    cli("train", glass)
    (folder / "other").write_text("4 1:1\n")
    assert cli("predict", "model.npz", "other").err.startswith("no scores: ")
    refused = cli("train", glass, "--test", "other", "--quiet")
    assert refused.err == "other:1: the label does not occur in the training data '4'\n"


# ---- what liblinear takes


@pytest.mark.parametrize("bias", [-1, 1, 3])
def test_the_bias_of_liblinear(cli, glass, bias):
    """Its -B: a feature of all rows; scikit-learn has it as intercept_scaling."""
    two_classes(glass, 3)
    options = ("--tol", "1e-12", "--bias", bias, "--json")
    objective = cli("train", "two", *options).json()["certificate"]["objective"] * 122
    data = read_data("two", ReadOptions())
    X, y = data.features.toarray(), np.where(data.labels == 1, 1, -1)
    theirs = LogisticRegression(
        solver="liblinear", fit_intercept=bias > 0, intercept_scaling=abs(bias), tol=1e-10
    ).fit(X, y)
    w, b = theirs.coef_[0], float(np.ravel(theirs.intercept_)[0])
    minimum = np.logaddexp(0, -y * (X @ w + b)).sum() + (w @ w + (b / bias) ** 2) / 2
    assert objective == pytest.approx(minimum, rel=1e-9)
    model = read_model("model.npz")
    np.testing.assert_allclose(model.weights, w, atol=1e-5)
    assert model.bias[0] == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_lasso_of_liblinear(cli, glass, loss):
    """Its -s 6 and -s 5: --l1 is 1 / (C * rows), and there is no other penalty."""
    two_classes(glass, 3)
    flags = ["--loss", loss, "--l1", str(1 / (0.3 * 122)), "--l2", "0", "--bias", "-1"]
    result = cli("train", "two", *flags, "--tol", "1e-10", "--json", "--quiet").json()
    data = read_data("two", ReadOptions())
    X, y = data.features, np.where(data.labels == 1, 1, -1)
    options = {"C": 0.3, "tol": 1e-10, "max_iter": 100_000, "fit_intercept": False}
    theirs = LogisticRegression(solver="liblinear", l1_ratio=1, **options)
    if loss == "squared_hinge":
        theirs = LinearSVC(penalty="l1", loss=loss, dual=False, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w = theirs.fit(X, y).coef_[0]
    margins = y * (X @ w)
    losses = np.square(np.maximum(1 - margins, 0))
    losses = np.logaddexp(0, -margins) if loss == "logistic" else losses
    minimum = losses.mean() + np.abs(w).sum() / (0.3 * 122)
    assert result["certificate"]["objective"] == pytest.approx(minimum, rel=1e-7)
    ours = read_model("model.npz").weights
    np.testing.assert_allclose(ours, w, atol=1e-4)
    assert ((ours == 0) == (w == 0)).all()


def test_no_penalty_at_all(cli, rows_of_numbers):
    X, y = rows_of_numbers
    flags = ["--loss", "squared", "--l2", "0", "--tol", "1e-12", "--quiet"]
    assert cli("train", "numbers", *flags).code == 0
    expected = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    model = read_model("model.npz")
    np.testing.assert_allclose([*model.weights, *model.bias], expected, rtol=1e-5)


@pytest.fixture
def rows_of_numbers(folder):
    """Return rows of three features, and write them to a file."""
    random = np.random.default_rng(0)
    X = random.standard_normal((50, 3)).round(3)
    y = (X @ [1.0, -2.0, 0.5] + random.standard_normal(50)).round(3)
    lines = (f"{label} 1:{a} 2:{b} 3:{c}\n" for label, (a, b, c) in zip(y, X.tolist(), strict=True))
    (folder / "numbers").write_text("".join(lines))
    return X, y


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_rows_without_any_features(cli, folder, loss):
    (folder / "bare").write_text("1\n-1\r\n\n1 \n1\n")
    result = cli("train", "bare", "--loss", loss, "--json").json()
    assert result["rows"]["train"] == 4
    model = read_model("model.npz")
    assert not model.weights.any()
    expected = np.log(3) if loss == "logistic" else 0.5
    assert model.bias[0] == pytest.approx(expected, abs=1e-2)
    assert cli("predict", "model.npz", "bare").code == 0


def test_features_counted_from_zero(cli, folder):
    rows = [(1, "0:1 2:1"), (2, "1:1"), (3, "2:2"), (1, "0:2"), (2, "1:.5"), (3, "2:1")]
    (folder / "zero").write_text("".join(f"{label} {row}\n" for label, row in rows))
    result = cli("train", "zero", "--json").json()
    assert result["zero_based"] and result["features"] == 3
    assert result["scores"]["train"]["accuracy"] == 1
