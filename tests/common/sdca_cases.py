"""Problems for SDCA: examples in rows, with valid weights, labels and dual variables."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from common.linear_losses import DEFINITIONS
from tfopt_ref import linear
from tfopt_ref.losses import loss_named

__all__ = [
    "ALL_LOSSES",
    "LOSSES",
    "Problem",
    "arrays_in",
    "call_of",
    "labels_for",
    "problem_of",
    "problems",
    "specified",
    "values_for",
]

#: TensorFlow's losses, and all.
LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")
#: Those that have a parameter of 1; tests/linear/test_tweedie.py has the other.
ALL_LOSSES = tuple(f"{name}_loss" for name in DEFINITIONS if name != "tweedie")
#: Those of any numbers: for tests, with the parameter 1, in which 0 <= a <= 1 is always allowed.
OF_NUMBERS = tuple(f"{k}_loss" for k, each in DEFINITIONS.items() if each.labels == "numbers")
EXAMPLE = np.dtype([("a", "f8"), ("y", "f8"), ("weight", "f8"), ("curvature", "f8")])


class Problem(NamedTuple):
    """Rows, examples, and the numbers of a call."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    dense: np.ndarray
    examples: np.ndarray
    n_weights: int
    loss: str
    l1: float
    l2: float

    @property
    def rows(self) -> tuple[np.ndarray, ...]:
        return self[:4]


def labels_for(loss: str, random: np.random.Generator, n: int) -> np.ndarray:
    """Return labels in TensorFlow's encoding: 0 and 1 for classification losses."""
    if loss in OF_NUMBERS:
        return random.standard_normal(n)
    if loss == "poisson_loss":
        return random.poisson(2.0, n).astype(float)
    if loss == "gamma_loss":
        return random.gamma(2.0, 1.0, n) + 0.01
    return random.integers(0, 2, n).astype(float)


