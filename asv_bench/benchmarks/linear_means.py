"""Losses of a mean, relative to the fastest of scikit-learn's solvers of the same model."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor

from .common import best_times, public


class Means:
    """Dense data of a generalized linear model, until the rival is within 1e-4 of the minimum."""

    params = (["poisson", "gamma", "tweedie"], ["40000 x 27", "4000 x 11", "2000 x 150"])
    param_names = ("loss", "shape")
    unit = "times scikit-learn's speed"
    timeout = 300
    SOLVERS = ("lbfgs", "newton-cholesky")
    TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
    ALPHA, POWER = 1e-3, 1.6
    KINDS = {"poisson": PoissonRegressor, "gamma": GammaRegressor, "tweedie": TweedieRegressor}

    def setup(self, loss: str, shape: str) -> None:
        random = np.random.default_rng(0)
        n, d = (int(size) for size in shape.split(" x "))
        self.X = random.standard_normal((n, d))
        mean = np.exp(self.X @ random.standard_normal(d) / (2 * np.sqrt(d)))
        amounts = random.gamma(2.0, mean / 2) + 1e-6
        self.y = amounts if loss == "gamma" else random.poisson(mean) * 1.0
        if loss == "tweedie":
            self.y *= amounts

    def fit(self, loss: str, tol: float = 1e-4) -> Any:
        own = {"power": self.POWER} if loss == "tweedie" else {}
        regressor = public("linear_model.LinearRegressor")
        return regressor(loss, l2=self.ALPHA * len(self.y), tol=tol, **own).fit(self.X, self.y)

    def rival(self, loss: str, solver: str, tol: float) -> Any:
        own: dict[str, Any] = {"power": self.POWER, "link": "log"} if loss == "tweedie" else {}
        kind = self.KINDS[loss]
        model = kind(alpha=self.ALPHA, solver=solver, tol=tol, max_iter=10_000, **own)
        return model.fit(self.X, self.y)

    def excess(self, model: Any, best: Any, loss: str) -> float:
        """Return how far a model is above the best one, relative to that one's objective."""
        power = {"poisson": 1.0, "gamma": 2.0, "tweedie": self.POWER}[loss]
        k, m, y = 2 - power, power - 1, self.y

        def objective(w: np.ndarray, b: float) -> float:
            z = self.X @ w + b
            rises = np.exp(k * z) / k if k else z
            falls = y * np.exp(-m * z) / m if m else -y * z
            return float((rises + falls).sum() + self.ALPHA * len(y) / 2 * (w @ w))

        least = objective(best.coef_, best.intercept_)
        return (objective(model.coef_, model.intercept_) - least) / float(best.objective_)

    def time_fit(self, loss: str, shape: str) -> None:
        self.fit(loss)

    def track_speed_over_scikit_learn(self, loss: str, shape: str) -> float:
        best, ratios = self.fit(loss, 1e-9), []
        for solver in self.SOLVERS:
            for tol in self.TOLERANCES:
                if self.excess(self.rival(loss, solver, tol), best, loss) <= 1e-4:
                    theirs, ours = best_times(
                        lambda solver=solver, tol=tol: self.rival(loss, solver, tol),
                        lambda: self.fit(loss),
                    )
                    ratios.append(theirs / ours)
                    break
        return min(ratios)
