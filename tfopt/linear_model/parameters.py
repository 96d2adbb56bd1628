"""The options of the SDCA estimators: their checks, and what the solvers make of them."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from tfopt import threads
from tfopt.linear_model._fit.parameters import Parameters
from tfopt.linear_model._fit.problem import NO_ROWS, Problem, Rows
from tfopt.linear_model._fit.solvers import SOLVERS
from tfopt.linear_model.fitted import ProgressBar
from tfopt.linear_model.loss_choice import LossChoice
from tfopt.linear_model.validation import check_count, check_number

__all__ = ["DEFAULT_TOL", "SDCAOptions"]

#: The relative duality gap to stop at by default.
DEFAULT_TOL = 1e-4


def _seed_of(random_state: Any) -> int:
    """Draw a seed."""
    if isinstance(random_state, numbers.Integral):
        return _first_draw(int(random_state))
    return int(check_random_state(random_state).randint(2**31 - 1))


@functools.lru_cache  # to seed a generator takes a tenth of a small fit
def _first_draw(seed: int) -> int:
    return int(check_random_state(seed).randint(2**31 - 1))


class SDCAOptions(LossChoice):
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
        """Refuse a solver that does not apply, or that would ignore options."""
        solver = self.solver
        if solver not in ("auto", *SOLVERS):
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
        unmet = needs.unmet(self._phi, self.l1, self._l2())
        if unmet is not None:
            other = self._other_solver()
            raise ValueError(f"solver={solver!r} needs {unmet}: set solver={other!r}")

    def _other_solver(self, n_features: int = 0) -> str:
        """Return the name of a solver that does apply: "sdca" only if no other does."""
        l1, l2 = float(self.l1), self._l2()
        sdca, *others = [
            name
            for name, needs in SOLVERS.items()
            if needs.unmet(self._phi, l1, l2) is None and n_features <= needs.most_features
        ]
        return others[0] if others else sdca

    def _l2(self) -> float:
        """Return l2, or 1 / C, or the default."""
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
        """Refuse l2 = 0 where neither coordinate descent applies nor, without l1, Newton."""
        penalty = self.l1 > 0
        fits = [
            name
            for name, needs in SOLVERS.items()
            if (not needs.l2 if penalty else needs.without_penalty)
        ]
        reasons = {
            "l1 > 0 or the loss of a generalized linear model": penalty or self._phi.is_likelihood,
            f"solver='auto' or {fits[0]!r}": self.solver in ("auto", *fits),
            "a smooth loss": self._phi.is_smooth,
            "no fixed blocks": not self._in_blocks,
            "num_loss_partitions=None and adaptive=False": self.num_loss_partitions is None
            and not self.adaptive,
        }
        missing = [what for what, holds in reasons.items() if not holds]
        if missing:
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
            raise ValueError(f"n_jobs must be an integer but 0, or None, not {n_jobs!r}")
        most = threads.get_num_threads()
        if most == 1 or n_jobs == 1:
            return 1  # joblib takes long to say so
        return max(1, min(int(effective_n_jobs(n_jobs)), most))

    def _objective(self, n_weights: int, n_threads: int, rows: Rows = NO_ROWS) -> Problem:
        """Return the objective of the options."""
        return Problem(
            rows=rows,
            n_weights=n_weights,
            loss=self._phi.kernel,
            parameter=self._parameter(),
            l1=float(self.l1),
            l2=self._l2(),
            intercept=bool(self.fit_intercept),
            threads=n_threads,
        )

    @property
    def _is_warm(self) -> bool:
        """Whether a fit goes on from the last one."""
        return bool(self.warm_start and hasattr(self, "coef_"))

    def _parameters(self) -> Parameters:
        """Return what the options ask of a fit, but for a seed and a deadline."""
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
        lock, stopped, errors = threading.Lock(), threading.Event(), np.geterr()
        with ProgressBar(self.verbose, self.max_iter) as progress:

            def report(record: dict[str, Any]) -> None:
                with lock, np.errstate(**errors):  # problems are solved in parallel
                    progress(record)
                    answer = self.callback(record) if self.callback is not None else None
                    if answer is True or (isinstance(answer, np.bool_) and answer):
                        stopped.set()

            yield options._replace(report=report, stopped=stopped.is_set)
