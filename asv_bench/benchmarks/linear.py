"""Linear models: time to a certified gap, alone and relative to scikit-learn's liblinear."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csr_matrix
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Lasso, LogisticRegression, QuantileRegressor
from sklearn.svm import LinearSVC, LinearSVR

from .common import best_times, public
from .sdca import EXAMPLES, FEATURES, rows, scores_of

#: Features of the longest rows, and of all.
SHAPES = {"wide": (61, FEATURES), "narrow": (14, 123)}
GAPS = [1e-4, 1e-6]


@cache
def problem(shape: str) -> tuple[csr_matrix, np.ndarray]:
    longest, width = SHAPES[shape]
    data, indices, indptr = rows(longest)
    X = csr_matrix((data.astype(float), indices % width, indptr), shape=(EXAMPLES, width))
    X.sum_duplicates()
    return X, np.where(scores_of(longest) > 0, 1.0, -1.0)


def fit(shape: str, gap: float, **options: Any) -> Any:
    model = public("linear_model.SDCAClassifier")(fit_intercept=False, tol=gap, **options)
    return model.fit(*problem(shape))


class Fit:
    """Logistic regression until the gap is certified; liblinear's until its error is as small."""

    params = (list(SHAPES), GAPS)
    param_names = ("shape", "relative gap")
    unit = "times liblinear's speed"

    def setup(self, shape: str, gap: float) -> None:
        fit(shape, gap)  # makes the data

    def time_fit(self, shape: str, gap: float) -> None:
        fit(shape, gap)

    def track_speed_over_liblinear(self, shape: str, gap: float) -> float:
        X, y = problem(shape)
        optimum = fit(shape, 1e-10).objective_[0]

        def liblinear(tol: float) -> np.ndarray:
            model = LogisticRegression(
                solver="liblinear", dual=True, fit_intercept=False, tol=tol, max_iter=2000
            )
            return model.fit(X, y).coef_[0]

        for tol in (1.0, 0.1, 0.01, 0.001, 0.0001):
            w = liblinear(tol)
            objective = np.logaddexp(0, -y * (X @ w)).sum() + np.square(w).sum() / 2
            if objective <= (1 + gap) * optimum:
                break
        theirs, ours = best_times(lambda: liblinear(tol), lambda: fit(shape, gap))
        return theirs / ours


class Partitions:
    """How many epochs partitions cost."""

    params = ([1, 2, 4, 8],)
    param_names = ("partitions",)
    unit = "epochs"

    def track_epochs(self, partitions: int) -> int:
        return int(fit("wide", 1e-6, num_loss_partitions=partitions).n_iter_[0])


class Classes:
    """Twenty classes of text, all at once and each by a fit of its own."""

    params = (GAPS,)
    param_names = ("relative gap",)
    unit = "times the speed of separate fits"

    def setup(self, gap: float) -> None:
        X, _ = problem("wide")
        X = X.copy()
        # words: few are frequent, most are rare
        X.indices = (X.shape[1] * (X.indices / X.shape[1]) ** 4).astype(X.indices.dtype)
        X.sum_duplicates()
        weights = np.random.default_rng(0).normal(size=(X.shape[1], 20))
        self.X, self.y = X, (X @ weights).argmax(axis=1)

    def fit(self, y: np.ndarray, gap: float) -> Any:
        return public("linear_model.SDCAClassifier")(tol=gap).fit(self.X, y)

    def time_fit(self, gap: float) -> None:
        self.fit(self.y, gap)

    def track_speed_over_separate_fits(self, gap: float) -> float:
        separate, together = best_times(
            lambda: [self.fit(self.y == k, gap) for k in range(20)],
            lambda: self.fit(self.y, gap),
        )
        return separate / together


