"""Learning from sparse rows, hashed or in batches: how many times as fast as scikit-learn."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from .common import best_times, public

FEATURES, ENTRIES = 2**22, 40


class Stream:
    """partial_fit of rows with 40 of many features, some rows a call."""

    params = ([2**16, 2**20, FEATURES], [1, 32, 512, 8192])
    param_names = ("features", "rows in a call")
    timeout = 300

    def setup(self, features: int, rows: int) -> None:
        from scipy import sparse
        from sklearn.linear_model import SGDClassifier

        random = np.random.default_rng(0)
        calls = max(1, min(8, 8192 // rows))
        self.pieces = []
        for _ in range(calls):
            indices = np.sort(random.integers(0, features, (rows, ENTRIES)), axis=1)
            parts = (
                np.ones(indices.size),
                indices.ravel(),
                np.arange(0, indices.size + 1, ENTRIES),
            )
            X = sparse.csr_matrix(parts, (rows, features))
            self.pieces.append((X, random.integers(0, 2, rows)))
        self.ours = public("linear_model.FTRLClassifier")(learning_rate=0.1)
        self.theirs = SGDClassifier(loss="log_loss")
        for model in (self.ours, self.theirs):
            model.partial_fit(*self.pieces[0], classes=[0, 1])
        self.table = np.zeros((features, 3))

    def learn(self, model: Any) -> None:
        for X, y in self.pieces:
            model.partial_fit(X, y)

    def time_partial_fit(self, features: int, rows: int) -> None:
        self.learn(self.ours)

    def track_times_the_speed_of_sgd(self, features: int, rows: int) -> float:
        theirs, ours = best_times(lambda: self.learn(self.theirs), lambda: self.learn(self.ours))
        return theirs / ours

    def track_times_the_speed_of_a_gather(self, features: int, rows: int) -> float:
        """How many times as fast as NumPy reads and writes the three numbers of each entry."""

        def move() -> None:
            for X, _ in self.pieces:
                self.table[X.indices] = self.table[X.indices]

        moved, ours = best_times(move, lambda: self.learn(self.ours))
        return moved / ours


class StreamOptions:
    """Three epochs of fit with an option of both: 20 000 rows with 40 of 2^16 features."""

    OPTIONS: dict[str, dict[str, Any]] = {
        "none": {},
        "hinge": {"loss": "hinge"},
        "class_weight": {"class_weight": {0: 1.0, 1: 3.0}},
        "average": {"average": True},
        "early_stopping": {"early_stopping": True, "n_iter_no_change": 9},
        "warm_start": {"warm_start": True},
    }
    params = [*OPTIONS]
    param_names = ("option",)
    timeout = 300

    def setup(self, option: str) -> None:
        from scipy import sparse
        from sklearn.linear_model import SGDClassifier

        random = np.random.default_rng(0)
        rows, features, epochs = 20_000, 2**16, 3
        indices = np.sort(random.integers(0, features, (rows, ENTRIES)), axis=1)
        parts = np.ones(indices.size), indices.ravel(), np.arange(0, indices.size + 1, ENTRIES)
        self.data = sparse.csr_matrix(parts, (rows, features)), random.integers(0, 2, rows)
        given = {"max_iter": epochs, "tol": 1e-9, **self.OPTIONS[option]}
        self.ours = public("linear_model.FTRLClassifier")(learning_rate=0.1)
        if not {*given} <= {*self.ours.get_params()}:
            raise NotImplementedError("this tfopt has no such option")
        self.ours.set_params(**given)
        self.theirs = SGDClassifier(**{"loss": "log_loss", **given})

    def fit(self, model: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of so few epochs
            model.fit(*self.data)

    def time_fit(self, option: str) -> None:
        self.fit(self.ours)

    def track_times_the_speed_of_sgd(self, option: str) -> float:
        theirs, ours = best_times(lambda: self.fit(self.theirs), lambda: self.fit(self.ours))
        return theirs / ours


class Batches:
    """An epoch of logistic regression in shuffled batches of 256, with 75 of many features a row.

    As `tfopt train` takes them. Features are as unequal as words are.
    """

    params = ([2**18, 2**20], ["SGD", "Adagrad", "Adamax"])
    param_names = ("features", "optimizer")
    timeout = 300

    def setup(self, features: int, optimizer: str) -> None:
        from scipy import sparse
        from sklearn.datasets import dump_svmlight_file
        from sklearn.linear_model import SGDClassifier

        public("sparse_rows.SparseRows")
        random = np.random.default_rng(0)
        rows, entries = 20_000, 75
        indices = (features ** random.random(rows * entries)).astype(np.int64) * 7919 % features
        indptr = np.arange(0, indices.size + 1, entries)
        parts = random.random(indices.size).round(6), indices, indptr
        self.X = sparse.csr_matrix(parts, (rows, features))
        self.X.sum_duplicates()
        self.y = random.integers(0, 2, rows).astype(np.float64)
        self.weights, self.optimizer = np.zeros(features), public(f"optimizers.{optimizer}")(0.01)
        self.rival = SGDClassifier(loss="log_loss")
        self.rival.partial_fit(self.X[:256], self.y[:256], classes=[0, 1])
        dump_svmlight_file(self.X, self.y, text := io.BytesIO(), zero_based=False)
        self.text = text.getvalue()
        self.threads = public("threads.get_num_threads")(), public("threads.set_num_threads")

    def epoch(self) -> None:
        rows, w = public("sparse_rows.SparseRows")(self.X), self.weights
        order = np.random.default_rng(1).permutation(len(self.y))
        for start in range(0, len(order), 256):
            chosen = order[start : start + 256]
            batch = rows.take(chosen)
            residuals = 1 / (1 + np.exp(-batch.dot(w))) - self.y[chosen]
            self.optimizer.apply_gradients([(batch.gradient(residuals / 256), w)])

    def time_epoch(self, features: int, optimizer: str) -> None:
        self.epoch()

    def track_times_the_speed_of_sgd_classifier(self, features: int, optimizer: str) -> float:
        theirs, ours = best_times(lambda: self.rival.partial_fit(self.X, self.y), self.epoch)
        return theirs / ours

    def track_times_the_speed_of_reading(self, features: int, optimizer: str) -> float:
        """How many times as fast as the rows are read from LIBSVM text in memory, by one thread."""
        read, (threads, set_threads) = public("io.read_libsvm"), self.threads
        set_threads(1)
        reading, ours = best_times(lambda: read(io.BytesIO(self.text)), self.epoch)
        set_threads(threads)
        return reading / ours


class Hashing:
    """Hash the columns of 2048 rows with 40 entries each."""

    def setup(self) -> None:
        from scipy import sparse
        from sklearn.feature_extraction import FeatureHasher

        random = np.random.default_rng(0)
        columns = random.integers(0, 2**31 - 1, (2048, ENTRIES)).astype(np.int32)
        indptr = np.arange(0, columns.size + 1, ENTRIES, dtype=np.int32)
        shape = (len(columns), 2**31 - 1)
        self.X = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), indptr), shape)
        self.named = [{str(column): 1.0 for column in row} for row in columns.tolist()]
        self.hash, self.hasher = public("io.hash_features"), FeatureHasher(FEATURES)

    def time_hash(self) -> None:
        self.hash(self.X, FEATURES)

    def track_times_the_speed_of_feature_hasher(self) -> float:
        theirs, ours = best_times(
            lambda: self.hasher.transform(self.named), lambda: self.hash(self.X, FEATURES)
        )
        return theirs / ours
