"""The multinomial loss with l1: certificates by definition, and minima of a general solver."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    LinearClassifier,
    LinearClassifierCV,
    fit_blocks,
    from_json,
    sdca_path,
    to_json,
)
from tfopt.linear_model._fit import multinomial_descent

LONG, N = np.longdouble, 90
random = np.random.default_rng(0)
X = random.standard_normal((N, 5)) * (random.uniform(size=(N, 5)) < 0.8)
X[:, 4] = X[:, 3]
Y = (X[:, :3] @ random.standard_normal((3, 3)) + random.gumbel(size=(N, 3))).argmax(axis=1)
WEIGHTS = random.choice([0.0, 0.5, 1.0, 2.0], N)
FORMS: dict[str, Any] = {
    "array": np.asarray,
    "Fortran": np.asfortranarray,
    "CSR": sparse.csr_matrix,
    "float32": np.float32,
}
PENALTIES = [(0.1, 0.0), (3.0, 0.0), (1.0, 0.5), (0.01, 2.0)]
#: By how much the work of each class in turn is counted, so that one way or the other is taken.
WAYS = {"all classes at once": 1e9, "one after another": -1e9}
each_way = pytest.mark.parametrize("way", WAYS)


def fitted(*rows: Any, offset: Any = None, **options: Any) -> LinearClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return LinearClassifier("multinomial", **options).fit(*rows, offset=offset)


def check(
    model: Any, rows: Any, y: np.ndarray, c: np.ndarray, offset: np.ndarray | float = 0.0
) -> None:
    """Compare the objective and the gap with those of the definitions, in long double."""
    rows = np.asarray(rows.todense() if sparse.issparse(rows) else rows, LONG)
    W, b, a = (part.astype(LONG) for part in (model.coef_, model.intercept_, model.dual_coef_.T))
    l1, l2, at = LONG(model.l1), LONG(model._l2()), np.arange(len(y))
    z = rows @ W.T + b + offset
    losses = logsumexp(z, axis=1) - z[at, y]
    primal = c @ losses + l1 * np.abs(W).sum() + l2 / 2 * np.square(W).sum()
    q = np.eye(len(b))[y] - a
    assert (q[c > 0] >= -1e-12).all() and np.abs(q.sum(axis=1) - 1)[c > 0].max() <= 1e-12
    q = np.maximum(q, 0)
    entropies = -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(axis=1)
    U = (c[:, None] * a).T @ rows
    beyond = np.maximum(np.abs(U) - l1, 0)
    assert l2 > 0 or (beyond <= 1e-12 * l1 + 1e-15 * c.sum()).all()
    dual = c @ (entropies - (a * offset).sum(axis=1))
    dual -= np.square(beyond).sum() / (2 * l2) if l2 > 0 else 0
    assert model.objective_[0] == pytest.approx(float(primal), rel=1e-11)
    assert model.dual_gap_[0] >= float(primal - dual) * (1 - 1e-6) - 1e-12 * float(primal)
    if model.fit_intercept:
        assert np.abs(c @ a).max() <= 1e-11 * c.sum() and abs(b.sum()) <= 1e-9
    else:
        assert not b.any()


@each_way
@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("tol", [0.3, 1e-3, 1e-7])
def test_certificates_are_those_of_the_definitions(
    way: str, l1: float, l2: float, intercept: bool, tol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multinomial_descent, "CYCLES", WAYS[way])
    objectives = []
    for form, kind in FORMS.items():
        rows = kind(X)
        model = fitted(rows, Y, WEIGHTS, l1=l1, l2=l2, tol=tol, fit_intercept=intercept)
        assert model.dual_gap_ <= tol * model.objective_ and model.solver_ == ["cd"]
        check(model, rows, Y, WEIGHTS)
        objectives += [model.objective_[0]] * (form != "float32")
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-9)


@pytest.mark.parametrize(("l1", "l2"), PENALTIES[:3])
def test_the_minimum_is_that_of_a_general_solver(l1: float, l2: float) -> None:
    ours = fitted(X, Y, WEIGHTS, l1=l1, l2=l2, tol=1e-9)

    def value(parts: np.ndarray) -> float:  # W is the difference of two parts
        plus, minus = parts[:30].reshape(2, 3, 5)
        z = X @ (plus - minus).T + parts[30:]
        losses = WEIGHTS @ (logsumexp(z, axis=1) - z[np.arange(N), Y])
        return float(losses + l1 * parts[:30].sum() + l2 / 2 * np.square(plus - minus).sum())

    bounds = [(0, None)] * 30 + [(None, None)] * 3
    more = {"maxfun": 10**5, "maxiter": 10**4, "ftol": 1e-14}
    rival = optimize.minimize(value, np.zeros(33), bounds=bounds, method="L-BFGS-B", options=more)
    assert ours.objective_[0] <= rival.fun * (1 + 1e-9)
    assert ours.objective_[0] == pytest.approx(rival.fun, rel=1e-5)
    assert l1 < 1 or (ours.coef_ == 0).any()


@each_way
def test_many_features_and_classes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With working sets; and classes that share nothing but their probabilities."""
    monkeypatch.setattr(multinomial_descent, "CYCLES", WAYS[way])
    random = np.random.default_rng(1)
    rows = random.standard_normal((150, 200)) * (random.uniform(size=(150, 200)) < 0.3)
    labels = (rows[:, :9] + random.gumbel(size=(150, 9)) / 3).argmax(axis=1)
    labels[:9] = range(9)
    ones = np.ones(150)
    for kind in (np.asarray, sparse.csr_matrix):
        model = fitted(kind(rows), labels, l1=1.0, l2=0.0, tol=1e-6)
        check(model, rows, labels, ones)
        assert np.count_nonzero(model.coef_) < model.coef_.size / 2


