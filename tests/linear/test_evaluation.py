"""Losses and scores: against their definitions, scikit-learn's, and those of parts of the rows."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from common.linear_losses import DEFINITIONS, phi
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn import metrics
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import log_loss

from tfopt.linear_model import FTRLRegressor, SDCAClassifier, SDCARegressor, constant_model
from tfopt.linear_model._fit.reductions import TreeSum, tree_reduce
from tfopt.linear_model.constant_model import Constant, Counts
from tfopt.linear_model.evaluation import Deviance, Evaluation, explained, mean_losses
from tfopt.linear_model.losses import LOSSES as RECORDS
from tfopt.linear_model.losses import loss_of, regression_losses
from tfopt.linear_model.predictions import probabilities

LOSSES = [loss for loss in SDCAClassifier._LOSSES if loss in DEFINITIONS]


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "multinomial"])
def test_losses_of_classes(loss: str, problems: int, sparse: bool) -> None:
    """Of each class against the rest, or of all of them; a class that is new says nothing."""
    random = np.random.default_rng(0)
    X = random.integers(-1, 2, (200, 3)).astype(float)
    coefs, intercepts = (
        random.standard_normal((4, problems, 3)),
        random.standard_normal((4, problems)),
    )
    classes = np.array([2, 5] if problems == 1 else [2, 5, 9])
    y, weights = random.choice([*classes, 7], 200), random.integers(0, 3, 200).astype(float)
    known = y != 7
    record = SDCAClassifier(loss)._phi
    found = mean_losses(
        sp.csr_matrix(X) if sparse else X, y, weights, coefs, intercepts, record, classes
    )
    for coef, intercept, mean in zip(coefs, intercepts, found, strict=True):
        z = X @ coef.T + intercept
        if loss == "multinomial":
            z = z if problems > 1 else np.column_stack([np.zeros(200), z])
            p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
            expected = log_loss(y[known], p[known], labels=classes, sample_weight=weights[known])
        else:
            positive = classes[-problems:]
            each = sum(
                phi(loss, z[:, k], np.where(y == label, 1.0, -1.0), 1.0)
                for k, label in enumerate(positive)
            )
            expected = np.average(each[known], weights=weights[known])
        assert mean == pytest.approx(expected, rel=1e-12)


def test_nothing_is_said_without_weight() -> None:
    X, y = np.ones((3, 1)), np.array([7, 7, 0])
    record, points = SDCAClassifier()._phi, (np.ones((2, 1, 1)), np.ones((2, 1)))
    found = mean_losses(X, y, np.array([1.0, 1.0, 0.0]), *points, record, np.array([0, 1]))
    assert found.tolist() == [0.0, 0.0]


# ---- scores


def rows(loss: str, seed: int = 0, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions, targets and weights that suit a loss; some targets and weights are 0."""
    random = np.random.default_rng(seed)
    z = random.standard_normal(n) + 0.5
    if RECORDS[loss].is_classification:
        y = (z + random.standard_normal(n) > 0.3).astype(float)
    elif RECORDS[loss].link == "log":
        y = random.poisson(np.exp(z)) + (0.5 if loss != "poisson" else 0.0)
    else:
        y = z.round(1) + random.standard_normal(n).round(1)
    return z, y, random.choice([0.0, 1.0, 2.5], n)


