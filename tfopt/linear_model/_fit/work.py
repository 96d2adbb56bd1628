"""Counts of the work of epochs and Newton steps, by which a plan chooses between them.

The unit is a multiply-add of a blocked matrix product; a core does about eight in a cycle. Other
operations count as multiples of it, according to their bottleneck: memory, an addition that waits
for the last one, a mispredicted branch or a function. So neither the choice nor the result depends
on the machine.
"""

from __future__ import annotations

import math

import numpy as np

from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model.loss_record import weighted_sum

__all__ = [
    "CHEAP",
    "EPOCHS",
    "EPOCHS_OF_CORNERS",
    "FACTOR",
    "FEW_PRODUCTS",
    "INTERIOR_STEPS",
    "MOST_WEIGHTS",
    "NEWTON_STEPS",
    "PRODUCTS",
    "WORTH",
    "ascent_work",
    "choose_linear_solver",
    "count_of",
    "descent_work",
    "epoch_rate",
    "epoch_work",
    "hessian_work",
    "interior_work",
    "is_tall",
    "n_rows",
    "newton_work",
    "product_work",
    "products_before_hessian",
    "reason_of",
    "reuses_hessian",
    "sample_size",
    "time_of",
]

#: A multiply-add of a dense value that is read in order, bounded by 8 bytes in half a cycle.
DENSE = 4.0
#: A multiply-add of a sparse value or in a visit: an indexed load or store, or a waiting addition.
SCATTERED = 16.0
#: A multiply-add of a pair of sparse values of a row, for a Hessian.
PAIR = 4.0
#: Reading a row in order, and a loss with its derivatives.
ROW, LOSS = 50.0, 100.0
#: A visit: reading a row in random order, and a step with a logarithm and an exponential; and a
#: visit with neither function.
VISIT, PLAIN_VISIT = 400.0, 200.0
#: A multiply-add of a factorization, which reads each row many times.
FACTOR = 4.0

#: With more weights, conjugate gradients find the direction; a Hessian is formed only on request.
MOST_WEIGHTS = 500
#: The approximate number of products with the Hessian that conjugate gradients take. They take
#: several times as many on ill-conditioned data, so the matrix is formed if that is at most WORTH
#: times their work; for a quadratic loss, whose Hessian is constant, at most WORTH_OF_ONE times.
PRODUCTS, WORTH, WORTH_OF_ONE = 20, 1.5, 3
#: The same with at least as many rows as weights, where the Hessian is better conditioned.
FEW_PRODUCTS = 5
#: With more weights, a Hessian is too large for a preconditioner of conjugate gradients.
MOST_PRECONDITIONED = 1000
#: A Hessian is formed when products have cost this share of one. With 1/8, fits to uncorrelated
#: Gaussian features take twice as long; with 1/2, fits to correlated ones take 1.3 times as long.
SHARE_OF_HESSIAN = 1 / 4
#: The work of a product that does not depend on the size of the data: about 30 us.
CALL = 3e5
#: The approximate number of Newton steps from the weights 0, and of passes over the rows in each.
STEPS, PASSES = 6, 4
#: The number of Newton steps from the minimum for a sample of the rows, including the work of
#: finding that; and the number of Newton steps after epochs.
SAMPLED_STEPS, NEWTON_STEPS = 2, 3
#: The approximate number of epochs of a fit by dual coordinate ascent, with few features.
EPOCHS = 30
#: Estimates for coordinate descent: the number of steps with a quadratic loss, whose model is
#: exact, and with other losses; the size of its working set; and the passes over the rows a step.
EXACT_STEPS, DESCENT_STEPS, WORKING, DESCENT_PASSES = 1, 3, 128, 2
#: The approximate number of certificates of a fit by epochs, and of passes over the rows for each.
CERTIFICATES, CERTIFICATE_PASSES = 2, 2
#: Estimates for the interior-point method: the number of iterations, the work for a row in each,
#: and the number of passes over the features; and the number of epochs of a fit by ascent instead.
INTERIOR_STEPS, INTERIOR_ROW, INTERIOR_PASSES, EPOCHS_OF_CORNERS = 15, 200.0, 5, 60
#: The size of a sample of rows is the largest of three numbers: a constant, a multiple of the
#: number of weights, and a share of the rows.
SAMPLE_ROWS, SAMPLE_PER_WEIGHT, SAMPLE_SHARE = 2048, 32, 1 / 32
#: The largest work of a step, or of all epochs, that only polish a solution: about 1 ms.
CHEAP = 1e7