def test_weights_of_classes_and_warm_starts() -> None:
    options: dict[str, Any] = {"l1": 0.5, "l2": 0.1, "class_weight": "balanced", "tol": 1e-10}
    model = fitted(X + 5, Y, WEIGHTS, **options)
    sums = np.bincount(Y, WEIGHTS)
    check(model, X + 5 - (X + 5).mean(axis=0) * 0, Y, WEIGHTS * (sums.sum() / (3 * sums))[Y])
    warm = model.set_params(warm_start=True).fit(X + 5, Y, WEIGHTS)
    assert warm.n_iter_[0] <= 2
    weaker = warm.set_params(l1=0.4).fit(X + 5, Y, WEIGHTS)
    cold = fitted(X + 5, Y, WEIGHTS, **options | {"l1": 0.4})
    assert weaker.objective_[0] == pytest.approx(cold.objective_[0], rel=1e-9)
    again = from_json(to_json(cold))
    np.testing.assert_array_equal(again.predict_proba(X), cold.predict_proba(X))
    check_sample_weight_equivalence_on_dense_data(
        "LinearClassifier", LinearClassifier("multinomial", l1=0.1)
    )


def test_an_offset_of_each_class() -> None:
    offset = np.random.default_rng(2).standard_normal((N, 3))
    model = fitted(X, Y, WEIGHTS, l1=0.7, l2=0.0, tol=1e-9, offset=offset)
    check(model, X, Y, WEIGHTS, offset)


def test_solvers_agree_without_l1() -> None:
    newton = fitted(X, Y, WEIGHTS, tol=1e-9)
    descent = fitted(X, Y, WEIGHTS, tol=1e-9, solver="cd")
    assert newton.solver_ == ["newton-cg"] and descent.solver_ == ["cd"]
    assert newton.objective_[0] == pytest.approx(descent.objective_[0], rel=2e-9)


def test_paths_begin_where_all_weights_are_0() -> None:
    path = sdca_path(X, Y, "multinomial", l1s=4, l2=0.0, tol=1e-8)
    assert not path.coefs[0].any() and path.coefs[1].any()
    for k, l1 in enumerate(path.l1s.tolist()):
        model = fitted(X, Y, l1=l1, l2=0.0, tol=1e-8)
        assert path.objectives[k, 0] == pytest.approx(model.objective_[0], rel=2e-8)
    chosen = LinearClassifierCV("multinomial", l1s=3, l2=0.0, cv=3).fit(X, Y)
    assert chosen.scores_.shape == (3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton-cg"}, "solver='newton-cg' needs l1=0"),
        ({"solver": "sdca"}, "loss='multinomial' is solved by"),
        ({"penalty_factor": [2.0] * 5}, "not loss='multinomial'"),
        ({"positive": True}, "not loss='multinomial'"),
        ({"adaptive": True}, "loss='multinomial' is solved by"),
    ],
)
def test_what_does_not_apply_is_refused(options: dict[str, Any], message: str) -> None:
    model = LinearClassifier("multinomial", l1=1.0).fit(X, Y)
    before = model.coef_.tobytes()
    with pytest.raises(ValueError, match=message):
        model.set_params(**options).fit(X, Y)
    assert model.coef_.tobytes() == before
    with pytest.raises(InvalidArgumentError, match="in blocks"):
        fit_blocks(LinearClassifier("multinomial", l1=1.0), [(X, Y), (X, Y)])
