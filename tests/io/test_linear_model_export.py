"""Linear models as JSON, and as other tools take estimators."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.inspection import partial_dependence, permutation_importance

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    FTRLClassifier,
    FTRLRegressor,
    SDCAClassifier,
    SDCAClassifierCV,
    SDCARegressor,
    from_json,
    to_json,
)

random = np.random.default_rng(0)
X = random.standard_normal((60, 3))
Z = X[:, 0] + 0.3 * random.standard_normal(60)
CODES = np.digitize(Z, [-0.5, 0.5])


@pytest.mark.parametrize(
    "y",
    [CODES, CODES > 0, np.array(["a", "ü", "c"])[CODES], CODES + 0.0, np.array([9, 7])[CODES // 2]],
)
@pytest.mark.parametrize(
    "model", [SDCAClassifier(), SDCAClassifier("hinge", l2=9.0), FTRLClassifier()]
)
def test_classifiers_come_back(model: Any, y: np.ndarray) -> None:
    model.fit(X, y)
    again = from_json(to_json(model))
    assert again.coef_.tobytes() == model.coef_.tobytes()
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), rtol=1e-9)
    assert hasattr(again, "predict_proba") == hasattr(model, "predict_proba")
    if again.loss == "logistic":
        assert again.set_params(warm_start=True, l1=1.0).fit(X, y).dual_gap_.max() < 0.1


@pytest.mark.parametrize("model", [SDCARegressor(), SDCARegressor("poisson"), FTRLRegressor()])
def test_regressors_come_back(model: Any) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model.fit(frame, CODES)
    text = to_json(model, indent=2)
    again = from_json(text)
    np.testing.assert_allclose(again.predict(frame), model.predict(frame), rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["c", "b", "a"]])
    link = {"squared": "identity", "poisson": "log"}[model.loss]
    document = json.loads(text)
    assert (document["schema"], document["version"]) == ("tfopt.linear_model", 2)
    assert document["link"] == link and document["feature_names"] == ["a", "b", "c"]


GOOD = json.loads(to_json(SDCAClassifier().fit(X, CODES)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "other"}, 'an object with "schema"'),
        ({"version": 4}, "version is 4, and 1 to 3 are known"),
        ({"version": "2"}, "version is '2', and 1 to 3 are known"),
        ({"loss": "huge"}, 'no valid "loss"'),
        ({"loss": ["logistic"]}, 'no valid "loss"'),
        ({"loss": "squared", "link": "identity"}, "do not fit"),
        ({"link": "log"}, '"link" does not fit'),
        ({"label_name": 1}, 'no valid "label_name"'),
        ({"zero_based": 0}, 'no valid "zero_based"'),
        ({"optimizer": None}, 'no valid "optimizer"'),
        ({"settings": []}, 'no valid "settings"'),
        ({"tfopt": None}, 'no valid "tfopt"'),
        ({"classes": [0, 2, 1]}, "in ascending order"),
        ({"classes": [0, 1, 2**63]}, 'no valid "classes"'),
        ({"classes": [0, 0, 1]}, 'no valid "classes"'),
        ({"classes": [0, 1, [2]]}, 'no valid "classes"'),
        ({"classes": [0, 1, 2.5]}, 'must be of the "label_type" "int"'),
        ({"classes": [0, 1, "2"]}, 'must be of the "label_type" "int"'),
        ({"classes": None}, "do not fit"),
        ({"classes": [0, 1]}, r"must have the shape \(1, 3\).*, not \(3, 3\)"),
        ({"label_type": "complex"}, 'no valid "label_type"'),
        ({"label_type": None}, "do not fit"),
        ({"feature_names": ["a"]}, r"must have the shape \(3, 1\).*, not \(3, 3\)"),
        ({"feature_names": [1, 2, 3]}, 'no valid "feature_names"'),
        ({"coefficients": [[0.0, 1.0]] * 2 + [[0.0]]}, 'no valid "coefficients"'),
        ({"coefficients": [["1.0"]] * 3}, 'no valid "coefficients"'),
        ({"coefficients": 3}, 'no valid "coefficients"'),
        ({"intercepts": [0.0]}, r"\"intercepts\" must have the shape \(3,\).*, not \(1,\)"),
        ({"loss_parameters": {"gamma": 1.0}}, "does not fit"),
        ({"loss_parameters": None}, 'no valid "loss_parameters"'),
        ({"intercepts": [0.0, 1.0, 10**400]}, 'no valid "intercepts"'),
        ({"intercepts": [0.0, 1.0, float("inf")]}, 'no valid "intercepts"'),
    ],
)
def test_refused_documents(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        from_json(json.dumps(GOOD | changes))


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "[" * 100_000, "[" + "[]," * 1_100_000])
def test_refused_texts(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"not JSON|must be an object|too many objects"):
        from_json(text)


@pytest.mark.parametrize("name", GOOD)
def test_all_entries_are_needed(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        from_json(json.dumps({key: value for key, value in GOOD.items() if key != name}))


def test_what_json_has_not() -> None:
    with pytest.raises(NotFittedError):
        to_json(SDCAClassifier())
    model = SDCAClassifier().fit(X, CODES > 0)
    model.classes_ = np.array([None, 1], object)
    with pytest.raises(InvalidArgumentError, match="all of one type"):
        to_json(model)
    model = SDCARegressor().fit(X, Z)
    model.coef_[0] = np.nan
    with pytest.raises(InvalidArgumentError, match="must be finite"):
        to_json(model)


# ---- scikit-learn's tools


@pytest.mark.parametrize("model", [SDCAClassifier("hinge", l2=3.0), SDCAClassifier()])
@pytest.mark.parametrize("y", [CODES, CODES > 0])
def test_calibrated_probabilities(model: Any, y: np.ndarray) -> None:
    p = CalibratedClassifierCV(model, cv=3).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == y).mean() > 0.7


@pytest.mark.parametrize(
    ("model", "y"),
    [(SDCAClassifier(), CODES > 0), (SDCARegressor(), Z), (SDCAClassifierCV(l2s=2), CODES > 0)],
)
def test_inspection(model: Any, y: np.ndarray) -> None:
    model.fit(X, y)
    shown = partial_dependence(model, X, [0], grid_resolution=5)["average"][0]
    assert (np.diff(shown) > 0).all()
    importance = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
    assert importance.argmax() == 0
