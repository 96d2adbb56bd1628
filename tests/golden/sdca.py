"""Calls of SDCA's ops that TensorFlow answers too, always in one way.

TensorFlow visits examples in an order of its own. So the calls are of one example, or of several
that share no feature; or there are so many calls that they end where the optimum is.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, NamedTuple

import numpy as np

__all__ = ["LOSSES", "Optimum", "Call", "check_close", "drawn", "optima", "strings", "train"]

LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")

#: TensorFlow's names of what a call takes, in the order in which a call holds it.
LISTS = (
    "sparse_example_indices", "sparse_feature_indices", "sparse_feature_values", "dense_features",
    "sparse_indices", "sparse_weights", "dense_weights",
)  # fmt: skip
ARRAYS = ("example_weights", "example_labels", "example_state_data")
ROUNDS = 400


class Call(NamedTuple):
    """What SdcaOptimizerV2 takes, by name: lists of arrays, arrays and settings."""

    arguments: dict[str, Any]

    @classmethod
    def of(cls, members: dict[str, np.ndarray], loss: str) -> Call:
        """Return a call from the arrays that it was stored as."""
        lists: dict[str, Any] = {name: [] for name in LISTS}
        for key, array in members.items():
            name, _, _ = key.partition(".")
            if name in lists:
                lists[name].append(array)
        l1, l2, partitions = members["settings"].tolist()
        settings = {"loss_type": loss, "l1": l1, "l2": l2, "num_loss_partitions": int(partitions)}
        arrays = {name: members[name] for name in ARRAYS}
        return cls({**lists, **arrays, **settings, "num_inner_iterations": 1, "adaptive": False})

    def members(self) -> dict[str, np.ndarray]:
        """Return the call as arrays by name, in order."""
        given = self.arguments
        made = {f"{name}.{j}": a for name in LISTS for j, a in enumerate(given[name])}
        made |= {name: given[name] for name in ARRAYS}
        settings = [given[name] for name in ("l1", "l2", "num_loss_partitions")]
        return {**made, "settings": np.array(settings, float)}


def _labels(loss: str, random: np.random.Generator, n: int) -> np.ndarray:
    if loss == "squared_loss":
        return random.standard_normal(n).astype(np.float32)
    return random.integers(0, 4 if loss == "poisson_loss" else 2, n).astype(np.float32)


def _duals(loss: str, random: np.random.Generator, y: np.ndarray) -> np.ndarray:
    b = random.uniform(size=y.size) * random.integers(0, 2)
    if loss == "squared_loss":
        return b
    return y - 2 * b if loss == "poisson_loss" else (2 * y - 1) * b


def drawn(loss: str, number: int) -> Call:
    """Return a call whose examples share no feature: those of example i are i, n + i, 2n + i."""
    random = np.random.default_rng(zlib.crc32(f"{loss} {number}".encode()))
    n = int(random.choice([1, 1, 2, 5]))
    groups = int(random.integers(0, 3))
    width = 0 if n > 1 and groups else int(random.integers(1, 9))
    lists: dict[str, list[np.ndarray]] = {name: [] for name in LISTS}
    with_values = int(random.integers(0, groups + 1))
    for j in range(groups):
        listed = random.permutation(3 * n) - 3
        entries = [
            (i, feature - 3)
            for i in range(n)
            for feature in (i, n + i, 2 * n + i)
            if random.uniform() < 0.7
        ]
        examples, ids = np.array(entries, np.int64).reshape(-1, 2).T
        lists["sparse_example_indices"].append(examples.copy())
        lists["sparse_feature_indices"].append(ids.copy())
        if j < with_values:
            lists["sparse_feature_values"].append(
                random.standard_normal(len(ids)).astype(np.float32)
            )
        lists["sparse_indices"].append(listed.astype(np.int64))
        lists["sparse_weights"].append(random.standard_normal(3 * n).astype(np.float32))
    if width or not groups:
        block = random.standard_normal((n, width or n)).astype(np.float32)
        if n > 1:
            block = np.diag(random.standard_normal(n)).astype(np.float32)
        lists["dense_features"].append(block)
        lists["dense_weights"].append(random.standard_normal(block.shape[1]).astype(np.float32))
    y = _labels(loss, random, n)
    state = np.zeros((n, 4), np.float32)
    state[:, 0] = _duals(loss, random, y)
    arguments = {
        **lists,
        "example_weights": random.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32),
        "example_labels": y,
        "example_state_data": state,
        "loss_type": loss,
        "l1": float(random.choice([0.0, 0.1, 0.5])),
        "l2": float(random.choice([0.5, 1.0, 10.0])),
        "num_loss_partitions": int(random.choice([1, 1, 4])),
        "num_inner_iterations": 1,
        "adaptive": False,
    }
    return Call(arguments)


def check_close(ours: Any, theirs: list[np.ndarray]) -> None:
    """Compare a result with TensorFlow's, to the rounding of its sums in float32."""
    state, sparse, dense = ours
    made = [state, *sparse, *dense]
    assert len(made) == len(theirs)
    for a, b in zip(made, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = float(np.abs(b).max()) if b.size else 0.0
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * scale)


# ---- the optimum


class Optimum(NamedTuple):
    """A problem of five examples."""

    loss: str
    l1: float
    l2: float


def optima() -> list[Optimum]:
    return [
        Optimum(loss, l1, l2)
        for loss in LOSSES
        for l1, l2 in ((0.0, 1.0), (0.5, 1.0), (0.0, 0.1), (0.2, 4.0))
    ]


def train(optimizer: Any, problem: Optimum) -> list[np.ndarray]:
    """Return the weights, unshrunk, after many calls: those of two dense groups and a sparse."""
    labels = {"squared_loss": [1.5, -2, 0.3, 4, 0], "poisson_loss": [3, 0, 1, 5, 2]}
    blocks = [[[1, 0.5], [-1, 2], [0.5, -1.5], [2, 1], [-0.5, -0.5]], [[1]] * 5]
    state = np.zeros((5, 4), np.float32)
    v = [np.zeros(size, np.float32) for size in (2, 1, 3)]
    for _ in range(ROUNDS):
        state, (sparse,), dense = optimizer(
            sparse_example_indices=[np.array([0, 1, 1, 3, 4])],
            sparse_feature_indices=[np.array([10, 10, 20, 20, 30])],
            sparse_feature_values=[],
            dense_features=[np.array(block, np.float32) for block in blocks],
            example_weights=np.array([1, 2, 0.5, 1, 1.5], np.float32),
            example_labels=np.array(labels.get(problem.loss, [1, 0, 0, 1, 0]), np.float32),
            sparse_indices=[np.array([10, 20, 30])],
            sparse_weights=[v[2]],
            dense_weights=v[:2],
            example_state_data=state,
            loss_type=problem.loss,
            l1=problem.l1,
            l2=problem.l2,
            num_loss_partitions=1,
            num_inner_iterations=1,
            adaptive=False,
        )
        v = [np.asarray(w + delta) for w, delta in zip(v, [*dense, sparse], strict=True)]
        state = np.asarray(state)
    return v


# ---- fingerprints


def strings() -> list[bytes]:
    """Return strings of every length that the hash treats in another way."""
    named = ["", "a", "abc", "def", "abcd", "id_0", "id_123456789", "very looooooong string"]
    lengths = [*range(1, 70), *range(120, 300, 3), 383, 384, 385, 1000, 4096]
    drawn = [hashlib.shake_256(str(n).encode()).digest(n) for n in lengths]
    return [*(name.encode() for name in named), b"\0", b"\0\0", "naïve ☃".encode(), *drawn]
