"""A known part of each score of classes: of two and of several, with every penalty."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import DEFINITIONS, SMOOTH, conjugate, phi
from own_penalties import OWN, check
from scipy import sparse
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import SDCAClassifier, from_json, sdca_path, to_json

LONG, N = np.longdouble, 60
LOSSES = [loss for loss in SMOOTH if DEFINITIONS[loss].labels == "classes"]
FORMS: dict[str, Any] = {"array": np.asarray, "Fortran": np.asfortranarray,
                         "CSR": sparse.csr_matrix, "float32": np.float32}  # fmt: skip


def fitted(model: Any, *rows: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*rows, **more)


def classes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels, weights, some of them 0, and offsets."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N, 6)) * (random.uniform(size=(N, 6)) < 0.7)
    offset = random.uniform(-2, 3, N)
    noise = random.logistic(size=N)
    y = np.where(X[:, 0] + offset + noise > 0.5, "yes", "no")
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], N), offset


def several() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the same of three classes, with an offset of each."""
    X, _, weights, offset = classes()
    random = np.random.default_rng(1)
    offsets = np.column_stack([offset, random.standard_normal((N, 2))])
    z = X[:, :3] + offsets + random.gumbel(size=(N, 3))
    return X, np.array(["a", "b", "c"])[z.argmax(axis=1)], weights, offsets


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("l2", [0.0, 0.5, 30.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("class_weight", [None, {"yes": 3.0}])
@pytest.mark.parametrize("max_iter", [1, 2, 100])
def test_a_certificate_of_classes_is_that_of_the_definitions(
    form: str, l2: float, intercept: bool, class_weight: Any, max_iter: int
) -> None:
    X, y, weights, offset = classes()
    stored = FORMS[form](X)
    options = {"l2": l2, "fit_intercept": intercept, "class_weight": class_weight}
    model = fitted(SDCAClassifier(max_iter=max_iter, **options), stored, y, weights, offset=offset)
    rows = np.asarray(sparse.csr_matrix(stored).toarray(), LONG)
    c = (weights * np.where(y == "yes", 3 if class_weight else 1, 1)).astype(LONG)
    signs, a = np.where(y == "yes", 1.0, -1.0), model.dual_coef_[0].astype(LONG)
    z = rows @ model.coef_[0] + model.intercept_[0] + offset
    primal = c @ phi("logistic", z, signs, 1.0) + LONG(l2) / 2 * (model.coef_[0] @ model.coef_[0])
    dual = -(c @ np.where(c > 0, conjugate("logistic", a, signs, 1.0) + a * offset, 0))
    v = rows.T @ (c * a)
    dual -= v @ v / (2 * l2) if l2 else 0
    assert model.objective_[0] == pytest.approx(float(primal), rel=1e-12)
    assert model.objective_[0] - model.dual_gap_[0] <= float(dual) + 1e-12 * float(primal)
    assert l2 or np.abs(v).max() <= 1e-10
    assert not intercept or abs(c @ a) <= 1e-10
    if max_iter == 100:
        assert model.dual_gap_[0] <= 1e-9 * model.objective_[0]
        assert model.solver_ == ["newton-cholesky"]


def test_predictions_of_classes_have_it() -> None:
    X, y, weights, offset = classes()
    model = SDCAClassifier().fit(X, y, weights, offset=offset)
    z = X @ model.coef_[0] + model.intercept_[0] + offset
    np.testing.assert_allclose(model.decision_function(X, offset), z)
    probability = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(model.predict_proba(X, offset)[:, 1], probability)
    np.testing.assert_allclose(model.predict_log_proba(X, offset)[:, 1], np.log(probability))
    right = model.predict(X, offset) == y
    assert model.score(X, y, offset=offset) == pytest.approx(right.mean())
    expected = np.average(right, weights=weights)
    assert model.score(X, y, weights, offset=offset) == pytest.approx(expected)
    errors = model.standard_errors(X, y, weights, offset=offset)
    assert errors.shape == (7,) and (errors != model.standard_errors(X, y, weights)).any()


def test_a_constant_offset_of_classes_is_the_intercepts() -> None:
    X, y, weights, _ = classes()
    plain = SDCAClassifier(tol=1e-12).fit(X, y, weights)
    shifted = SDCAClassifier(tol=1e-12).fit(X, y, weights, offset=0.75)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, atol=1e-6)
    np.testing.assert_allclose(shifted.intercept_ + 0.75, plain.intercept_, atol=1e-6)
    again = SDCAClassifier(tol=1e-12, warm_start=True).fit(X, y, weights, offset=0.75)
    assert again.fit(X, y, weights, offset=0.75).n_iter_[0] <= 2


# ---- with every loss, penalty and number of classes


def each_problem(model: Any) -> list[Any]:
    """Return a model of each class against the rest."""
    models = []
    for k in range(len(np.atleast_2d(model.coef_))):
        one = copy.copy(model)
        for name in ("coef_", "intercept_", "dual_coef_", "objective_", "dual_gap_"):
            setattr(one, name, getattr(model, name)[k : k + 1])
        models.append(one)
    return models


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("own", ["plain", "lasso and ridge", *OWN])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("data", [classes, several])
def test_certificates_have_it(loss: str, own: str, intercept: bool, data: Any) -> None:
    X, y, weights, offset = data()
    options: dict[str, Any] = {"l1": 1.0, "l2": 0.5} if own == "lasso and ridge" else {}
    options |= OWN.get(own, {}) | {"fit_intercept": intercept, "tol": 1e-7}
    for form in ("array", "CSR", "Fortran"):
        stored = FORMS[form](X)
        model = fitted(SDCAClassifier(loss, **options), stored, y, weights, offset=offset)
        assert (model.dual_gap_ <= 1e-7 * model.objective_).all()
        by_cd = loss != "logistic" or own != "plain"
        assert {*model.solver_} == {"cd" if by_cd else "newton-cholesky"}
        offsets = offset.reshape(N, -1)
        labels = model.classes_ if data is several else model.classes_[1:]
        for one, label, known in zip(each_problem(model), labels, offsets.T, strict=True):
            check(one, stored, np.where(y == label, 1.0, -1.0), weights, known)


def test_solvers_agree_and_warm_starts_end_there() -> None:
    X, y, weights, offset = several()
    one = SDCAClassifier(tol=1e-11).fit(X, y, weights, offset=offset)
    other = SDCAClassifier(tol=1e-11, solver="cd").fit(X, y, weights, offset=offset)
    assert {*other.solver_} == {"cd"} and [h[0]["problem"] for h in other.history_] == [0, 1, 2]
    np.testing.assert_allclose(one.objective_, other.objective_, rtol=1e-10)
    model = SDCAClassifier(l1=2.0, tol=1e-9, warm_start=True).fit(X, y, weights, offset=offset)
    weak = copy.deepcopy(model).set_params(l1=0.5).fit(X, y, weights, offset=offset)
    cold = SDCAClassifier(l1=0.5, tol=1e-9).fit(X, y, weights, offset=offset)
    np.testing.assert_allclose(weak.objective_, cold.objective_, rtol=1e-8)
    assert model.fit(X, y, weights, offset=offset).n_iter_.max() <= 2


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_the_multinomial_loss_has_it(intercept: bool, form: str) -> None:
    X, y, c, offset = several()
    model = SDCAClassifier("multinomial", fit_intercept=intercept, tol=1e-10)
    model.fit(FORMS[form](X), y, c, offset=offset)
    rows, at = np.asarray(FORMS[form](X).astype(LONG).todense() if form == "CSR" else X, LONG), 0
    rows = rows.astype(np.float32).astype(LONG) if form == "float32" else rows
    at = np.searchsorted(model.classes_, y)
    z = rows @ model.coef_.T + model.intercept_ + offset
    primal = c @ (logsumexp(z, axis=1) - z[np.arange(N), at]) + np.square(model.coef_).sum() / 2
    a = model.dual_coef_.T.astype(LONG)
    q = np.maximum(np.eye(3)[at] - a, 0)
    entropies = -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(axis=1)
    V = (c[:, None] * a).T @ rows
    dual = c @ entropies - c @ (a * offset).sum(axis=1) - np.square(V).sum() / 2
    assert model.objective_[0] == pytest.approx(float(primal), rel=1e-10)
    assert model.dual_gap_[0] >= float(primal - dual) * (1 - 1e-6) - 1e-12 * float(primal)
    assert not intercept or np.abs(c @ a).max() < 1e-10
    np.testing.assert_allclose(model.predict_proba(FORMS[form](X), offset), softmax(z, axis=1),
                               rtol=1e-6)  # fmt: skip


def test_predictions_of_several_classes_have_it() -> None:
    X, y, weights, offset = several()
    model = SDCAClassifier(l1=0.5).fit(X, y, weights, offset=offset)
    z = X @ model.coef_.T + model.intercept_ + offset
    np.testing.assert_allclose(model.decision_function(X, offset), z)
    np.testing.assert_array_equal(model.predict(X, offset), model.classes_[z.argmax(axis=1)])
    assert model.score(X, y, offset=offset) > model.score(X, y)
    again = from_json(to_json(model))
    np.testing.assert_array_equal(again.predict(X, offset), model.predict(X, offset))


def test_an_offset_that_is_right_already_separates_no_classes() -> None:
    """Without a penalty, where no weights do."""
    X, y, weights, _ = classes()
    sure = np.where(y == "yes", 4.0, -4.0)
    for options in ({}, {"l1": 1.0, "penalty_factor": [0.0] * 6}):
        model = SDCAClassifier(l2=0.0, **options).fit(X, y, weights, offset=sure)
        assert model.dual_gap_[0] <= 1e-4 * model.objective_[0] and model.objective_[0] > 0
    with pytest.raises(InvalidArgumentError, match="separate the classes"):
        SDCAClassifier(l2=0.0).fit(X, X[:, 0] > 0, offset=0.5)


def test_a_column_is_that_of_a_class_with_weight() -> None:
    X, y, weights, offset = several()
    model = SDCAClassifier().fit(X, y, np.where(y == "b", 0.0, 1.0), offset=offset[:, 0])
    assert [*model.classes_] == ["a", "c"]
    with pytest.raises(ValueError, match="not the shape"):
        SDCAClassifier().fit(X, y, weights, offset=offset[:, :2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "needs a smooth loss"),
        ({"solver": "sdca"}, "needs solver='auto' or 'cd' or 'newton-cholesky'"),
        ({"solver": "newton-cholesky", "l1": 1.0}, "solver='newton-cholesky' needs l1=0"),
        ({"solver": "newton-cg", "loss": "squared_hinge"}, "needs solver='auto' or 'cd'"),
        ({"num_loss_partitions": [20, 40]}, "needs num_loss_partitions=None"),
        ({"adaptive": True}, "needs num_loss_partitions=None and adaptive=False"),
    ],
)
def test_what_takes_no_offset_of_classes_says_so(options: dict[str, Any], message: str) -> None:
    X, y, _, offset = classes()
    model = SDCAClassifier().fit(X, y).set_params(**options)
    before = repr(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, offset=offset)
    assert repr(vars(model)) == before


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
@pytest.mark.parametrize("wrong", ["one column", "a number", "not finite"])
def test_a_wrong_one_of_several_classes_is_refused(loss: str, wrong: str) -> None:
    X, y, _, offset = several()
    value, message = {
        "one column": (offset[:, 0], "60 samples and a column for each of 3 classes"),
        "a number": (0.5, "60 samples and a column for each of 3 classes"),
        "not finite": (np.where(offset > 2, np.inf, offset), "offset contains infinity"),
    }[wrong]
    model = SDCAClassifier(loss).fit(X, y)
    before = repr(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, offset=value)
    assert repr(vars(model)) == before
    with pytest.raises(ValueError, match=message):
        model.predict(X, value)
    with pytest.raises(InvalidArgumentError, match="takes no offset"):
        sdca_path(X, y, "logistic", l2s=[1.0], offset=offset[:, 0])
