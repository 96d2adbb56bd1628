"""SDCA's optimizer op: it equals its twin, and does what its description says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, TRIED, lay_out
from common.sdca_cases import LOSSES, arrays_in, call_of
from common.specified import SPECIFIED
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref

each_loss = pytest.mark.parametrize("loss", LOSSES)
SETTINGS = {"num_loss_partitions": 1, "num_inner_iterations": 1}


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    made = lay_out(array, layout) if layout in LAYOUTS else array.copy()
    made.flags.writeable = layout != "read-only"
    return made


def with_layout(arguments: dict[str, Any], layout: str, dtype: str) -> dict[str, Any]:
    """Return the arguments with all arrays laid out, and floats of a dtype."""

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return [made(member) for member in value]
        if not isinstance(value, np.ndarray):
            return value
        return laid_out(value.astype(dtype) if value.dtype.kind == "f" else value, layout)

    return {name: made(value) for name, value in arguments.items()}


def flat(result: Any) -> list[np.ndarray]:
    state, sparse, dense = result
    return [state, *sparse, *dense]


@pytest.mark.counted
@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "read-only"])
@given(data=st.data())
def test_twin(loss: str, dtype: str, layout: str, data: st.DataObject) -> None:
    """And nothing that is passed is changed."""
    index = data.draw(st.sampled_from(["int32", "int64"]))
    n = data.draw(st.sampled_from([0, 1, 2, 6]))
    arguments = call_of(loss, data.draw(st.integers(0, 2**32)), n=n, index=index)
    if dtype == "float32" and loss == "poisson_loss":  # a dual must be below its label
        arguments["example_state_data"] = np.float32(arguments["example_state_data"])
    options = {
        "adaptive": data.draw(st.booleans()),
        "seed": data.draw(st.none() | st.integers(0, 2**64 - 1)),
        "dtype": dtype,
    }
    results = []
    for package in (tfopt, SPECIFIED):
        given = with_layout(arguments, layout, dtype)
        before = [a.tobytes() for a in arrays_in(given)]
        results.append(package.sdca_ops.sdca_optimizer(**given, **options))
        assert [a.tobytes() for a in arrays_in(given)] == before
    for ours, theirs in zip(*map(flat, results), strict=True):
        assert ours.dtype == theirs.dtype == dtype and ours.shape == theirs.shape
        tolerance = 1e-12 if dtype == "float64" else 2.0**-23
        scale = np.abs(theirs).max() if theirs.size else 0.0
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=1e-12 * max(1.0, scale))
    TRIED["SdcaOptimizer", dtype, loss, layout] += 1


# ---- problems whose solution is known


def solve(
    either: Any, loss: str, rows: Any, labels: Any, *, l1: float = 0, l2: float = 1,
    weights: Any = None, rounds: int = 60, **options: Any,
) -> np.ndarray:  # fmt: skip
    """Return the shrunk weights of a dense problem."""
    n, width = np.shape(rows)
    state, v = np.zeros((n, 4)), np.zeros(width)
    for _ in range(rounds):
        state, _, (delta,) = either.sdca_ops.sdca_optimizer(
            [], [], [], [rows], np.ones(n) if weights is None else weights, labels, [], [], [v],
            state, loss, l1, l2, **SETTINGS, dtype=np.float64, **options,
        )  # fmt: skip
        v = v + delta
    either.sdca_ops.sdca_shrink_l1([v], l1, l2)
    return v


ONE_HOT = [[1, 0, 1, 0], [0, 1, 0, 1]]  # two examples, each with a feature in two groups
KNOWN = [
    ("squared_loss", ONE_HOT, [-10, 14], {}, [-20 / 3, 28 / 3]),
    ("squared_loss", ONE_HOT, [-10, 14], {"l1": 4.0}, [-4, 20 / 3]),
    ("squared_loss", ONE_HOT * 2, [-10, 14] * 2, {"l2": 16.0}, [-2, 2.8, -2, 2.8]),
    ("squared_loss", np.diag([-2.0, 2]) @ ONE_HOT, [-10, 14], {"weights": [5, 3]},
     [-10 * 40 / 41, 14 * 24 / 25]),
    ("squared_loss", np.eye(2), [10, -5], {}, [5, -2.5]),
    ("squared_loss", np.eye(2), [10, -5], {"weights": [20, 10], "l2": 5.0}, [8, -10 / 3]),
    ("hinge_loss", ONE_HOT, [0, 1], {}, [-1, 1]),
    ("smooth_hinge_loss", ONE_HOT, [0, 1], {}, [-2 / 3, 2 / 3]),
    ("poisson_loss", np.eye(2), [0, 2], {"weights": [100, 100]}, [-3.9297432688, 0.6914171421]),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "rows", "labels", "options", "expected"), KNOWN)
@pytest.mark.parametrize("adaptive", [False, True])
def test_known_predictions(
    either: Any, loss: str, rows: Any, labels: Any, options: Any, expected: Any, adaptive: bool
) -> None:
    if loss == "poisson_loss":  # one feature here has the weight of two there
        options = {**options, "l2": 0.5}
    w = solve(either, loss, rows, labels, **options, adaptive=adaptive)
    np.testing.assert_allclose(np.asarray(rows) @ w, expected, rtol=1e-6)


def test_partitions_add_up(either: Any) -> None:
    """Two calls that start from the same weights, with an example each; their deltas added."""
    rows, labels = np.array([[1.0, 0.5], [0.8, 1.0]]), np.array([2.0, -1.0])
    v, states = np.zeros(2), [np.zeros((1, 4))] * 2
    for _ in range(100):
        results = [
            either.sdca_ops.sdca_optimizer(
                [], [], [], [rows[i : i + 1]], [1], labels[i : i + 1], [], [], [v], states[i],
                "squared_loss", 0, 1, num_loss_partitions=2, num_inner_iterations=1,
                dtype=np.float64,
            )
            for i in range(2)
        ]  # fmt: skip
        states = [result.out_example_state_data for result in results]
        v = v + sum(result.out_delta_dense_weights[0] for result in results)
    np.testing.assert_allclose(v, np.linalg.solve(rows.T @ rows + np.eye(2), rows.T @ labels))


# ---- the order of visits


def visits(either: Any, n: int = 8, **options: Any) -> Any:
    """Return the result for examples that all have one feature, so that their order matters."""
    x = np.linspace(0.5, 2, n)[:, None]
    options = {"adaptive": False, "dtype": np.float64, **options}
    state = options.pop("state", np.zeros((n, 4)))
    return either.sdca_ops.sdca_optimizer(
        [], [], [], [x], np.ones(n), np.linspace(-1, 3, n), [], [], [np.zeros(1)], state,
        "squared_loss", 0, 1, **SETTINGS, **options,
    )  # fmt: skip


def bits(result: Any) -> bytes:
    return result.out_example_state_data.tobytes() + result.out_delta_dense_weights[0].tobytes()


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_same_call_has_the_same_result(either: Any, adaptive: bool) -> None:
    assert bits(visits(either, adaptive=adaptive)) == bits(visits(either, adaptive=adaptive))
    seeded = {bits(visits(either, adaptive=adaptive, seed=seed)) for seed in range(5)}
    assert len(seeded) == 5


def test_without_a_seed_each_round_has_another_order(
    either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    module = either.sdca_ops if either is tfopt else tfopt_ref.sdca
    shuffled = module.shuffled

    def seen(*arguments: Any) -> Any:
        plans.append(tuple(shuffled(*arguments)))
        return shuffled(*arguments)

    monkeypatch.setattr(module, "shuffled", seen)
    state = np.zeros((8, 4))
    for _ in range(4):
        state = visits(either, state=state).out_example_state_data
    assert len({*plans}) == 4


def test_many_features_are_visited_in_buckets(either: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 40
    alone = visits(either, n, seed=3)
    assert bits(alone) == bits(visits(either, n, order=tfopt_ref.sdca.shuffled(n, 1, 3, 0)))
    module = either.sdca_ops if either is tfopt else tfopt_ref.sdca_ops
    monkeypatch.setattr(module, "CACHED", n - 1)
    together = visits(either, n, seed=3)
    assert bits(together) == bits(visits(either, n, order=tfopt_ref.sdca.shuffled(n, 8, 3, 0)))
    assert bits(together) != bits(alone)


def test_order(either: Any) -> None:
    """Each visit sees what those before it have done; who is not visited, stays as it was."""
    result = visits(either, n=3, order=[2, 0, 2], state=np.full((3, 4), 0.25))
    x, y, a, w = np.linspace(0.5, 2, 3), np.linspace(-1, 3, 3), np.full(3, 0.25), 0.0
    for i in (2, 0, 2):
        before = a[i]
        a[i] += (y[i] - a[i] - w * x[i]) / (1 + x[i] ** 2)
        w += (a[i] - before) * x[i]
    state = result.out_example_state_data
    np.testing.assert_allclose(state[[0, 2], 0], a[[0, 2]])
    np.testing.assert_array_equal(state[1], np.full(4, 0.25))
    np.testing.assert_allclose(result.out_delta_dense_weights[0], [w])
    assert state[2, 1] == y[2] ** 2 / 2 and state[2, 2] == before * (before / 2 - y[2])


def test_adaptive_visits_reach_all_that_have_something_to_gain(either: Any) -> None:
    """TensorFlow fills the plan with example 0 instead."""
    y = np.full(10, 1e-3)
    y[7] = 1e3
    result = either.sdca_ops.sdca_optimizer(
        [], [], [], [np.eye(10)], np.ones(10), y, [], [], [np.zeros(10)], np.zeros((10, 4)),
        "squared_loss", 0, 1, **SETTINGS, seed=0,
    )  # fmt: skip
    visited = result.out_example_state_data[:, 3] > 0
    assert visited[7] and visited.sum() >= 8


# ---- settings


def test_inner_iterations_are_ignored(either: Any) -> None:
    arguments = call_of("logistic_loss", 4)
    one = either.sdca_ops.sdca_optimizer(**arguments)
    many = either.sdca_ops.sdca_optimizer(**arguments | {"num_inner_iterations": 9})
    assert one[0].tobytes() == many[0].tobytes()


def test_the_dual_of_an_example_without_weight_moves(either: Any) -> None:
    for loss, label, expected in (
        ("squared_loss", 3.0, 2.0), ("hinge_loss", 1.0, 0.0), ("poisson_loss", 3.0, 3 - np.e),
    ):  # fmt: skip
        result = either.sdca_ops.sdca_optimizer(
            [], [], [], [[[1.0]]], [0], [label], [], [], [[1.0]], np.zeros((1, 4)), loss, 0, 1,
            **SETTINGS, dtype=np.float64,
        )  # fmt: skip
        np.testing.assert_allclose(result.out_example_state_data, [[expected, 0, 0, 0]], atol=1e-15)
        assert result.out_delta_dense_weights[0] == [0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_dual_without_bound_stays_a_number(either: Any, dtype: str) -> None:
    """An example without weight, whose rate no float can hold, still is one of a next call."""
    arguments = (
        [], [], [], [[[1.0]]], [0], [3], [], [], [[800.0]], np.zeros((1, 4)), "poisson_loss", 0, 1,
    )  # fmt: skip
    result = either.sdca_ops.sdca_optimizer(*arguments, **SETTINGS, dtype=dtype)
    assert -np.inf < result.out_example_state_data[0, 0] < -1e38
    assert result.out_delta_dense_weights[0] == [0]


def test_lists_and_variables() -> None:
    arguments = call_of("squared_loss", 2)
    expected = tfopt.sdca_ops.sdca_optimizer(**arguments)
    listed = {
        name: [a.tolist() for a in value] if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    for name in ("sparse_weights", "dense_weights"):
        listed[name] = [tfopt.Variable(np.float32(a)) for a in arguments[name]]
    result = tfopt.sdca_ops.sdca_optimizer(**listed)
    assert result[0].tobytes() == expected[0].tobytes()
    assert [d.shape for d in result[1]] == [np.shape(w) for w in arguments["sparse_weights"]]


def test_threads_change_no_bits() -> None:
    random = np.random.default_rng(0)
    n = 3000
    x = random.standard_normal((n, 60))
    y = (x @ random.standard_normal(60) > 0) * 1.0
    answers = set()
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        for num_threads in (None, 1, 2):
            result = tfopt.sdca_ops.sdca_optimizer(
                [], [], [], [x], np.ones(n), y, [], [], [np.zeros(60)], np.zeros((n, 4)),
                "logistic_loss", 1, 10, **SETTINGS, num_threads=num_threads,
            )  # fmt: skip
            answers.add(bits(result))
    assert len(answers) == 1


# ---- shrinking


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shrinking(either: Any, dtype: str, layout: str) -> None:
    values = np.array([[3.0, -3, 0.25], [-0.25, 0, -0.0], [np.inf, -np.inf, np.nan]], dtype)
    array, scalar = laid_out(values, layout), np.array(-2.0, dtype)
    single = np.array([1.0], dtype)
    variable = tfopt.Variable(single) if either is tfopt else single
    either.sdca_ops.sdca_shrink_l1([array, scalar, variable, np.zeros(0, dtype)], 1, 2)
    expected = np.array([[2.5, -2.5, 0], [-0.0, 0, -0.0], [np.inf, -np.inf, np.nan]], dtype)
    np.testing.assert_array_equal(array, expected)
    assert (np.signbit(array) == np.signbit(expected))[~np.isnan(expected)].all()
    assert scalar == -1.5 and single == [0.5]
