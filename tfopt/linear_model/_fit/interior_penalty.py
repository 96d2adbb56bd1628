"""Penalties of weights in the interior-point method: an extra row for each penalized weight.

The loss of such a row is |w|, with a corner at 0: its prediction is the weight, without the
intercept, its dual variable is between -1 and 1, and its sample weight is l1. So l2 may be 0:
X^T (weight * a) of the other rows is then within l1. The interval of a nonnegative weight has no
upper end; without l1 it begins at 0, and the row has 1 / n_weights of the weight of the other rows.
The row of a weight without l1 and bound has the weight 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfopt.kernels.linear import hessian_products, interior_point
from tfopt.linear_model._fit.certificate import Certificate, scaled_gaps
from tfopt.linear_model._fit.design import Design, Point
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.interior_fields import FIELD, centred
from tfopt.linear_model._fit.interior_rows import (
    Begin,
    Candidate,
    Centred,
    Corrector,
    Largest,
    curvatures,
)
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.rows import RowState, predicted, projected
from tfopt.linear_model._fit.unpenalized import moved_duals
from tfopt.linear_model.loss_record import weighted_sum

__all__ = ["End", "PenaltyRows", "inside"]

#: Weights that tend to 0 are set to 0 if the gap grows by at most the factor MORE; so are weights
#: whose l1 penalty is below the share LITTLE of the losses.
MORE, LITTLE = 2.0, 1e-3
#: The upper end of an unbounded interval: so large that its products change nothing.
NO_END = 1e100


def _sizes(problem: Problem, state: RowState) -> tuple[RowState, np.ndarray]:
    """Answer with the root mean square of each feature, or 1 where that is 0."""
    share = np.full(len(state.examples), 1 / len(state.examples))
    squares = hessian_products.diagonal(*problem.rows, share, problem.n_weights, problem.threads)
    return state, np.sqrt(np.where(squares > 0, squares, 1.0))[:-1]


def inside(
    design: Design, points: Mapping[int, Point], begun: Mapping[int, np.ndarray]
) -> tuple[dict[int, Point], dict[int, np.ndarray]]:
    """Raise weights to small positive numbers; return the points and the new answers of `Begin`.

    `begun` are the answers of `Begin` at the given points. Predictions hardly change.
    """
    moved = {}
    for k, sizes in design.apply(dict.fromkeys(points, _sizes)).items():
        (w, bias), (total, distance) = points[k], begun[k].tolist()
        least = (distance / total or 1.0) / (math.sqrt(w.size) * sizes)
        moved[k] = np.maximum(w, least), bias
    return moved, design.apply({k: Begin(*point) for k, point in moved.items()})


class PenaltyRows:
    """The rows of the weights of one problem.

    Parameters
    ----------
    problem : Problem
    w : ndarray, shape (n_weights,)
    mu : float
        The value of all products.
    total : float
        The total weight of the other rows; a row without l1 has 1 / n_weights of it.
    """

    def __init__(self, problem: Problem, w: np.ndarray, mu: float, total: float) -> None:
        l1 = problem.penalties.up
        own = np.where(l1 > 0, l1, total / w.size if problem.positive else 0.0)
        low = np.where(l1 > 0, -1.0, 0.0)
        high = np.full_like(w, NO_END if problem.positive else 1.0)
        self.fields = centred(own, -w, low, high, mu)

    def numbers(self) -> Centred:
        """Return the contribution of these rows to `Centred`."""
        weight, dual, upper, lower, above, below = self.fields[:6]
        losses = weighted_sum(weight, (dual + upper) * above - (dual - lower) * below)
        products = weighted_sum(weight, upper * above + lower * below)
        sums = np.append(weight * dual, 0.0)
        return Centred(sums, losses, np.zeros_like(sums), float(weight.sum()), products)

    def add_system(self, share: float, matrix: np.ndarray, right: np.ndarray) -> None:
        """Take a share of the last step, and add to the Newton system of the other rows."""
        curvatures, pulls = interior_point.advance(self.fields, share)
        matrix[np.diag_indices(len(curvatures))] += curvatures
        right[:-1] += pulls

    def add_predictor(
        self, step: np.ndarray, ratio: Largest, sums: np.ndarray, pulls: Sequence[np.ndarray]
    ) -> tuple[Largest, np.ndarray]:
        """Return the ratio and sums of all rows; add to the corrector's right sides."""
        more, (own, *own_sums) = interior_point.predict(self.fields, step[:-1], 0.0)
        for pull, own_pull in zip(pulls, more, strict=True):
            pull[:-1] += own_pull
        return ratio + Largest(float(own)), sums + own_sums

    def add_corrector(
        self, corrector: Corrector, ratio: Largest, sums: np.ndarray
    ) -> tuple[Largest, np.ndarray]:
        """Return the ratio and sums of all rows."""
        step, target = corrector.step[:-1], corrector.target
        own, *own_sums = interior_point.correct(self.fields, step, 0.0, target)
        return ratio + Largest(float(own)), sums + own_sums

    def end(self, w: np.ndarray, bias: float, share: float, losses: float) -> End:
        """Return the request for a certificate; it tries to set weights that tend to 0 to 0.

        The last step has reduced such a weight by a larger factor than the distance of its dual
        variable from the nearer end of its interval. (Tapia's indicators: El-Bakry, Tapia, Zhang,
        1994. The products of both do not tell which tends to 0.) Weights with a small penalty are
        tried as well.
        """
        weight, _, upper, lower, above, below = self.fields[:6]
        moved, before = share * self.fields[FIELD["dual_step"]], np.minimum(upper, lower)
        after = np.minimum(upper - moved, lower + moved)
        vanishes = np.abs(w) * before < np.abs(below - above) * after
        is_cheap = weight * np.abs(w) < LITTLE * losses
        points = (np.where(some, 0.0, w) for some in (vanishes | is_cheap, vanishes))
        return End((*points, w), bias, share)


