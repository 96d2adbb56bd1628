"""The options that FTRL has in common with SGDClassifier: by their specification, and crossed."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from tfopt.linear_model import FTRLClassifier, FTRLRegressor, load_model, save_model
from tfopt.linear_model.losses import loss_of
from tfopt_ref import ftrl
from tfopt_ref.losses import loss_named

KINDS = {"FTRLClassifier": FTRLClassifier, "FTRLRegressor": FTRLRegressor}
MODELS = [(name, loss) for name, kind in KINDS.items() for loss in kind._LOSSES]


def data(seed: int, n: int = 24, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.6)
    return X, random.uniform(0.5, 2, n), random.permutation(n)


def labels_of(name: str, order: np.ndarray, n_classes: int) -> np.ndarray:
    if name == "FTRLRegressor":
        return 0.25 + order / len(order)
    return np.array(["no", "so", "yes"])[order % n_classes]


def balanced(y: np.ndarray, weights: np.ndarray) -> dict[Any, float]:
    """Return factors of the classes' weights that make the totals equal, but for that of nothing.

    The total of all classes is as before.
    """
    totals = {k: weights[y == k].sum() for k in np.unique(y).tolist()}
    share = weights.sum() / sum(total > 0 for total in totals.values())
    return {k: share / total if total > 0 else 0.0 for k, total in totals.items()}


def state_of(model: Any) -> dict[str, Any]:
    return {
        name: np.array(getattr(model, name))
        for name in ("coef_", "intercept_", "t_", "n_iter_", "loss_", "progressive_loss_")
    }


def assert_same(model: Any, other: Any) -> None:
    for name, value in state_of(model).items():
        np.testing.assert_array_equal(value, getattr(other, name), name)


def fitted(model: Any, *arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*arguments)


@given(
    seed=st.integers(0, 2**16),
    which=st.sampled_from(MODELS),
    n_classes=st.sampled_from([2, 3]),
    class_weight=st.sampled_from([None, "balanced", {"no": 2.0, "so": 0.0}]),
    average=st.sampled_from([False, True, 20]),
    tol=st.sampled_from([None, 0.0, 0.05]),
    n_iter_no_change=st.integers(1, 3),
    warm_start=st.booleans(),
    batch_size=st.sampled_from([1, 5, 32]),
    fit_intercept=st.booleans(),
    l1=st.sampled_from([0.0, 0.2]),
)
def test_a_fit_is_that_of_the_specification(
    seed: int, which: tuple[str, str], n_classes: int, class_weight: Any, **options: Any
) -> None:
    (name, loss), (X, weights, ranks) = which, data(seed, n=12)
    y = labels_of(name, ranks, n_classes)
    options |= {"learning_rate": 0.2, "beta": 0.1, "max_iter": 3, "loss": loss}
    model = KINDS[name](**options)
    if name == "FTRLClassifier":
        model.set_params(class_weight=class_weight)
        factors = class_weight
        if class_weight == "balanced":
            factors = balanced(y, weights)
        sample_weights = weights * [(factors or {}).get(label, 1.0) for label in y.tolist()]
        classes = np.unique(y)
        targets = np.where(y[:, None] == classes, 1.0, -1.0)
        targets = targets[:, 1:] if n_classes == 2 else targets
    else:
        sample_weights, targets = weights, y[:, None]
    table = np.zeros((5, targets.shape[1], 3))
    table[..., 1] = 0.1
    expected = ftrl.Learned(table, [0.0, 0.0], table[..., 0])
    option = model._LOSSES[loss].option
    rule = ftrl.Rule(
        loss_named(f"{loss}_loss", 1.0 if option is None else option.default),
        alpha=0.2,
        beta=0.1,
        l1=options["l1"],
        l2=0.0,
        intercept=options["fit_intercept"],
        batch_size=options["batch_size"],
        average=int(options["average"]),
    )
    for again in (False, True) if options["warm_start"] else (False,):
        random = np.random.RandomState(0)
        assert not again or expected.seen == model.t_
        expected, n_iter = ftrl.fit(
            rule,
            [(np.flatnonzero(row).tolist(), row[row != 0].tolist()) for row in X],
            targets,
            sample_weights,
            (random.permutation(len(y)).tolist() for _ in range(3)),
            expected,
            tol=-np.inf if options["tol"] is None else options["tol"],
            n_iter_no_change=options["n_iter_no_change"],
        )
        fitted(model, X, y, weights)
        assert model.n_iter_ == n_iter
    w = expected.sums / expected.averaged if expected.averaged else expected.table[..., 0]
    np.testing.assert_allclose(np.atleast_2d(model.coef_), w[:-1].T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, w[-1], rtol=1e-9, atol=1e-12)
    assert model.progressive_loss_ == pytest.approx(expected.losses[0] / expected.losses[1])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_matrix, np.float32])
def test_early_stopping_is_a_loop_of_partial_fits(name: str, average: bool, form: Any) -> None:
    """Over the samples that SGDClassifier learns from, until the score of the others stands."""
    X, weights, ranks = data(3, n=60)
    y, told = labels_of(name, ranks, 3), []
    options = {"max_iter": 40, "average": average, "n_iter_no_change": 3, "batch_size": 4}
    model = KINDS[name](
        early_stopping=True, validation_fraction=0.25, tol=0.01, random_state=5,
        callback=told.append, **options,
    ).fit(form(X), y, weights)  # fmt: skip
    kind = StratifiedShuffleSplit if is_classifier(model) else ShuffleSplit
    learned, held = next(kind(1, test_size=0.25, random_state=5).split(X, y))
    learned, random, scores = np.sort(learned), np.random.RandomState(5), []
    other = KINDS[name](**options)
    while len(scores) < 40 and not ftrl.has_ended([-score for score in scores], 0.01, 3):
        order = random.permutation(learned)
        classes = {"classes": np.unique(y)} if is_classifier(model) else {}
        other.partial_fit(form(X[order]), y[order], sample_weight=weights[order], **classes)
        scores.append(other.score(form(X[held]), y[held], weights[held]))
    assert [record["score"] for record in told] == pytest.approx(scores, rel=1e-9)
    assert 3 < len(scores) < 40
    assert_same(model, other)


def test_the_held_out_samples_are_those_of_sgd() -> None:
    """Which scores 1 if they have the labels of their features, and the others have not."""
    X, _, ranks = data(0, n=40)
    y = ranks % 2
    learned, held = next(StratifiedShuffleSplit(1, test_size=0.1, random_state=3).split(X, y))
    told: list[dict[str, Any]] = []
    seen = np.zeros((40, 1)) + np.isin(np.arange(40), held)[:, None]
    options = {"early_stopping": True, "random_state": 3, "max_iter": 7, "tol": 1e-3}
    fitted(FTRLClassifier(callback=told.append, **options), seen, y)
    sgd = fitted(SGDClassifier("log_loss", n_iter_no_change=2, **options), seen, y)
    # the feature is 0 in all samples that are learned from
    assert (sgd.coef_ == 0).all() and told[-1]["samples"] == len(learned) * len(told)
    model = fitted(FTRLClassifier(**options), seen, y)
    assert (model.coef_ == 0).all()


def test_the_stopping_rule_by_hand() -> None:
    for values, tol, patience, ended in (
        ([], 0.1, 1, False),
        ([5.0], 0.1, 1, False),
        ([5.0, 4.95], 0.1, 1, True),
        ([5.0, 4.9], 0.05, 1, False),
        ([5.0, 4.95, 4.85], 0.1, 2, False),
        ([5.0, 4.95, 4.92], 0.1, 2, True),
        ([5.0, 6.0, 5.0, 4.0, 5.0], 0.0, 2, False),
    ):
        assert ftrl.has_ended(values, tol, patience) == ended, values


def test_balanced_weights_by_hand() -> None:
    assert balanced(np.array([0, 0, 0, 1]), np.ones(4)) == {0: 2 / 3, 1: 2.0}
    assert balanced(np.array([*"aab"]), np.array([1.0, 1, 0])) == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("average", [True, 30, 10**9])
def test_averages_survive_every_way(name: str, average: Any, tmp_path: Path) -> None:
    X, weights, ranks = data(1)
    y, kind = labels_of(name, ranks, 3), KINDS[name]
    plain = fitted(kind(batch_size=4), X, y, weights)
    model = fitted(kind(batch_size=4, average=average), X, y, weights)
    same = np.array_equal(model.coef_, plain.coef_)
    assert same == (average == 10**9)
    predicted = model.predict(X)
    save_model(tmp_path / "model.json", model)
    np.testing.assert_array_equal(load_model(tmp_path / "model.json").predict(X), predicted)
    others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    others += [copy.deepcopy(model).sparsify(), copy.deepcopy(model).sparsify().densify()]
    assert [sparse.issparse(other.coef_) for other in others] == [False, False, True, False]
    model.partial_fit(X, y, sample_weight=weights)
    for other in others:
        assert_same(model, other.partial_fit(X, y, sample_weight=weights))
        assert isinstance(other.coef_, np.ndarray)
    before = vars(model).copy()
    model.predict(X)
    assert vars(model) == before


def test_averages_begin_again_when_they_are_turned_off_and_on() -> None:
    X, _, ranks = data(2)
    y = ranks % 2
    model = FTRLClassifier(average=True, batch_size=5).partial_fit(X, y, classes=[0, 1])
    plain = FTRLClassifier(batch_size=5).partial_fit(X, y, classes=[0, 1])
    assert (model.coef_ != plain.coef_).any()
    model.set_params(average=False).partial_fit(X, y)
    assert_same(model, plain.partial_fit(X, y))
    model.set_params(average=True)
    assert_same(model, plain)  # until it learns more
    model.partial_fit(X, y)
    steps = []
    for start in range(0, 24, 5):
        plain.partial_fit(X[start : start + 5], y[start : start + 5])
        steps.append(plain.coef_.copy())
    np.testing.assert_allclose(model.coef_, np.mean(steps, axis=0), rtol=1e-12)


def test_another_thread_may_predict_while_averages_are_learned() -> None:
    X, _, ranks = data(2)
    y, errors, done = ranks % 2, [], threading.Event()
    model = FTRLClassifier(batch_size=4, average=True).partial_fit(X, y, classes=[0, 1])

    def predict() -> None:
        while not done.is_set():
            try:
                model.predict(X)
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=predict)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(300):
            model.partial_fit(X, y)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not errors
    means = model._state[:-1, :, 0] - model._averages[:-1] / model._averaged
    np.testing.assert_array_equal(model.coef_, means.T)


def test_an_overflow_keeps_averages_of_the_batches_before() -> None:
    X, _, ranks = data(2)
    y = ranks + 0.0
    bad = X.copy()
    bad[9, 1] = 1e200
    model = FTRLRegressor(average=True, batch_size=4, learning_rate=0.01).partial_fit(X, y)
    good = copy.deepcopy(model).partial_fit(X[:8], y[:8])
    model.predict(X)  # averages have been asked for
    with pytest.raises(ValueError, match="after 8 of 24 samples"):
        model.partial_fit(bad, y)
    assert_same(model, good)
    before = state_of(model)
    with pytest.raises(ValueError, match="after 0 of 16 samples"):
        model.partial_fit(bad[8:], y[8:])
    for value, name in zip(before.values(), before, strict=True):
        np.testing.assert_array_equal(value, getattr(model, name))


@pytest.mark.parametrize("name", KINDS)
def test_two_warm_fits_are_one(name: str) -> None:
    X, weights, ranks = data(4)
    y, kind = labels_of(name, ranks, 3), KINDS[name]
    options = {"shuffle": False, "average": True, "batch_size": 4}
    whole = kind(max_iter=5, **options).fit(X, y, weights)
    model = kind(max_iter=2, warm_start=True, **options).fit(X, y, weights)
    model.set_params(max_iter=3).fit(X, y, weights)
    assert model.n_iter_ == 3
    model.n_iter_ = 5
    assert_same(model, whole)
    before = state_of(model)
    with pytest.raises(ValueError, match="it had 4 features and this one has 3; set warm_start"):
        model.fit(X[:, :3], y, weights)
    if is_classifier(model):
        with pytest.raises(ValueError, match=r"were .* in the last fit: set warm_start=False"):
            model.fit(X, y == "no", weights)
    for key, value in before.items():
        np.testing.assert_array_equal(value, getattr(model, key))


def test_a_piece_may_have_only_classes_of_weight_0() -> None:
    X, _, ranks = data(5)
    y = ranks % 2
    options = {"class_weight": {0: 0.0, 1: 1.0}, "fit_intercept": False}
    model = FTRLClassifier(**options).partial_fit(X[y == 1], y[y == 1], classes=[0, 1])
    before = model.coef_.copy()
    model.partial_fit(X[y == 0], y[y == 0])
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": -1}, "average must be an integer of at least 0"),
        ({"average": 1.5}, "average must be an integer of at least 0"),
        ({"validation_fraction": 0.0}, "validation_fraction must be .* above 0 and below 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be .* above 0 and below 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be an integer of at least 1"),
        ({"tol": -0.1}, "tol must be a finite number at least 0"),
        ({"loss": "multinomial"}, "loss must be one of"),
        ({"gamma": 0.5}, "gamma=0.5 does not apply to loss='logistic'"),
        ({"class_weight": {0: -1.0}}, "class_weight must have finite numbers of at least 0"),
        ({"class_weight": "even"}, "class_weight"),
        ({"early_stopping": True, "validation_fraction": 0.01}, "test_size = 1"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    X, _, ranks = data(6)
    model = FTRLClassifier().fit(X, ranks % 2)
    before = state_of(model)
    for call in (model.fit, model.partial_fit):
        if "early_stopping" in options and call == model.partial_fit:
            message = "early_stopping=True needs fit"
        elif options.get("class_weight") == "even" and call == model.partial_fit:
            message = "needs all samples"
        model.set_params(**options)
        with pytest.raises(ValueError, match=message):
            call(X, ranks % 2)
    model.set_params(**FTRLClassifier().get_params())
    for key, value in before.items():
        np.testing.assert_array_equal(value, getattr(model, key))


def test_no_sample_with_weight_may_be_held_out() -> None:
    X, _, ranks = data(6)
    weights = np.zeros(24)
    weights[0] = 1.0
    with pytest.raises(ValueError, match="leaves no samples with weight to"):
        FTRLRegressor(early_stopping=True).fit(X, ranks, weights)


@pytest.mark.parametrize("what", ["loss", "score"])
def test_a_fit_that_still_improves_warns(what: str) -> None:
    X, _, _ = data(7)
    y = X @ [1.0, 2.0, 0.0, 0.0]
    model = FTRLRegressor(tol=1e-9, max_iter=3, early_stopping=what == "score")
    with pytest.warns(ConvergenceWarning, match=f"the {what} still improved after max_iter=3"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).set_params(callback=lambda record: True).fit(X, y)
        clone(model).set_params(tol=10.0, n_iter_no_change=2).fit(X, y)


@pytest.mark.parametrize(("name", "loss"), MODELS)
@pytest.mark.parametrize("in_fit", [True, False])
@pytest.mark.parametrize("form", [np.array, np.float32, sparse.csr_matrix])
def test_an_offset_is_a_part_of_the_score(name: str, loss: str, in_fit: bool, form: Any) -> None:
    """As the specification has it: of regression also by other targets and weights."""
    X, weights, ranks = data(8)
    offset = np.random.default_rng(9).uniform(-1, 1, len(X))
    model = KINDS[name](loss, max_iter=2, average=not in_fit, shuffle=False)
    record = loss_of(loss, vars(model))
    y = ranks % 2 if record.is_classification else ranks + 0.5
    classes = {"classes": [0, 1]} if record.is_classification and not in_fit else {}
    rows = form(X)
    if in_fit:
        model.fit(rows, y, weights, offset=offset)
    else:
        for part in (slice(0, 10), slice(10, None)):
            given = {"sample_weight": weights[part], "offset": offset[part], **classes}
            model.partial_fit(rows[part], y[part], **given)
    table = np.zeros((X.shape[1] + 1, 1, 3))
    table[:, :, 1] = 0.1
    columns = [*range(X.shape[1])]
    pieces = [range(len(X))] * 2 if in_fit else [range(10), range(10, len(X))]
    targets = np.where(y > 0, 1.0, -1.0) if record.is_classification else y
    phi = loss_named(record.kernel, model._parameter())
    rule = ftrl.Rule(phi, 0.5, 0.0, 0.0, 0.0, True, 32, int(model.average))
    learned = ftrl.Learned(table, [0.0, 0.0], np.zeros(table.shape[:2]))
    x = [(columns, row) for row in np.asarray(sparse.csr_matrix(rows).toarray(), float)]
    for piece in pieces:
        learned = ftrl.learn(rule, x, targets[:, None], weights, piece, learned, offset)
    steps = learned.averaged
    last = learned.sums / steps if steps else learned.table[:, :, 0]
    np.testing.assert_allclose(np.ravel(model.coef_), last[:-1, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, last[-1], rtol=1e-9, atol=1e-12)
    mean = learned.losses[0] / learned.losses[1]
    assert model.progressive_loss_ == pytest.approx(mean, rel=1e-9)
    z = rows @ np.ravel(model.coef_) + model.intercept_ + offset
    expected = model.classes_[(z > 0) * 1] if record.is_classification else record.inverse_link(z)
    np.testing.assert_allclose(model.predict(rows, offset), expected, rtol=1e-5)


def test_what_an_offset_is_not_for_changes_nothing() -> None:
    X, _, ranks = data(8)
    for model, message in (
        (FTRLClassifier().fit(X, ranks % 3), "an offset needs two classes, but there are 3"),
        (FTRLRegressor().fit(X, ranks), "offset must have a number for each of 24 samples"),
    ):
        before = state_of(model)
        for call in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=message):
                call(X, ranks % 3, offset=np.zeros(24 if model.coef_.ndim > 1 else 23))
        for key, value in before.items():
            np.testing.assert_array_equal(value, getattr(model, key))


def test_held_out_samples_are_scored_with_their_offset() -> None:
    X, _, _ = data(10, 200)
    offset = np.random.default_rng(0).uniform(-9, 9, 200)
    told: list[float] = []
    options: dict[str, Any] = {"early_stopping": True, "max_iter": 40}
    model = FTRLRegressor(**options, callback=lambda record: told.append(record["score"]))
    model.fit(X, X[:, 0] + offset, offset=offset)
    assert told[-1] > 0.9


def test_hashed_samples_are_held_out() -> None:
    rows = [{"a": float(k % 2), str(k % 5): 1.0} for k in range(40)]
    y = np.arange(40) % 2
    told: list[dict[str, Any]] = []
    model = FTRLClassifier(n_hashes=32, early_stopping=True, callback=told.append, max_iter=30)
    assert model.fit(rows, y).n_iter_ < 30 and told[-1]["score"] == 1.0
