"""Newton's method with a line search, for smooth losses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tfopt.kernels import curvature, curvature_products
from tfopt.linear_model import conjugate_gradients
from tfopt.linear_model.problem import Certificate, Problem, best_bias, certify
from tfopt.linear_model.questions import answered
from tfopt.linear_model.search import Search
from tfopt.linear_model.sums import total

__all__ = [
    "MOST_WEIGHTS",
    "applies",
    "applies_afar",
    "cheap_epochs",
    "cost",
    "ends",
    "is_lower",
    "newton_steps",
    "shares",
]

#: With more, the matrix is not made, and conjugate gradients look for the direction.
MOST_WEIGHTS = 500
#: How many products with the matrix they take for it, about; on ill-conditioned data some times
#: more, so that the matrix is worth it up to so many times their work.
PRODUCTS, WORTH = 20, 3
#: What they may leave of the gradient. To leave less near the minimum, as one does for the order of
#: convergence, took up to twice the products: the last direction is better than it need be.
SHARE = 0.1
#: Of the objective: if a step promises less, that is rounding.
ROUNDING = 1e-16
#: What rounding may make of the objective, which has parts that are larger than it.
SLACK = 1e-12
#: Nanoseconds, about: of an epoch each visit and each feature; of a Hessian each pair of features;
#: of a product each row, and each feature of it, stored sparse or dense.
VISIT, FEATURE, PAIR = 40.0, 1.6, 1.2
ROW, SPARSE, DENSE = 5.0, 1.6, 0.3
#: Nanoseconds: what a step, or all epochs, may take that are for the last digits alone.
CHEAP = 1e6


def applies(problem: Problem) -> bool:
    """Whether the objective has second derivatives."""
    return problem.loss != "hinge_loss" and problem.l1 == 0


def applies_afar(problem: Problem) -> bool:
    """Whether that tells anything far from the minimum: a smooth hinge has none but at its bend."""
    return applies(problem) and problem.loss != "smooth_hinge_loss"


def cost(problem: Problem) -> float:
    """Return about how many epochs a step takes as long as; infinity if there are no steps."""
    return _kind(problem)[1] if applies(problem) else math.inf


def _epoch(problem: Problem) -> float:
    """Return about how many nanoseconds an epoch takes."""
    return max(VISIT * (problem.rows[2].size - 1) + FEATURE * problem.n_features, 1.0)


def is_cheap(problem: Problem) -> bool:
    """Whether steps take next to no time."""
    return applies(problem) and _kind(problem)[1] * _epoch(problem) <= CHEAP


def cheap_epochs(problem: Problem) -> int:
    """Return how many epochs take next to no time, where there are no steps to take instead."""
    return 0 if applies(problem) else int(CHEAP / _epoch(problem))


def _kind(problem: Problem) -> tuple[bool, float]:
    """Return whether a step is worth the matrix, and what it costs."""
    _, _, indptr, dense = problem.rows
    lengths = np.diff(indptr).astype(float) + dense.shape[1]
    epoch = _epoch(problem)
    n_sparse = int(indptr[-1]) - int(indptr[0])
    product = ROW * lengths.size + SPARSE * n_sparse + DENSE * dense.size
    by_products = PRODUCTS * product / epoch + 1
    if problem.n_weights > MOST_WEIGHTS:
        return False, by_products
    pairs = total(lengths, lengths + 1) / 2 + problem.n_weights**3 / 12
    with_matrix = PAIR * pairs / epoch + 1
    return (True, with_matrix) if with_matrix <= WORTH * by_products else (False, by_products)


def ends(
    problem: Problem, search: Search, point: Certificate, number: int, estimate: float
) -> bool:
    """Take in an epoch's certificate, and steps from there if it is time for them.

    Returns
    -------
    bool
        Whether the search is at its end.
    """
    if search.ends(point, number, estimate):
        if not (search.settings.polish and search.is_near and is_cheap(problem)):
            return True
    elif not search.wants_newton:
        return False
    to_the_end = search.settings.polish and is_cheap(problem)
    steps = newton_steps(problem, point)
    return any(search.polished(step, to_the_end) for step in steps) or search.is_near


def newton_steps(problem: Problem, start: Certificate) -> Iterator[Certificate]:
    """Yield ever better points, each with the dual variables that its slopes are.

    They end when a step does not lower the primal; where that is a matter of rounding, they go on.
    """
    examples = start.examples
    weight = examples["weight"]
    w, bias = start.w, start.bias
    wx = problem.predictions(w)
    while True:
        if problem.intercept:
            bias = best_bias(problem, examples, wx, bias)
        slopes, bends = problem.derivatives(examples, wx, bias)
        examples = examples.copy()  # the last point keeps its own
        np.divide(-slopes, weight, out=examples["a"], where=weight > 0)
        point = certify(problem, examples, w, wx, bias)
        yield point
        gradient = problem.l2 * (w - point.v)
        gradient = np.append(gradient, slopes.sum() if problem.intercept else 0.0)
        for find in (exact_direction, approximate_direction):
            step = find(problem, bends, gradient)
            if step is None:
                continue
            moved = line_search(problem, point, wx, step, -total(gradient, step))
            if moved is not None:
                break
        else:
            return
        w, wx, bias = moved


def exact_direction(problem: Problem, bends: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """Return Newton's direction, if that is worth the matrix, and rounding lets it be."""
    if not _kind(problem)[0]:
        return None
    H = curvature.hessian(*problem.rows, bends, problem.n_weights, problem.threads)
    return direction(problem, H, gradient)


def direction(problem: Problem, H: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """Return s with (H + l2) s = -gradient, the intercept's last, if rounding lets that be.

    H, the second derivatives of the losses' sum, is used up.
    """
    H[np.diag_indices(problem.n_weights)] += problem.l2
    if not problem.intercept:
        H[-1] = H[:, -1] = 0
        H[-1, -1] = 1
    step = -gradient
    return step if curvature.solve(H, step) else None


def approximate_direction(problem: Problem, bends: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return about that, without the matrix."""

    def product(s: np.ndarray) -> np.ndarray:
        return curvature_products.product(*problem.rows, bends, s, problem.threads)

    diagonal = curvature_products.diagonal(*problem.rows, bends, problem.n_weights, problem.threads)
    return answered(conjugate_gradients.direction(problem, diagonal, gradient, SHARE), product)


def line_search(
    problem: Problem, point: Certificate, wx: np.ndarray, step: np.ndarray, descent: float
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return w, x . w and the bias after a step, halved until it lowers the primal by its due."""
    wx_step = problem.predictions(step[:-1])
    for share in shares(point, descent):
        w, bias = point.w + share * step[:-1], point.bias + share * step[-1]
        moved = wx + share * wx_step
        with np.errstate(over="ignore"):
            objective = problem.losses(point.examples, moved, bias) + problem.penalty(w)
        if is_lower(point, objective, share * descent):
            return w, moved, bias
    return None


def shares(point: Certificate, promised: float) -> Iterator[float]:
    """Yield 1, 1 / 2, ... until such a share of a step promises next to nothing."""
    share = 1.0
    yield share
    while share * promised > ROUNDING * point.objective:
        share /= 2
        yield share


def is_lower(point: Certificate, objective: float, promised: float) -> bool:
    """Whether an objective is lower than a point's, by a share of what slopes promise (Armijo).

    Or as low but for rounding: then the certificate shows whether a step was worth it.
    """
    return objective <= point.objective - 1e-4 * promised + SLACK * point.objective
