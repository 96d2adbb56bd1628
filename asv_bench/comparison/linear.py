"""Linear models: the time until the objective is near its minimum, on synthetic and real data."""

from __future__ import annotations

import bz2
import io
import lzma
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from benchmarks.common import public
from benchmarks.linear import problem
from scipy import sparse
from scipy.special import xlogy
from sklearn import datasets
from sklearn.datasets import load_svmlight_file

from comparison.measure import Side
from comparison.rival import Unavailable

__all__ = ["Fit", "fits", "until_near", "weights_of"]

#: The time limit for finding a rival's tolerance, in seconds.
SEARCH = 30.0

#: Data sets of scikit-learn that are scaled to unit variances.
SMALL = ("breast_cancer", "diabetes", "digits")
TESTS = Path(__file__).resolve().parents[2] / "tests" / "data"

Data = tuple[Any, np.ndarray]


#: The losses of numbers.
REGRESSION = ("squared", "epsilon_insensitive", "squared_epsilon_insensitive", "poisson")


class Fit(NamedTuple):
    """A fit of a linear model, until a gap relative to the objective is certified.

    l2 is 1 / C or, if C is infinite, 0.

    A rival certifies nothing. It is timed at its loosest tolerance that brings it so near the
    minimum, which it is spared to look for.
    """

    data: str
    gap: float
    C: float = 1.0
    loss: str = "logistic"
    intercept: bool = False
    l1: float = 0.0
    elements = 0
    kind = "linear"
    cold = False
    share = 1.0

    @property
    def l2(self) -> float:
        return 1 / self.C

    @property
    def rule(self) -> str:
        return f"linear {self.loss}"

    @property
    def variant(self) -> str:
        return self.rule

    @property
    def name(self) -> str:
        intercept = ", intercept" if self.intercept else ""
        l1 = f", l1 = {self.l1:g}" if self.l1 else ""
        return f"{self.rule}, {self.data}{intercept}{l1}, C = {self.C:g}, gap {self.gap:.0e}"

    def problem(self) -> Data:
        """Return the rows and their labels: -1 and 1 for classification."""
        return _problem(self.data, self.loss)

    def objective(self, weights: np.ndarray) -> float:
        """Return the objective at weights, of which the last is the intercept."""
        X, y = self.problem()
        w, z = weights[:-1], X @ weights[:-1] + weights[-1]
        losses = {
            "logistic": lambda: np.logaddexp(0, -y * z),
            "hinge": lambda: np.maximum(0, 1 - y * z),
            "squared_hinge": lambda: np.square(np.maximum(0, 1 - y * z)),
            "squared": lambda: np.square(z - y) / 2,
            "epsilon_insensitive": lambda: np.maximum(0, np.abs(z - y) - 0.1),
            "squared_epsilon_insensitive": lambda: np.square(np.maximum(0, np.abs(z - y) - 0.1)),
            "poisson": lambda: np.exp(z) - y * z - y + xlogy(y, y),
        }[self.loss]()
        return float(losses.sum() + self.l1 * np.abs(w).sum() + self.l2 / 2 * np.square(w).sum())

    def side(self, fit: Callable[[], np.ndarray]) -> Side:
        """Return a side whose step is a fit returning weights, with the objective as state."""
        found: list[np.ndarray] = []

        def step() -> None:
            found[:] = [fit()]

        return Side(step, lambda: [np.array([self.objective(found[0])])])

    def ours(self) -> Side:
        return self.side(lambda: weights_of(_fitted(self, self.gap)))

    def loop(self, changed: object) -> None:
        """Return no loop: a fit makes as many passes over the data as it needs."""


def weights_of(model: Any) -> np.ndarray:
    """Return the coefficients of a fitted estimator, with the intercept as the last."""
    return np.append(np.asarray(model.coef_, float), model.intercept_)


def until_near(
    work: Fit, fit: Callable[[float], np.ndarray], tolerances: Iterable[float]
) -> Callable[[], np.ndarray]:
    """Return the fit with the first tolerance that brings the objective within the gap."""
    bound = (1 + work.gap) * _minimum(work)
    started, least = perf_counter(), np.inf
    for tolerance in tolerances:
        objective = work.objective(fit(tolerance))
        if objective <= bound:
            return lambda: fit(tolerance)
        least = min(least, objective)
        if perf_counter() - started > SEARCH:
            break
    error = least / bound * (1 + work.gap) - 1
    raise Unavailable(f"no nearer than {error:.1e} with tolerances down to {tolerance:.0e}")


def _fitted(work: Fit, gap: float) -> Any:
    regression = work.loss in REGRESSION
    kind = public(f"linear_model.SDCA{'Regressor' if regression else 'Classifier'}")
    options = {"l1": work.l1, "l2": work.l2, "fit_intercept": work.intercept}
    return kind(work.loss, tol=gap, max_iter=100_000, **options).fit(*work.problem())


@cache
def _minimum(work: Fit) -> float:
    """Return a proven lower bound of the minimum."""
    model = _fitted(work, 1e-9)
    return float(np.ravel(model.objective_)[0] - np.ravel(model.dual_gap_)[0])