def evaluated(phi: Any, z: np.ndarray, y: np.ndarray, w: np.ndarray | None, parts: int) -> Any:
    """Return the evaluation of parts of the rows, added up."""
    places = np.array_split(np.arange(len(y)), parts)
    return tree_reduce(
        [Evaluation.of(phi, z[k], y[k], None if w is None else w[k]) for k in places]
    )


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [loss for loss in RECORDS if RECORDS[loss].is_classification])
def test_scores_of_two_classes_are_scikit_learns(loss: str, weighted: bool, parts: int) -> None:
    z, y, w = rows(loss)
    z = z.round(1)  # ties count half
    weights = w if weighted else None
    found = evaluated(RECORDS[loss], z, y, weights, parts)
    scores = found.scores()
    assert scores["accuracy"] == pytest.approx(
        metrics.accuracy_score(y, z > 0, sample_weight=weights), rel=1e-12
    )
    assert scores["auc"] == pytest.approx(
        metrics.roc_auc_score(y, z, sample_weight=weights), rel=1e-12
    )
    if RECORDS[loss].link is not None:
        expected = log_loss(y, 1 / (1 + np.exp(-z)), sample_weight=weights)
        assert scores["log_loss"] == pytest.approx(expected, rel=1e-12)
        assert found.loss == pytest.approx(expected, rel=1e-12)
    else:
        assert "log_loss" not in scores
    one = Evaluation.of(RECORDS[loss], z[y > 0], y[y > 0])
    assert one.scores()["auc"] is None


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("loss", ["logistic", "multinomial", "hinge"])
def test_scores_of_three_classes_are_scikit_learns(loss: str, parts: int) -> None:
    random = np.random.default_rng(0)
    z, y, w = (
        random.standard_normal((300, 3)) * 2,
        random.integers(0, 3, 300),
        rows("hinge")[2][:300],
    )
    found = evaluated(RECORDS[loss], z, y.astype(float), w, parts)
    scores, best = found.scores(), z.argmax(axis=1)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(y, best, sample_weight=w))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    p = probabilities(z) if loss == "logistic" else p
    if loss != "hinge":
        expected = log_loss(y, p, sample_weight=w)
        assert scores["log_loss"] == pytest.approx(expected, rel=1e-12)
    assert ("log_loss" in scores) == (loss != "hinge") and "auc" not in scores
    if loss == "multinomial":
        assert found.loss == pytest.approx(scores["log_loss"], rel=1e-12)
    else:
        each = sum(
            np.average(phi(loss, z[:, k], np.where(y == k, 1.0, -1.0), 1.0), weights=w)
            for k in range(3)
        )
        assert found.loss == pytest.approx(each, rel=1e-12)


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 40),
    n_classes=st.integers(2, 4),
    is_weighted=st.booleans(),
)
def test_the_log_loss_is_scikit_learns(
    seed: int, n: int, n_classes: int, is_weighted: bool
) -> None:
    """Probabilities of 0 and 1 included."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, n_classes, n)
    w = draw.uniform(0.1, 2, n) if is_weighted else None
    z = draw.choice([0.0, 1.0, -3.0, 40.0, -40.0, 800.0, -800.0], (n, n_classes))
    two = n_classes == 2
    p = probabilities(z[:, :1] if two else z)
    found = Evaluation.of(RECORDS["logistic"], z[:, 0] if two else z, y.astype(float), w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rounded sums
        expected = log_loss(y, p, labels=range(n_classes), sample_weight=w)
    even = (p == 1 / n_classes).all(axis=1)  # where all underflow, scores say more
    if two or not (even & (z.max(axis=1) < -700)).any():
        assert found.scores()["log_loss"] == pytest.approx(expected, rel=1e-9, abs=1e-15)


#: By loss: its D squared in scikit-learn, of targets and predicted values.
D2 = {
    "squared": lambda y, p, w: metrics.r2_score(y, p, sample_weight=w),
    "poisson": lambda y, p, w: metrics.d2_tweedie_score(y, p, sample_weight=w, power=1),
    "gamma": lambda y, p, w: metrics.d2_tweedie_score(y, p, sample_weight=w, power=2),
    "quantile": lambda y, p, w: metrics.d2_pinball_score(y, p, sample_weight=w, alpha=0.75),
}


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", regression_losses())
def test_scores_of_values(loss: str, weighted: bool, parts: int) -> None:
    """D squared compares with the best constant, whatever the loss; some are scikit-learn's."""
    z, y, w = rows(loss)
    record = loss_of(loss, {"quantile": 0.75, "epsilon": 0.4, "power": 1.5})
    values, weights = record.inverse_link(z), w if weighted else None
    found = evaluated(record, z, y, weights, parts)
    scores = found.scores()
    squares = metrics.mean_squared_error(y, values, sample_weight=weights)
    assert scores["rmse"] == pytest.approx(np.sqrt(squares), rel=1e-12)
    distances = metrics.mean_absolute_error(y, values, sample_weight=weights)
    assert scores["mae"] == pytest.approx(distances, rel=1e-12)
    assert scores["r2"] == pytest.approx(metrics.r2_score(y, values, sample_weight=weights))
    w = w if weighted else np.ones(len(y))
    assert found.loss == pytest.approx(np.average(record.value(z, y), weights=w), rel=1e-12)

    def lost(c: float) -> float:
        return float(w @ (record.value(np.full(len(y), c), y) - record.least(y)))

    null = minimize_scalar(lost, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).fun
    expected = 1 - w @ (record.value(z, y) - record.least(y)) / null
    d2 = scores["r2" if loss == "squared" else "d2"]
    assert d2 == pytest.approx(expected, rel=1e-7) and ("d2" in scores) == (loss != "squared")
    if loss in D2:
        assert d2 == pytest.approx(D2[loss](y, values, weights), rel=1e-9)


