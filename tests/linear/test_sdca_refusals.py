"""What SDCA's ops refuse: with which error and message, and that nothing has been changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.sdca_cases import arrays_in

import tfopt

INVALID, TYPE = "InvalidArgumentError", "InvalidTypeError"
INF, NAN = np.inf, np.nan


def arguments(loss: str = "logistic_loss") -> dict[str, Any]:
    """Return a call of three examples that is in order."""
    return {
        "sparse_example_indices": [np.array([0, 0, 2])],
        "sparse_feature_indices": [np.array([7, 3, 7])],
        "sparse_feature_values": [np.array([1.0, 2, 3], np.float32)],
        "dense_features": [np.ones((3, 2), np.float32)],
        "example_weights": np.ones(3, np.float32),
        "example_labels": np.array([0, 1, 1], np.float32),
        "sparse_indices": [np.array([3, 7])],
        "sparse_weights": [np.array([0.5, -1], np.float32)],
        "dense_weights": [np.zeros(2, np.float32)],
        "example_state_data": np.zeros((3, 4), np.float32),
        "loss_type": loss,
        "l1": 0.1,
        "l2": 1.0,
        "num_loss_partitions": 1,
        "num_inner_iterations": 1,
    }


Change = Callable[[dict[str, Any]], dict[str, Any]]


def having(**changed: Any) -> Change:
    """Return other values of whole arguments."""
    return lambda given: changed


def first(name: str, value: Any) -> Change:
    """Return another first member of a list."""
    return lambda given: {name: [value]}


def entry(name: str, at: Any, value: float, **changed: Any) -> Change:
    """Return an array, or the first of a list, with another element."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        array = given[name][0] if isinstance(given[name], list) else given[name]
        array[at] = value
        return changed

    return change


NONE_ALLOWED = {
    name: []
    for name in ("sparse_example_indices", "sparse_feature_indices", "sparse_feature_values",
                 "dense_features", "sparse_indices", "sparse_weights", "dense_weights")
}  # fmt: skip
LABELS = "Only labels of 0.0 or 1.0 are supported right now. Found example with label: "
POISSON = "Only non-negative labels can be used with the Poisson log loss. Found example with label"
DUAL = "outside the domain of the dual variable of"

