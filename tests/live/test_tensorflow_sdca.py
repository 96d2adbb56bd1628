"""SDCA's ops against TensorFlow itself: random calls, optima, what both refuse, differences.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from golden.sdca import LOSSES, Call, check_close, drawn
from golden.with_tensorflow import required_tensorflow, sdca_optimizer

import tfopt
from tfopt.kernels.linear.visits import sampled

tf = required_tensorflow()

CASES = 25  # of each loss
SPARSE = (
    "sparse_example_indices", "sparse_feature_indices", "sparse_feature_values", "sparse_indices",
    "sparse_weights",
)  # fmt: skip
each_loss = pytest.mark.parametrize("loss", LOSSES)


@cache
def answered(loss: str) -> list[tuple[Call, list[np.ndarray]]]:
    """Return calls with TensorFlow's answers."""
    made = []
    for number in range(CASES):
        call = drawn(loss, number)
        state, sparse, dense = sdca_optimizer(**call.arguments)
        made.append((call, [state, *sparse, *dense]))
    return made


@each_loss
def test_answers(either: Any, loss: str) -> None:
    for call, answers in answered(loss):
        check_close(either.raw_ops.SdcaOptimizerV2(**call.arguments), answers)


@each_loss
def test_the_first_version_spells_a_flag_differently(either: Any, loss: str) -> None:
    call = drawn(loss, 1)
    flag = {"adaptative": call.arguments["adaptive"]}
    given = {name: value for name, value in call.arguments.items() if name != "adaptive"}
    theirs = sdca_optimizer(**call.arguments)
    check_close(either.raw_ops.SdcaOptimizer(**given, **flag), [theirs[0], *theirs[1], *theirs[2]])


def joined(loss: str, adaptive: bool = False) -> dict[str, Any]:
    """Return a call of three examples that share their features."""
    labels = {"squared_loss": [1.5, -2, 0.3], "poisson_loss": [3, 0, 1]}.get(loss, [1, 0, 0])
    return {
        "sparse_example_indices": [np.array([0, 1, 1, 2])],
        "sparse_feature_indices": [np.array([4, 4, 9, 9])],
        "sparse_feature_values": [np.array([1, -0.5, 2, 1], np.float32)],
        "dense_features": [np.array([[1, 0.5], [0.8, -1], [0.3, 1]], np.float32)],
        "example_weights": np.array([1, 2, 0.5], np.float32),
        "example_labels": np.array(labels, np.float32),
        "sparse_indices": [np.array([4, 9])],
        "sparse_weights": [np.array([0.1, -0.2], np.float32)],
        "dense_weights": [np.array([0.05, 0.3], np.float32)],
        "example_state_data": np.zeros((3, 4), np.float32),
        "loss_type": loss,
        "l1": 0.05,
        "l2": 1.0,
        "num_loss_partitions": 1,
        "num_inner_iterations": 1,
        "adaptive": adaptive,
    }


@each_loss
def test_examples_that_share_features(either: Any, loss: str) -> None:
    """TensorFlow's order is its own; its result is ours for one of the six."""
    arguments = joined(loss)
    ours = [
        either.sdca_ops.sdca_optimizer(**arguments, order=order) for order in permutations(range(3))
    ]
    for _ in range(4):
        state, sparse, dense = sdca_optimizer(**arguments)
        matching = [
            np.allclose(np.concatenate([d.ravel() for d in (state, *sparse, *dense)]),
                        np.concatenate([d.ravel() for d in (r[0], *r[1], *r[2])]), rtol=2e-5,
                        atol=1e-6)
            for r in ours
        ]  # fmt: skip
        assert any(matching)


@pytest.mark.parametrize("strings", [[], ["abc"], [b"\0", "naïve ☃".encode(), b"a" * 1000]])
def test_fingerprints(strings: list[Any]) -> None:
    theirs = tf.raw_ops.SdcaFprint(input=tf.constant(strings, tf.string)).numpy()
    np.testing.assert_array_equal(tfopt.raw_ops.SdcaFprint(input=strings), theirs)


def test_many_fingerprints() -> None:
    random = np.random.default_rng(0)
    strings = [random.bytes(int(n)) for n in random.integers(0, 600, 3000)]
    theirs = tf.raw_ops.SdcaFprint(input=strings).numpy()
    np.testing.assert_array_equal(tfopt.sdca_ops.sdca_fprint(strings), theirs)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 1.0), (0.3, 1.0), (1.0, 3.0), (1e30, 1.0)])