@pytest.mark.parametrize("loss", RECORDS)
def test_the_least_loss_is_that_of_no_prediction_s(loss: str) -> None:
    """A loss whose least value is not 0 must say so, or no share of it means anything."""
    record, z = RECORDS[loss], np.linspace(-40, 40, 800_001)
    for y in (-1.0, 1.0) if record.is_classification else (0.25, 1.0, 7.5):
        least = np.min(record.value(z, np.full(z.shape, y)))
        assert least == pytest.approx(np.ravel(record.least(np.array([y])))[0], abs=1e-6)


@pytest.mark.parametrize("loss", RECORDS)
def test_the_best_constant(loss: str) -> None:
    _, y, w = rows(loss, seed=3, n=60)
    y = 2 * y - 1 if RECORDS[loss].is_classification else y
    record = RECORDS[loss]
    counts = Counts.of(y, w[None])
    best = counts.best_constant(record)
    at = [w @ record.value(np.full(60, best + d), y) for d in (0.0, -1e-3, 1e-3, -0.5, 0.5)]
    assert at[0] <= min(at) + 1e-9
    assert counts.least_loss(record) == pytest.approx(at[0] - (w * record.least(y)).sum())
    if record.best_is_mean:
        parts = [Constant.of(record, y[k : k + 9], w[k : k + 9]) for k in range(0, 60, 9)]
        assert tree_reduce(parts).loss == pytest.approx(counts.least_loss(record), rel=1e-12)


@pytest.mark.parametrize("loss", RECORDS)
def test_rows_without_weight_say_nothing(loss: str) -> None:
    z, y, w = rows(loss)
    nothing = Evaluation.of(RECORDS[loss], z, y, w * 0)
    assert nothing.loss == 0.0 and {*nothing.scores().values()} == {None}
    found, expected = (
        nothing + Evaluation.of(RECORDS[loss], z, y, w),
        Evaluation.of(RECORDS[loss], np.tile(z, 2), np.tile(y, 2), np.concatenate([w * 0, w])),
    )
    assert found.scores() == pytest.approx(expected.scores(), rel=1e-12)


def test_targets_that_are_all_one_and_single_rows() -> None:
    for loss in regression_losses():
        record, y = RECORDS[loss], np.full(9, 0.1)
        z = np.full(9, record.initial_intercept(0.1))
        parts = [Deviance.of(record, z[k : k + 2], y[k : k + 2], y[:2]) for k in (0, 2, 4)]
        assert tree_reduce(parts).explained in (0.0, 1.0)  # up to the rounding of the logarithm
        assert Deviance.of(record, z + 3, y, y).explained == 0.0
        assert Deviance.of(record, z[:1], y[:1], y[:1]).explained is None
    nothing = Deviance.of(RECORDS["squared"], z, y, y * 0)
    assert (nothing + nothing).explained == 1.0


