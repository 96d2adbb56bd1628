"""The l1 penalty in the interior-point method: a row for each weight, whose loss has a corner at 0.

Its prediction is the weight, without the intercept; its dual variable is between -1 and 1, and what
it is weighted by is l1. So l2 may be 0: X^T (weight * a) of the other rows is within l1 then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfopt.kernels.linear import interior_point
from tfopt.linear_model._fit.certificate import Certificate, scaled_gaps
from tfopt.linear_model._fit.interior_fields import FIELD, centred
from tfopt.linear_model._fit.interior_rows import Candidate, Centred, Corrector, Largest
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.rows import RowState, predicted, projected
from tfopt.linear_model.loss_record import weighted_sum

__all__ = ["End", "PenaltyRows"]

#: Weights that vanish are 0 if the gap is then at most so many times as large; and those whose
#: penalty is below this share of the losses.
MORE, LITTLE = 2.0, 1e-3


class PenaltyRows:
    """The rows of the weights of one problem.

    Parameters
    ----------
    problem : Problem
    w : ndarray, shape (n_weights,)
    mu : float
        What all products are.
    """

    def __init__(self, problem: Problem, w: np.ndarray, mu: float) -> None:
        one = np.ones_like(w)
        self.fields = centred(problem.penalties.up, -w, -one, one, mu)

    def numbers(self) -> Centred:
        """Return what they add to those of the other rows."""
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
        """Return the request for a certificate, with weights that vanish set to 0 if that is good.

        Of such a weight the dual variable, after a share of the last step, is farther from the ends
        of its interval than the weight is from 0, as a share of the one that costs all the losses.
        Others may, if they cost little.
        """
        moved = self.fields[FIELD["dual"]] + share * self.fields[FIELD["dual_step"]]
        cost, room = self.fields[FIELD["weight"]] * np.abs(w), (1 - np.abs(moved)) * losses
        vanishing = cost < np.maximum(room, LITTLE * losses), cost < room
        return End((*(np.where(some, 0.0, w) for some in vanishing), w), bias, share)


@dataclasses.dataclass(frozen=True)
class End:
    """Certifies dual variables after a share of the last step, scaled where l1 asks for it.

    Answers with the certificate of the first point whose gap is at most MORE times that of the
    last.

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
        most = MORE * found[-1][1].gap
        return next((each for each in found if each[1].gap <= most), found[-1])

    def _certified(
        self, problem: Problem, state: RowState, w: np.ndarray
    ) -> tuple[RowState, Certificate]:
        state, residual = Candidate(w, self.share)(problem, state)
        bias = self.bias
        if problem.intercept:
            kinks, rises, falls = predicted(problem, state, state.wx).kinks
            bias = float(kinks[np.argmax(rises[1:] + falls[1:] >= falls[-1])])  # the best for w
            state = projected(problem, state, residual)
        examples, best = state.examples_with(state.certified), None
        x_duals = problem._replace(l2=1.0).weights_of(examples)
        for apart, scale in scaled_gaps(problem, w, x_duals):
            a = scale * state.certified
            losses, gap = problem.gaps(examples, a, state.wx, bias)
            if best is None or gap + apart < best[1]:
                best = losses, gap + apart, a
        assert best is not None
        losses, gap, certified = best
        point = w, bias, losses + problem.penalty(w)
        return state._replace(certified=certified), Certificate(*point, max(gap, 0.0))