@dataclasses.dataclass(frozen=True)
class End:
    """Certifies the dual variables after a share of the last step, scaled if l1 requires it.

    Answers with the certificate of the first point whose gap is at most MORE times the smallest.

    Attributes
    ----------
    points : tuple of ndarray, shape (n_weights,)
    bias, share : float
    """

    points: tuple[np.ndarray, ...]
    bias: float
    share: float

    def __call__(self, problem: Problem, state: RowState) -> tuple[RowState, Certificate]:
        found = [self._certified(problem, state, w) for w in self.points]
        most = MORE * min(each.gap for _, each in found)
        return next((each for each in found if each[1].gap <= most), found[-1])

    def _certified(
        self, problem: Problem, state: RowState, w: np.ndarray
    ) -> tuple[RowState, Certificate]:
        state, residual = Candidate(w, self.share)(problem, state)
        bias, cost = self.bias, 0.0
        if problem.intercept:
            kinks, rises, falls = predicted(problem, state, state.wx).kinks
            bias = float(kinks[np.argmax(rises[1:] + falls[1:] >= falls[-1])])  # the best for w
        if not problem.is_plain and problem.penalties.are_free.any():
            losses, _ = problem.gaps(state.examples, state.certified, state.wx, bias)
            bends = state._replace(hess_pointwise=curvatures(problem, state, self.share))
            moved = moved_duals(problem, Features(problem), bends, w, losses)
            if moved is None:
                state = state._replace(certified=np.zeros_like(state.certified))
                objective = losses + problem.penalty(w)
                return state, Certificate(w, bias, objective, objective)
            state, x_duals, cost = state._replace(certified=moved[0]), *moved[1:]
        elif problem.intercept:
            state = projected(problem, state, residual)
        examples, best = state.examples_with(state.certified), None
        if not cost:
            x_duals = problem._replace(l2=1.0).weights_of(examples)
        for apart, scale in scaled_gaps(problem, w, x_duals):
            a = scale * state.certified
            losses, gap = problem.gaps(examples, a, state.wx, bias)
            if best is None or gap + apart < best[1]:
                best = losses, gap + apart, a
        assert best is not None
        losses, gap, certified = best
        gap = (math.sqrt(max(gap, 0.0)) + math.sqrt(cost)) ** 2 if cost else gap
        point = w, bias, losses + problem.penalty(w)
        return state._replace(certified=certified), Certificate(*point, max(gap, 0.0))
