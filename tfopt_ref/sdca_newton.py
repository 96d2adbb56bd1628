"""Newton's method with a line search, for smooth losses.

A point is u = (w, b), and A has the examples' features and a last one of 1; without an intercept
neither has its last. The primal's gradient and its second derivatives at u are ::

    g = A^T (c * phi'(A u)) + P u,    H = A^T diag(c * phi''(A u)) A + P,    P = l2 but 0 for b

A step s minimizes ``g s + s H s / 2 + l1 * |w + s|_1``. Where it is found exactly and taken as a
whole, the dual variables that it predicts for its end are those of the tangents of phi' ::

    a = -(phi'(A u) + phi''(A u) * A s)

whose sum is 0 if there is a b, and whose unshrunk weights v have S(v) = w + s: that is what it says
of s to be a minimum. So a gap with them is that of the losses alone, which is small as soon as phi'
is nearly linear between both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tfopt_ref.sdca import shrunk
from tfopt_ref.sdca_certificate import Fit, Problem, certificate, primal

__all__ = ["Newton", "beginning", "sampled", "secant_update", "shifted", "steps"]

#: A direction that is not solved for may leave this share of g, or takes this many products.
SHARE, MOST_PRODUCTS = 0.1, 250
#: How often coordinate descent goes over the weights.
SWEEPS = 1000
#: What is but rounding: of the diagonal's curvature along a direction, of what a step promises the
#: primal, and of the primal itself.
NO_CURVATURE, NOTHING, SLACK = 1e-14, 1e-16, 1e-12
#: How near the minimum of a sample is to be found, in how many steps, and what spreads a sample.
SAMPLE_TOL, SAMPLE_STEPS, GOLDEN = 1e-4, 20, 0x9E3779B1
#: The relative gap up to which second derivatives may serve a second step.
NEAR = 1e-2


class Newton(NamedTuple):
    """When Newton's method takes over, and how it goes.

    Attributes
    ----------
    cost : float
        As many epochs a step takes as long as, about; 0 has it begin at once. Neither this nor the
        next changes what the minimum is: they say what is less work.
    with_matrix : bool
        Whether directions are solved for; otherwise conjugate gradients look for them. With l1 they
        are solved for anyway, and this is whether all of the matrix is known.
    sample : int
        How many of the rows to begin with, if it begins at once: 0 begins where it is.
    reuses : bool
        Whether second derivatives serve a second step where the gap is at most NEAR.
    doubt : float
        With the first certificate Newton's method takes over only if epochs are expected to take
        more than so many times as long; otherwise the next epoch has to show how fast they are.
    """

    cost: float
    with_matrix: bool = True
    sample: int = 0
    reuses: bool = False
    doubt: float = 0.0


def beginning(problem: Problem, start: Fit, size: int) -> Fit:
    """Return a point near the minimum for so many of the rows, which have their share of l2."""
    X, y, c, *_ = problem
    rows = sampled(len(y), size)
    labels = y[rows][c[rows] > 0]
    if len(set(labels.tolist())) < 2:
        return start
    l2 = problem.l2 * float(c[rows].sum() / c.sum())
    few = problem._replace(X=X[rows], y=y[rows], c=c[rows], l2=l2)
    for point in steps(few, start._replace(a=start.a[rows]), Newton(0.0)):
        if point.near(SAMPLE_TOL) or point.n_iter == SAMPLE_STEPS:
            break
    return start._replace(w=point.w, b=point.b)


def sampled(n: int, size: int) -> list[int]:
    """Return rows from as many ranges, each from somewhere else in its range."""
    width = n // size
    return [k * width + k * GOLDEN % 2**32 * width // 2**32 for k in range(size)]


def steps(problem: Problem, start: Fit, how: Newton) -> Iterator[Fit]:
    """Yield ever better points, each with the dual variables that the step there predicts.

    Without such a step, or if these are not allowed, they are minus the slopes. The points end when
    a step does not lower the primal; where that is a matter of rounding, they go on.
    """
    X, y, c, phi, l1, l2, intercept = problem
    X = X if isinstance(X, np.ndarray) else X.toarray()
    A = np.column_stack([X, np.ones(len(y))]) if intercept else X
    P = np.full(A.shape[1], l2)
    P[X.shape[1] :] = 0
    n_iter = start.n_iter
    w, b, predicted, formed = start.w, start.b, None, None
    while True:
        z = (X @ w + b).tolist()
        a = -np.array(list(map(phi.slope, z, y.tolist())))
        second = np.array(list(map(phi.bend, z, y.tolist())))
        near = predicted is not None
        n_iter += 1
        v = w + np.sign(w) * (l1 / l2)  # whose S(v) is w
        point = certificate(problem, np.where(c > 0, a, start.a), v, n_iter, b)
        if predicted is not None:
            by_step = certificate(problem, np.where(c > 0, predicted, start.a), v, n_iter, b)
            point = by_step if math.isfinite(by_step.gap) else point
        yield point
        if near and formed is not None and point.near(NEAR):
            second, formed = formed, None
        else:
            formed = second if how.reuses else None
        bends = c * second
        u = np.append(w, b)[: A.shape[1]]
        g = P * u - A.T @ (c * a)
        if l1 > 0:
            exact: np.ndarray | None = proximal(A, bends, P, g, u, l1 * (P > 0))
        else:
            exact = solved(A, bends, P, g) if how.with_matrix else None
        end = predicted = None
        if exact is not None:
            fall = l1 * float(np.sum(np.abs(w) - np.abs(moved(point, exact)[0])))
            end = line_search(problem, point, exact, fall - g @ exact)
            whole = end is not None and np.array_equal(end[0], moved(point, exact)[0])
            if whole and how.with_matrix:
                predicted = a - second * (A @ exact)
        if end is None and l1 == 0:
            s = approximate(A, bends, P, g)
            end = line_search(problem, point, s, -(g @ s))
        if end is None:
            return
        w, b = end


def secant_update(H: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return H changed so that H s = y, the change of the gradient along s (BFGS)."""
    updated: np.ndarray = H - np.outer(H @ s, H @ s) / (s @ H @ s) + np.outer(y, y) / (s @ y)
    return updated


