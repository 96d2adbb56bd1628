"""Several targets of the squared loss: one factorization, and each is as if it were alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from tfopt.cli import main
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import second_order
from tfopt.linear_model import (
    SDCARegressor,
    SDCARegressorCV,
    from_json,
    load_model,
    save_model,
    sdca_path,
    to_json,
)

random = np.random.default_rng(0)
X = random.standard_normal((300, 7)) + 3
Y = X @ random.standard_normal((7, 11)) + random.standard_normal((300, 11))
WEIGHTS = random.choice([0.0, 1.0, 2.5], 300)


@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_each_target_is_fitted_as_if_alone(form: Any, intercept: bool, weights: Any) -> None:
    options = {"l2": 0.7, "fit_intercept": intercept}
    model = SDCARegressor(**options).fit(form(X), Y, weights)
    rows = np.asarray(sparse.csr_matrix(form(X)).toarray(), np.float64)
    theirs = Ridge(0.7, fit_intercept=intercept, solver="cholesky").fit(rows, Y, weights)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-7)
    np.testing.assert_allclose(model.intercept_, np.broadcast_to(theirs.intercept_, 11), rtol=1e-7)
    assert model.coef_.shape == (11, 7) and model.predict(form(X)).shape == Y.shape
    assert model.score(form(X), Y) == pytest.approx(theirs.score(rows, Y))
    assert model.solver_ == ["newton-cholesky"] * 11
    c = np.ones(300) if weights is None else weights
    for k in range(11):
        alone = SDCARegressor(**options).fit(form(X), Y[:, k], weights)
        assert model.objective_[k] == pytest.approx(alone.objective_, rel=1e-12)
        np.testing.assert_allclose(model.dual_coef_[k], alone.dual_coef_, atol=1e-9)
        v, a, y = rows.T @ (c * model.dual_coef_[k]), model.dual_coef_[k], Y[:, k]
        dual = c @ (a * y - a**2 / 2) - v @ v / 1.4
        assert abs(dual - model.objective_[k]) <= model.dual_gap_[k] + 1e-12 * dual
        assert not intercept or abs(c @ a) < 1e-9


def test_targets_may_be_numbers_in_an_array_of_objects() -> None:
    model, other = (SDCARegressor(l2=0.7).fit(X, y) for y in (Y[:, 0], Y[:, 0].astype(object)))
    assert other.coef_.tolist() == model.coef_.tolist()


def test_one_factorization_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("newton_system", "solve"):
        method = getattr(second_order, name)

        def counted(*args: Any, name: str = name, method: Any = method) -> Any:
            calls.append(name if name != "solve" or args[2:] != (True,) else "substitute")
            return method(*args)

        monkeypatch.setattr(second_order, name, counted)
    SDCARegressor().fit(X, Y)
    assert [calls.count(name) for name in ("newton_system", "solve", "substitute")] == [1, 1, 10]
    calls.clear()
    path = sdca_path(X, Y, "squared", l1s=[30.0, 3.0], l2=0.0)
    assert calls.count("newton_system") == 1 and path.coefs.shape == (2, 11, 7)
    alone = sdca_path(X, Y[:, 4], "squared", l1s=[30.0, 3.0], l2=0.0)
    np.testing.assert_allclose(path.objectives[:, 4], alone.objectives[:, 0], rtol=1e-9)


@pytest.mark.parametrize("options", [{"l1": 20.0}, {"solver": "sdca", "tol": 1e-6}, {"tol": 1e-14}])
def test_other_solvers_fit_each_target(options: dict[str, Any]) -> None:
    model = SDCARegressor(**options, max_iter=2000).fit(X, Y[:, :2])
    alone = [SDCARegressor(**options, max_iter=2000).fit(X, Y[:, k]) for k in (0, 1)]
    assert model.coef_.shape == (2, 7) and model.dual_coef_.shape == (2, 300)
    np.testing.assert_allclose(model.objective_, [each.objective_ for each in alone], rtol=1e-4)


def test_files_and_frames_keep_targets(tmp_path: Path) -> None:
    model = SDCARegressor().fit(X, Y[:, :3])
    again = from_json(to_json(model))
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    assert model.coef_frame().columns.tolist() == ["y0", "y1", "y2"]
    dense = model.coef_.copy()
    assert (model.sparsify().densify().coef_ == dense).all()
    save_model(tmp_path / "model.npz", model)
    again = load_model(tmp_path / "model.npz")
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    assert again.intercept_.tolist() == model.intercept_.tolist()
    again = model.fit(X, Y[:, 0])
    assert again.coef_.shape == (7,) and again.predict(X).shape == (300,)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SDCARegressor("huber"), "loss='huber' has one target, and y has 11 columns"),
        (SDCARegressor("poisson"), "loss='poisson' has one target"),
        (SDCARegressor(num_loss_partitions=[100, 200]), "a fit in blocks has one target"),
        (SDCARegressorCV(), "a penalty is chosen for one target, not 11"),
    ],
)
def test_elsewhere_they_are_refused(model: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        model.fit(X, Y)


def test_the_command_line_says_that_it_has_one_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.json"
    path.write_text(to_json(SDCARegressor().fit(X, Y)))
    assert main(["inspect", str(path)]) == 1
    assert "model.json: it predicts 11 columns: use tfopt.linear_model" in capsys.readouterr().err