def test_many_distinct_values_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    z = random.standard_normal(5000) * 10.0 ** random.integers(-3, 3, 5000)
    y = (z + random.standard_normal(5000) > 0).astype(float)
    weights = np.array([1 - y, y])
    exact = Counts.of(z, weights)
    assert exact.area_under_curve() == pytest.approx(metrics.roc_auc_score(y, z), rel=1e-12)
    monkeypatch.setattr(constant_model, "MOST_VALUES", 1000)
    rounded = Counts.of(z, weights)
    assert rounded.values.size <= 1000 and (np.diff(rounded.values) > 0).all()
    assert rounded.area_under_curve() == pytest.approx(exact.area_under_curve(), abs=1e-3)
    for parts in (2, 9, 100):
        sums = [Counts.of(z[k], weights[:, k]) for k in np.array_split(np.arange(5000), parts)]
        for order in (sums, sums[::-1]):
            found = tree_reduce(order)
            np.testing.assert_array_equal(found.values, rounded.values)
            np.testing.assert_array_equal(found.weights, rounded.weights)


def test_a_running_sum_is_that_of_the_tree() -> None:
    for n in range(1, 40):
        parts, running = [Leaf(str(k)) for k in range(n)], TreeSum()
        assert running.total() is None
        for part in parts:
            running.add(part)
        assert running.total().text == tree_reduce(parts).text


@dataclasses.dataclass
class Leaf:
    """A term of a sum that says how it was added up."""

    text: str

    def __add__(self, other: Leaf) -> Leaf:
        return Leaf(f"({self.text} {other.text})")


# ---- the score of regressors


@pytest.mark.parametrize("loss", regression_losses())
def test_the_score_is_that_of_the_loss(loss: str) -> None:
    z, y, w = rows(loss)
    X = np.column_stack([z, np.random.default_rng(1).standard_normal(len(z))])
    option = RECORDS[loss].option
    more = {} if option is None else {option.name: 0.75}
    if more.get("power"):
        more = {"power": 1.5}
    model = SDCARegressor(loss, **more).fit(X, y, w)
    scores = X @ model.coef_ + model.intercept_
    expected = Evaluation.of(loss_of(loss, more), scores, y, w).scores()
    share = expected["r2" if loss == "squared" else "d2"]
    assert model.score(X, y, w) == pytest.approx(share, rel=1e-12)
    assert model.score(sp.csr_matrix(X), y, w) == pytest.approx(share, rel=1e-9)
    if loss in D2:
        assert share == pytest.approx(D2[loss](y, model.predict(X), w), rel=1e-9)
    with pytest.warns(UndefinedMetricWarning, match="less than two samples"):
        assert np.isnan(model.score(X[:1], y[:1]))
    with pytest.raises(ValueError, match="y has the shape"):
        model.score(X, y[:3])
    if RECORDS[loss].domain:
        with pytest.raises(ValueError, match=f"needs {RECORDS[loss].domain} targets"):
            model.score(X, -1 - y)


def test_the_score_counts_an_offset_in_the_constant_model_too() -> None:
    z, y, w = rows("poisson")
    X, offset = z[:, None], np.random.default_rng(1).standard_normal(len(z))
    y = np.random.default_rng(2).poisson(np.exp(z / 2 + offset))
    model = SDCARegressor("poisson").fit(X, y, w, offset=offset)
    null = np.average(y, weights=w) / np.average(np.exp(offset), weights=w) * np.exp(offset)
    ours, theirs = (
        metrics.mean_poisson_deviance(y, each, sample_weight=w)
        for each in (model.predict(X, offset), null)
    )
    assert model.score(X, y, w, offset=offset) == pytest.approx(1 - ours / theirs, rel=1e-9)


def test_the_score_of_several_targets_is_their_mean() -> None:
    z, y, w = rows("squared")
    X, Y = np.column_stack([z, y]), np.column_stack([y, z**2])
    model = SDCARegressor().fit(X, Y)
    assert model.score(X, Y, w) == pytest.approx(
        metrics.r2_score(Y, model.predict(X), sample_weight=w), rel=1e-12
    )
    alone = FTRLRegressor("poisson").fit(X, np.abs(y))
    assert alone.score(X, np.abs(y)) == pytest.approx(
        metrics.d2_tweedie_score(np.abs(y), alone.predict(X), power=1), rel=1e-9
    )
    assert explained([Deviance.of(RECORDS["squared"], z, z, w)]) == 1.0
