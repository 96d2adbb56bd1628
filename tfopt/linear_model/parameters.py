"""The options of the estimators, the requirements of each solver, and the parameters of a fit."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.platform import runtime
from tfopt.linear_model._fit.problem import NO_ROWS, Problem, Rows
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.progress import reporting
from tfopt.linear_model.validation import EachPenalty, check_count, check_number

__all__ = [
    "CG",
    "CHOLESKY",
    "DEFAULT_TOL",
    "DESCENT",
    "INTERIOR",
    "LossChoice",
    "Needs",
    "Parameters",
    "SDCA",
    "SDCAOptions",
    "SOLVERS",
    "applies",
    "has_descent",
    "has_hessian",
]

#: The relative duality gap to stop at by default.
DEFAULT_TOL = 1e-4


class Parameters(NamedTuple):
    """The parameters of a fit, without its problem.

    Attributes
    ----------
    solver : str
        "auto", or the only solver to use.
    adaptive : bool
        Whether visits are sampled by importance.
    n_partitions : int or None
        The number of partitions to visit in parallel; None: chosen by the size of the data.
    is_warm : bool
        Whether weights near the solution are known.
    seed : int
    max_iter : int
        The largest number of epochs and steps together.
    tol : float
        The relative duality gap to stop at.
    polish : bool
        Whether to refine a solution within `tol` to the last digits if that is cheap.
    report : callable, optional
        Called with the record of each iteration.
    stopped : callable
        Returns whether to end with the next certificate, even if its gap is large.
    deadline : float
        The time of `time.perf_counter` after which the fit ends like that, too.
    """

    solver: str = "auto"
    adaptive: bool = False
    n_partitions: int | None = None
    is_warm: bool = False
    seed: int = 0
    max_iter: int = 1000
    tol: float = 1e-4
    polish: bool = False
    report: Callable[[dict[str, Any]], object] | None = None
    stopped: Callable[[], bool] | None = None
    deadline: float = math.inf

    @property
    def asks_for_visits(self) -> bool:
        """Whether options of visits were set, so that the fit should begin with visits."""
        return self.adaptive or self.n_partitions is not None


class Needs(NamedTuple):
    """The requirements of a solver for a problem.

    Attributes
    ----------
    smooth : bool or None
        True if the loss must be smooth, False if it must have a corner; None allows both.
    takes_l1 : bool
        Whether there may be an l1 penalty.
    l2 : bool
        Whether l2 must be above 0; otherwise l1 or l2 must be.
    most_features : float
        The largest number of features, for solvers that form matrices with its square.
    visits : bool
        Whether it visits samples, so that options of the visits apply.
    is_joint : bool
        Whether it also solves several classes as one problem.
    without_penalty : bool
        Whether l1 and l2 may both be 0 for a loss that is a likelihood.
    takes_each : bool
        Whether weights may have their own penalties, including 0, or must be nonnegative.
    takes_offset : bool
        Whether numbers may be added to the predictions of classes.
    """

    smooth: bool | None = True
    takes_l1: bool = False
    l2: bool = True
    most_features: float = math.inf
    visits: bool = False
    is_joint: bool = False
    without_penalty: bool = False
    takes_each: bool = False
    takes_offset: bool = False

    def unmet(self, loss: PointwiseLoss, l1: float, l2: float, plain: bool = True) -> str | None:
        """Return the requirement that a problem does not meet, or None."""
        if not (plain or self.takes_each):
            return "positive=False, and no factor of 0 nor, with l1, any in penalty_factor"
        if l1 == l2 == 0 and self.without_penalty and loss.is_likelihood:
            return None
        if l1 > 0 and not self.takes_l1:
            return f"l1=0, not l1={l1!r}"
        if self.smooth is not None and self.smooth != loss.is_smooth:
            kind = "smooth loss" if self.smooth else "loss with a corner"
            return f"a {kind}, not loss={loss.name!r}"
        if l2 == 0 and plain and (self.l2 or l1 == 0):
            return "l2 above 0" if self.l2 else "l1 or l2 above 0"
        return None


#: Epochs of dual coordinate ascent, Newton's method with two solvers of its linear system,
#: coordinate descent, and the interior-point method, in the order of their codes in checkpoints.
SDCA, CHOLESKY, CG, DESCENT, INTERIOR = (
    "sdca",
    "newton-cholesky",
    "newton-cg",
    "cd",
    "interior-point",
)
SOLVERS = {
    SDCA: Needs(smooth=None, takes_l1=True, visits=True),
    CHOLESKY: Needs(most_features=5000, without_penalty=True),
    CG: Needs(is_joint=True),
    DESCENT: Needs(takes_l1=True, l2=False, takes_each=True, takes_offset=True, is_joint=True),
    INTERIOR: Needs(smooth=False, takes_l1=True, l2=False, most_features=5000, takes_each=True),
}


def applies(solver: str, problem: Problem) -> bool:
    """Whether a problem meets the requirements of a solver."""
    needs, penalties = SOLVERS[solver], (problem.l1, problem.l2, problem.is_plain)
    fits = problem.n_weights <= needs.most_features and needs.takes_offset >= problem.has_offset
    return fits and needs.unmet(problem.phi, *penalties) is None


def has_hessian(problem: Problem) -> bool:
    """Whether Newton's method applies."""
    return applies(CG, problem)


