"""A saved model is the loaded one: labels of every kind, parameters, both formats, both ways.

All estimators, their losses and parameters are tried, as far as the package names them.
"""

from __future__ import annotations

import inspect
import itertools
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import from_json, load_model, save_model
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.model_file import encode_model, read_model
from tfopt.linear_model.model_json import write_json

ESTIMATORS = [
    kind
    for name in linear_model.__all__
    if isinstance(kind := getattr(linear_model, name), type) and hasattr(kind, "fit")
]
#: Labels of three classes, ascending.
LABELS: dict[str, Any] = {
    "small": np.array([0, 1, 2]),
    "int8": np.array([-1, 1, 7], np.int8),
    "unsigned": np.array([0, 1, 2], np.uint64),
    "large": np.array([2**53 - 1, 2**53, 2**53 + 1]),
    "adjacent": np.array([2**60, 2**60 + 1, 2**60 + 2]),
    "extreme": np.array([-(2**63), 0, 2**63 - 1]),
    "bool": np.array([False, True]),
    "float": np.array([-1.0, 1.0, 2.0**52]),
    "float32": np.array([0, 1, 2], np.float32),
    "text": np.array(["no", "perhaps", "yes"]),
    "digits": np.array(["0", "1", "10"]),
    "objects": np.array(["a", "b", "c"], object),
}
REFUSED = {"unsigned of 64 bits": np.array([0, 1, 2**63 + 5], np.uint64)}


def losses(kind: type) -> tuple[str, ...]:
    if "loss" not in inspect.signature(kind).parameters:
        return ("logistic",)
    return tuple(getattr(getattr(kind, "_kind", kind), "_LOSSES", ("squared", "poisson")))


def fitted(kind: Any, loss: str, y: np.ndarray, **options: Any) -> Any:
    X = np.random.default_rng(0).standard_normal((len(y), 4))
    if "loss" in inspect.signature(kind).parameters:
        options["loss"] = loss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return X, kind(max_iter=2 if "FTRL" in kind.__name__ else 50, **options).fit(X, y)


def labels_of(kind: type, values: np.ndarray, n_classes: int = 3) -> np.ndarray:
    if not is_classifier(kind()):
        return np.random.default_rng(1).poisson(2.0, 60) + 0.5
    return values[:n_classes][np.arange(60) % len(values[:n_classes])]


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("labels", [*LABELS, *REFUSED])
@pytest.mark.parametrize("kind", [kind for kind in ESTIMATORS if is_classifier(kind())])
def test_labels(tmp_path: Path, kind: type, labels: str, n_classes: int, loss: str) -> None:
    if loss not in losses(kind):
        loss = "logistic"
    if labels == "bool" and n_classes == 3:
        n_classes = 2
    values = {**LABELS, **REFUSED}[labels][-n_classes:]
    X, model = fitted(kind, loss, labels_of(kind, values))
    paths = [str(tmp_path / f"m.{ending}") for ending in ("npz", "json")]
    if labels in REFUSED:
        for path in paths:
            with pytest.raises(InvalidArgumentError, match="the labels must be"):
                save_model(path, model)
            assert not Path(path).exists()
        return
    for path in paths:
        save_model(path, model)
        loaded = load_model(path)
        expected = model.predict(X).tolist()
        assert loaded.predict(X).tolist() == expected
        assert [*map(type, loaded.predict(X).tolist())] == [*map(type, expected)]
        assert (loaded.decision_function(X) == model.decision_function(X)).all()
    there, back = paths[0] + ".json", paths[1] + ".npz"
    convert(paths[0], there, again := str(tmp_path / "again.npz"))
    assert Path(again).read_bytes() == Path(paths[0]).read_bytes()
    convert(paths[1], back, again := str(tmp_path / "again.json"))
    assert Path(again).read_bytes() == Path(paths[1]).read_bytes()


def convert(path: str, *others: str) -> None:
    """Convert a model file to the next one, and that to the next one."""
    for source, target in itertools.pairwise([path, *others]):
        Path(target).write_bytes(encode_model(read_model(source), target))


OLD_MODELS = Path(__file__).parents[1] / "data" / "old_models"
OLD = json.loads((OLD_MODELS / "expected.json").read_text())


@pytest.mark.parametrize("name", OLD["models"])
def test_files_of_old_versions(tmp_path: Path, name: str) -> None:
    """Written by programs of then: three versions of archives, and the first of documents."""
    import pandas as pd

    expected, X = OLD["models"][name], np.array(OLD["rows"])
    model = load_model(OLD_MODELS / name)
    if "names" in expected:
        assert model.feature_names_in_.tolist() == expected["names"]
        X = pd.DataFrame(X, columns=expected["names"])
    assert type(model) is getattr(linear_model, expected["kind"])  # the name of then
    own = model.get_params()
    assert {name: own[name] for name in expected["parameters"]} == expected["parameters"]
    if "classes" in expected:
        assert [*map(repr, model.classes_.tolist())] == [*map(repr, expected["classes"])]
        assert model.decision_function(X).tolist() == expected["scores"]
    assert model.predict(X).tolist() == expected["predict"]
    new = [str(tmp_path / f"new{k}.{form}") for k, form in enumerate(("npz", "json", "npz"))]
    convert(str(OLD_MODELS / name), *new)
    assert Path(new[0]).read_bytes() == Path(new[2]).read_bytes()
    assert load_model(new[1]).get_params() == own