def shifted(problem: Problem, w: np.ndarray, b: float, h: np.ndarray) -> tuple[np.ndarray, float]:
    """Return dual variables near -phi' with a sum of c * a of 0, and a bound of the losses' gap.

    They are ``a = -phi'(z) + t * h`` for some h >= 0, and the bound is the sum of ::

        c * (t * h)**2 / phi''(z)

    which holds for ``abs(t) * h <= phi''``: phi* is a relative entropy, or half a square.
    """
    X, y, c, phi, *_ = problem
    z = list(zip((X @ w + b).tolist(), y.tolist(), strict=True))
    slopes, bends = (np.array([f(*each) for each in z]) for f in (phi.slope, phi.bend))
    t = float(c @ slopes / (c @ h))
    return t * h - slopes, float(np.sum(c * (t * h) ** 2 / bends))


def solved(A: np.ndarray, bends: np.ndarray, P: np.ndarray, g: np.ndarray) -> np.ndarray | None:
    """Return s with H s = -g, unless rounding has made H singular."""
    H = A.T @ (bends[:, None] * A) + np.diag(P)
    try:
        np.linalg.cholesky(H)
        return np.linalg.solve(H, -g)
    except np.linalg.LinAlgError:
        return None


def proximal(
    A: np.ndarray, bends: np.ndarray, P: np.ndarray, g: np.ndarray, u: np.ndarray, l1: np.ndarray
) -> np.ndarray:
    """Return the minimum of the model with l1, each weight's of its own, by coordinate descent."""
    H, s = A.T @ (bends[:, None] * A) + np.diag(P), np.zeros_like(g)
    for _ in range(SWEEPS):
        for j, h in enumerate(np.diagonal(H).tolist()):
            if h > 0:
                s[j] = shrunk(float(u[j] + s[j] - (g[j] + H[j] @ s) / h), l1[j] / h) - u[j]
    return s


def working(w: np.ndarray, g: np.ndarray, l1: float, size: int) -> list[int]:
    """Return the weights that a step moves if it moves so many at most, g without l1.

    Those that are not 0 come first, but for a quarter of the places, as long as there are others;
    among equals, those that violate the optimality conditions most. It moves all of less than twice
    as many.
    """
    if len(w) <= 2 * size:
        return list(range(len(w)))

    def by_violation(chosen: np.ndarray, violations: np.ndarray) -> list[int]:
        return sorted(np.flatnonzero(chosen).tolist(), key=lambda j: (-violations[j], j))

    active = by_violation(w != 0, np.abs(g + l1 * np.sign(w)))
    rest = by_violation(w == 0, np.abs(g) - l1)
    n_active = min(len(active), max(size - size // 4, size - len(rest)))
    return sorted(active[:n_active] + rest[: size - n_active])


def approximate(A: np.ndarray, bends: np.ndarray, P: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return about that, without the matrix."""
    diagonal = bends @ (A * A) + P
    return conjugate_gradients(lambda p: A.T @ (bends * (A @ p)) + P * p, diagonal, g)


def conjugate_gradients(
    H: Callable[[np.ndarray], np.ndarray], diagonal: np.ndarray, g: np.ndarray
) -> np.ndarray:
    """Return s with H(s) near -g, by the method of Hestenes and Stiefel.

    It is preconditioned with the diagonal of H.
    """
    D = np.where(diagonal > 0, diagonal, 1.0)
    s, r = np.zeros_like(g), -g
    z = r / D
    p, rz = z, r @ z
    enough = SHARE**2 * rz
    for _ in range(MOST_PRODUCTS):
        if not rz > enough:
            break
        Hp = H(p)
        if not p @ Hp > NO_CURVATURE * (p @ (D * p)):
            break  # there is no curvature in this direction
        alpha = rz / (p @ Hp)
        s, r = s + alpha * p, r - alpha * Hp
        z = r / D
        rz, last = r @ z, rz
        p = z + rz / last * p
    return s


def line_search(
    problem: Problem, point: Fit, s: np.ndarray, descent: float
) -> tuple[np.ndarray, float] | None:
    """Return w and b after a step, halved until it lowers the primal by its due (Armijo).

    There are none if such a step promises nothing any more.
    """
    share = 1.0
    while True:
        w, b = moved(point, share * s)
        due = 1e-4 * share * descent - SLACK * point.primal
        if primal(problem, w, b) <= point.primal - due:
            return w, b
        if not share * descent > NOTHING * point.primal:
            return None
        share /= 2


def moved(point: Fit, s: np.ndarray) -> tuple[np.ndarray, float]:
    """Return w and b after a step."""
    n = len(point.w)
    return point.w + s[:n], point.b + float(s[n:].sum())
