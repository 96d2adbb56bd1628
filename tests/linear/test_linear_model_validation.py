"""What the estimators check themselves is what scikit-learn's validation would say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tfopt.linear_model import FTRLRegressor, SDCAClassifier, SDCARegressor
from tfopt.linear_model.validation import class_labels

#: Values that a check may refuse, or whose sum overflows.
VALUES = st.sampled_from([0.0, 1.0, -2.5, 1e308, np.inf, np.nan])
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "swapped": lambda X: X.astype(X.dtype.newbyteorder()),
    "list": lambda X: X.tolist(),
    "matrix": sparse.csr_matrix,
    "array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "csc array": sparse.csc_array,
    "coo": sparse.coo_matrix,
    "coo array": sparse.coo_array,
    "one-dimensional": lambda X: X.ravel(),
}
#: Of these, what SciPy does not make of float16.
SPARSE = ("matrix", "array", "csc", "csc array", "coo", "coo array")


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or what it raises, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (TypeError, ValueError) as error:
            return type(error), str(error)
    return result, [(each.category, str(each.message)) for each in caught]


def parts(X: Any) -> list[np.ndarray]:
    return [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([np.float64, np.float32, np.int64, np.complex128, np.float16]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.lists(VALUES, min_size=6, max_size=6),
    st.sampled_from([None, [0.0, 1.0, 2.0], [0.0, np.nan, 1.0], ["a", "b", "c"], [1, 0, 1]]),
    st.sampled_from([SDCAClassifier(), SDCARegressor(), FTRLRegressor()]),
)
@example("csc", np.float64, 1, 1, [0.0] * 6, [0.0, 1.0, 2.0], SDCAClassifier())
def test_data_are_refused_or_passed_as_by_scikit_learn(
    kind: str, dtype: Any, n: int, d: int, values: list[float], labels: Any, model: Any
) -> None:
    assume(dtype is not np.float16 or kind not in SPARSE)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = np.nan_to_num(values) if dtype is np.int64 else np.array(values)
        X = KINDS[kind](numbers.astype(dtype)[: n * d].reshape(n, d))
    y = labels if labels is None else np.array(labels)[:n]
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
    names = ["one", "two"]
    model.feature_names_in_ = np.array(names)
    ours = outcome(lambda: model._validate_features(X, reset=True, y=y, order="C"))
    found = dict(vars(model))
    model.feature_names_in_ = np.array(names)
    theirs = outcome(lambda: validate_data(model, X, y, reset=True, **options))
    assert found.keys() == vars(model).keys()
    assert str(ours[1]) == str(theirs[1])
    if isinstance(theirs[0], type):
        assert ours[0] is theirs[0]
        return
    assert found["n_features_in_"] == model.n_features_in_
    assert type(ours[0][0]) is type(theirs[0][0])
    assert (ours[0][0] is X) == (theirs[0][0] is X)
    for mine, other in zip(parts(ours[0][0]), parts(theirs[0][0]), strict=True):
        assert mine.dtype == other.dtype and mine.tobytes() == other.tobytes()
    np.testing.assert_array_equal(ours[0][1], theirs[0][1])


LABELS = st.one_of(
    st.lists(st.integers(-2, 3)),
    st.lists(st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.5, 1e19, 2.0**53])),
    st.lists(st.sampled_from("abc")),
    st.lists(st.booleans()),
    st.lists(st.sampled_from(["x", 1, None, "y"])),
    st.lists(st.sampled_from([b"p", b"q"])),
)


@given(LABELS, st.booleans(), st.integers(1, 8))
def test_classes_are_refused_or_found_as_by_scikit_learn(
    labels: list[Any], as_objects: bool, times: int
) -> None:
    y = np.array(labels * times, object if as_objects else None)

    def by_scikit_learn() -> np.ndarray:
        check_classification_targets(y)
        return np.unique(y)

    ours, theirs = outcome(lambda: class_labels(y)), outcome(by_scikit_learn)
    assert str(ours[1]) == str(theirs[1])
    if isinstance(theirs[0], type):
        assert ours[0] is theirs[0]
    else:
        assert ours[0].dtype == theirs[0].dtype and ours[0].tolist() == theirs[0].tolist()


@pytest.mark.parametrize("options", [{}, {"solver": "sdca"}, {"l1": 1.0}])
def test_a_callback_has_its_callers_error_state(options: dict[str, Any]) -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    states: list[Any] = []
    with np.errstate(over="raise", divide="print"):
        before = np.geterr()
        model = SDCAClassifier(callback=lambda record: states.append(np.geterr()), **options)
        model.fit(X, X[:, 0] > 0)
    assert states and all(state == before for state in states)
