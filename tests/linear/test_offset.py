"""A known part of each prediction, as the logarithm of an exposure: fits, predictions, choices."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn
from common.linear_losses import (
    CORNERED,
    DEFINITIONS,
    conjugate,
    estimator,
    parameter_of,
    phi,
    targets,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold

from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.linear_model import (
    SDCAClassifier,
    SDCARegressor,
    SDCARegressorCV,
    fit_blocks,
    from_json,
    sdca_path,
    to_json,
)
from tfopt.linear_model.losses import loss_named, loss_of

LOSSES = [loss for loss in DEFINITIONS if DEFINITIONS[loss].labels != "classes"]
each_loss = pytest.mark.parametrize("loss", LOSSES)
PARAMETER = 0.6
N = 60
LONG = np.longdouble


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels, weights, some of them 0, and offsets."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N, 4)) * (random.uniform(size=(N, 4)) < 0.7)
    offset = random.uniform(-2, 3, N)
    y = targets(loss, X @ random.standard_normal(4) + offset, random)
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], N), offset


def fitted(model: Any, *rows: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*rows, **more)


@each_loss
@given(z=st.floats(-8, 8), y=st.floats(0.125, 50), offset=st.floats(-4, 4))
def test_another_label_and_factor_stand_for_an_offset(
    loss: str, z: float, y: float, offset: float
) -> None:
    """phi(z + offset; y) is factor * phi(z; other label), each above its least value."""
    parameter = parameter_of(loss, PARAMETER)
    y = float(np.ceil(y)) if DEFINITIONS[loss].labels == "counts" else y
    record = loss_named(f"{loss}_loss", parameter)
    other, factor = np.broadcast_arrays(
        *record.without_offset(np.array([y]), np.array([offset])), np.ones(1)
    )[:2]
    seen = phi(loss, np.array([z + offset], LONG), np.array([y], LONG), LONG(parameter))
    there = phi(loss, np.array([z], LONG), other.astype(LONG), LONG(parameter))
    size = 1e-15 * y * (1 + np.exp(max(0.0, -z - offset)) + np.exp(max(0.0, z + offset)))
    np.testing.assert_allclose(
        np.float64(factor * there), np.float64(seen), rtol=1e-9, atol=float(size) + 1e-14
    )


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": np.array,
    "Fortran": np.asfortranarray,
    "float32": np.float32,
    "CSR": sparse.csr_matrix,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "l1": {"l1": 3.0},
    "visits": {"solver": "sdca"},
    "partitions": {"num_loss_partitions": 3},
    "blocks": {"num_loss_partitions": [20, 1, 39]},
}


@each_loss
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_the_certificate_is_that_of_the_definitions(
    loss: str, form: str, options: dict[str, Any], weighted: bool
) -> None:
    """The dual of a loss of z + offset has the linear term a * offset."""
    X, y, weights, offset = data(loss)
    stored = FORMS[form](X)
    model = estimator(loss, PARAMETER, tol=1e-9, max_iter=300, **options)
    fitted(model, stored, y, weights if weighted else None, offset=offset)
    rows = np.asarray(sparse.csr_matrix(stored).toarray(), LONG)
    c = weights.astype(LONG) if weighted else np.ones(N, LONG)
    a, l1 = model.dual_coef_.astype(LONG), model.l1
    z = rows @ model.coef_ + model.intercept_ + offset
    parameter = LONG(model._parameter())
    primal = c @ phi(loss, z, y, parameter) + l1 * np.abs(model.coef_).sum()
    primal += model.coef_ @ model.coef_ / 2
    v = rows.T @ (c * a)
    S = np.maximum(np.abs(v) - l1, 0)
    dual = -S @ S / 2
    dual -= c @ np.where(c > 0, conjugate(loss, a, y, parameter) + a * offset, 0)
    assert model.objective_ == pytest.approx(float(primal), rel=1e-9)
    gap, rounding = float(primal - dual), 1e-12 * float(primal)
    assert model.dual_gap_ == pytest.approx(gap, rel=1e-3, abs=rounding)
    if model.fit_intercept:
        assert abs(c @ a) <= 1e-11 * (c @ (np.abs(a) + np.abs(y)))


@each_loss
@pytest.mark.parametrize("blocks", [None, [25, 35]])
def test_a_fit_goes_on_from_the_last(loss: str, blocks: list[int] | None) -> None:
    X, y, weights, offset = data(loss)
    model = estimator(loss, tol=1e-6, warm_start=True, num_loss_partitions=blocks, max_iter=20_000)
    first = fitted(model, X, y, weights, offset=offset).coef_.copy()
    assert model.n_iter_[0] > 2 or loss == "squared"
    again = fitted(model, X, y, weights, offset=offset)
    assert again.n_iter_[0] <= 3 or loss in CORNERED
    np.testing.assert_allclose(again.coef_, first, atol=1e-2)
    other = fitted(model, X, y, weights, offset=offset / 2 + 1).objective_
    alone = fitted(estimator(loss, tol=1e-6, max_iter=20_000), X, y, weights, offset=offset / 2 + 1)
    assert other == pytest.approx(alone.objective_, rel=2e-6)


@each_loss
@pytest.mark.parametrize("form", FORMS)
def test_blocks_have_the_bits_of_the_fit(loss: str, form: str) -> None:
    X, y, weights, offset = data(loss)
    stored = FORMS[form](X)
    cuts = [slice(0, 20), slice(20, 21), slice(21, N)]
    options: dict[str, Any] = {"max_iter": 30, "warm_start": True}
    ours = estimator(loss, PARAMETER, **options)
    theirs = estimator(loss, PARAMETER, num_loss_partitions=[20, 1, N - 21], **options)
    for w, o in ((weights, offset), (None, offset), (weights, 0.5)):  # the last two go on
        parts = [
            (stored[k], y[k], w if w is None else w[k], o if isinstance(o, float) else o[k])
            for k in cuts
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit_blocks(ours, parts)
        fitted(theirs, stored, y, w, offset=o)
        for name in ("coef_", "intercept_", "dual_coef_", "objective_", "dual_gap_"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_counts_of_exposures_are_rates_with_weights() -> None:
    X, y, weights, offset = data("poisson")
    exposure = np.exp(offset)
    by_offset = SDCARegressor("poisson", tol=1e-12).fit(X, y, weights, offset=offset)
    rates = SDCARegressor("poisson", tol=1e-12).fit(X, y / exposure, weights * exposure)
    np.testing.assert_allclose(by_offset.coef_, rates.coef_, rtol=1e-6)
    residuals = weights * (y - by_offset.predict(X, offset))
    np.testing.assert_allclose(X.T @ residuals, by_offset.coef_, atol=1e-5)
    assert abs(residuals.sum()) < 1e-5


def explained(record: Any, z: np.ndarray, y: np.ndarray, w: np.ndarray, offset: np.ndarray) -> Any:
    """Return by which share a loss is below that of the best constant with the same offset."""

    def lost(z: np.ndarray) -> float:
        return float(w @ (record.value(z, y) - record.least(y)))

    places = {"bounds": (-20, 20), "method": "bounded", "options": {"xatol": 1e-10}}
    return 1 - lost(z) / minimize_scalar(lambda c: lost(c + offset), **places).fun


@each_loss
def test_predictions_and_scores_have_it(loss: str) -> None:
    X, y, weights, offset = data(loss)
    model = fitted(estimator(loss), X, y, weights, offset=offset)
    z = X @ model.coef_ + model.intercept_ + offset
    expected = np.exp(z) if loss_named(f"{loss}_loss").link == "log" else z
    for one in (model, from_json(to_json(model))):
        np.testing.assert_allclose(one.predict(X, offset), expected, rtol=1e-12)
        np.testing.assert_allclose(one.predict(sparse.csr_matrix(X), offset), expected)
        for w in (np.ones(N), weights):
            share = explained(loss_of(loss, vars(model)), z, y, w, offset)
            assert one.score(X, y, w, offset=offset) == pytest.approx(share, rel=1e-6)
    np.testing.assert_array_equal(model.predict(X, 0.0), model.predict(X))
    shifted = fitted(estimator(loss, tol=1e-9, max_iter=20_000), X, y, offset=1.5)
    plain = fitted(estimator(loss, tol=1e-9, max_iter=20_000), X, y)
    np.testing.assert_allclose(shifted.predict(X, 1.5), plain.predict(X), rtol=2e-2, atol=2e-2)


def test_several_targets_share_it() -> None:
    X, y, weights, offset = data("squared")
    Y = np.column_stack([y, -y, y**2])
    model = SDCARegressor(l2=0.3).fit(X, Y, weights, offset=offset)
    other = SDCARegressor(l2=0.3).fit(X, Y - offset[:, None], weights)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    np.testing.assert_array_equal(model.dual_coef_, other.dual_coef_)
    np.testing.assert_allclose(model.predict(X, offset), other.predict(X) + offset[:, None])


@each_loss
@pytest.mark.parametrize("l1s", [False, True])
def test_paths_and_choices_have_it(loss: str, l1s: bool) -> None:
    X, y, weights, offset = data(loss)
    name, values = ("l1", [8.0, 2.0]) if l1s else ("l2", [30.0, 1.0])
    options: dict[str, Any] = {"tol": 1e-6, "max_iter": 20_000}
    path = sdca_path(X, y, loss, **{f"{name}s": values}, sample_weight=weights, offset=offset,
                     **options)  # fmt: skip
    for k, value in enumerate(values):
        one = fitted(estimator(loss, **{name: value}, **options), X, y, weights, offset=offset)
        assert path.objectives[k, 0] == pytest.approx(one.objective_, rel=3e-6)
    cv = KFold(3)
    chosen = SDCARegressorCV(loss, **{f"{name}s": values}, cv=cv, **options)
    chosen.fit(X, y, weights, offset=offset)
    record = loss_named(f"{loss}_loss", chosen._estimator()._parameter())
    for fold, (train, test) in enumerate(cv.split(X)):
        part = X[train], y[train], weights[train], offset[train]
        for k, value in enumerate(values):
            one = fitted(estimator(loss, **{name: value}, **options), *part[:3], offset=part[3])
            z = X[test] @ one.coef_ + one.intercept_ + offset[test]
            expected = -np.average(record.value(z, y[test]), weights=weights[test])
            assert chosen.scores_[fold, k] == pytest.approx(expected, rel=2e-2, abs=2e-2)
    best = {name: getattr(chosen, f"{name}_")}
    one = fitted(estimator(loss, **best, **options), X, y, weights, offset=offset)
    assert chosen.objective_ == pytest.approx(one.objective_, rel=3e-6)


def test_metadata_routing_takes_each_fold_its_part() -> None:
    X, y, _, offset = data("poisson")
    with sklearn.config_context(enable_metadata_routing=True):
        model = SDCARegressor("poisson", tol=1e-9)
        model.set_fit_request(offset=True).set_score_request(offset=True)
        search = GridSearchCV(model, {"l2": [1.0]}, cv=KFold(2), refit=False)
        search.fit(X, y, offset=offset)
    for k, (train, test) in enumerate(KFold(2).split(X)):
        one = SDCARegressor("poisson", tol=1e-9).fit(X[train], y[train], offset=offset[train])
        expected = one.score(X[test], y[test], offset=offset[test])
        assert search.cv_results_[f"split{k}_test_score"][0] == pytest.approx(expected)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": (np.zeros(N - 1), ValueError, "offset must have a number for each of 60 samples"),
    "a column": (np.zeros((N, 1)), ValueError, "offset must have a number for each of 60"),
    "not a number": (np.full(N, np.nan), ValueError, "Input offset contains NaN"),
    "infinite": (np.full(N, np.inf), ValueError, "Input offset contains infinity"),
    "text": ("ten", ValueError, "."),
    "an exposure": (np.full(N, 1e4), NotFiniteError, "offset is the logarithm of an exposure"),
    "tiny": (np.full(N, -1e4), NotFiniteError, "offset is the logarithm of an exposure"),
}


@pytest.mark.parametrize("which", WRONG)
def test_wrong_ones_are_refused_and_change_nothing(which: str) -> None:
    X, y, _, offset = data("gamma")
    value, kind, message = WRONG[which]
    for loss in ("poisson", "gamma"):
        model = SDCARegressor(loss).fit(X, np.ceil(y), offset=offset)
        before = repr(vars(model))
        with pytest.raises(kind, match=message):
            model.fit(X, np.ceil(y), offset=value)
        assert repr(vars(model)) == before
    if kind is not NotFiniteError:
        with pytest.raises(kind, match=message):
            model.predict(X, value)


@pytest.mark.parametrize("which", WRONG)
def test_wrong_ones_of_a_block_are_named(which: str) -> None:
    X, y, _, offset = data("gamma")
    value, kind, message = WRONG[which]
    model = fit_blocks(SDCARegressor("gamma"), [(X, y, None, offset)])
    before = repr(vars(model))
    with pytest.raises(kind, match=f"block 1: .*{message}"):
        fit_blocks(model, [(X, y, None, offset), (X, y, None, value)])
    with pytest.raises(ValueError, match="block 1, row 3: loss='gamma' needs positive targets"):
        fit_blocks(model, [(X, y, None, 0.0), (X, np.where(y == y[3], 0, y), None, offset)])
    assert repr(vars(model)) == before


def test_where_it_means_nothing_it_is_refused() -> None:
    X, y, _, offset = data("poisson")
    with pytest.raises(InvalidArgumentError, match="takes no offset; regression losses do"):
        sdca_path(X, y > 1, "logistic", l2s=[1.0], offset=offset)
    with pytest.raises(ValueError, match="block 0: an offset of classes is not for blocks"):
        fit_blocks(SDCAClassifier(), [(X, y > 1, None, offset)])
    with pytest.raises(InvalidArgumentError, match="scoring='r2' would predict without"):
        SDCARegressorCV("poisson", scoring="r2").fit(X, y, offset=offset)
