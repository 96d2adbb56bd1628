"""Several quantiles at once: each is as if it were alone, and a warning says where they cross."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from tfopt import linear_model
from tfopt.cli import main
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    LinearRegressor,
    LinearRegressorCV,
    from_json,
    load_model,
    save_model,
    sdca_path,
    to_json,
)

random = np.random.default_rng(0)
X = random.standard_normal((200, 4)) + 1
Y = X @ [1.0, 0.5, 0.0, -1.0] + random.standard_normal(200) * (1 + X[:, 0] ** 2)
WEIGHTS = random.choice([0.0, 1.0, 2.0], 200)
QUANTILES = [0.1, 0.5, 0.9]
OFFSET = random.standard_normal(200)


@pytest.mark.parametrize("form", [np.array, np.float32, sparse.csr_matrix])
@pytest.mark.parametrize(
    "options",
    [{}, {"fit_intercept": False}, {"l1": 3.0}, {"num_loss_partitions": [80, 120]}, {"l2": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("given", [QUANTILES, tuple(QUANTILES), np.array(QUANTILES)], ids=type)
def test_each_is_as_if_alone(form: Any, options: dict[str, Any], given: Any) -> None:
    options = {"max_iter": 300, "tol": 1e-3, **options}
    model = LinearRegressor("quantile", quantile=given, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(form(X), Y, WEIGHTS, offset=OFFSET)
        predicted = model.predict(form(X), OFFSET)
        assert predicted.shape == (200, 3) and model.coef_.shape == (3, 4)
        scores = []
        for k, q in enumerate(QUANTILES):
            alone = LinearRegressor("quantile", quantile=q, **options)
            alone.fit(form(X), Y, WEIGHTS, offset=OFFSET)
            for name in ("coef_", "intercept_", "dual_coef_", "objective_", "dual_gap_"):
                assert np.array_equal(getattr(model, name)[k], getattr(alone, name)), name
            assert model.n_iter_[k] == alone.n_iter_[0] and model.solver_[k] == alone.solver_[0]
            assert [record["problem"] for record in model.history_[k]] == [k] * alone.n_iter_[0]
            np.testing.assert_allclose(predicted[:, k], alone.predict(form(X), OFFSET), rtol=1e-12)
            scores.append(alone.score(form(X), Y, WEIGHTS, offset=OFFSET))
        found = model.score(form(X), Y, WEIGHTS, offset=OFFSET)
    assert found == pytest.approx(np.mean(scores), rel=1e-12)


def test_where_they_cross_a_warning_says_so() -> None:
    model = LinearRegressor("quantile", quantile=QUANTILES).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = model.predict(np.tile(X.mean(axis=0), (5, 1)))
        assert (np.diff(near, axis=1) >= 0).all()
    far = np.vstack([np.tile(X.mean(axis=0), (2, 1)), -100 * np.ones((3, 4))])
    with pytest.warns(UserWarning, match="the quantiles of 3 of 5 samples are not in ascending"):
        model.predict(far)


@pytest.mark.filterwarnings("ignore:the quantiles of")
def test_it_is_an_estimator_as_others_are() -> None:
    told: list[int] = []
    options = {"callback": lambda record: told.append(record["problem"]), "keep_duals": False}
    model = clone(LinearRegressor("quantile", quantile=QUANTILES, **options)).fit(X, Y)
    assert sorted({*told}) == [0, 1, 2] and not hasattr(model, "dual_coef_")
    before = model.predict(X)
    model.set_params(callback=None)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), before)
    np.testing.assert_allclose(model.sparsify().predict(X), before)
    assert model.densify().coef_frame().shape == (5, 3)
    model.set_params(quantile=0.5).fit(X, Y)
    assert model.coef_.shape == (4,) and model.predict(X).shape == (200,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": [0.5, 0.1]}, "several in ascending order"),
        ({"quantile": [0.5, 0.5]}, "several in ascending order"),
        ({"quantile": []}, "several in ascending order"),
        ({"quantile": [0.5, 1.0]}, "above 0 and below 1, not 1.0"),
        ({"quantile": ["a"]}, "above 0 and below 1, not 'a'"),
        ({"quantile": "median"}, "above 0 and below 1, not 'median'"),
        ({"quantile": [0.1, 0.2], "loss": "squared"}, "does not apply to loss='squared'"),
        ({"quantile": [0.1, 0.2], "warm_start": True}, "cannot start from the last fit"),
        ({"loss": "huber", "epsilon": [0.1, 0.2]}, "epsilon must be a finite number above 0"),
    ],
)
def test_what_is_refused_changes_nothing(options: dict[str, Any], message: str) -> None:
    model = LinearRegressor("quantile").fit(X, Y).set_params(**options)
    before = repr(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    assert repr(vars(model)) == before


@pytest.mark.filterwarnings("ignore:the quantiles of")
@pytest.mark.parametrize("quantiles", [QUANTILES, [0.5], (0.25, 0.75)], ids=len)
@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_have_them(
    quantiles: Any, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame(X, columns=[*"abcd"])
    model = LinearRegressor("quantile", quantile=np.array(quantiles), tol=1e-3).fit(frame, Y)
    path = tmp_path / f"model.{ending}"
    save_model(path, model)
    again = load_model(path)
    assert again.quantile == [*quantiles] and again.tol == 1e-3  # type: ignore[attr-defined]
    for name in ("coef_", "intercept_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    predicted = model.predict(frame, OFFSET)
    assert predicted.shape == (200, len(quantiles))
    np.testing.assert_array_equal(again.predict(frame, OFFSET), predicted)
    assert again.score(frame, Y, WEIGHTS) == model.score(frame, Y, WEIGHTS)
    save_model(tmp_path / f"again.{ending}", again)
    assert (tmp_path / f"again.{ending}").read_bytes() == path.read_bytes()
    assert main(["inspect", str(path)]) == 1
    assert f"it predicts {len(quantiles)} columns: use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_parameters": {"quantile": [0.1, 0.5]}}, r"must have the shape \(2, 4\)"),
        ({"loss_parameters": {"quantile": [0.5, 0.1, 0.9]}}, "several in ascending order"),
        ({"loss_parameters": {"quantile": ["a", 0.5, 0.9]}}, 'no valid "loss_parameters"'),
        ({"loss_parameters": {"quantile": 0.5}}, r"must have the shape \(1, 4\)"),
        ({"loss": "huber", "loss_parameters": {"epsilon": [1.0, 2.0, 3.0]}}, "no valid"),
        (
            {"version": 1, "loss_parameters": None, "coefficients": [[0.0] * 4], "intercepts": [0]},
            'no valid "loss_parameters"',
        ),
    ],
)
def test_documents_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    document = json.loads(to_json(LinearRegressor("quantile", quantile=QUANTILES).fit(X, Y)))
    assert document["version"] == 3 and document["loss_parameters"] == {"quantile": QUANTILES}
    one = json.loads(to_json(LinearRegressor("quantile").fit(X, Y)))
    assert one["version"] == 2 and one["loss_parameters"] == {"quantile": 0.5}
    changed = {key: value for key, value in (document | changes).items() if value is not None}
    changed |= {key: document[key] for key in document if document[key] is None}
    with pytest.raises(InvalidArgumentError, match=message):
        from_json(json.dumps(changed))


def test_what_has_one_quantile_says_so() -> None:
    several = {"quantile": QUANTILES}
    message = "quantile must be a finite number above 0 and below 1"
    with pytest.raises(ValueError, match=message):
        LinearRegressorCV("quantile", **several).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        sdca_path(X, Y, "quantile", l2s=[1.0], **several)
    with pytest.raises(ValueError, match=message):
        linear_model.FTRLRegressor("quantile", **several).fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="has one target, and y has 2 columns"):
        LinearRegressor("quantile", **several).fit(X, np.column_stack([Y, Y]))
