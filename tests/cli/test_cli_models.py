"""`tfopt predict --labels, --proba, --json`, `inspect`, `convert`; model files and estimators."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tfopt.errors import FileFormatError, InvalidTypeError
from tfopt.linear_model import (
    FTRLClassifier,
    FTRLRegressor,
    SDCAClassifier,
    SDCARegressor,
    load_model,
    save_model,
    to_json,
)
from tfopt.linear_model.model_file import read_model


@pytest.fixture
def three(folder):
    """Thirty rows of three classes."""
    random = np.random.default_rng(1)
    lines = []
    for label in [1, 2, 5] * 10:
        values = random.normal(size=3) + label
        lines.append(f"{label} " + " ".join(f"{k}:{v:.4f}" for k, v in enumerate(values, 1)))
    (folder / "three.svm").write_text("\n".join(lines) + "\n")
    return folder / "three.svm"


@pytest.fixture(params=["two", "three"])
def logistic(request, cli, tiny, three):
    """Return data whose classes a logistic model separates; the model is model.npz."""
    data = {"two": tiny, "three": three}[request.param]
    assert cli("train", data, "--quiet").code == 0
    return data


def test_probabilities_and_labels_agree(cli, logistic):
    plain = cli("predict", "model.npz", logistic)
    head, *rows = cli("predict", "model.npz", logistic, "--proba", "--quiet").out.splitlines()
    labels = head.split()
    assert labels == ["labels", *(f"{c:g}" for c in read_model("model.npz").classes)]
    p = np.array([row.split() for row in rows], float)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    likeliest = [labels[1 + k] for k in p.argmax(axis=1)]
    assert cli("predict", "model.npz", logistic, "--labels", "--quiet").out.split() == likeliest
    table = [line.split() for line in plain.out.splitlines()]
    if len(labels) == 3:
        assert [float(value) for (value,) in table] == p[:, 1].tolist()
    else:
        assert table == [[best, *row.split()] for best, row in zip(likeliest, rows, strict=True)]


def test_json_has_all_of_it(cli, logistic):
    outcome = cli("predict", "model.npz", logistic, "--json")
    result = outcome.json()
    labels = cli("predict", "model.npz", logistic, "--labels", "--quiet").out.split()
    proba = cli("predict", "model.npz", logistic, "--proba", "--quiet").out.splitlines()[1:]
    assert [f"{row['label']:g}" for row in result["predictions"]] == labels
    rows = [" ".join(map(repr, row["probabilities"])) for row in result["predictions"]]
    assert rows == proba
    assert result["rows"] == len(labels) == outcome.out.count('"label"')
    assert f"accuracy {result['scores']['accuracy']:.6g}" in (
        cli("predict", "model.npz", logistic).err
    )
    assert cli("predict", "model.npz", logistic, "--json", "--quiet").json()["scores"] is None


def test_margins_and_values_in_json(cli, tiny, three):
    for data, loss, key in [
        (tiny, "hinge", "margin"),
        (three, "hinge", "margins"),
        (tiny, "squared", "value"),
    ]:
        assert cli("train", data, "--loss", loss, "--quiet").code in (0, 3)
        plain = cli("predict", "model.npz", data, "--quiet").out.splitlines()
        first = cli("predict", "model.npz", data, "--json").json()["predictions"][0]
        assert " ".join(map(repr, np.ravel(first[key]).tolist())) in plain[0]
        refused = cli("predict", "model.npz", data, "--proba")
        assert refused.err == f"model.npz: --proba needs a logistic loss, not {loss}\n"
    refused = cli("predict", "model.npz", tiny, "--labels")
    assert refused.err == "model.npz: a squared loss has no labels\n"
    assert refused.code == 1


def test_inspect(cli, three):
    assert cli("train", three, "--quiet").code == 0
    model = read_model("model.npz")
    result = cli("inspect", "model.npz", "--json").json()
    assert [each["label"] for each in result["models"]] == [1, 2, 5]
    for each, row, bias in zip(result["models"], model.weights, model.bias, strict=True):
        assert each["bias"] == bias and each["nonzero"] == 3
        assert {w["feature"]: w["weight"] for w in each["weights"]} == dict(enumerate(row, 1))
        sizes = [abs(w["weight"]) for w in each["weights"]]
        assert sizes == sorted(sizes, reverse=True)
    text = cli("inspect", "model.npz", "--top", "1").out
    assert text.count("weights are not 0\n") == 3 and "class 5: bias " in text
    assert "classes   1, 2, 5\nfeatures  3, counted from 1\n" in text


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_converted_there_and_back_a_file_is_the_same(cli, folder, three, tiny, loss):
    data = three if loss == "logistic" else tiny
    assert cli("train", data, "--loss", loss, "--quiet").code == 0
    for line in ("model.npz model.json", "model.json back.npz", "model.json again.json"):
        outcome = cli("convert", *line.split())
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert (folder / "back.npz").read_bytes() == (folder / "model.npz").read_bytes()
    assert (folder / "again.json").read_bytes() == (folder / "model.json").read_bytes()
    facts = json.loads((folder / "model.json").read_text())
    assert (facts["schema"], facts["version"], facts["loss"]) == ("tfopt.linear_model", 2, loss)
    assert facts["link"] == {"logistic": "logit", "squared": "identity"}[loss]
    for command in ("predict", "inspect"):
        rest = [data] if command == "predict" else []
        assert cli(command, "model.json", *rest) == cli(command, "model.npz", *rest)
    refused = cli("convert", "model.npz", "model.npz")
    assert refused.err == "model.npz: is also an input and would be overwritten\n"


X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.digitize(X[:, 0], [-0.4, 0.4])


@pytest.mark.parametrize("name", ["model.npz", "model.json"])
@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (SDCAClassifier(), Y),
        (SDCAClassifier("hinge"), Y > 0),
        (SDCAClassifier(), np.array(["low", "mid", "high"])[Y]),
        (SDCARegressor("poisson"), Y),
        (FTRLClassifier(), Y > 1),
        (FTRLRegressor(), Y),
    ],
    ids=["three", "hinge", "text", "poisson", "ftrl", "ftrl regressor"],
)
def test_estimators_and_files(cli, folder, estimator, y, name):
    estimator.fit(X, y)
    save_model(name, estimator)
    again = load_model(name)
    assert (again.predict(X) == estimator.predict(X)).all()
    if hasattr(estimator, "decision_function"):
        assert (again.decision_function(X) == estimator.decision_function(X)).all()
    assert again.n_features_in_ == 3
    lines = (" ".join(f"{k}:{v!r}" for k, v in enumerate(row)) for row in X.tolist())
    (folder / "x.svm").write_text("".join(f"1 {line}\n" for line in lines))
    how = ["--labels"] if hasattr(estimator, "classes_") else []
    told = cli("predict", name, "x.svm", *how, "--quiet").out.split()
    if np.asarray(y).dtype.kind == "U":
        assert told == estimator.predict(X).tolist()
    else:
        np.testing.assert_allclose([float(each) for each in told], estimator.predict(X))
    save_model("second" + name[5:], again)
    assert (load_model("second" + name[5:]).coef_ == again.coef_).all()


def test_documents_are_model_files(cli, folder):
    for labels in (Y, Y > 0, np.array(["low", "mid", "high"])[Y]):
        model = SDCAClassifier().fit(X, labels)
        (folder / "export.json").write_text(to_json(model))
        save_model("m.npz", model)
        save_model("m.json", model)
        assert (folder / "m.json").read_text() == to_json(model) + "\n"
        assert load_model("m.json").classes_.dtype == model.classes_.dtype
        assert cli("convert", "export.json", "out.npz").code == 0
        ours, theirs = read_model("m.npz"), read_model("out.npz")
        assert (ours.weights == theirs.weights).all() and ours.labels == theirs.labels
    document = json.loads((folder / "export.json").read_text()) | {"loss": "odd"}
    (folder / "export.json").write_text(json.dumps(document))
    refused = cli("inspect", "export.json")
    assert refused.code == 1 and refused.err.startswith("export.json: is not a model that this ")
    assert refused.err.count("\n") == 1


def test_names_come_along(folder):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    save_model("m.npz", SDCARegressor().fit(frame, X[:, 0]))
    model = load_model("m.npz")
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


def test_what_cannot_be_saved_is_refused(folder):
    for bad, kind in [
        (object(), InvalidTypeError),
        (SDCAClassifier(), NotFittedError),
    ]:
        with pytest.raises(kind):
            save_model("m.npz", bad)
    assert list(folder.iterdir()) == []


def test_refuses_changed_json(folder):
    save_model("m.json", SDCAClassifier().fit(X, Y > 0))
    whole = (folder / "m.json").read_text()
    for changed, message in [
        (json.dumps(json.loads(whole) | {"link": "log"}), '"link" does not fit "loss": "logistic"'),
        (whole[:-9], "the text is not JSON: "),
    ]:
        (folder / "b.json").write_text(changed)
        with pytest.raises(FileFormatError) as caught:
            read_model("b.json")
        assert str(caught.value).startswith(
            f"b.json: is not a model that this tfopt reads: {message}"
        )
