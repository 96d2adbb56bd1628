"""The estimators of FTRL-Proximal: the rule, streams, hashing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.updates import update
from linear_data import libsvm
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

import tfopt_ref
from tfopt.errors import NotFiniteError
from tfopt.linear_model import FTRLClassifier, FTRLRegressor


def data(n: int = 40, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.4)
    return X, (X @ random.standard_normal(d) + 0.3 * random.standard_normal(n) > 0.2) * 1.0


def test_one_sample_at_a_time_is_the_rule() -> None:
    """With the twin's formula, a sample and its features after the other."""
    X, y = data()
    w, linear, accumulator = np.zeros(7), np.zeros(7), np.full(7, 0.2)
    for row, label in zip(X, y, strict=True):
        row = np.append(row, 1.0)
        slope = 1 / (1 + np.exp(-(row @ w))) - label
        for j in np.flatnonzero(row):
            part = slice(j, j + 1)
            update(
                tfopt_ref, "ftrl", w[part], accumulator[part], linear[part], slope * row[part],
                lr=0.3, l1=0.4 * (j < 6), l2=0.1 * (j < 6), lr_power=-0.5,
            )  # fmt: skip
    model = FTRLClassifier(
        learning_rate=0.3, initial_accumulator=0.2, l1=0.4, l2=0.1, batch_size=1
    ).partial_fit(sparse.csr_matrix(X), y, classes=[0, 1])
    np.testing.assert_allclose(model.coef_[0], w[:-1], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(model.intercept_, w[-1:], rtol=1e-12)
    assert 0 < (model.coef_ == 0).sum() < 6 and model.t_ == 40 and model.n_iter_ == 1


@pytest.mark.parametrize("model", [FTRLClassifier(batch_size=8), FTRLRegressor(batch_size=8)])
def test_a_stream_may_come_in_pieces(model: Any) -> None:
    X, y = data()
    options = {"classes": [0, 1]} if isinstance(model, FTRLClassifier) else {}
    whole = clone(model).partial_fit(X, y, **options).coef_.tobytes()
    for piece in (slice(0, 16), slice(16, 40)):
        model.partial_fit(X[piece], y[piece], **options)
    assert model.coef_.tobytes() == whole


@pytest.mark.parametrize("model", [FTRLClassifier(), FTRLRegressor()])
def test_later_calls_check_sparse_samples_like_others(model: Any) -> None:
    X, y = data()
    options = {"classes": [0, 1]} if isinstance(model, FTRLClassifier) else {}
    sample, other = sparse.csr_matrix(X), clone(model)
    for _ in range(2):
        model.partial_fit(sample, y, **options)
        other.partial_fit(sample.tocsc(), y.tolist(), **options)
    assert model.coef_.tobytes() == other.coef_.tobytes()
    wrong = sample.copy()
    before = model.coef_.tobytes()
    for value in (np.nan, np.inf):
        wrong.data[3] = value
        with pytest.raises(ValueError, match="X contains"):
            model.partial_fit(wrong, y)
        with pytest.raises(ValueError, match="X contains"):
            model.predict(wrong)
    for bad_X, bad_y, message in (
        (sample[:, :5], y, "X has 5 features, but FTRL.* is expecting 6"),
        (sample[:0], y[:0], "Found array with 0 sample"),
        (sample, y[1:], "inconsistent numbers of samples"),
        (sample, y * np.nan, "Input y contains NaN"),
        (sample, np.c_[y, y], "y should be a 1d array"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(bad_X, bad_y)
    assert model.coef_.tobytes() == before


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_few_entries_are_those_of_the_product(n_classes: int, dtype: Any) -> None:
    random = np.random.default_rng(0)
    X = sparse.random(60, 4000, 0.01, "csr", dtype, random, data_rvs=random.standard_normal)
    model = FTRLClassifier().fit(X, np.arange(60) % n_classes)
    whole = X @ model.coef_.T + model.intercept_
    for few in (X[:1], X[5:9], sparse.csr_matrix((2, 4000), dtype=dtype)):
        scores = model.decision_function(few).reshape(few.shape[0], -1)
        np.testing.assert_array_equal(scores, few @ model.coef_.T + model.intercept_)
    assert (model.decision_function(X).reshape(60, -1) == whole).all()


def test_the_progressive_loss_is_that_of_each_batch_before_it_is_learned() -> None:
    X, y = data()
    weights = np.random.default_rng(1).uniform(0, 2, 40)
    model, losses = FTRLClassifier(batch_size=8), []
    for start in range(0, 40, 8):
        piece = slice(start, start + 8)
        p = model.predict_proba(X[piece])[:, 1] if start else np.full(8, 0.5)
        loss = -np.log(np.where(y[piece] == 1, p, 1 - p))
        losses += [loss]
        model.partial_fit(X[piece], y[piece], classes=[0, 1], sample_weight=weights[piece])
        assert model.loss_ == pytest.approx(np.average(loss, weights=weights[piece]))
    whole = FTRLClassifier(batch_size=8, max_iter=1, shuffle=False).fit(X, y, weights)
    mean = np.average(np.concatenate(losses), weights=weights)
    assert model.progressive_loss_ == pytest.approx(mean)
    assert whole.progressive_loss_ == whole.loss_ == pytest.approx(mean)
    whole.set_params(max_iter=3).fit(X, y)
    assert whole.loss_ < whole.progressive_loss_
    assert not hasattr(FTRLClassifier(), "progressive_loss_")


@pytest.mark.parametrize(
    ("loss", "mean"),
    [("squared", lambda s, y: (s - y) ** 2 / 2), ("poisson", lambda s, y: np.exp(s) - y * s)],
)
def test_progressive_losses_of_regression(loss: str, mean: Any) -> None:
    X, y = data()
    model = FTRLRegressor(loss, batch_size=40, max_iter=1).fit(X, y)
    assert model.loss_ == pytest.approx(mean(0.0, y).mean())
    scores = X @ model.coef_ + model.intercept_
    assert model.partial_fit(X, y).loss_ == pytest.approx(mean(scores, y).mean())


def test_a_callback_ends_the_fit() -> None:
    X, y = data()
    model = FTRLClassifier(callback=lambda record: record["iteration"] == 3).fit(X, y)
    assert model.n_iter_ == 3 and model.t_ == 120
    assert (model.coef_ == FTRLClassifier(max_iter=3).fit(X, y).coef_).all()


def test_it_comes_near_the_optimum_of_a9a() -> None:
    X, y = libsvm("a9a")
    model = FTRLClassifier(learning_rate=0.1, max_iter=3).fit(X, y)
    assert log_loss(y, model.predict_proba(X)) < 10528.57243054 / len(y) * 1.005


def test_names_are_hashed() -> None:
    days = [{"sky": "grey", "wind": 3.0}, {"sky": "blue", "wind": 1.0}] * 30
    model = FTRLClassifier(n_hashes=2**10).fit(days, ["rain", "dry"] * 30)
    assert model.coef_.shape == (1, 2**10)
    assert list(model.predict([{"sky": "blue"}, {"sky": "grey", "unseen": 1}])) == ["dry", "rain"]


def test_poisson() -> None:
    X, _ = data(400)
    y = np.random.default_rng(0).poisson(np.exp(X[:, 0] / 2 + 1)).astype(float)
    model = FTRLRegressor("poisson", learning_rate=0.2, max_iter=100).fit(X, y)
    assert model.coef_[0] == pytest.approx(0.5, abs=0.1)
    assert model.intercept_[0] == pytest.approx(1.0, abs=0.1)
    assert (model.predict(X) > 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda X, y: FTRLClassifier().partial_fit(X, y),
            "first call of partial_fit needs classes",
        ),
        (
            lambda X, y: FTRLClassifier().partial_fit(X, y, classes=[0, 2]),
            "labels that are not in classes",
        ),
        (lambda X, y: FTRLClassifier().fit(X, y * 0), "at least 2 classes are needed"),
        (lambda X, y: FTRLClassifier().fit(X, y, -np.ones(40)), "Negative values"),
        (lambda X, y: FTRLClassifier(learning_rate=0.0).fit(X, y), "learning_rate must be"),
        (lambda X, y: FTRLClassifier(l1=-1.0).fit(X, y), "l1 must be"),
        (lambda X, y: FTRLClassifier(batch_size=0).fit(X, y), "batch_size must be"),
        (lambda X, y: FTRLRegressor("hinge").fit(X, y), "loss must be one of .*'huber', 'poisson'"),
        (lambda X, y: FTRLRegressor("poisson").fit(X, y - 1), "non-negative targets"),
        (
            lambda X, y: FTRLRegressor("poisson", learning_rate=1e4).fit(X * 100, y * 1e3),
            "no longer finite after [0-9]+ of 40 samples: lower learning_rate=10000 or scale",
        ),
        (
            lambda X, y: FTRLClassifier().fit(X, y).partial_fit(X, y, classes=[0, 1, 2]),
            "in the first call",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*data())


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("bad", [0, 1, 17])
def test_a_piece_that_overflows_is_learned_up_to_the_batch_before(form: Any, bad: int) -> None:
    X, y = data()
    X[bad, 2] = 1e200
    model, good = (FTRLRegressor(batch_size=4).partial_fit(form(X[20:]), y[20:]) for _ in "ab")
    learned = bad // 4 * 4
    if learned:
        good.partial_fit(form(X[:learned]), y[:learned])
    with pytest.raises(NotFiniteError, match=rf"after {learned} of 40 samples.*have been learned"):
        model.partial_fit(form(X), y)
    assert vars(model).keys() == vars(good).keys()
    for name, value in vars(good).items():
        np.testing.assert_array_equal(getattr(model, name), value, name)
    first = FTRLRegressor(batch_size=4)
    with pytest.raises(NotFiniteError, match=r"finite after [0-9]+ of .*features$"):
        first.partial_fit(form(X), y)
    assert vars(first) == vars(FTRLRegressor(batch_size=4))
    with pytest.raises(NotFiniteError, match=r"finite after [0-9]+ of .*features$"):
        model.fit(form(X), y)
    np.testing.assert_array_equal(model.coef_, good.coef_)


@pytest.mark.parametrize("name", ["loss_", "progressive_loss_"])
@pytest.mark.parametrize("model", [FTRLClassifier(), FTRLRegressor()])
def test_losses_of_a_model_that_is_not_fitted(model: Any, name: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(model, name)


# ---- one row at a time


def calls(function: Callable[[], Any]) -> int:
    """Return how many calls of Python's functions a call makes."""
    made: list[str] = []
    sys.setprofile(lambda frame, event, _: made.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return made.count("call")


@pytest.mark.parametrize("kind", [FTRLClassifier, FTRLRegressor])
def test_no_row_is_converted_at_length(kind: Any) -> None:
    """Neither SciPy nor checks of scikit-learn stand between a row and the kernel."""
    X, y = np.ones((1, 30)), np.ones(1)
    classes = {"classes": [0, 1]} if kind is FTRLClassifier else {}
    model = kind().partial_fit(X, y, **classes)
    for row in (X, sparse.csr_matrix(X), sparse.csr_array(X)):
        model.partial_fit(row, y).predict(row)
        assert calls(lambda row=row: model.partial_fit(row, y)) <= 90
        assert calls(lambda row=row: model.predict(row)) <= 90


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_dense_rows_are_learned_as_sparse_ones(
    dtype: type, order: Any, rows: int, has_zeros: bool
) -> None:
    X, y = data()
    X = X + 1 + (X == -1)
    if has_zeros:
        X[0, 1], X[3], X[4, 2] = 0, 0, -0.0
    X = np.array(X[:rows], dtype, order=order)
    found = [
        FTRLClassifier(batch_size=3).partial_fit(given, y[:rows], classes=[0, 1])
        for given in (X, sparse.csr_matrix(X), sparse.csr_array(X))
    ]
    assert len({model._state.tobytes() for model in found}) == 1
