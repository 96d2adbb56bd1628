"""Samples of a class without weight count as if they were not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfopt.linear_model import SDCAClassifier, SDCAClassifierCV

LABELS = np.array(["a", "b", "c", "d"])


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((160, 4))
    y = LABELS[(X + random.standard_normal(X.shape) / 2).argmax(axis=1)]
    return X, y, random.choice([0.5, 1.0, 2.0], 160)


def assert_same(model: Any, expected: Any, X: np.ndarray) -> None:
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-4)
    np.testing.assert_allclose(model.objective_, expected.objective_, rtol=1e-8)
    assert (model.predict(X) == expected.predict(X)).mean() > 0.98
    assert set(model.predict(X)) <= {*model.classes_.tolist()}


@pytest.mark.parametrize("without", ["a", "c", "ad"])
@pytest.mark.parametrize("how", ["sample_weight", "class_weight", "balanced"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "blocks"),
    [
        (loss, blocks)
        for loss in SDCAClassifier._LOSSES
        for blocks in (False, True)
        if not blocks or loss != "multinomial"  # which has none
    ],
)
def test_a_class_without_weight_is_left_out(
    loss: str, blocks: bool, intercept: bool, how: str, without: str
) -> None:
    X, y, weight = data()
    kept = ~np.isin(y, list(without))
    options: dict[str, Any] = {"tol": 1e-8, "max_iter": 3000, "fit_intercept": intercept}
    if loss == "hinge":
        options |= {"l2": 10.0, "tol": 1e-9}
    sizes = {"num_loss_partitions": [80, 80]} if blocks else {}
    fewer = {"num_loss_partitions": [int(kept[:80].sum()), int(kept[80:].sum())]} if blocks else {}
    more: dict[str, Any] = {"class_weight": "balanced"} if how == "balanced" else {}
    expected = SDCAClassifier(loss, **options, **fewer, **more).fit(X[kept], y[kept], weight[kept])
    if how == "class_weight":
        more = {"class_weight": {**dict.fromkeys(LABELS, 1.0), **dict.fromkeys(without, 0.0)}}
    else:
        weight = weight * kept
    assert_same(SDCAClassifier(loss, **options, **sizes, **more).fit(X, y, weight), expected, X)


def test_penalties_are_chosen_without_it() -> None:
    X, y, weight = data()
    model = SDCAClassifierCV(l2s=[10.0, 0.1]).fit(X, y, weight * (y != "b"))
    assert model.classes_.tolist() == ["a", "c", "d"] and model.coef_.shape == (3, 4)


def test_one_class_with_weight_is_refused() -> None:
    X, y, weight = data()
    model = SDCAClassifier()
    with pytest.raises(ValueError, match=r"at least 2 classes with weight, got one class: \['a'\]"):
        model.fit(X, y, weight * (y == "a"))
    assert not hasattr(model, "classes_")