def has_descent(problem: Problem) -> bool:
    """Whether coordinate descent applies, and l1, an offset or single penalties call for it."""
    asks_for_it = problem.l1 > 0 or problem.has_offset or not problem.is_plain
    return asks_for_it and applies(DESCENT, problem)


def _seed_of(random_state: Any) -> int:
    """Draw a seed."""
    if isinstance(random_state, numbers.Integral):
        return _first_draw(int(random_state))
    return int(check_random_state(random_state).randint(2**31 - 1))


@functools.lru_cache  # seeding a generator takes a tenth of a small fit
def _first_draw(seed: int) -> int:
    return int(check_random_state(seed).randint(2**31 - 1))


class LossChoice:
    """An estimator with the option `loss` and the options in `_PARAMETERS`."""

    loss: Any

    #: The losses by the names of the option.
    _LOSSES: dict[str, PointwiseLoss]
    #: The options that are parameters of a loss, and their defaults.
    _PARAMETERS: dict[str, float | None] = {}

    def _check_loss(self) -> None:
        """Refuse an unknown loss, and parameters of other losses."""
        if self.loss not in self._LOSSES:
            raise ValueError(f"loss must be one of {sorted(self._LOSSES)}, not {self.loss!r}")
        self._parameter()

    @property
    def _phi(self) -> PointwiseLoss:
        """The loss with the default of its parameter."""
        return self._LOSSES[self.loss]

    def _parameter(self) -> float:
        """Return the parameter of the loss; refuse those of other losses."""
        own = self._phi.option
        for name, default in self._PARAMETERS.items():
            value = getattr(self, name)
            is_given = hasattr(value, "__len__") or value != default  # np.ndim takes longer
            if is_given and (own is None or own.name != name):
                losses = [
                    name_of_loss
                    for name_of_loss, loss in self._LOSSES.items()
                    if loss.option is not None and loss.option.name == name
                ]
                raise InvalidArgumentError(
                    f"{name}={value!r} does not apply to loss={self.loss!r}: it is for loss="
                    + " or ".join(map(repr, losses))
                )
        return 1.0 if own is None else own.checked(getattr(self, own.name))