class Blocks:
    """Dense features of several sizes that resemble each other, in eight blocks."""

    params = ([20, 200],)
    param_names = ("features",)
    N_ROWS = 50_000

    def setup(self, n_features: int) -> None:
        random = np.random.default_rng(0)
        X = random.standard_normal((self.N_ROWS, n_features))
        self.X = (
            X @ random.standard_normal((n_features, n_features)) * np.logspace(-2, 0, n_features)
        )
        scores = self.X @ random.standard_normal(n_features)
        self.y = np.where(scores + random.logistic(size=self.N_ROWS) > 0, 1.0, -1.0)

    def fit(self, rows: list[int] | None) -> Any:
        classifier = public("linear_model.SDCAClassifier")
        return classifier(tol=1e-4, num_loss_partitions=rows).fit(self.X, self.y)

    def track_speed_over_no_blocks(self, n_features: int) -> float:
        alone, blocks = best_times(lambda: self.fit(None), lambda: self.fit([self.N_ROWS // 8] * 8))
        return alone / blocks

    def track_look_over_read(self, n_features: int) -> float:
        """The time of an evaluation, as a share of the time to read the rows."""
        tangent = public("kernels.linear.hessian_products.tangent")
        examples = np.zeros(self.N_ROWS, public("kernels.linear.visits.EXAMPLE"))
        examples["y"], examples["weight"] = self.y, 1.0
        no_rows = np.zeros(0), np.zeros(0, np.int32), np.zeros(self.N_ROWS + 1, np.int32)
        w = np.zeros(n_features)
        read, look = best_times(
            self.X.sum, lambda: tangent(*no_rows, self.X, examples, w, 0.0, "logistic_loss", 1.0)
        )
        return read / look


class Sparse:
    """l1, to a suboptimality relative to the minimum: beside scikit-learn's coordinate descent.

    Data of the shapes of abalone, of categories, of prices of cars, and of diagnoses.
    """

    params = (["abalone", "categories", "prices", "diagnoses"], GAPS)
    param_names = ("data", "relative suboptimality")
    unit = "times scikit-learn's speed"
    TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)

    def setup(self, data: str, gap: float) -> None:
        random = np.random.default_rng(0)
        if data == "categories":
            X = sparse.random(26188, 158, density=0.09, random_state=0, format="csr")
            X.data[:] = 1.0
        else:
            rows, columns, common = {
                "abalone": (3919, 11, 0.95),
                "prices": (43152, 27, 0.5),
                "diagnoses": (456, 30, 0.6),
            }[data]
            shared = random.standard_normal((rows, 1)) * common**0.5
            X = shared + (1 - common) ** 0.5 * random.standard_normal((rows, columns))
        noisy = X @ random.standard_normal(X.shape[1]) + random.standard_normal(X.shape[0])
        self.X, self.y = X, noisy > 0 if data == "diagnoses" else noisy
        self.classifies = data == "diagnoses"
        centred = np.where(self.y, 0.5, -0.5) if self.classifies else self.y - self.y.mean()
        self.l1 = 0.05 * np.abs(X.T @ centred).max()

    def fit(self, tol: float) -> Any:
        name = "SDCAClassifier" if self.classifies else "SDCARegressor"
        # liblinear penalizes the intercept
        options = {"l1": self.l1, "l2": 0.0, "fit_intercept": not self.classifies, "tol": tol}
        return public(f"linear_model.{name}")(**options).fit(self.X, self.y)

    def rival(self, tol: float) -> Any:
        if self.classifies:
            model = LogisticRegression(
                C=1 / self.l1, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=tol,
                max_iter=10_000,
            )  # fmt: skip
        else:
            model = Lasso(self.l1 / len(self.y), tol=tol, max_iter=100_000)
        return model.fit(self.X, self.y)

    def objective(self, model: Any) -> float:
        w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
        z = self.X @ w + b
        losses = (
            np.logaddexp(0, np.where(self.y, -z, z)) if self.classifies else (z - self.y) ** 2 / 2
        )
        return float(losses.sum() + self.l1 * np.abs(w).sum())

    def fastest(self, fit: Any, most: float) -> float:
        return next(tol for tol in self.TOLERANCES if self.objective(fit(tol)) <= most)

    def time_fit(self, data: str, gap: float) -> None:
        self.fit(gap)

    def track_speed_over_scikit_learn(self, data: str, gap: float) -> float:
        most = (1 + gap) * self.objective(self.fit(1e-10))
        tol = self.fastest(self.rival, most)
        theirs, ours = best_times(lambda: self.rival(tol), lambda: self.fit(gap))
        return theirs / ours


class Machine:
    """A support vector machine of few features, until a gap of 1e-6 is certified.

    In memory beside liblinear until it is as near the minimum, which it is spared to look for.
    """

    params = (["diagnoses", "normal"], [0.01, 1.0])
    param_names = ("data", "C")
    unit = "times liblinear's speed"
    timeout = 300
    GAP = 1e-6

    def setup(self, data: str, C: float) -> None:
        if data == "diagnoses":
            X, y = load_breast_cancer(return_X_y=True)
            self.X, self.y = (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)
            return
        random = np.random.default_rng(0)
        self.X = random.standard_normal((20_000, 30))
        score = self.X @ random.standard_normal(30) / 4
        self.y = np.where(score + random.logistic(size=len(score)) > 0, 1.0, -1.0)

    def fit(self, C: float, gap: float = GAP, rows: list[int] | None = None) -> Any:
        kind = public("linear_model.SDCAClassifier")
        model = kind("hinge", C=C, fit_intercept=False, tol=gap, num_loss_partitions=rows)
        return model.fit(self.X, self.y)

    def liblinear(self, C: float, tol: float) -> Any:
        model = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=tol, max_iter=20_000)
        return model.fit(self.X, self.y)

    def time_fit(self, data: str, C: float) -> None:
        self.fit(C)

    def track_speed_over_liblinear(self, data: str, C: float) -> float:
        least = self.fit(C, 1e-9).objective_[0]
        for tol in (0.1, 0.01, 0.001, 0.0001):
            w = self.liblinear(C, tol).coef_[0]
            objective = np.maximum(0, 1 - self.y * (self.X @ w)).sum() + np.square(w).sum() / (
                2 * C
            )
            if objective <= (1 + self.GAP) * least:
                break
        theirs, ours = best_times(lambda: self.liblinear(C, tol), lambda: self.fit(C))
        return theirs / ours

    def track_iterations_in_blocks(self, data: str, C: float) -> int:
        size = len(self.y) // 8
        return int(self.fit(C, rows=[size] * 7 + [len(self.y) - 7 * size]).n_iter_[0])


class Losses:
    """More losses of support vector machines, and quantiles, until a gap is certified.

    Beside scikit-learn's LinearSVC and LinearSVR, in the primal or the dual, whichever is faster,
    and its QuantileRegressor: until they are as near the minimum; the search for how far that is,
    they are spared.
    """

    params = (
        ["squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive", "quantile"],
        ["dense", "sparse"],
    )
    param_names = ("loss", "data")
    unit = "times scikit-learn's speed"
    timeout = 300
    GAP = 1e-4

    def setup(self, loss: str, data: str) -> None:
        random = np.random.default_rng(0)
        few = loss == "quantile"  # a linear program of many rows takes minutes
        if data == "dense":
            self.X = random.standard_normal((2000 if few else 20_000, 30))
        else:
            shape = (2000, 50) if few else (20_000, 2000)
            self.X = sparse.random(*shape, density=0.02, random_state=0, format="csr")
        self.score = self.X @ random.standard_normal(self.X.shape[1])
        self.score += random.standard_t(3, len(self.score))
        self.y = np.where(self.score > 0, 1.0, -1.0) if loss == "squared_hinge" else self.score
        self.l2 = 1e-6 if few else 1.0

    def fit(self, loss: str, tol: float = GAP) -> Any:
        name = "SDCAClassifier" if loss == "squared_hinge" else "SDCARegressor"
        options = {"l2": self.l2, "fit_intercept": loss == "quantile", "tol": tol}
        return public(f"linear_model.{name}")(loss, **options).fit(self.X, self.y)

    def rival(self, loss: str, tol: float, dual: bool) -> Any:
        if loss == "quantile":
            return QuantileRegressor(alpha=0.0, solver="highs").fit(self.X, self.y)
        options = {"dual": dual, "fit_intercept": False, "tol": tol, "max_iter": 5000}
        if loss == "squared_hinge":
            return LinearSVC(**options).fit(self.X, self.y)
        return LinearSVR(epsilon=0.1, loss=loss, **options).fit(self.X, self.y)

    def objective(self, loss: str, model: Any) -> float:
        w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
        r = self.y - self.X @ w - b
        losses = {
            "squared_hinge": lambda: np.square(np.maximum(0, self.y * r)),  # y is -1 or 1
            "epsilon_insensitive": lambda: np.maximum(0, np.abs(r) - 0.1),
            "squared_epsilon_insensitive": lambda: np.square(np.maximum(0, np.abs(r) - 0.1)),
            "quantile": lambda: np.abs(r) / 2,
        }[loss]()
        return float(losses.sum() + self.l2 / 2 * (w @ w))

    def time_fit(self, loss: str, data: str) -> None:
        self.fit(loss)

    def track_speed_over_scikit_learn(self, loss: str, data: str) -> float:
        most = (1 + self.GAP) * self.objective(loss, self.fit(loss, 1e-9))
        times = []
        for dual in (True,) if loss == "epsilon_insensitive" else (False, True):
            for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
                if self.objective(loss, self.rival(loss, tol, dual)) <= most:
                    times.append(
                        best_times(
                            lambda tol=tol, dual=dual: self.rival(loss, tol, dual),
                            lambda: self.fit(loss),
                        )
                    )
                    break
        theirs, ours = min(times)
        return theirs / ours


class Path:
    """A path of 20 penalties with warm starts, relative to one fit with the default penalty.

    Cross-validation has five folds and a last fit, and is relative to as many.
    """

    params = ["logistic", "hinge", "squared"]
    param_names = ("loss",)
    unit = "times one fit"
    timeout = 300

    def setup(self, loss: str) -> None:
        random = np.random.default_rng(0)
        self.X = random.standard_normal((20_000, 30))
        score = self.X[:, 0] + random.standard_normal(len(self.X))
        self.y = score if loss == "squared" else np.where(score > 0, 1.0, -1.0)
        self.l2s = np.logspace(4, -4, 20)
        self.path = public("linear_model.sdca_path")
        kind = "SDCARegressor" if loss == "squared" else "SDCAClassifier"
        self.model = public(f"linear_model.{kind}")(loss)
        self.choice = public(f"linear_model.{kind}CV")(loss, l2s=self.l2s, cv=5)

    def time_path(self, loss: str) -> None:
        self.path(self.X, self.y, loss, l2s=self.l2s)

    def track_ratio_to_one_fit(self, loss: str) -> float:
        path, one = best_times(
            lambda: self.path(self.X, self.y, loss, l2s=self.l2s),
            lambda: self.model.fit(self.X, self.y),
        )
        return path / one

    def track_cross_validation_ratio_to_six_fits(self, loss: str) -> float:
        choice, one = best_times(
            lambda: self.choice.fit(self.X, self.y), lambda: self.model.fit(self.X, self.y)
        )
        return choice / (6 * one)
