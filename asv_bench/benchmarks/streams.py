"""Learning from a stream of hashed rows, and hashing: how many times as fast as scikit-learn."""

from __future__ import annotations

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