class SDCAOptions(LossChoice, EachPenalty):
    """The options of an SDCA estimator."""

    l1: Any
    l2: Any
    C: Any
    fit_intercept: Any
    solver: Any
    adaptive: Any
    num_loss_partitions: Any
    max_iter: Any
    max_time: Any
    tol: Any
    n_jobs: Any
    random_state: Any
    verbose: Any
    warm_start: Any
    callback: Any

    def _check_options(self) -> None:
        self._check_loss()
        check_number("l1", self.l1, 0)
        check_number("tol", self._tol, 0)
        check_count("max_iter", self.max_iter, 1)
        if self.max_time is not None:
            check_number("max_time", self.max_time, 0, open_end=True)
        self._l2()
        kind = self._phi.is_smooth
        self._check_factor([s for s, n in SOLVERS.items() if n.takes_each and n.smooth == kind])
        partitions = self.num_loss_partitions
        if self._has_blocks:
            for size in partitions:
                check_count("each of num_loss_partitions", size, 1)
        elif partitions is not None:
            check_count("num_loss_partitions", partitions, 1)
        self._check_solver()
        if self.adaptive and (self._in_blocks or (partitions or 1) > 1):
            raise ValueError("adaptive visits need num_loss_partitions=1 or None")

    def _check_solver(self) -> None:
        """Refuse a solver that does not apply or would ignore options."""
        if (solver := self.solver) not in ("auto", *SOLVERS):
            raise ValueError(f"solver must be one of {['auto', *SOLVERS]}, not {solver!r}")
        if solver != "auto" and self._in_blocks:
            raise ValueError(
                f"solver={solver!r} does not apply to fixed blocks: set solver='auto', or "
                "num_loss_partitions to a number or None"
            )
        if solver == "auto":
            return
        needs = SOLVERS[solver]
        visits_wanted = self.adaptive or self.num_loss_partitions is not None
        if visits_wanted and not needs.visits:
            raise ValueError(
                f"solver={solver!r} does not visit samples: adaptive and num_loss_partitions are "
                "for solver='sdca'"
            )
        if (unmet := needs.unmet(self._phi, self.l1, self._l2(), self._is_plain)) is not None:
            other = self._other_solver()
            raise ValueError(f"solver={solver!r} needs {unmet}: set solver={other!r}")

    def _other_solver(self, n_features: int = 0) -> str:
        """Return the name of a solver that applies; "sdca" only if no other does."""
        problem = self._phi, float(self.l1), self._l2(), self._is_plain
        sdca, *others = [
            name
            for name, needs in SOLVERS.items()
            if needs.unmet(*problem) is None and n_features <= needs.most_features
        ]
        return others[0] if others else sdca

    def _l2(self) -> float:
        """The option l2, or 1 / C, or the default."""
        if self.C is None:
            l2 = 1.0 if self.l2 is None else check_number("l2", self.l2, 0)
        elif self.l2 is None:
            C = check_number("C", self.C, 0, open_end=True)
            l2 = 1 / C
        else:
            raise ValueError("C is 1 / l2: set only one of them")
        if math.isinf(l2):
            raise ValueError(f"1 / C overflows: C={self.C!r} is too small")
        if l2 == 0:
            self._check_without_l2()
        elif math.isinf(float(self.l1) / l2):
            raise ValueError(f"l1 / l2 overflows: l2={l2!r} is too small beside l1={self.l1!r}")
        return l2

    def _check_without_l2(self) -> None:
        """Refuse l2 = 0 if no solver takes it."""
        penalty = self.l1 > 0 or not self._is_plain
        problem = self._phi, float(self.l1), 0.0, self._is_plain
        fits = [name for name, needs in SOLVERS.items() if needs.unmet(*problem) is None]
        reasons = {
            "l1 > 0 or the loss of a generalized linear model": penalty or self._phi.is_likelihood,
            f"solver={' or '.join(map(repr, ('auto', *fits)))}": self.solver in ("auto", *fits),
            "no fixed blocks": not self._in_blocks,
            "num_loss_partitions=None and adaptive=False": self.num_loss_partitions is None
            and not self.adaptive,
        }
        if missing := [what for what, holds in reasons.items() if not holds]:
            raise ValueError(f"l2=0 needs {', '.join(missing)}")

    @property
    def _in_blocks(self) -> bool:
        """Whether the samples are fitted in fixed blocks."""
        return self._has_blocks or self._blocks_are_held

    #: Whether an executor holds the samples, during `fit_blocks`.
    _blocks_are_held = False

    @property
    def _tol(self) -> float:
        """The relative duality gap to stop at."""
        return DEFAULT_TOL if self.tol is None else self.tol

    @property
    def _has_blocks(self) -> bool:
        """Whether num_loss_partitions has the sizes of fixed blocks."""
        return isinstance(self.num_loss_partitions, (Sequence, np.ndarray))

    def _n_threads(self) -> int:
        n_jobs = self.n_jobs
        if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
            raise ValueError(f"n_jobs must be a nonzero integer, or None, not {n_jobs!r}")
        most = runtime.get_threads()
        if most == 1 or n_jobs == 1:
            return 1  # joblib needs more time for the same answer
        return max(1, min(int(effective_n_jobs(n_jobs)), most))

    def _problem(self, n_weights: int, n_threads: int, rows: Rows = NO_ROWS) -> Problem:
        """Return the problem that the options define, without labels."""
        return Problem(
            rows=rows,
            n_weights=n_weights,
            phi=self._phi.of_samples(self._parameter()),
            l1=float(self.l1),
            l2=self._l2(),
            intercept=bool(self.fit_intercept),
            threads=n_threads,
        )

    @property
    def _is_warm(self) -> bool:
        """Whether a fit starts from the last one."""
        return bool(self.warm_start and hasattr(self, "coef_"))

    def _parameters(self) -> Parameters:
        """Return the parameters of a fit from the options, without a seed and a deadline."""
        return Parameters(
            solver=self.solver,
            adaptive=bool(self.adaptive),
            n_partitions=None if self._has_blocks else self.num_loss_partitions,
            is_warm=self._is_warm,
            max_iter=self.max_iter,
            tol=self._tol,
            polish=self.tol is None,
        )

    @contextlib.contextmanager
    def _solver_options(self, seed: int | None = None) -> Iterator[Parameters]:
        """Yield the parameters of a fit; show a progress bar meanwhile."""
        if seed is None:
            seed = _seed_of(self.random_state)
        deadline = math.inf if self.max_time is None else time.perf_counter() + self.max_time
        options = self._parameters()._replace(seed=seed, deadline=deadline)
        if not self.verbose and self.callback is None:
            yield options
            return
        with reporting(self.verbose, self.max_iter, self.callback) as (report, stopped):
            yield options._replace(report=report, stopped=stopped)
