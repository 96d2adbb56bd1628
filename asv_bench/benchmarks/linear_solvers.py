"""The gain by parts of the solvers of linear models: fits with them relative to fits without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from .common import best_times, public


def worth(fit: Callable[[], Any], place: str, name: str, value: Any) -> float:
    """Return how many times as long a fit takes if a name of a module or class has a value."""
    fit()
    owner = public(place)
    if name not in vars(owner):
        raise NotImplementedError(f"this tfopt has no {place}.{name}")
    before = vars(owner)[name]

    def without() -> None:
        setattr(owner, name, value)
        try:
            fit()
        finally:
            setattr(owner, name, before)

    with_it, without_it = best_times(fit, without)
    return without_it / with_it


def normal(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((n, m))
    return X, X @ random.standard_normal(m) + random.standard_normal(n) > 0


def diagnoses() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


class OneCall:
    """A step of the interior-point method by one call, for few dense rows."""

    params = ["diagnoses", "1000 x 10", "3000 x 20", "7000 x 28", "20000 x 40"]
    param_names = ("data",)
    unit = "times the speed in rounds"

    def setup(self, data: str) -> None:
        self.X, self.y = diagnoses() if data == "diagnoses" else normal(*map(int, data.split("x")))

    def fit(self) -> Any:
        return public("linear_model.SDCAClassifier")("hinge").fit(self.X, self.y)

    def track_speed_over_rounds(self, data: str) -> float:
        step = "linear_model._fit.interior_rows.Step"
        return worth(self.fit, step, "applies", staticmethod(lambda objective: False))


class LeftOut:
    """Rows far from the kinks that the interior-point method leaves out."""

    params = (["60000 x 20", "30000 x 50", "40000 x 100", "rare class", "one-hot"], [1e-3, 1e-6])
    param_names = ("data", "relative gap")
    unit = "times the speed with all rows"
    timeout = 300

    def setup(self, data: str, gap: float) -> None:
        random = np.random.default_rng(0)
        if data == "rare class":
            self.y = np.where(random.random(50_000) < 0.1, 1.0, -1.0)
            self.X = random.standard_normal((50_000, 22)) + 0.7 * self.y[:, None]
        elif data == "one-hot":
            self.X = sparse.random(32_000, 123, 14 / 123, "csr", random_state=0)
            self.X.data[:] = 1.0
            noise = random.standard_normal(32_000)
            self.y = self.X @ random.standard_normal(123) + noise > 0
        else:
            self.X, self.y = normal(*map(int, data.split("x")))

    def fit(self, gap: float) -> Any:
        return public("linear_model.SDCAClassifier")("hinge", tol=gap).fit(self.X, self.y)

    def track_speed_over_all_rows(self, data: str, gap: float) -> float:
        plan = "linear_model._fit.plan"
        return worth(lambda: self.fit(gap), plan, "MANY_ROWS", 10**12)


class Path:
    """A path of 20 l2, and the choice of one, by Newton's method that keeps its Hessian."""

    params = (["diagnoses", "20000 x 30"], ["path", "cross-validation"])
    param_names = ("data", "what")
    unit = "times the speed of warm starts"
    timeout = 300

    def setup(self, data: str, what: str) -> None:
        self.X, self.y = diagnoses() if data == "diagnoses" else normal(*map(int, data.split("x")))

    def fit(self, what: str) -> Any:
        l2s = np.logspace(4, -4, 20)
        if what == "path":
            return public("linear_model.sdca_path")(self.X, self.y, "logistic", l2s=l2s)
        return public("linear_model.SDCAClassifierCV")(l2s=l2s).fit(self.X, self.y)

    def track_speed_over_warm_starts(self, data: str, what: str) -> float:
        fits = "linear_model.paths.WarmFits"
        return worth(lambda: self.fit(what), fits, "_made_paths", lambda self: [])


class Preconditioned:
    """Hessians that are formed once conjugate gradients have cost as much, beside fits without."""

    params = (["2000 x 400", "5000 x 500", "3000 x 1000"], [0.0, 0.95])
    param_names = ("data", "correlation")
    unit = "times the speed without"
    timeout = 300

    def setup(self, data: str, correlation: float) -> None:
        n, m = map(int, data.split("x"))
        self.X, _ = normal(n, m)
        for j in range(1, m):
            self.X[:, j] *= (1 - correlation**2) ** 0.5
            self.X[:, j] += correlation * self.X[:, j - 1]
        noise = np.random.default_rng(1).standard_normal(n)
        self.y = self.X[:, ::2].sum(axis=1) / m**0.5 + noise > 0

    def fit(self) -> Any:
        return public("linear_model.SDCAClassifier")(tol=1e-6).fit(self.X, self.y)

    def track_speed_over_fits_without(self, data: str, correlation: float) -> float:
        return worth(self.fit, "linear_model._fit.work", "MOST_PRECONDITIONED", 0)


class FewRows:
    """Fewer dense rows than features, beside the same fit without coordinates and a rival."""

    params = (["202 x 751", "60 x 7000", "400 x 20000"], ["logistic", "hinge"])
    param_names = ("data", "loss")
    timeout = 300
    GAP = 1e-4

    def setup(self, data: str, loss: str) -> None:
        random = np.random.default_rng(0)
        n, m = map(int, data.split("x"))
        self.X = random.standard_normal((n, 30)) @ random.standard_normal((30, m))
        self.X += 0.5 * random.standard_normal((n, m))
        self.X /= self.X.std(axis=0)
        self.y = self.X[:, :5].sum(axis=1) + 3 * random.standard_normal(n) > 0

    def fit(self, loss: str, tol: float = GAP) -> Any:
        classifier = public("linear_model.SDCAClassifier")
        return classifier(loss, tol=tol, max_iter=300).fit(self.X, self.y)

    def rival(self, loss: str, tol: float) -> Any:
        if loss == "hinge":
            return SVC(kernel="linear", tol=tol).fit(self.X, self.y)
        return LogisticRegression(tol=tol, max_iter=10_000).fit(self.X, self.y)

    def objective(self, loss: str, model: Any) -> float:
        margins = np.where(self.y, 1, -1) * (self.X @ model.coef_[0] + model.intercept_[0])
        losses = np.maximum(0, 1 - margins) if loss == "hinge" else np.logaddexp(0, -margins)
        return float(losses.sum() + np.square(model.coef_).sum() / 2)

    def time_fit(self, data: str, loss: str) -> None:
        self.fit(loss)

    def track_speed_over_all_features(self, data: str, loss: str) -> float:
        base = "linear_model.estimator"
        return worth(lambda: self.fit(loss), base, "pays", lambda *_: False)

    track_speed_over_all_features.unit = "times the speed with all features"  # type: ignore[attr-defined]

    def track_speed_over_scikit_learn(self, data: str, loss: str) -> float:
        most = (1 + self.GAP) * self.objective(loss, self.fit(loss, 1e-9))
        for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            if self.objective(loss, self.rival(loss, tol)) <= most:
                break
        theirs, ours = best_times(lambda: self.rival(loss, tol), lambda: self.fit(loss))
        return theirs / ours

    track_speed_over_scikit_learn.unit = "times scikit-learn's speed"  # type: ignore[attr-defined]