def test_shrinking(either: Any, l1: float, l2: float) -> None:
    """In a graph with variables of TensorFlow's first version: there is no other form."""
    values = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    values[0] = [0.0, -0.0, np.nan]
    values[1, :2] = [np.inf, -np.inf]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.Variable(values, use_resource=False)
        session.run(variable.initializer)
        session.run(tf.raw_ops.SdcaShrinkL1(weights=[variable], l1=l1, l2=l2))
        theirs = session.run(variable)
    ours = values.copy()
    either.raw_ops.SdcaShrinkL1(weights=[ours], l1=l1, l2=l2)
    np.testing.assert_array_equal(ours, theirs)


# ---- what both refuse

REFUSED = {
    "no features": {name: [] for name in (*SPARSE, "dense_features", "dense_weights")},
    "partitions": {"num_loss_partitions": 0},
    "iterations": {"num_inner_iterations": 0},
    "labels": {"example_labels": np.zeros(2, np.float32)},
    "label": {"example_labels": np.array([0, 2, 1], np.float32)},
    "dense rank": {"dense_features": [np.zeros(3, np.float32)]},
    "wide": {"dense_features": [np.zeros((3, 3), np.float32)]},
    "ids": {"sparse_feature_indices": [np.array([4, 4, 9])]},
    "unknown id": {"sparse_feature_indices": [np.array([4, 4, 9, 5])]},
    "id twice": {"sparse_feature_indices": [np.array([4, 9, 9, 9])]},
    "state rank": {"example_state_data": np.zeros(4, np.float32)},
    "state shape": {"example_state_data": np.zeros((2, 4), np.float32)},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    arguments = joined("logistic_loss") | REFUSED[name]
    with pytest.raises(tfopt.InvalidArgumentError) as ours:
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as theirs:
        sdca_optimizer(**arguments)
    words = re.split(": 9 of|: 4 vs", str(ours.value))[0]  # then TensorFlow says more, or less
    assert words.rstrip(".") in str(theirs.value)


def test_refused_label_of_poisson() -> None:
    arguments = joined("poisson_loss") | {"example_labels": np.array([0, -1, 1], np.float32)}
    with pytest.raises(tfopt.InvalidArgumentError) as ours:
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)
    with pytest.raises(tf.errors.InvalidArgumentError) as theirs:
        sdca_optimizer(**arguments)
    assert str(ours.value) in str(theirs.value)


# ---- what TensorFlow does where ours is another


def only_dense(loss: str, x: Any, y: Any, v: Any, **changed: Any) -> dict[str, Any]:
    x = np.asarray(x, np.float32)
    return {
        **{name: [] for name in SPARSE},
        "dense_features": [x],
        "example_weights": np.ones(len(x), np.float32),
        "example_labels": np.asarray(y, np.float32),
        "dense_weights": [np.asarray(v, np.float32)],
        "example_state_data": np.zeros((len(x), 4), np.float32),
        "loss_type": loss, "l1": 0.0, "l2": 1.0,
        "num_loss_partitions": 1, "num_inner_iterations": 1, "adaptive": False,
    } | changed  # fmt: skip


def test_tensorflows_poisson_step_may_diverge(either: Any) -> None:
    arguments = only_dense("poisson_loss", [[1.0]], [3], [100.0])
    assert sdca_optimizer(**arguments)[0][0, 0] < -1e6
    ours = either.raw_ops.SdcaOptimizerV2(**arguments).out_example_state_data[0, 0]
    assert ours == pytest.approx(-95.4108, abs=1e-4)


def test_tensorflow_fills_adaptive_plans_with_the_first_example(either: Any) -> None:
    y = np.full(10, 1e-3)
    y[7] = 1e3
    arguments = only_dense("squared_loss", np.eye(10), y, np.zeros(10), adaptive=True)
    for _ in range(3):
        assert set(np.flatnonzero(sdca_optimizer(**arguments)[0][:, 3])) == {0, 7}
    ours = either.raw_ops.SdcaOptimizerV2(**arguments).out_example_state_data
    assert (ours[:, 3] > 0).sum() >= 8


def test_adaptive_plans_reach_the_optimum_as_tensorflows_do(either: Any) -> None:
    for optimizer in (sdca_optimizer, either.raw_ops.SdcaOptimizerV2):
        state, v = np.zeros((3, 4), np.float32), [np.zeros(2, np.float32), np.zeros(2, np.float32)]
        for _ in range(60):
            changed = {"example_state_data": state, "sparse_weights": v[:1], "dense_weights": v[1:]}
            state, sparse, dense = optimizer(**joined("squared_loss", True) | changed)
            v = [a + b for a, b in zip(v, [*sparse, *dense], strict=True)]
        if optimizer is sdca_optimizer:
            expected = v
    for ours, theirs in zip(v, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "nonfinite"),
    [
        ({"l2": 0.0}, True),
        ({"l2": -1.0}, False),
        ({"l1": -0.1}, False),
        ({"example_weights": np.array([np.nan], np.float32)}, True),
        ({"example_weights": np.array([-1], np.float32)}, False),
        ({"example_labels": np.array([np.nan], np.float32)}, True),
        ({"dense_features": [np.array([[np.nan]], np.float32)]}, True),
        ({"example_state_data": np.array([[np.nan, 0, 0, 0]], np.float32)}, True),
    ],
)
def test_tensorflow_accepts(changed: dict[str, Any], nonfinite: bool) -> None:
    arguments = only_dense("squared_loss", [[2.0]], [1], [0.5]) | changed
    state, _, _ = sdca_optimizer(**arguments)
    assert np.isnan(state[0, 0]) == nonfinite
    with pytest.raises(tfopt.InvalidArgumentError):
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)


