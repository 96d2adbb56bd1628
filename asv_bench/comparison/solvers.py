"""The solvers of linear models side by side: whether "auto" takes a good one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from benchmarks.common import public
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from comparison.linear import Fit, fits

__all__ = ["SOLVERS", "Choice", "choices"]

SOLVERS = ("auto", "sdca", "newton-cholesky", "newton-cg", "cd")
#: With more features no Hessian is formed.
MOST_IN_HESSIAN = 1000
#: Solvers that take more are not waited for.
MOST_ITERATIONS = 300


class Choice(NamedTuple):
    """A fit to the default tolerance, with an intercept.

    Attributes
    ----------
    data, loss : str
    share : float
        l1, as a share of the least with which all weights are 0.
    l2 : float
    """

    data: str
    loss: str
    share: float = 0.0
    l2: float = 1.0
    TOL = 1e-4

    @property
    def name(self) -> str:
        l1 = f", l1 {self.share:g} of the largest" if self.share else ""
        return f"{self.loss}, {self.data}{l1}, l2 = {self.l2:g}"

    @property
    def solvers(self) -> tuple[str, ...]:
        """The solvers that apply; some of them take too long to wait for."""
        if self.loss == "hinge":
            return "auto", "sdca"
        if self.share == 0 and _data(self.data, self.loss)[0].shape[1] > MOST_IN_HESSIAN:
            return "auto", "sdca", "newton-cg"
        if self.share == 0:
            return "auto", "sdca", "newton-cholesky", "newton-cg"
        return ("auto", "sdca", "cd") if self.l2 else ("auto", "cd")

    def fit(self, solver: str) -> Callable[[], Any]:
        """Return a fit by a solver."""
        X, y = _data(self.data, self.loss)
        kind = "SDCARegressor" if self.loss in ("squared", "poisson") else "SDCAClassifier"
        options = {
            "l1": self.share * _largest(self.data, self.loss),
            "l2": self.l2,
            "tol": self.TOL,
        }
        if solver != "auto":
            options["max_iter"] = MOST_ITERATIONS
        model = public(f"linear_model.{kind}")(self.loss, solver=solver, **options)

        def fit() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                return model.fit(X, y)

        return fit


@cache
def _largest(data: str, loss: str) -> float:
    """Return the least l1 with which all weights are 0."""
    X, y = _data(data, loss)
    slopes = y > 0 if loss == "logistic" else y
    return float(np.abs(X.T @ (slopes - slopes.mean())).max())


@cache
def _data(data: str, loss: str) -> tuple[Any, np.ndarray]:
    if data not in SHAPES:
        return Fit(data, 1e-4, loss=loss).problem()
    random = np.random.default_rng(0)
    rows, columns, common, density = SHAPES[data]
    if density < 1:
        X = sparse.random(rows, columns, density, random_state=0, format="csr")
        X.data[:] = 1.0
    else:
        shared = random.standard_normal((rows, 1)) * common**0.5
        X = shared + (1 - common) ** 0.5 * random.standard_normal((rows, columns))
    score = X @ (random.standard_normal(columns) * (random.uniform(size=columns) < 30 / columns))
    z = score / score.std() + random.standard_normal(rows)
    return X, z if loss == "squared" else np.where(z > np.median(z), 1.0, -1.0)


#: Rows, columns, what dense columns have in common, and the density.
SHAPES = {
    "456 x 30": (456, 30, 0.6, 1.0),
    "1000 x 200": (1000, 200, 0.1, 1.0),
    "4177 x 8": (4177, 8, 0.9, 1.0),
    "43152 x 27": (43152, 27, 0.5, 1.0),
    "26188 x 158, sparse": (26188, 158, 0.0, 0.09),
    "5000 x 20000, sparse": (5000, 20000, 0.0, 0.003),
}


def choices() -> list[Choice]:
    """Return the works: those of the table of rivals, and sparse models."""
    known = {(fit.data, fit.loss): None for fit in fits(quick=False)}
    plain = [Choice(data, loss) for data, loss in known]
    with_l1 = [
        Choice(data, loss, share, l2)
        for data in (*SHAPES, "a9a")
        for loss in ("squared", "logistic")
        if (data, loss) != ("a9a", "squared")
        for share in (0.3, 0.03)
        for l2 in (0.0, 1.0, 100.0)
    ]
    return plain + with_l1