SETTINGS = [
    ("loss", having(loss_type="foo"), INVALID,
     "Value for attr 'loss_type' of 'foo' is not in the list of allowed values: \"logistic_loss\", "
     '"squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss"'),
    ("partitions", having(num_loss_partitions=0), INVALID,
     "Value for attr 'num_loss_partitions' of 0 must be at least minimum 1"),
    ("many partitions", having(num_loss_partitions=2**40), INVALID,
     "Attr num_loss_partitions has value 1099511627776 out of range for an int32"),
    ("str partitions", having(num_loss_partitions="2"), TYPE,
     "Expected int for argument 'num_loss_partitions' not '2'."),
    ("float partitions", having(num_loss_partitions=1.5), TYPE, "Expected int"),
    ("iterations", having(num_inner_iterations=0), INVALID,
     "Value for attr 'num_inner_iterations' of 0 must be at least minimum 1"),
    *((f"l1 {x}", having(l1=x), INVALID, "l1 must be a number that is at least 0")
      for x in (-0.1, NAN, INF, 1e300, 10**400)),
    *((f"l2 {x}", having(l2=x), INVALID, "l2 must be a number greater than 0")
      for x in (0, -1, NAN, INF, 1e-300)),
    ("str l1", having(l1="1"), TYPE, "Expected float for argument 'l1' not '1'."),
    ("None l2", having(l2=None), TYPE, "Expected float for argument 'l2' not None."),
    ("dtype", having(dtype=np.float16), TYPE, "dtype must be float32 or float64, not float16"),
    ("threads", having(num_threads=0), INVALID, "Value for attr 'num_threads' of 0"),
    ("seed", having(seed=1.5), TYPE, "seed must be an integer, not 1.5"),
    ("negative seed", having(seed=-1), INVALID, "seed must be from 0 to 2**64 - 1, not -1"),
    ("order and seed", having(seed=1, order=[0]), INVALID, "pass either order or seed, not both"),
    ("order too far", having(order=[0, 3]), INVALID, "order must contain examples from 0 to 2"),
    ("negative order", having(order=[-1]), INVALID, "order must contain examples"),
    ("float order", having(order=[0.0]), TYPE, "order must be integers, not float64"),
    ("order of rank 2", having(order=[[0]]), INVALID, "order must be a vector, got shape [1,1]"),
]  # fmt: skip
SHAPES = [
    ("no features", having(**NONE_ALLOWED), INVALID, "Requires at least one feature to train."),
    ("no list", having(dense_features=np.ones((1, 3, 2))), TYPE,
     "dense_features must be a list of arrays, not ndarray"),
    ("more ids than groups", having(sparse_feature_indices=[[0], [0]]), INVALID,
     "1 sparse_example_indices, but 2 sparse_feature_indices"),
    ("no weights of a group", having(sparse_weights=[]), INVALID,
     "1 sparse_example_indices, but 0 sparse_weights"),
    ("no dense weights", having(dense_weights=[]), INVALID,
     "1 dense_features, but 0 dense_weights"),
    ("more values than groups", having(sparse_feature_values=[[1.0] * 3] * 2), INVALID,
     "2 sparse_feature_values for 1 sparse features"),
    ("labels", having(example_labels=[0, 1]), INVALID, "Expected 3 example labels but got 2"),
    ("dense rank", first("dense_features", np.ones(3)), INVALID,
     "Dense features at index 0 must be rank 2 but is rank 1"),
    ("few dense rows", first("dense_features", np.ones((2, 2))), INVALID,
     "dense_features[0] has 2 rows for 3 examples"),
    ("many dense rows", first("dense_features", np.ones((4, 2))), INVALID, "has 4 rows for 3"),
    ("wide", first("dense_features", np.ones((3, 3))), INVALID,
     "More dense features than we have parameters for: 3"),
    ("empty", first("dense_features", np.ones((3, 0))), INVALID,
     "More dense features than we have parameters for: 0"),
    ("narrow", first("dense_features", np.ones((3, 1))), INVALID,
     "dense_features[0] has 1 columns, but dense_weights[0] has 2 elements"),
    ("ids", first("sparse_feature_indices", [7, 3]), INVALID,
     "Found mismatched example_indices and feature_indices: 3 vs 2"),
    ("few values", first("sparse_feature_values", [1.0]), INVALID,
     "sparse_feature_values[0] has 1 elements for 3 indices"),
    ("many values", first("sparse_feature_values", [1.0] * 4), INVALID, "has 4 elements for 3"),
    ("few weights", first("sparse_weights", [1.0]), INVALID,
     "sparse_indices[0] has 2 elements, but sparse_weights[0] has 1"),
    ("many weights", first("sparse_weights", [1.0] * 3), INVALID, "but sparse_weights[0] has 3"),
    ("state rank", having(example_state_data=np.zeros(4)), INVALID,
     "example_state_data must be rank 2 but is rank 1"),
    ("state shape", having(example_state_data=np.zeros((2, 4))), INVALID,
     "Expected shape [3,4] for example_state_data, got [2,4]"),
    ("state width", having(example_state_data=np.zeros((3, 3))), INVALID, "got [3,3]"),
    ("ragged", having(example_weights=[[1], [1, 2]]), INVALID, "example_weights: "),
]  # fmt: skip
INDICES = [
    ("an example after the last", entry("sparse_example_indices", 2, 3), INVALID,
     "sparse_example_indices[0] must ascend within 0 to 2, but element 2 is 3"),
    ("a negative example", entry("sparse_example_indices", 0, -1), INVALID, "element 0 is -1"),
    ("examples that descend", entry("sparse_example_indices", 0, 1), INVALID, "element 1 is 0"),
    ("unknown id", entry("sparse_feature_indices", 2, 4), INVALID,
     "Found sparse feature indices out of valid range: 4"),
    ("negative id", entry("sparse_feature_indices", 2, -3), INVALID, "valid range: -3"),
    ("id after those that ascend", lambda given: {
        "sparse_indices": [np.array([6, 7])], "sparse_feature_indices": [np.array([6, 7, 8])]},
     INVALID, "valid range: 8"),
    ("id before those that ascend", lambda given: {
        "sparse_indices": [np.array([6, 7])], "sparse_feature_indices": [np.array([6, 7, 5])]},
     INVALID, "valid range: 5"),
    ("id twice", entry("sparse_feature_indices", 1, 7), INVALID,
     "Duplicate index in sparse vector: 7 of example 0"),
    ("listed id twice", entry("sparse_indices", 0, 7), INVALID,
     "sparse_indices[0] contains 7 twice"),
    ("float ids", first("sparse_feature_indices", [7.0, 3.0, 7.0]), TYPE,
     "sparse_feature_indices[0] must be integers that fit in int64, not float64"),
    ("unsigned ids", first("sparse_feature_indices", np.array([7, 3, 7], np.uint64)), TYPE,
     "not uint64"),
    ("str ids", first("sparse_indices", ["a", "b"]), TYPE, "sparse_indices[0] must be integers"),
    ("None", first("sparse_example_indices", None), TYPE, "sparse_example_indices[0] must be a"),
]  # fmt: skip
NUMBERS = [
    *((f"{value} in {name}", entry(name, at, value, loss_type="squared_loss"), INVALID, message)
      for value in (NAN, INF)
      for name, at, message in (
          ("sparse_feature_values", 1,
           f"sparse_feature_values[0] must be finite, but element 1 is {value}"),
          ("dense_features", (2, 0), "dense_features[0] must be finite, but element 4 is"),
          ("example_weights", 2, "example_weights must be finite"),
          ("example_labels", 2, "example_labels must be finite"),
          ("sparse_weights", 0, "sparse_weights[0] must be finite"),
          ("dense_weights", 1, "dense_weights[0] must be finite"),
          ("example_state_data", (1, 0), "the dual variables in example_state_data must be"),
      )),
    ("float64 beyond float32", having(dense_weights=[np.array([1e300, 0])]), INVALID,
     "dense_weights[0] must be finite, but element 0 is 1e+300"),
    ("str numbers", having(example_weights=["a"] * 3), TYPE, "example_weights must be real"),
    ("complex numbers", having(example_labels=[1j] * 3), TYPE, "example_labels must be real"),
    ("masked numbers", having(example_labels=np.ma.masked_array(np.ones(3))), TYPE, "mask"),
    ("negative weight", entry("example_weights", 1, -0.5), INVALID,
     "example_weights must not be negative: -0.5"),
    ("squares beyond float64", having(
        dense_features=[np.full((3, 2), 1e200)], dtype=np.float64), INVALID,
     "the sum of squared feature values overflows"),
    ("predictions beyond float64", having(
        dense_features=[np.full((3, 2), 1e150)], dense_weights=[np.full(2, 1e200)],
        dtype=np.float64), INVALID, "the predictions are too large for float64"),
]  # fmt: skip
LOSSES = [
    *((f"label {text} of {loss}", entry("example_labels", 2, value, loss_type=loss), INVALID,
       LABELS + text)
      for loss in ("logistic_loss", "hinge_loss", "smooth_hinge_loss")
      for value, text in ((0.5, "0.5"), (2, "2"), (-1, "-1"))),
    ("label -1 of poisson_loss", entry("example_labels", 2, -1, loss_type="poisson_loss"), INVALID,
     f"{POISSON}: -1"),
    *((f"dual {a} of {loss}", entry("example_state_data", (at, 0), a, loss_type=loss), INVALID,
       f"example_state_data[{at},0] is {a:g}, {DUAL} {loss} for an example with the "
       f"label {label}")
      for loss in ("logistic_loss", "hinge_loss", "smooth_hinge_loss")
      for at, a, label in ((0, 0.5, 0), (0, -1.5, 0), (1, -0.5, 1), (2, 1.5, 1))),
    ("dual of poisson_loss", entry("example_state_data", (1, 0), 1.5, loss_type="poisson_loss"),
     INVALID, f"example_state_data[1,0] is 1.5, {DUAL} poisson_loss"),
]  # fmt: skip
GROUPS = {
    "setting": SETTINGS, "shape": SHAPES, "index": INDICES, "number": NUMBERS, "loss": LOSSES,
}  # fmt: skip
CASES = [
    pytest.param(change, error, message, id=f"{group}-{name}")
    for group, cases in GROUPS.items()
    for name, change, error, message in cases
]


