"""The kernel that learns from a stream: its bits, and calls that leave everything as it was."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear.ftrl import learn
from tfopt.kernels.linear.visits import LOSSES
from tfopt.linear_model.losses import LOSSES as RECORDS
from tfopt_ref import ftrl
from tfopt_ref.losses import loss_named

OPTIONS = {
    "batch_size": 3,
    "loss": "logistic_loss",
    "parameter": 1.0,
    "intercept": True,
    "lr": 0.3,
    "beta": 0.2,
    "l1": 0.1,
    "l2": 0.05,
    "average": 0,
}


OF_AMOUNTS = ("gamma_loss", "tweedie_loss")


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
        "offset": random.standard_normal(n) if seed % 2 else np.zeros(0),
        "order": random.integers(0, max(n, 1), 2 * n) if n else np.zeros(0, np.int64),
        "table": table,
        "averages": np.zeros((m + 1, n_scores)),
        "losses": np.zeros((1, 2)),
    }


def _learn(case: dict[str, Any], index: Any = np.int32, **options: Any) -> tuple[int, dict]:
    X, done = case["X"], {"t": 0, "t_": 7, "_averaged": 0}
    o = {**OPTIONS, **options}
    averages = case["averages"] if o["average"] else case["averages"][:0]
    learned = learn(
        X.data, X.indices.astype(index), X.indptr.astype(index), case["order"], case["targets"],
        case["weights"], case["offset"], case["table"], averages, case["losses"], o["batch_size"],
        o["loss"], o["parameter"], o["intercept"], o["lr"], o["beta"], o["l1"], o["l2"],
        o["average"], done, {"t": 1},
    )  # fmt: skip
    return learned, done


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 12),
    m=st.integers(0, 9),
    n_scores=st.integers(1, 3),
    batch_size=st.integers(1, 30),
    loss=st.sampled_from(LOSSES),
    parameter=st.sampled_from([0.25, 1.0]),
    average=st.sampled_from([0, 1, 14]),
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
    if options["loss"] in OF_AMOUNTS:
        case["targets"] = abs(case["targets"]) + 0.5
    if options["loss"] == "tweedie_loss":
        options["parameter"] = 1 + options["parameter"] / 2
    phi = loss_named(options["loss"], options["parameter"])
    rule = ftrl.Rule(
        phi, OPTIONS["lr"], options["beta"], options["l1"], options["l2"], options["intercept"],
        options["batch_size"], options["average"],
    )  # fmt: skip
    begun = ftrl.Learned(case["table"], [0.0, 0.0], np.zeros((m + 1, n_scores)), seen=7)
    given = case["targets"], case["weights"], case["order"], begun
    expected = ftrl.learn(rule, rows, *given, case["offset"] if case["offset"].size else None)
    learned, done = _learn(case, index, **options)
    assert learned == case["order"].size
    assert done == {"t": 1, "t_": 7 + learned, "_averaged": expected.averaged}
    assert expected.seen == 7 + learned
    # the specification has other formulas of exponentials for losses of amounts
    near = {"rtol": 1e-12, "atol": 1e-14} if options["loss"] in OF_AMOUNTS else {"rtol": 0}
    np.testing.assert_allclose(case["table"], expected.table, **near)
    np.testing.assert_allclose(case["losses"], [expected.losses], rtol=1e-12, atol=1e-14)
    if expected.averaged:
        steps = expected.averaged
        mean = case["table"][..., 0] - case["averages"] / steps
        np.testing.assert_allclose(mean, expected.sums / steps, rtol=1e-12, atol=1e-14)


def test_losses_without_a_parameter_ignore_it() -> None:
    for loss in LOSSES:
        cases = [_case(1, 9, 5, 1, np.float64) for _ in range(2)]
        parameters = (1.25, 1.75) if loss == "tweedie_loss" else (0.25, 0.75)
        for case, parameter in zip(cases, parameters, strict=True):
            if loss in OF_AMOUNTS:
                case["targets"] = abs(case["targets"]) + 0.5
            _learn(case, loss=loss, parameter=parameter)
        same = cases[0]["table"].tobytes() == cases[1]["table"].tobytes()
        name = loss.removesuffix("_loss")
        assert same == (RECORDS[name].option is None), loss


@pytest.mark.parametrize("batch", [0, 1, 26])  # the last has fewer rows than the others
@pytest.mark.parametrize("average", [0, 1])
@pytest.mark.parametrize("m", [300, 100_000])  # more entries than features, and fewer
def test_a_batch_that_overflows_is_the_first_that_is_not_taken(
    batch: int, average: int, m: int
) -> None:
    case = _case(1, 40, 300, 2, np.float64)
    case["table"] = np.random.default_rng(0).uniform(0.1, 1, (m + 1, 2, 3))
    case["averages"] = np.zeros((m + 1, 2))
    case["order"] = np.arange(80) % 40
    options = {"loss": "squared_loss", "average": average}
    good = copy.deepcopy(case)
    good["order"] = case["order"][: 3 * batch]
    row = case["order"][3 * batch + 1]
    case["X"] = case["X"].copy()
    case["X"].data[case["X"].indptr[row]] = 1e200
    case["X"] = sparse.vstack([good["X"], case["X"]], "csr")
    for name in ("targets", "weights", "offset"):
        case[name] = np.concatenate([case[name]] * 2)
    case["order"] = case["order"] + 40 * (np.arange(80) >= 3 * batch)
    expected = _learn(good, **options) if batch else (0, {"t": 0, "t_": 7, "_averaged": 0})
    assert _learn(case, **options) == expected
    assert expected[0] == 3 * batch and expected[1]["t"] == (batch > 0)
    for name in ("table", "averages", "losses"):
        assert case[name].tobytes() == good[name].tobytes(), name


@pytest.mark.parametrize("wrong", [-1, 300, 2**31 - 1, None])
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_with_an_index_outside_is_not_taken(wrong: int | None, first: bool) -> None:
    """Nor are those after it: only another thread makes one, as the estimators check them."""
    case, good = (_case(2, 40, 300, 2, np.float64) for _ in range(2))
    case["order"] = good["order"] = np.arange(40)
    at = 0 if first else 39
    if wrong is None:
        case["order"] = np.where(np.arange(40) == at, 40, case["order"])
    else:
        case["X"].indices[case["X"].indptr[at]] = wrong
    good["order"] = good["order"][: at // 3 * 3]
    if not first:
        _learn(good)
    with pytest.raises(InvalidArgumentError):
        _learn(case)
    for name in ("table", "losses"):
        assert case[name].tobytes() == good[name].tobytes(), name


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "probit_loss"},
        {"batch_size": 0},
        {"targets": np.zeros((4, 3))},
        {"weights": np.zeros(3)},
        {"offset": np.zeros(3)},
        {"table": np.zeros((8, 1, 2))},
        {"losses": np.zeros((1, 3))},
        {"averages": np.zeros((7, 1)), "average": 1},
        {"averages": np.zeros((8, 2)), "average": 1},
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
