"""Dual coordinate ascent: an op's call, an epoch of the kernel, fingerprints."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .common import best_times, public

EXAMPLES, FEATURES = 100_000, 50_000
LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")


@cache
def rows(longest: int) -> tuple[np.ndarray, ...]:
    """Return data, indices and indptr of random rows, in which low ids are frequent."""
    random = np.random.default_rng(0)
    drawn = np.sort((FEATURES * random.random((EXAMPLES, longest)) ** 2).astype(np.int32), axis=1)
    distinct = np.ones(drawn.shape, bool)
    distinct[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    indptr = np.append(0, np.cumsum(distinct.sum(axis=1))).astype(np.int32)
    data = random.standard_normal(int(indptr[-1])).astype(np.float32) / longest**0.5
    return data, drawn[distinct], indptr


def labels(loss: str, scores: np.ndarray) -> np.ndarray:
    if loss == "squared_loss":
        return scores
    if loss == "poisson_loss":
        return np.random.default_rng(1).poisson(np.exp(np.minimum(scores, 3.0))).astype(float)
    return (scores > 0).astype(float)


def scores_of(longest: int) -> np.ndarray:
    """Return the predictions of a linear model for the rows, with noise."""
    data, indices, indptr = rows(longest)
    random = np.random.default_rng(2)
    truth = random.standard_normal(FEATURES)
    sums = np.add.reduceat(data * truth[indices], indptr[:-1])
    return 2 * sums + random.standard_normal(EXAMPLES)


class Op:
    """A call of the op, checks and packing included, for 100 000 examples."""

    params = (["logistic_loss", "squared_loss"], [False, True], ["ascending", "shuffled"])
    param_names = ("loss", "adaptive", "ids")

    def setup(self, loss: str, adaptive: bool, ids: str) -> None:
        optimize = public("raw_ops.SdcaOptimizerV2")
        data, indices, indptr = rows(61)
        listed = np.arange(FEATURES)
        if ids == "shuffled":
            listed = np.random.default_rng(3).permutation(FEATURES)
        arguments: dict[str, Any] = {
            "sparse_example_indices": [np.repeat(np.arange(EXAMPLES), np.diff(indptr))],
            "sparse_feature_indices": [indices.astype(np.int64)],
            "sparse_feature_values": [data],
            "dense_features": [],
            "example_weights": np.ones(EXAMPLES, np.float32),
            "example_labels": labels(loss, scores_of(61)).astype(np.float32),
            "sparse_indices": [listed],
            "sparse_weights": [np.zeros(FEATURES, np.float32)],
            "dense_weights": [],
            "example_state_data": np.zeros((EXAMPLES, 4), np.float32),
            "loss_type": loss,
            "l1": 0.0,
            "l2": 1.0,
            "num_loss_partitions": 1,
            "num_inner_iterations": 1,
            "adaptive": adaptive,
        }
        self.call = lambda: optimize(**arguments)

    def time_call(self, loss: str, adaptive: bool, ids: str) -> None:
        self.call()


class Epoch:
    """The time per feature of the kernel's epochs 2 to 9 on one thread."""

    params = (list(LOSSES), [40, 61, 150])
    param_names = ("loss", "features of an example")
    unit = "ns"

    def setup(self, loss: str, longest: int) -> None:
        visit = public("kernels.linear.solver.epoch")
        shuffled = public("kernels.linear.visits.shuffled")
        data, indices, indptr = rows(longest)
        dense = np.zeros((EXAMPLES, 0), np.float32)
        given = (data, indices, indptr, dense)
        examples = np.zeros(EXAMPLES, public("kernels.linear.visits.EXAMPLE"))
        y = labels(loss, scores_of(longest))
        examples["y"] = y if loss in ("squared_loss", "poisson_loss") else 2 * y - 1
        examples["weight"] = 1
        examples["curvature"] = public("kernels.linear.visits.squared_norms")(data, indptr, dense)
        u, before = np.zeros(FEATURES), np.zeros(EXAMPLES)
        plans = [shuffled(EXAMPLES, 8, 0, number) for number in range(9)]

        def epoch(number: int) -> None:
            visit(
                *(*given, plans[number], examples, u, np.zeros((0, FEATURES)), before),
                *(np.zeros(0, np.uint8), loss, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1, 1),
                exact=True,
            )

        epoch(0)
        self.size = data.size
        self.epochs = [lambda number=number: epoch(number) for number in range(1, 9)]

    def track_ns_per_feature(self, loss: str, longest: int) -> float:
        return 1e9 * min(best_times(*self.epochs, seconds=0, rounds=1)) / self.size


class Fingerprints:
    """A million strings of 20 bytes."""

    params = (["bytes of NumPy", "list of bytes", "list of str"],)
    param_names = ("strings",)

    def setup(self, strings: str) -> None:
        fingerprint = public("raw_ops.SdcaFprint")
        random = np.random.default_rng(0)
        texts = [random.bytes(10).hex() for _ in range(1_000_000)]
        given = {
            "bytes of NumPy": lambda: np.array(texts, "S20"),
            "list of bytes": lambda: [text.encode() for text in texts],
            "list of str": lambda: texts,
        }[strings]()
        self.call = lambda: fingerprint(input=given)

    def time_call(self, strings: str) -> None:
        self.call()
