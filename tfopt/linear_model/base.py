"""What the two estimators of SDCA share: options, data in rows, a fit, and its history."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tfopt import threads
from tfopt.kernels import sdca
from tfopt.linear_model.checks import check_count, check_number, check_weights
from tfopt.linear_model.classes import solve_all
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.problem import Problem, Start
from tfopt.linear_model.search import Settings, Solution
from tfopt.linear_model.solver import partitions_for

__all__ = ["SDCAEstimator"]

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows_of(X: Any) -> Rows:
    """Return data, indices, indptr and a dense block: of a CSR matrix or of an array, no copies.

    Only an unusual matrix is copied: one whose rows name a feature twice, or whose index arrays
    have two types.
    """
    if not sparse.issparse(X):
        return np.zeros(0, X.dtype), np.zeros(0, np.int32), np.zeros(len(X) + 1, np.int32), X
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    indices, indptr = X.indices, X.indptr
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    return X.data, indices, indptr, np.zeros((X.shape[0], 0), X.dtype)


def off_centre(X: Any) -> np.ndarray | None:
    """Return the features' means if they hide the features' differences.

    An intercept without penalty makes them of no account, but not to the visits: beside a mean of
    100 a difference of 1 is next to nothing. Of a CSR matrix, whose zeros must stay, none.
    """
    if sparse.issparse(X):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0, dtype=np.float64)
        variance = X.var(axis=0, dtype=np.float64)
        return mean if np.square(mean).sum() > variance.sum() else None


class SDCAEstimator(LinearModel):
    """A linear model whose weights dual coordinate ascent finds."""

    #: Options' names of losses to the kernels'.
    _LOSSES: dict[str, str]

    def _validate(self, X: Any, y: Any, **options: Any) -> tuple[Any, np.ndarray]:
        self._check_options()
        checked: tuple[Any, np.ndarray] = self._features(X, reset=True, y=y, order="C", **options)
        return checked

    def _check_options(self) -> None:
        if self.loss not in self._LOSSES:
            raise ValueError(f"loss must be one of {sorted(self._LOSSES)}, not {self.loss!r}")
        check_number("l1", self.l1, 0)
        check_number("l2", self.l2, 0, open_end=True)
        check_number("tol", self.tol, 0)
        check_count("max_iter", self.max_iter, 1)
        if self.C is not None:
            check_number("C", self.C, 0, open_end=True)
            if self.l2 != 1.0:
                raise ValueError("C is 1 / l2: give one of them")
        if self.num_loss_partitions is not None:
            check_count("num_loss_partitions", self.num_loss_partitions, 1)
            if self.adaptive and self.num_loss_partitions > 1:
                raise ValueError("adaptive visits need num_loss_partitions=1 or None")

    def _weights(self, sample_weight: Any, X: Any) -> np.ndarray:
        weights = check_weights(sample_weight, X)
        if not weights.any():
            raise ValueError("sample_weight must not be zero for all samples")
        return weights

    def _n_threads(self) -> int:
        allowed = threads.get_num_threads()
        if self.n_jobs is None or self.n_jobs == -1:
            return allowed
        return min(check_count("n_jobs", self.n_jobs, 1), allowed)

    def _n_partitions(self, problem: Problem, n_problems: int) -> int:
        """Return how many parts are visited side by side."""
        if self.num_loss_partitions is not None:
            return int(self.num_loss_partitions)
        if self.adaptive or n_problems > 1:  # classes are what is solved side by side
            return 1
        return partitions_for(problem.n_features, problem.n_weights)

    def _start(
        self, targets: list[np.ndarray], weights: np.ndarray, shift: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the dual variables and the intercepts to start from, of each problem."""
        n_problems, n_examples = len(targets), len(weights)
        if not (self.warm_start and hasattr(self, "dual_coef_")):
            guesses = [self._bias_of(y, weights) for y in targets]
            return np.zeros((n_problems, n_examples)), np.array(guesses)
        duals = np.atleast_2d(self.dual_coef_)
        if duals.shape != (n_problems, n_examples):
            raise ValueError(
                f"warm_start goes on from the dual variables of the same samples: there were "
                f"{duals.shape[1]} in {duals.shape[0]} problems, now {n_examples} in {n_problems}"
            )
        biases: np.ndarray = np.atleast_1d(self.intercept_)
        return duals, biases if shift is None else biases + (np.atleast_2d(self.coef_) * shift).sum(
            axis=1
        )

    def _solve(self, X: Any, targets: list[np.ndarray], weights: np.ndarray) -> None:
        """Solve a problem for each array of targets, side by side.

        Parameters
        ----------
        X : array or CSR matrix, shape (n_samples, n_features)
        targets : list of ndarray, shape (n_samples,)
        weights : ndarray, shape (n_samples,)
        """
        shift = off_centre(X) if self.fit_intercept else None
        duals, biases = self._start(targets, weights, shift)
        rows = rows_of(X if shift is None else X - shift)
        n_threads = self._n_threads()
        workers = min(n_threads, len(targets))
        l2 = float(self.l2) if self.C is None else 1 / float(self.C)
        problem = Problem(
            rows=rows,
            n_weights=X.shape[1],
            loss=self._LOSSES[self.loss],
            gamma=check_number("gamma", getattr(self, "gamma", 1.0), 0, open_end=True),
            l1=float(self.l1),
            l2=l2,
            intercept=bool(self.fit_intercept),
            threads=max(1, n_threads // workers),
        )
        curvature = sdca.squared_norms(rows[0], rows[2], rows[3]) / l2
        if not np.isfinite(curvature).all():
            raise ValueError("the squares of X, divided by l2, overflow: scale the features")
        starts = [
            Start(y, weights, curvature, self._allowed(a, y), bias)
            for y, a, bias in zip(targets, duals, biases, strict=True)
        ]
        with _Progress(self.verbose, self.max_iter) as progress:

            def report(record: dict[str, Any]) -> None:
                progress(record)
                if self.callback is not None:
                    self.callback(record)

            settings = Settings(
                n_partitions=self._n_partitions(problem, len(targets)),
                adaptive=bool(self.adaptive),
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
                max_iter=self.max_iter,
                tol=self.tol,
                report=report,
            )
            solutions = solve_all(problem, starts, settings, workers)
        self._warn(solutions)
        points = [solution.certificate for solution in solutions]
        self.coef_ = np.array([point.w for point in points])
        self.intercept_ = np.array([point.bias for point in points])
        if shift is not None:
            self.intercept_ -= (self.coef_ * shift).sum(axis=1)
        self.dual_coef_ = np.array([point.examples["a"] for point in points])
        self.objective_ = np.array([point.objective for point in points])
        self.dual_gap_ = np.array([point.gap for point in points])
        self.n_iter_ = np.array([solution.n_iter for solution in solutions])
        self.history_ = [solution.history for solution in solutions]

    def _allowed(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the dual variables nearest to `a` that the labels allow."""
        raise NotImplementedError

    def _bias_of(self, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the intercept of a model that has nothing else, or a guess."""
        raise NotImplementedError

    def _warn(self, solutions: list[Solution]) -> None:
        gap = max(solution.certificate.relative_gap for solution in solutions)
        if gap > self.tol:
            warnings.warn(
                f"the relative duality gap is {gap:.2g} after max_iter={self.max_iter} "
                f"iterations, above tol={self.tol:g}: raise max_iter or tol, or scale the features",
                ConvergenceWarning,
                stacklevel=4,
            )

    def plot_history(self, ax: Any = None) -> Any:
        """Draw the relative duality gap over time; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure's otherwise.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        import matplotlib.pyplot as plt

        ax = ax or plt.subplots()[1]
        for k, history in enumerate(self.history_):
            seconds, gaps, certified = (
                np.array([record[name] for record in history])
                for name in ("seconds", "gap", "certified")
            )
            (line,) = ax.plot(seconds, gaps, lw=1)
            label = "certified" if k == 0 else None
            ax.plot(seconds[certified], gaps[certified], "o", color=line.get_color(), label=label)
        ax.axhline(self.tol, color="0.5", ls=":", label="tol")
        ax.set(xlabel="seconds", ylabel="relative duality gap", yscale="log")
        ax.legend()
        return ax


class _Progress:
    """A bar of iterations, if there is to be one."""

    def __init__(self, verbose: bool, max_iter: int) -> None:
        self._bar: Any = None
        if verbose:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=max_iter, unit="epoch")

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        return self._tell

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _tell(self, record: dict[str, Any]) -> None:
        if self._bar is not None:
            self._bar.update(record["iteration"] - self._bar.n)
            self._bar.set_postfix(gap=f"{record['gap']:.1e}")
