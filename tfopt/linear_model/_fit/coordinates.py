"""Fits to fewer dense rows than features, in coordinates of the space of the rows.

Without l1 the best weights are a linear combination of the rows. With X X^T = L L^T, the rows of L
have the same inner products as the rows of X: so the dual variables, the losses and the minimum are
the same. There are only as many weights as rows, and solvers that form a matrix of them apply.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tfopt.kernels.linear import hessian_products, second_order
from tfopt.linear_model._fit import work
from tfopt.linear_model._fit.certificate import Certificate, assemble
from tfopt.linear_model._fit.fit import solve_all
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem, Rows, as_rows
from tfopt.linear_model.parameters import Parameters

__all__ = ["RowSpace", "pays"]

#: The approximate number of epochs of a fit to all features, for smooth and for other losses. They
#: are more than for data with many rows, because few rows are strongly correlated.
EPOCHS, EPOCHS_OF_CORNERS = 40, 80
#: The work that does not depend on the size of the data: about 0.2 ms.
OVERHEAD = 2e6
#: The number of features that are copied and multiplied at a time.
CHUNK = 4096
#: The number added to the diagonal of X X^T, divided by its largest entry and the number of rows:
#: the size of rounding errors. If the factorization fails, it is multiplied by MORE, a few times.
ROUNDING, MORE, MOST_RAISES = 2.0**-52, 100.0, 3


def pays(problem: Problem, asked: Parameters, mean_square: Callable[[], float]) -> bool:
    """Whether to solve in coordinates: it is possible, and less work than with all features."""
    data, _, _, dense = problem.rows
    n, m = dense.shape
    applies = asked.solver == "auto" and not asked.asks_for_visits
    applies = applies and problem.l1 == 0 and problem.l2 > 0 and problem.is_plain
    applies = applies and data.size == 0
    if not (applies and problem.has_few_rows and n <= work.MOST_WEIGHTS):
        return False
    few = problem._replace(rows=as_rows(np.broadcast_to(0.0, (n, n))), n_weights=n)
    is_smooth = problem.phi.is_smooth
    steps_work = work.newton_work if is_smooth else work.interior_work
    products = float(n * m) * (n / 2 + 2 * work.DENSE) + work.FACTOR * float(n) ** 3 / 6
    most = (EPOCHS if is_smooth else EPOCHS_OF_CORNERS) * work.epoch_work(problem)
    if m <= work.MOST_WEIGHTS:
        most = min(most, steps_work(problem))
    most = min(most, work.ascent_work(problem, mean_square(), asked.tol))
    return bool(OVERHEAD + products + steps_work(few) <= most)


class RowSpace:
    """The coordinates.

    Parameters
    ----------
    rows : tuple of ndarray
        The dense rows X.
    threads : int

    Attributes
    ----------
    rows : tuple of ndarray
        The rows in coordinates: L, shape (n_rows, n_rows).
    is_exact : bool
        Whether L L^T = X X^T up to rounding; False if all features are 0.
    """

    def __init__(self, rows: Rows, threads: int) -> None:
        products = _products(rows[3], threads)
        n, diagonal = len(products), np.diagonal(products).copy()
        share = ROUNDING * n
        for _ in range(MOST_RAISES):
            self._factor = products.copy()
            np.einsum("ii->i", self._factor)[:] = diagonal + share * diagonal.max()
            self.is_exact = second_order.solve(self._factor, np.zeros(n), least_pivot=0.0)
            if self.is_exact:
                break
            share *= MORE
        self._upper = np.triu(self._factor)  # L^T
        self.rows = as_rows(np.ascontiguousarray(self._upper.T))

    def of_weights(self, problem: Problem, w: np.ndarray) -> np.ndarray:
        """Return the coordinates of weights; the part orthogonal to all rows is lost."""
        c = problem.predictions(w)
        second_order.solve(self._factor, c, is_factor=True)
        coordinates: np.ndarray = np.add.reduce(self._upper * c, axis=1)
        return coordinates

    def weights(self, problem: Problem, coordinates: np.ndarray) -> np.ndarray:
        """Return the weights X^T c with L^T c = coordinates."""
        U, c = self._upper, np.zeros(len(self._upper))
        for i in reversed(range(len(c))):
            c[i] = (coordinates[i] - np.add.reduce(U[i, i + 1 :] * c[i + 1 :])) / U[i, i]
        ones = np.zeros(problem.n_weights + 1)
        ones[-1] = 1.0  # each row's product with it
        return hessian_products.product(*problem.rows, c, ones, problem.threads)[:-1]

    def solve_all(
        self,
        problem: Problem,
        initial_point: Callable[[int], InitialPoint],
        n_problems: int,
        options: Parameters,
        mean_square: Callable[[], float],
        workers: int,
        duals: np.ndarray,
    ) -> list[SolverResult] | None:
        """Minimize as `fit.solve_all` does, by a plan for the problem in coordinates.

        The certificates hold for all features. Return None if rounding makes a gap exceed the
        tolerance.
        """
        n = len(self._upper)
        few = problem._replace(rows=self.rows, n_weights=n)
        plan = make_plan(few, options, n_problems, mean_square)
        plan = plan._replace(reason=f"{plan.reason}, in coordinates of the rows")
        initials = functools.cache(initial_point)

        def start(k: int) -> InitialPoint:
            initial = initials(k)
            if initial.w is None:
                return initial
            return initial._replace(w=self.of_weights(problem, initial.w))

        found = np.empty((n_problems, n))
        results = solve_all(few, start, n_problems, options, plan, workers, found)
        for k, (result, a) in enumerate(zip(results, found, strict=True)):
            point = self._certified(problem, initials(k), result.certificate, a)
            if result.certificate.relative_gap <= options.tol < point.relative_gap:
                return None
            last = result.history[-1]
            if last["objective"] == result.certificate.objective:
                stated = point._replace(gap=point.stated_gap)
                last.update(objective=point.objective, gap=stated.relative_gap)
            results[k] = result._replace(certificate=point)
        duals[:] = found[: len(duals)]
        return results

    def _certified(
        self, problem: Problem, initial: InitialPoint, point: Certificate, a: np.ndarray
    ) -> Certificate:
        w = self.weights(problem, point.w)
        examples = initial._replace(a=a).examples()
        losses, gap = problem.gaps(examples, a, problem.predictions(w), point.bias)
        v = problem.weights_of(examples)
        return assemble(problem, w, point.bias, v, losses, gap)


def _products(X: np.ndarray, threads: int) -> np.ndarray:
    """Return X X^T, summed up over chunks of features."""
    n, m = X.shape
    total = np.zeros((n, n))
    for low in range(0, m, CHUNK):
        columns = as_rows(np.ascontiguousarray(X[:, low : low + CHUNK].T))
        size = len(columns[3])
        _, each = second_order.newton_system(*columns, np.zeros(size), np.ones(size), n, threads)
        total += each[:n, :n]
    return total
