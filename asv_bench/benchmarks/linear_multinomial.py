"""The multinomial loss of few features, relative to the fastest of scikit-learn's solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from .common import best_times, public


class Multinomial:
    """Standardised data, until scikit-learn is within 1e-4 of the minimum, too."""

    params = (["digits", "wine", "iris"], [0.01, 1.0, 100.0])
    param_names = ("data", "C")
    unit = "times scikit-learn's speed"
    timeout = 300
    SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky")
    TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

    def setup(self, data: str, C: float) -> None:
        load = {"digits": load_digits, "wine": load_wine, "iris": load_iris}[data]
        X, self.y = load(return_X_y=True)
        self.X = StandardScaler().fit_transform(X)

    def fit(self, C: float, tol: float = 1e-4) -> Any:
        classifier = public("linear_model.SDCAClassifier")
        return classifier("multinomial", C=C, tol=tol).fit(self.X, self.y)

    def rival(self, C: float, solver: str, tol: float) -> Any:
        model = LogisticRegression(C=C, solver=solver, tol=tol, max_iter=10_000)
        return model.fit(self.X, self.y)

    def losses(self, model: Any) -> float:
        z = self.X @ model.coef_.T + model.intercept_
        return float((logsumexp(z, axis=1) - z[np.arange(len(z)), self.y]).sum())

    def objective(self, model: Any, C: float) -> float:
        return self.losses(model) + float(np.square(model.coef_).sum() / (2 * C))

    def time_fit(self, data: str, C: float) -> None:
        self.fit(C)

    def track_speed_over_scikit_learn(self, data: str, C: float) -> float:
        most = (1 + 1e-4) * self.objective(self.fit(C, 1e-9), C)
        ratios = []
        for solver in self.SOLVERS:
            for tol in self.TOLERANCES:
                if self.objective(self.rival(C, solver, tol), C) <= most:
                    theirs, ours = best_times(
                        lambda solver=solver, tol=tol: self.rival(C, solver, tol),
                        lambda: self.fit(C),
                    )
                    ratios.append(theirs / ours)
                    break
        return min(ratios)


class MultinomialLasso(Multinomial):
    """With l1 alone, whose only solver in scikit-learn is SAGA."""

    SOLVERS = ("saga",)

    def fit(self, C: float, tol: float = 1e-4) -> Any:
        classifier = public("linear_model.SDCAClassifier")
        return classifier("multinomial", l1=1 / C, l2=0.0, tol=tol).fit(self.X, self.y)

    def rival(self, C: float, solver: str, tol: float) -> Any:
        options = {"C": C, "solver": solver, "tol": tol, "max_iter": 10_000}
        return LogisticRegression(l1_ratio=1.0, **options).fit(self.X, self.y)

    def objective(self, model: Any, C: float) -> float:
        return self.losses(model) + float(np.abs(model.coef_).sum() / C)
