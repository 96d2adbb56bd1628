"""The kernel that learns from a stream: its bits, and calls that leave everything as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.sdca.visits import LOSSES
from tfopt.kernels.stream.ftrl import learn
from tfopt_ref import ftrl_stream

OPTIONS = {
    "batch_size": 3,
    "loss": "logistic_loss",
    "intercept": True,
    "lr": 0.3,
    "beta": 0.2,
    "l1": 0.1,
    "l2": 0.05,
}


def _case(seed: int, n: int, m: int, n_scores: int, dtype: Any) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    X = sparse.random(n, m, 0.4, "csr", dtype, random, data_rvs=random.standard_normal)
    if X.nnz > 1:  # columns may come twice in a row
        X.indices[1] = X.indices[0]
    table = np.zeros((m + 1, n_scores, 3))
    table[..., 1] = 0.1
    return {
        "X": X,
        "targets": random.choice([-1.0, 1.0], (n, n_scores)),
        "weights": random.uniform(0, 2, n),
        "order": random.integers(0, max(n, 1), 2 * n) if n else np.zeros(0, np.int64),
        "table": table,
        "losses": np.zeros((1, 2)),
    }


def _learn(case: dict[str, Any], index: Any = np.int32, **options: Any) -> tuple[bool, dict]:
    X, done = case["X"], {"t": 0}
    o = {**OPTIONS, **options}
    learned = learn(
        X.data, X.indices.astype(index), X.indptr.astype(index), case["order"], case["targets"],
        case["weights"], case["table"], case["losses"], o["batch_size"], o["loss"],
        o["intercept"], o["lr"], o["beta"], o["l1"], o["l2"], done, {"t": 1},
    )  # fmt: skip
    return learned, done


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 12),
    m=st.integers(0, 9),
    n_scores=st.integers(1, 3),
    batch_size=st.integers(1, 30),
    loss=st.sampled_from(LOSSES),
    intercept=st.booleans(),
    beta=st.sampled_from([0.0, 1.0]),
    l1=st.sampled_from([0.0, 0.2]),
    l2=st.sampled_from([0.0, 0.1]),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
)
def test_the_bits_are_those_of_the_specification(
    seed: int, n: int, m: int, n_scores: int, dtype: Any, index: Any, **options: Any
) -> None:
    case = _case(seed, n, m, n_scores, dtype)
    X = case["X"]
    rows = [
        (X.indices[a:b].tolist(), X.data[a:b].astype(float).tolist())
        for a, b in zip(X.indptr, X.indptr[1:], strict=False)
    ]
    expected, losses = ftrl_stream.learn(
        rows, case["targets"], case["weights"], case["order"], case["table"],
        lr=OPTIONS["lr"], **options,
    )  # fmt: skip
    assert _learn(case, index, **options) == (True, {"t": 1})
    np.testing.assert_array_equal(case["table"], expected)
    np.testing.assert_array_equal(case["losses"], [losses])


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("m", [300, 100_000])  # more entries than features, and fewer
def test_an_overflow_changes_nothing(where: str, m: int) -> None:
    case = _case(1, 40, 300, 2, np.float64)
    case["table"] = np.random.default_rng(0).uniform(0.1, 1, (m + 1, 2, 3))
    row = case["order"][0 if where == "first" else -1]
    case["X"].data[case["X"].indptr[row]] = 1e200
    before = case["table"].tobytes()
    assert _learn(case, loss="squared_loss") == (False, {"t": 0})
    assert case["table"].tobytes() == before
    assert not case["losses"].any()


def test_an_index_outside_changes_nothing() -> None:
    for wrong in (-1, 300, 2**31 - 1):
        case = _case(2, 40, 300, 2, np.float64)
        case["X"].indices[case["X"].indptr[case["order"][-1]]] = wrong
        before = case["table"].tobytes()
        with pytest.raises(InvalidArgumentError):
            _learn(case)
        assert case["table"].tobytes() == before
    case = _case(2, 40, 300, 2, np.float64)
    case["order"][-1] = 40
    before = case["table"].tobytes()
    with pytest.raises(InvalidArgumentError):
        _learn(case)
    assert case["table"].tobytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "probit_loss"},
        {"batch_size": 0},
        {"targets": np.zeros((4, 3))},
        {"weights": np.zeros(3)},
        {"table": np.zeros((8, 1, 2))},
        {"losses": np.zeros((1, 3))},
    ],
)
def test_arguments_that_do_not_fit(change: dict[str, Any]) -> None:
    case = _case(3, 4, 7, 1, np.float64)
    options = {name: change.pop(name) for name in [*change] if name in OPTIONS}
    case |= change
    before = case["table"].tobytes()
    with pytest.raises(InvalidArgumentError):
        _learn(case, **options)
    assert case["table"].tobytes() == before
