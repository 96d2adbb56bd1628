"""What the two estimators of SDCA share: options, data in rows, a fit, and its history."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tfopt import threads
from tfopt.errors import InvalidArgumentError
from tfopt.kernels import sdca
from tfopt.linear_model.block_fit import BlockFit, Labels, Raw, fit_blocks, rows_of
from tfopt.linear_model.checks import check_count, check_number
from tfopt.linear_model.classes import solve_all
from tfopt.linear_model.executors import ThreadExecutor
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.problem import Problem, Start, allowed
from tfopt.linear_model.search import Settings, Solution
from tfopt.linear_model.solver import partitions_for

__all__ = ["SDCAEstimator"]

#: The relative gap that is enough unless another is asked for.
ENOUGH = 1e-4


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
        check_number("tol", self._tol, 0)
        check_count("max_iter", self.max_iter, 1)
        self._l2()
        partitions = self.num_loss_partitions
        if self._has_blocks:
            for size in partitions:
                check_count("each of num_loss_partitions", size, 1)
        elif partitions is not None:
            check_count("num_loss_partitions", partitions, 1)
        if self.adaptive and (self._has_blocks or (partitions or 1) > 1):
            raise ValueError("adaptive visits need num_loss_partitions=1 or None")

    def _l2(self) -> float:
        """Return the penalty, which l2 names, or C, or neither."""
        if self.C is None:
            l2 = 1.0 if self.l2 is None else check_number("l2", self.l2, 0, open_end=True)
        elif self.l2 is None:
            C = check_number("C", self.C, 0, open_end=True)
            l2 = 1 / C
        else:
            raise ValueError("C is 1 / l2: set only one of them")
        if math.isinf(l2):
            raise ValueError(f"1 / C overflows: C={self.C!r} is too small")
        if math.isinf(float(self.l1) / l2):
            raise ValueError(f"l1 / l2 overflows: l2={l2!r} is too small beside l1={self.l1!r}")
        return l2

    @property
    def _in_blocks(self) -> bool:
        """Whether the samples stay in the blocks that they are given in."""
        return self._has_blocks

    @property
    def _tol(self) -> float:
        """The relative gap that is enough."""
        return ENOUGH if self.tol is None else self.tol

    @property
    def _has_blocks(self) -> bool:
        """Whether the partitions are given, each by its number of rows."""
        return isinstance(self.num_loss_partitions, (Sequence, np.ndarray))

    def _n_threads(self) -> int:
        n_jobs = self.n_jobs
        if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
            raise ValueError(f"n_jobs must be an integer but 0, or None, not {n_jobs!r}")
        return max(1, min(int(effective_n_jobs(n_jobs)), threads.get_num_threads()))

    def _n_partitions(self, problem: Problem, n_problems: int) -> int:
        """Return how many parts are visited side by side."""
        if self.num_loss_partitions is not None:
            return int(self.num_loss_partitions)
        if self.adaptive or n_problems > 1:  # classes are what is solved side by side
            return 1
        return partitions_for(problem.n_features, problem.n_weights)

    def _start(
        self,
        targets: list[np.ndarray],
        weights: np.ndarray,
        n_features: int,
        shift: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the dual variables and the intercepts to start from, of each problem."""
        guesses = [self._bias_of(y, weights) for y in targets]
        self._check_warm_start(len(weights), len(targets), n_features)
        if not self._is_warm:
            return np.zeros((len(targets), len(weights))), np.array(guesses)
        return np.atleast_2d(self.dual_coef_), self._biases(guesses, shift)

    @property
    def _is_warm(self) -> bool:
        return bool(self.warm_start and hasattr(self, "dual_coef_"))

    def _check_warm_start(self, n_examples: int, n_problems: int, n_features: int) -> None:
        """Refuse to go on from a fit of other samples."""
        if not self._is_warm:
            return
        *problems, length = self.dual_coef_.shape
        were = (length, [*problems, 1][0], self.coef_.shape[-1])
        now = (n_examples, n_problems, n_features)
        for there_were, there_are, what in zip(
            were, now, ("samples", "problems, one for each class,", "features"), strict=True
        ):
            if there_were != there_are:
                raise InvalidArgumentError(
                    "warm_start goes on from the dual variables of the last fit's samples: it had "
                    f"{there_were} {what} and this one has {there_are}; set warm_start=False"
                )

    def _biases(self, guesses: Sequence[float], shift: np.ndarray | None) -> np.ndarray:
        """Return where the intercepts start, given guesses and what is subtracted from X."""
        if not self._is_warm:
            return np.array(guesses)
        biases: np.ndarray = np.atleast_1d(self.intercept_)
        return biases if shift is None else biases + (np.atleast_2d(self.coef_) * shift).sum(axis=1)

    def _last_weights(self) -> np.ndarray | None:
        """Return the weights that a fit goes on from, if there are such, of each problem."""
        return np.atleast_2d(self.coef_) if self._is_warm else None

    def _solve(self, X: Any, targets: list[np.ndarray], weights: np.ndarray) -> None:
        """Solve a problem for each array of targets, side by side.

        Parameters
        ----------
        X : array or CSR matrix, shape (n_samples, n_features)
        targets : list of ndarray, shape (n_samples,)
        weights : ndarray, shape (n_samples,)
        """
        shift = off_centre(X) if self.fit_intercept else None
        duals, biases = self._start(targets, weights, X.shape[1], shift)
        n_threads = self._n_threads()
        workers = min(n_threads, len(targets))
        problem = dataclasses.replace(
            self._problem(X.shape[1], max(1, n_threads // workers)),
            rows=rows_of(X if shift is None else X - shift),
        )
        rows = problem.rows
        curvature = sdca.squared_norms(rows[0], rows[2], rows[3]) / problem.l2
        if not np.isfinite(curvature).all():
            raise ValueError("the squares of X, divided by l2, overflow: scale the features")
        starts = [
            Start(y, weights, curvature, allowed(a, y, problem.loss), bias)
            for y, a, bias in zip(targets, duals, biases, strict=True)
        ]
        with self._settings(self._n_partitions(problem, len(targets))) as settings:
            solutions = solve_all(problem, starts, settings, workers)
        points = [solution.certificate for solution in solutions]
        duals = np.array([point.examples["a"] for point in points])
        self._conclude(BlockFit(solutions, duals, shift, (len(weights),)))
        self._warn(solutions)

    def _solve_blocks(self, X: Any, y: np.ndarray, weights: np.ndarray) -> None:
        """Solve the problems of samples whose partitions are given."""
        ends = np.cumsum(self.num_loss_partitions)
        if ends.size == 0 or ends[-1] != len(y):
            raise ValueError(
                f"num_loss_partitions must add up to the number of samples, {len(y)}, not "
                f"{ends[-1] if ends.size else 0}"
            )
        starts = (ends - self.num_loss_partitions).tolist()
        duals = np.atleast_2d(self.dual_coef_) if self._is_warm else None
        raws = [
            Raw(k, X[i:j], y[i:j], weights[i:j], duals if duals is None else duals[:, i:j])
            for k, (i, j) in enumerate(zip(starts, ends.tolist(), strict=True))
        ]
        problem = self._problem(0, 1)
        with (
            self._settings(len(raws)) as settings,
            ThreadExecutor(raws, self._n_threads()) as executor,
        ):
            fit = fit_blocks(self, executor, problem, settings)
        self._conclude(fit)
        self._warn(fit.solutions)

    def _problem(self, n_weights: int, n_threads: int) -> Problem:
        """Return what the options ask for, without rows."""
        nothing = np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros((0, 0))
        return Problem(
            rows=nothing,
            n_weights=n_weights,
            loss=self._LOSSES[self.loss],
            gamma=check_number("gamma", getattr(self, "gamma", 1.0), 0, open_end=True),
            l1=float(self.l1),
            l2=self._l2(),
            intercept=bool(self.fit_intercept),
            threads=n_threads,
        )

    @contextlib.contextmanager
    def _settings(self, n_partitions: int) -> Iterator[Settings]:
        """Yield how to look for the minimum, with a bar as long as that takes."""
        lock, stopped = threading.Lock(), threading.Event()
        with _Progress(self.verbose, self.max_iter) as progress:

            def report(record: dict[str, Any]) -> None:
                with lock:  # problems are solved side by side
                    progress(record)
                    answer = self.callback(record) if self.callback is not None else None
                    if answer is True or (isinstance(answer, np.bool_) and answer):
                        stopped.set()

            yield Settings(
                n_partitions=n_partitions,
                adaptive=bool(self.adaptive),
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
                max_iter=self.max_iter,
                tol=self._tol,
                polish=self.tol is None,
                report=report,
                stopped=stopped.is_set,
            )

    def _conclude(self, fit: BlockFit) -> None:
        """Take over what was found."""
        points = [solution.certificate for solution in fit.solutions]
        self.coef_ = np.array([point.w for point in points])
        self.intercept_ = np.array([point.bias for point in points])
        if fit.shift is not None:
            self.intercept_ -= (self.coef_ * fit.shift).sum(axis=1)
        self.dual_coef_ = fit.duals
        self.objective_ = np.array([point.objective for point in points])
        self.dual_gap_ = np.array([point.gap for point in points])
        self.n_iter_ = np.array([solution.n_iter for solution in fit.solutions])
        self.history_ = [solution.history for solution in fit.solutions]

    #: Whether labels are classes.
    _is_of_classes: bool

    def _labels(self, found: dict[str, Any]) -> Labels:
        """Return what the labels of all blocks amount to, given a survey of them."""
        raise NotImplementedError

    def _bias_of(self, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the intercept of a model that has nothing else, or a guess."""
        raise NotImplementedError

    def _warn(self, solutions: list[Solution]) -> None:
        """Say so if a problem was given up, but not if the callback wanted that."""
        gaps = [
            solution.certificate.relative_gap
            for solution in solutions
            if solution.n_iter >= self.max_iter
        ]
        if not all(gap <= self._tol for gap in gaps):
            warnings.warn(
                f"the relative duality gap is {max(gaps):.2g} after max_iter={self.max_iter} "
                f"iterations, above tol={self._tol:g}: raise max_iter or tol, {self._advice()}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _advice(self) -> str:
        """Return what else might help a fit that does not come to its end."""
        if self._in_blocks and (self.l1 > 0 or self.loss == "hinge"):
            return (
                "or have fewer and larger blocks: with l1 or the hinge loss, whose examples must "
                "be visited, each block hides from the others what it has learned"
            )
        if self.l1 > 0:
            return "or raise l2, to which the number of epochs is inversely proportional with l1"
        return "or scale the features"

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
        ax.axhline(self._tol, color="0.5", ls=":", label="tol")
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
