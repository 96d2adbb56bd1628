"""The names of the linear models: the earlier ones are the same classes, and their models load."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tfopt import linear_model
from tfopt.linear_model import (
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    from_json,
    to_json,
)

X = np.random.default_rng(0).standard_normal((30, 3))
KINDS = (LinearClassifier, LinearRegressor, LinearClassifierCV, LinearRegressorCV)
#: Of the classes that have moved.
EARLIER_MODULES = {
    "tfopt.linear_model.classifier": "tfopt.linear_model.sdca_classifier",
    "tfopt.linear_model.regressor": "tfopt.linear_model.sdca_regressor",
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def earlier(kind: type) -> str:
    return kind.__name__.replace("Linear", "SDCA")


@each_kind
def test_an_earlier_name_is_the_same_class(kind: Any) -> None:
    assert getattr(linear_model, earlier(kind)) is kind
    assert repr(kind()) == f"{kind.__name__}()"


@each_kind
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_earlier_versions_load(kind: Any, protocol: int) -> None:
    model, name, module = kind(l1=0.5).fit(X, X[:, 0] > 0), kind.__name__, kind.__module__
    kind.__name__ = kind.__qualname__ = earlier(kind)
    kind.__module__ = EARLIER_MODULES.get(module, module)
    try:
        text = pickle.dumps(model, protocol)
    finally:
        kind.__name__ = kind.__qualname__ = name
        kind.__module__ = module
    assert earlier(kind).encode() in text and b"Linear" not in text
    again = pickle.loads(text)
    assert type(again) is kind and again.l1 == 0.5
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@each_kind
def test_documents_of_earlier_versions_have_their_parameters(kind: Any) -> None:
    model = kind(max_iter=77, tol=1e-3).fit(X, X[:, 0] > 0)
    text = to_json(model)
    assert kind.__name__ in text
    for document in (text, text.replace(kind.__name__, earlier(kind))):
        again: Any = from_json(document)
        assert type(again) is (
            LinearClassifier if "Classifier" in kind.__name__ else LinearRegressor
        )
        assert (again.max_iter, again.tol) == (77, 1e-3)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