@pytest.mark.parametrize(
    ("loss", "a"), [("hinge_loss", 1.5), ("logistic_loss", -0.5), ("poisson_loss", 2.0)]
)
def test_tensorflow_accepts_dual_variables_that_cannot_be(loss: str, a: float) -> None:
    state = np.array([[a, 0, 0, 0]], np.float32)
    arguments = only_dense(loss, [[2.0]], [1], [0.5], example_state_data=state)
    assert np.isfinite(sdca_optimizer(**arguments)[0][0, 0])
    with pytest.raises(tfopt.InvalidArgumentError, match="outside the domain"):
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)


@pytest.mark.parametrize("entries", [[1, 0], [-1, 0], [0, 7]])
def test_tensorflow_drops_entries_out_of_order(entries: list[int]) -> None:
    arguments = joined("squared_loss") | {
        "sparse_example_indices": [np.array(entries)],
        "sparse_feature_indices": [np.array([4, 9])],
        "sparse_feature_values": [np.ones(2, np.float32)],
    }
    _, (sparse,), _ = sdca_optimizer(**arguments)
    assert (sparse == 0).any()
    with pytest.raises(tfopt.InvalidArgumentError, match="must ascend"):
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)


def test_tensorflow_takes_the_last_of_repeated_ids() -> None:
    arguments = joined("squared_loss") | {
        "sparse_indices": [np.array([4, 9, 9])],
        "sparse_weights": [np.zeros(3, np.float32)],
    }
    _, (sparse,), _ = sdca_optimizer(**arguments)
    assert sparse[1] == 0 and sparse[2] != 0
    with pytest.raises(tfopt.InvalidArgumentError, match="contains 9 twice"):
        tfopt.raw_ops.SdcaOptimizerV2(**arguments)


def test_tensorflow_truncates_a_fraction_of_partitions() -> None:
    arguments = only_dense("squared_loss", [[2.0]], [1], [0.5])
    expected = sdca_optimizer(**arguments)[0]
    np.testing.assert_array_equal(sdca_optimizer(**arguments | {"num_loss_partitions": 1.5})[0],
                                  expected)  # fmt: skip
    with pytest.raises(tfopt.InvalidTypeError):
        tfopt.raw_ops.SdcaOptimizerV2(**arguments | {"num_loss_partitions": 1.5})


def test_tensorflow_writes_into_the_state_it_is_given() -> None:
    arguments = only_dense("squared_loss", [[2.0]], [1], [0.5])
    tensors = {
        name: [tf.constant(a) for a in value] if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    tensors["example_state_data"] = tf.constant(arguments["example_state_data"])
    tf.raw_ops.SdcaOptimizerV2(**tensors)
    assert tensors["example_state_data"].numpy().any()
    tfopt.raw_ops.SdcaOptimizerV2(**arguments)
    assert not arguments["example_state_data"].any()


def test_tensorflow_has_no_number_for_a_hinge_without_weight_at_its_corner(
    either: Any,
) -> None:
    weightless = {"example_weights": np.zeros(1, np.float32)}
    arguments = only_dense("hinge_loss", [[1.0]], [1], [1.0]) | weightless
    assert np.isnan(sdca_optimizer(**arguments)[0][0, 0])
    state, _, (delta,) = either.raw_ops.SdcaOptimizerV2(**arguments)
    assert state[0, 0] == 0 and delta == [0]


def test_tensorflow_has_an_infinite_dual_variable(either: Any) -> None:
    weightless = {"example_weights": np.zeros(1, np.float32)}
    arguments = only_dense("poisson_loss", [[1.0]], [1], [800.0]) | weightless
    assert not np.isfinite(sdca_optimizer(**arguments)[0][0, 0])
    assert np.isfinite(either.raw_ops.SdcaOptimizerV2(**arguments)[0][0, 0])


def test_rare_plans_are_filled_by_importance() -> None:
    """What TensorFlow's code means to do, and its results show it does not."""
    plan = sampled(np.array([1e-12, 3e-12, 1.0, 2e-12, 4e-12]), 0, 0)
    assert [i for i in plan if i != 2] == [4, 1, 3, 0][: 5 - list(plan).count(2)]