def duals_for(loss: str, random: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Return dual variables within their limits, sometimes at them."""
    b = random.choice([0.0, 1.0, 0.5, 1e-9, 1 - 1e-9], y.size) if random.uniform() < 0.5 else 0
    b = b + (b == 0) * random.uniform(0, 1, y.size) * random.integers(0, 2, y.size)
    if loss in OF_NUMBERS:
        return 3 * b - 1 if loss == "squared_loss" else b
    if loss == "gamma_loss":
        return 3 * b - 1
    return y - 2 * b if loss == "poisson_loss" else y * b


def values_for(random: np.random.Generator, n: Any, dtype: str) -> np.ndarray:
    """Return numbers of one magnitude, sometimes zero."""
    values = random.standard_normal(n) * 10.0 ** random.integers(-2, 1)
    return (values * (random.uniform(size=n) < 0.9)).astype(dtype)


def problem_of(
    loss: str,
    seed: int,
    *,
    dtype: str = "float64",
    index: str = "int64",
    n: int = 20,
    n_sparse: int = 7,
    width: int = 2,
    longest: int = 5,
) -> Problem:
    """Return a problem whose rows have a limited number of sparse features, often none."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, min(n_sparse, longest) + 1, n)
    indices = [random.permutation(n_sparse)[:count] for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    data = values_for(random, int(indptr[-1]), dtype)
    dense = values_for(random, (n, width), dtype)
    l2 = float(10.0 ** random.integers(-1, 3))
    examples = np.zeros(n, EXAMPLE)
    y = labels_for(loss, random, n)
    examples["y"] = y if loss in (*OF_NUMBERS, "poisson_loss", "gamma_loss") else 2 * y - 1
    examples["a"] = duals_for(loss, random, examples["y"])
    examples["weight"] = random.choice([0.0, 0.5, 1.0, 1.0, 3.0], n)
    squares = [
        np.sum(np.square(data[low:high], dtype=float)) + np.sum(np.square(row, dtype=float))
        for low, high, row in zip(indptr[:-1], indptr[1:], dense, strict=True)
    ]
    examples["curvature"] = np.array(squares) / l2
    joined = np.concatenate([*indices, []]).astype(index)
    l1 = float(random.choice([0.0, 0.0, 0.01, 1.0])) * l2
    return Problem(data, joined, indptr, dense, examples, n_sparse + width, loss, l1, l2)


def specified(problem: Problem, parameter: float = 1.0, **changes: Any) -> linear.Problem:
    """Return the problem as the specification has it."""
    data, indices, indptr, dense, examples, n_weights, loss, l1, l2 = problem
    ends = [slice(*pair) for pair in itertools.pairwise(indptr)]
    x = [
        linear.row(indices[part], data[part], last, n_weights)
        for part, last in zip(ends, dense, strict=True)
    ]
    phi = loss_named(loss, parameter)
    return linear.Problem(x, examples["y"], examples["weight"], phi, l1, l2)._replace(**changes)


@st.composite
def problems(draw: Any, loss: str, dtype: str, index: str) -> Problem:
    return problem_of(
        loss,
        draw(st.integers(0, 2**32)),
        dtype=dtype,
        index=index,
        n=draw(st.sampled_from([0, 1, 2, 5, 30])),
        n_sparse=draw(st.sampled_from([0, 1, 3, 40])),
        width=draw(st.sampled_from([0, 0, 1, 6])),
        longest=draw(st.sampled_from([0, 1, 3, 40])),
    )


def call_of(loss: str, seed: int, *, n: int = 6, index: str = "int64") -> dict[str, Any]:
    """Return arguments of sdca_optimizer: up to two groups of each kind, ids in any order."""
    random = np.random.default_rng(seed)
    groups, blocks = ((1, 0), (2, 1), (0, 1), (1, 2))[random.integers(4)]
    y = labels_for(loss, random, n)
    given: dict[str, Any] = {
        "sparse_example_indices": [],
        "sparse_feature_indices": [],
        "sparse_feature_values": [],
        "dense_features": [],
        "example_weights": random.choice([0.0, 0.5, 1.0, 3.0], n),
        "example_labels": y,
        "sparse_indices": [],
        "sparse_weights": [],
        "dense_weights": [],
    }
    with_values = random.integers(0, groups + 1)
    for j in range(groups):
        counts = random.integers(0, 4, n)
        ids = random.permutation(12)[:8] - 3 if random.uniform() < 0.5 else np.arange(5, 13)
        chosen = [random.permutation(ids)[:count] for count in counts]
        given["sparse_example_indices"].append(np.repeat(np.arange(n), counts).astype(index))
        given["sparse_feature_indices"].append(np.concatenate([*chosen, []]).astype(index))
        if j < with_values:
            given["sparse_feature_values"].append(random.standard_normal(counts.sum()))
        given["sparse_indices"].append(ids.astype(index))
        given["sparse_weights"].append(random.standard_normal((4, 2)))
    for _ in range(blocks):
        width = int(random.integers(1, 6))
        given["dense_features"].append(random.standard_normal((n, width)))
        given["dense_weights"].append(random.standard_normal(width))
    signed = y if loss in (*OF_NUMBERS, "poisson_loss", "gamma_loss") else 2 * y - 1
    given["example_state_data"] = random.standard_normal((n, 4))
    given["example_state_data"][:, 0] = duals_for(loss, random, signed)
    settings = {
        "loss_type": loss,
        "l1": float(random.choice([0.0, 0.1, 0.5])),
        "l2": float(random.choice([0.5, 1.0, 10.0])),
        "num_loss_partitions": int(random.choice([1, 4])),
        "num_inner_iterations": 1,
    }
    return given | settings


def arrays_in(arguments: dict[str, Any]) -> list[np.ndarray]:
    """Return every array among the arguments."""
    found: list[np.ndarray] = []
    for value in arguments.values():
        members = value if isinstance(value, list) else [value]
        found += [member for member in members if isinstance(member, np.ndarray)]
    return found
