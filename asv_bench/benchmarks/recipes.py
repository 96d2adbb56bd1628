"""The programs of docs/recipes.md against the libraries that are usually taken for them.

Both run in turns in one process, on one thread, and the CPU times are compared.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from .common import HERE, public

#: How often each of two programs runs.
ROUNDS = 7


class Pair(NamedTuple):
    """A recipe, and what it is compared with: both do the same with the same data."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def example(name: str) -> Any:
    """Return a program of docs/examples; skip the benchmark if this tfopt lacks what it needs."""
    folder = str(HERE.parents[1] / "docs/examples")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return import_module(name)
    except ImportError as error:
        raise NotImplementedError(f"{name} needs what is not there: {error}") from error


def needed(module: str) -> None:
    if find_spec(module) is None:
        raise NotImplementedError(f"{module} is not installed")


# ---- federated server

MEMBERS, SIZE = 10, 1 << 22


def _federation() -> tuple[Any, Any, list[np.ndarray]]:
    """Return a server of ours, Flower's strategy, and the clients' models."""
    needed("flwr")
    from flwr.common import ndarrays_to_parameters
    from flwr.server.strategy import FedAdam

    random = np.random.default_rng(0)
    base = random.standard_normal(SIZE, np.float32)
    clients = [base + 0.01 * random.standard_normal(SIZE, np.float32) for _ in range(MEMBERS)]
    strategy = FedAdam(
        initial_parameters=ndarrays_to_parameters([base]), eta=0.01, beta_1=0.9, beta_2=0.99,
        tau=1e-3,
    )  # fmt: skip
    adam = public("optimizers.Adam")(0.01, 0.9, 0.99, epsilon=1e-3)
    return example("federated_server").Server({"w": base}, adam), strategy, clients


def federated_round() -> Pair:
    """From the clients' messages to the next one."""
    server, strategy, clients = _federation()
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

    messages = [
        FitRes(Status(Code.OK, ""), ndarrays_to_parameters([client]), 100 + k, {})
        for k, client in enumerate(clients)
    ]

    def ours() -> None:
        replies = {
            str(k): (message.num_examples, {"w": parameters_to_ndarrays(message.parameters)[0]})
            for k, message in enumerate(messages)
        }
        server.finish_round(replies)
        ndarrays_to_parameters([server.model["w"]])

    return Pair(ours, lambda: strategy.aggregate_fit(2, [(None, each) for each in messages], []))


def federated_arrays() -> Pair:
    """The mean and the step: what Flower's strategy does between its messages."""
    server, strategy, clients = _federation()
    from flwr.server.strategy.aggregate import aggregate

    replies = {str(k): (100 + k, {"w": client}) for k, client in enumerate(clients)}
    weights = server.model["w"].copy()
    moments = np.zeros((2, SIZE), np.float32)

    def theirs() -> None:
        (mean,) = aggregate([([client], 100 + k) for k, client in enumerate(clients)])
        delta = mean - weights
        moments[0] = strategy.beta_1 * moments[0] + (1 - strategy.beta_1) * delta
        moments[1] = strategy.beta_2 * moments[1] + (1 - strategy.beta_2) * np.multiply(
            delta, delta
        )
        _ = weights + strategy.eta * moments[0] / (np.sqrt(moments[1]) + strategy.tau)

    return Pair(lambda: server.finish_round(replies), theirs)


# ---- estimator


def estimator() -> Pair:
    """Ten epochs of least squares: 16 000 rows of 20 features, 100 hidden units."""
    needed("sklearn")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    random = np.random.default_rng(0)
    X = random.standard_normal((16_000, 20), np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    ours = example("network_estimator").NetworkRegressor(epochs=10, random_state=0)
    theirs = MLPRegressor(max_iter=10, alpha=0.0, tol=0.0, n_iter_no_change=99, random_state=0)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            theirs.fit(X, y)

    return Pair(lambda: ours.fit(X, y), fit)


# ---- what asv measures

PAIRS: dict[str, Callable[[], Pair]] = {
    "federated server, messages": federated_round,
    "federated server, arrays": federated_arrays,
    "estimator": estimator,
}


class Recipes:
    """CPU milliseconds of each program, and how often ours runs while the other one runs once."""

    params = list(PAIRS)
    param_names = ("recipe",)

    def setup(self, recipe: str) -> None:
        public("threads.set_num_threads")(1)
        self.pair = PAIRS[recipe]()
        self.times: list[float] = []

    def _turn(self) -> list[float]:
        """Return the median milliseconds of both, which take turns."""
        found: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for times, call in zip(found, self.pair, strict=True):
                start = process_time()
                call()
                times.append(1e3 * (process_time() - start))
        return [median(times) for times in found]

    def track_speed_relative_to_rival(self, recipe: str) -> float:
        self.times = self._turn()
        ours, theirs = self.times
        return theirs / ours

    def track_milliseconds(self, recipe: str) -> float:
        return (self.times or self._turn())[0]

    def track_rivals_milliseconds(self, recipe: str) -> float:
        return (self.times or self._turn())[1]
