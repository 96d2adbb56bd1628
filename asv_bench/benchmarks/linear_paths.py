"""Lasso paths and their cross-validation on tall data, relative to scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LassoCV, lasso_path

from .common import best_times, public


class LassoPath:
    """A path of 50 penalties, and the choice of one by cross-validation with five folds.

    The path of scikit-learn is that of centred columns, until it is within 1e-4 of the minimum.
    """

    params = ["354 x 10", "5000 x 20", "43152 x 27", "20000 x 200"]
    param_names = ("data",)
    unit = "times scikit-learn's speed"
    timeout = 300
    TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)

    def setup(self, data: str) -> None:
        random = np.random.default_rng(0)
        n, m = map(int, data.split(" x "))
        self.X = random.standard_normal((n, m)) @ (np.eye(m) + 0.3 * random.standard_normal((m, m)))
        w = np.where(random.random(m) < 0.4, random.standard_normal(m), 0.0)
        self.y = self.X @ w + random.standard_normal(n) * m**0.5
        self.columns = np.asfortranarray(self.X - self.X.mean(axis=0))
        self.centred = self.y - self.y.mean()
        strongest = np.abs(self.columns.T @ self.centred).max() / n
        self.alphas = np.geomspace(strongest, strongest / 100, 50)
        self.path = public("linear_model.sdca_path")
        self.cv = public("linear_model.SDCARegressorCV")

    def ours(self) -> Any:
        return self.path(self.X, self.y, "squared", l1s=self.alphas * len(self.y), l2=0.0)

    def theirs(self, tol: float) -> np.ndarray:
        options = {"alphas": self.alphas, "tol": tol, "max_iter": 100_000}
        return lasso_path(self.columns, self.centred, **options)[1].T

    def is_as_good(self, tol: float, excess: float, least: np.ndarray) -> bool:
        coefs = self.theirs(tol)
        losses = np.square(coefs @ self.columns.T - self.centred).sum(axis=1) / 2
        values = losses + self.alphas * len(self.y) * np.abs(coefs).sum(axis=1)
        return bool((values <= (1 + excess) * least).all())

    def loosest(self) -> float:
        path = self.ours()
        least = (path.objectives - path.dual_gaps).ravel()
        return next(tol for tol in self.TOLERANCES if self.is_as_good(tol, 1e-4, least))

    def time_path(self, data: str) -> None:
        self.ours()

    def track_path_speed(self, data: str) -> float:
        tol = self.loosest()
        theirs, ours = best_times(lambda: self.theirs(tol), self.ours)
        return theirs / ours

    def track_cross_validation_speed(self, data: str) -> float:
        their_choice = LassoCV(alphas=self.alphas, cv=5, tol=self.loosest())
        our_choice = self.cv(l1s=self.alphas * len(self.y) * 0.8, l2=0.0, cv=5)
        theirs, ours = best_times(
            lambda: their_choice.fit(self.X, self.y), lambda: our_choice.fit(self.X, self.y)
        )
        return theirs / ours