@cache
def _problem(data: str, loss: str) -> Data:
    if data == "syn":
        return problem("wide")
    if data == "dense":
        return _dense(loss)
    if data == "covtype-like":
        return _covtype_like()
    if data in SMALL:
        X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
        X = (X - X.mean(axis=0)) / (X.std(axis=0) + (X.std(axis=0) == 0))
        if loss in REGRESSION:
            return X, y
        return X, np.where(y % 2 > 0, 1.0, -1.0)
    if data == "abalone":
        X, y = load_svmlight_file(str(TESTS / "abalone_scale.bz2"))
        return X.toarray(), y
    X, y = {"rcv1_small": _rcv1_small, "higgs7k": _higgs7k}.get(data, lambda: _libsvm(data))()
    if sparse.issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # for saga
    return X, np.where(y > 0, 1.0, -1.0)


def _dense(loss: str) -> Data:
    """Return 200 000 rows of 50 features, and labels for a loss."""
    random = np.random.default_rng(0)
    X = random.standard_normal((200_000, 50))
    z = X @ random.standard_normal(50) / 4
    if loss == "squared":
        return X, z + random.standard_normal(len(z))
    if loss == "poisson":
        return X, random.poisson(np.exp(z / 2)).astype(float)
    return X, np.where(z + random.logistic(size=len(z)) > 0, 1.0, -1.0)


def _covtype_like() -> Data:
    """Return rows like those of covtype: 10 measurements, one of 4 areas and one of 40 soils."""
    random = np.random.default_rng(0)
    rows = 100_000
    mixed = random.standard_normal((rows, 10)) @ random.standard_normal((10, 10))
    scale = 10.0 ** random.integers(0, 3, 10)
    X = np.zeros((rows, 54))
    X[:, :10] = (mixed / np.abs(mixed).max(axis=0) + random.random(10)) * scale
    soils = np.minimum(random.zipf(1.5, rows) - 1, 39)
    X[np.arange(rows), 10 + soils // 10] = 1
    X[np.arange(rows), 14 + soils] = 1
    z = mixed @ random.standard_normal(10) / 4 + random.standard_normal(40)[soils]
    return X, np.where(z + random.logistic(size=rows) > 0, 1.0, -1.0)


def _elsewhere(name: str) -> Path:
    folder = os.environ.get("TFOPT_DATA")
    if not folder or not Path(folder, name).exists():
        raise Unavailable(f"TFOPT_DATA does not name a folder with {name}")
    return Path(folder, name)


def _libsvm(name: str) -> Data:
    import tfopt

    shipped = Path(tfopt.__file__).parent / "cli" / "datasets" / f"{name}.bz2"
    return load_svmlight_file(str(shipped if shipped.exists() else _elsewhere(f"{name}.bz2")))


def _rcv1_small() -> Data:
    with bz2.open(_elsewhere("rcv1_small.dat.bz2"), "rt") as lines:
        text = lines.read().replace("|f ", "")
    return load_svmlight_file(io.BytesIO(text.encode()), n_features=60_000, zero_based=True)


def _higgs7k() -> Data:
    with lzma.open(_elsewhere("higgs7k.train.tsv.xz"), "rt") as lines:
        table = np.loadtxt(lines)
    X = table[:, 1:]
    return (X - X.mean(axis=0)) / X.std(axis=0), table[:, 0]


def fits(quick: bool) -> list[Fit]:
    """Return the works: of many features, of few ones, ill-conditioned, with hinges and with l1."""
    if quick:
        return [Fit("a9a", 1e-4), Fit("syn", 1e-4)]
    few = [
        ("breast_cancer", "logistic"),
        ("breast_cancer", "hinge"),
        ("digits", "logistic"),
        ("diabetes", "squared"),
        ("diabetes", "poisson"),
        ("abalone", "squared"),
        ("abalone", "poisson"),
        ("dense", "logistic"),
        ("dense", "squared"),
        ("dense", "poisson"),
    ]
    sparse_ones = [
        ("breast_cancer", "logistic"),
        ("diabetes", "squared"),
        ("abalone", "squared"),
        ("abalone", "poisson"),
        ("dense", "squared"),
        ("a9a", "logistic"),
        ("rcv1_small", "logistic"),
        ("syn", "logistic"),
    ]
    return [
        *(Fit(data, gap) for data in ("a9a", "w8a", "rcv1_small", "syn") for gap in (1e-4, 1e-6)),
        *(
            Fit(data, gap, C, loss, intercept=loss != "hinge")
            for data, loss in few
            for C in (0.01, 1.0, 100.0)
            for gap in (1e-4, 1e-6)
        ),
        Fit("higgs7k", 1e-6),
        *(Fit("covtype-like", 1e-6, C, intercept=True) for C in (0.01, 1.0, 100.0)),
        *(
            Fit(data, 1e-6, C, intercept=intercept)
            for data in ("a9a", "w8a", "rcv1_small", "syn")
            for C in (0.01, 1.0, 100.0)
            for intercept in (False, True)
            if C != 1 or intercept
        ),
        *(Fit(data, 1e-6, loss="hinge") for data in ("a9a", "w8a", "rcv1_small", "syn", "higgs7k")),
        *(
            Fit(data, 1e-6, C, loss)
            for data, loss in (
                ("breast_cancer", "squared_hinge"),
                ("a9a", "squared_hinge"),
                ("rcv1_small", "squared_hinge"),
                ("diabetes", "epsilon_insensitive"),
                ("abalone", "epsilon_insensitive"),
                ("diabetes", "squared_epsilon_insensitive"),
                ("abalone", "squared_epsilon_insensitive"),
            )
            for C in (0.01, 1.0, 100.0)
        ),
        *(
            Fit(data, 1e-6, C, loss, data != "syn", l1=1.0)
            for data, loss in sparse_ones
            for C in (1.0, np.inf)
        ),
    ]