def epoch_work(problem: Problem) -> float:
    """Return the work of visiting each example once."""
    visit = PLAIN_VISIT if problem.phi.link is None else VISIT
    return max(visit * n_rows(problem) + SCATTERED * problem.n_features, 1.0)


def product_work(problem: Problem) -> float:
    """Return the work of a pass over the rows, or of a product with the Hessian."""
    data, _, _, dense = problem.rows
    return ROW * n_rows(problem) + SCATTERED * data.size + DENSE * dense.size


def hessian_work(problem: Problem) -> float:
    """Return the work of forming the Hessian and factorizing it."""
    data, _, indptr, dense = problem.rows
    width, sparse_pairs = dense.shape[1], 0.0
    if data.size:
        lengths = np.diff(indptr).astype(float)
        sparse_pairs = float(weighted_sum(lengths, lengths + 1 + 2 * width)) / 2
    dense_work = float(dense.size) * ((width + 1) / 2 + 2 * DENSE)
    factorization = FACTOR * float(problem.n_weights) ** 3 / 6
    return float(PAIR * sparse_pairs + dense_work + factorization)


def choose_linear_solver(problem: Problem) -> tuple[bool, float]:
    """Return whether to factorize the Hessian, and the cost of a step in epochs."""
    epoch = epoch_work(problem)
    is_many = problem.n_weights > MOST_WEIGHTS
    n_products = FEW_PRODUCTS if is_many and is_tall(problem) else PRODUCTS
    by_products = n_products * (product_work(problem) + CALL) / epoch + 1
    if is_many:
        return False, by_products
    with_matrix = hessian_work(problem) / epoch + 1
    worth = WORTH_OF_ONE if problem.phi.is_quadratic else WORTH
    return (True, with_matrix) if with_matrix <= worth * by_products else (False, by_products)


def products_before_hessian(problem: Problem) -> float:
    """Return the number of products after which a Hessian is formed as a preconditioner.

    Infinity means never.
    """
    if problem.n_weights > MOST_PRECONDITIONED:
        return math.inf
    product = product_work(problem) + CALL
    return max(SHARE_OF_HESSIAN * hessian_work(problem) / product, FEW_PRODUCTS)


def is_tall(problem: Problem) -> bool:
    """Whether there are at least as many rows as weights."""
    return n_rows(problem) >= problem.n_weights


def reuses_hessian(problem: Problem) -> bool:
    """Whether forming the Hessian is so much work that it is used for a second step."""
    return hessian_work(problem) > CHEAP


def newton_work(problem: Problem, *, from_sample: bool = False) -> float:
    """Return the work of Newton's method by the better way; infinity for too many weights.

    The first way is factorization, from the weights 0 or, with `from_sample` and enough rows, from
    the minimum for a sample. The other is preconditioned conjugate gradients, from the weights 0.
    """
    if problem.n_weights > MOST_PRECONDITIONED:
        return math.inf
    steps = 1 if problem.phi.is_quadratic else STEPS
    product, losses = product_work(problem), LOSS * n_rows(problem)
    hessian = hessian_work(problem)
    by_products = steps * ((FEW_PRODUCTS + PASSES) * (product + CALL) + losses)
    by_products += SHARE_OF_HESSIAN * hessian
    if problem.n_weights > MOST_WEIGHTS:
        return by_products
    if from_sample and sample_size(problem):
        steps = SAMPLED_STEPS
    return min(steps * (hessian + PASSES * product + losses), by_products)