def test_old_files_have_all_versions() -> None:
    versions = set()
    for path in OLD_MODELS.iterdir():
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                versions.add(("npz", json.loads(str(arrays["header"]))["version"]))
        elif path.name in OLD["models"]:
            versions.add(("json", json.loads(path.read_text())["version"]))
    assert versions == {("npz", 1), ("npz", 2), ("npz", 3), ("json", 1)}


@pytest.mark.parametrize("form", ["npz", "json"])
def test_the_parameter_of_a_loss_is_the_document_s(tmp_path: Path, form: str) -> None:
    """Settings tell how a model was trained; of another program's they may be empty."""
    _, model = fitted(linear_model.SDCARegressor, "huber", np.arange(60.0))
    path = str(tmp_path / f"m.{form}")
    save_model(path, model)
    stored = read_model(path)
    assert stored.loss_parameters == {"epsilon": 1.35} and stored.settings["epsilon"] is None
    document = json.loads(write_json(stored))
    assert document["loss_parameters"] == {"epsilon": 1.35}
    for parameters, settings in (({"epsilon": 2.5}, {}), ({"epsilon": 2.5}, {"epsilon": 1.0})):
        text = json.dumps(document | {"loss_parameters": parameters, "settings": settings})
        loaded = from_json(text)
        assert loaded.epsilon == 2.5 and read_model(path).loss_parameters == {"epsilon": 1.35}
    for wrong in ({}, {"epsilon": -1.0}, {"epsilon": "2"}, {"epsilon": 1.0, "gamma": 1.0}):
        with pytest.raises(InvalidArgumentError, match="loss_parameters"):
            from_json(json.dumps(document | {"loss_parameters": wrong}))
    old = {key: value for key, value in document.items() if key != "loss_parameters"}
    old |= {"version": 1, "settings": {"epsilon": 3.0}}
    assert from_json(json.dumps(old)).epsilon == 3.0
    with pytest.raises(InvalidArgumentError, match=r"loss_parameters.*finite number above 0"):
        from_json(json.dumps(old | {"settings": {"epsilon": -3.0}}))


def other_values(kind: type, loss: str) -> dict[str, list[Any]]:
    """Return values of the parameters that a model file can have, and that the loss takes."""
    option = LOSSES[loss].option
    values = {"l2": [0.25, np.float64(0.25), np.float32(0.5), np.int64(3), 2, Fraction(1, 4)]}
    values["l2"].append(np.longdouble(0.25))
    if option is not None:
        other = Fraction(3, 4) if option.low == 0 else Fraction(5, 4)  # a power is above 1
        values[option.name] = [number(other) for number in (float, np.float64, np.longdouble)]
        values[option.name].append(other)
    return values


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        pytest.param(kind, loss, id=f"{kind.__name__}-{loss}")
        for kind in ESTIMATORS
        for loss in losses(kind)
    ],
)
def test_parameters(tmp_path: Path, kind: type, loss: str) -> None:
    chooses, learns = kind.__name__.endswith("CV"), "FTRL" in kind.__name__
    for name, values in other_values(kind, loss).items():
        for value in values:
            options = {name: value}
            if chooses:
                options = {"l2s": [value]} if name == "l2" else options | {"l2s": [0.125, 8.0]}
            X, model = fitted(kind, loss, labels_of(kind, LABELS["small"]), **options)
            for ending in ("npz", "json"):
                path = str(tmp_path / f"m.{ending}")
                save_model(path, model)
                loaded = load_model(path)
                assert (loaded.predict(X) == model.predict(X)).all()
                own = loaded.get_params()
                chosen = {"l1": model.l1_, "l2": model.l2_} if chooses else {}
                kept = model.get_params() | chosen
                assert own["loss"] == loss
                if learns and name == "l2":
                    assert own["l2"] is None  # that of another method, on another scale
                    continue
                assert own[name] == kept[name] and type(own[name]) in (int, float)
                if not learns:
                    shared = own.keys() & kept.keys() - {"callback"}
                    assert {k: own[k] for k in shared} == {k: kept[k] for k in shared}


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_coefficients_that_are_set_by_hand_predict(kind: type, is_sparse: bool) -> None:
    from scipy import sparse

    model: Any = kind()
    X = np.arange(6.0).reshape(2, 3)
    given = sparse.csr_matrix(X) if is_sparse else X
    if is_classifier(model):
        model.coef_, model.intercept_ = np.array([[1.0, -1.0, 0.5]]), np.array([-1.0])
        model.classes_ = np.array(["a", "b"])
        assert model.predict(given).tolist() == ["a", "b"]
    else:
        model.coef_, model.intercept_ = np.array([1.0, -1.0, 0.5]), -1.0
        assert model.predict(given).tolist() == [-1.0, 0.5]
    for wrong in (given[:, :2], sparse.hstack([sparse.csr_matrix(X)] * 2).tocsr()):
        with pytest.raises(ValueError, match=r"X has \d features, but coef_ has 3"):
            model.predict(wrong)