@pytest.mark.parametrize(("change", "error", "message"), CASES)
def test_refused(change: Change, error: str, message: str) -> None:
    given = arguments()
    given |= change(given)
    arrays = arrays_in(given)
    before = [array.tobytes() for array in arrays]
    with pytest.raises(getattr(tfopt, error), match=re.escape(message)) as caught:
        tfopt.sdca_ops.sdca_optimizer(**given)
    assert type(caught.value).__name__ == error
    assert [array.tobytes() for array in arrays] == before


def test_what_the_refusals_spoil_is_in_order() -> None:
    for loss in ("logistic_loss", "squared_loss", "hinge_loss", "poisson_loss"):
        tfopt.sdca_ops.sdca_optimizer(**arguments(loss))


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


W = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("make", "l1", "l2", "error", "message"),
    [
        (lambda w: w, 1, 1, TYPE, "weights must be a list of arrays, not ndarray"),
        (lambda w: [w], 1, 0, INVALID, "l2 must be a number greater than 0"),
        (lambda w: [w], -1, 1, INVALID, "l1 must be a number that is at least 0"),
        (lambda w: [], NAN, 1, INVALID, "l1 must be a number"),
        (lambda w: [w, [1.0]], 1, 1, TYPE, "weights[1] must be a numpy.ndarray"),
        (lambda w: [w, np.arange(3)], 1, 1, TYPE, "weights[1] must be float32 or float64"),
        (lambda w: [w, read_only(np.ones(3))], 1, 1, INVALID, "weights is read-only"),
        (lambda w: [w, w[2:4]], 1, 1, INVALID, "weights overlap in memory"),
    ],
)
def test_shrinking_refused(make: Any, l1: float, l2: float, error: str, message: str) -> None:
    weights = W.copy()
    with pytest.raises(getattr(tfopt, error), match=re.escape(message)) as caught:
        tfopt.sdca_ops.sdca_shrink_l1(make(weights), l1, l2)
    assert type(caught.value).__name__ == error
    assert weights.tobytes() == W.tobytes()