def interior_work(problem: Problem) -> float:
    """Return the work of the interior-point method."""
    passes = INTERIOR_PASSES * product_work(problem) + INTERIOR_ROW * n_rows(problem)
    return INTERIOR_STEPS * (hessian_work(problem) + passes)


def epoch_rate(problem: Problem, squared_norm: float) -> float:
    """Return the logarithm of the factor by which an epoch lowers the gap, for any l1.

    It falls as the condition number grows, the curvature of the rows divided by l2, and is about
    twice the rate that Shalev-Shwartz and Zhang (2013) prove.

    Parameters
    ----------
    problem : Problem
    squared_norm : float
        The mean of the rows' squared norms.
    """
    return 2 / (1 + problem.phi.curvature * squared_norm / problem.l2)


def ascent_work(problem: Problem, squared_norm: float, tol: float) -> float:
    """Return the work of epochs until the relative gap is `tol`, for any l1.

    Parameters
    ----------
    problem : Problem
    squared_norm : float
        The mean of the rows' squared norms.
    tol : float
    """
    rate = epoch_rate(problem, squared_norm)
    n_epochs = -math.log(max(tol, 1e-16)) / rate if rate else math.inf
    certificates = CERTIFICATES * CERTIFICATE_PASSES * _pass_work(problem)
    return n_epochs * epoch_work(problem) + certificates


def descent_work(problem: Problem, *, is_warm: bool = False, n_nonzero: int = WORKING) -> float:
    """Return the work of coordinate descent with up to this number of nonzero weights."""
    n = problem.n_weights
    data, _, indptr, dense = problem.rows
    working = n if n <= 2 * WORKING else min(max(n_nonzero, WORKING), n)
    lengths = np.diff(indptr) * (working / max(n, 1))
    pairs = float(weighted_sum(lengths, lengths + 1)) / 2
    matrix = PAIR * pairs + FACTOR * working**3 / 6
    if dense.size:
        matrix += len(dense) * working * ((working + 1) / 2 + 2 * DENSE)
    if working < n:  # columns are taken
        matrix += 3 * SCATTERED * data.size
    a_pass = _pass_work(problem)
    exact = problem.phi.is_quadratic
    steps = EXACT_STEPS if exact or is_warm else DESCENT_STEPS
    return steps * (matrix + DESCENT_PASSES * a_pass) + a_pass


def sample_size(problem: Problem) -> int:
    """Return the number of rows to sample for a starting point; 0 if sampling does not pay.

    A step from there replaces several from the weights 0. Least squares need one step anyway.
    """
    n = n_rows(problem)
    size = max(SAMPLE_ROWS, SAMPLE_PER_WEIGHT * problem.n_weights, int(SAMPLE_SHARE * n))
    return size if not problem.phi.is_quadratic and 8 * size <= n else 0


def _pass_work(problem: Problem) -> float:
    """Return the work of a product with the rows, and of the losses."""
    return product_work(problem) + LOSS * n_rows(problem)


def n_rows(problem: Problem) -> int:
    """Return the number of rows."""
    return int(problem.rows[2].size) - 1


#: The work that takes about a millisecond.
MILLISECOND = 1e7


def reason_of(solver: str, problem: Problem, why: str) -> str:
    """Return the reason why a solver begins with the rows of a problem."""
    sizes = f"{count_of(problem.n_weights)} features, {count_of(n_rows(problem))} rows"
    return f"{solver}: {sizes}; {why}"


def time_of(amount: float) -> str:
    """Return the approximate time of some work, as text."""
    ms = amount / MILLISECOND
    if math.isinf(ms):
        return "endless epochs"
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1g} ms"


def count_of(n: int) -> str:
    """Return a number with spaces between its thousands, as text."""
    return f"{n:,}".replace(",", " ")
