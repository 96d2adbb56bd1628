"""Duality gaps, which bound how far a primal point is from the minimum."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tfopt.linear_model._solver.design import Design, Point
from tfopt.linear_model._solver.intercept import intercept_search
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.rows import Linearization

__all__ = ["Certificate", "assemble", "certify", "certify_linearized", "without_projection"]

#: How much an inexact intercept may add to the gap, relative to the estimate of the gap.
BIAS_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A primal point with its duality gap: the minimum is between objective - gap and objective.

    Attributes
    ----------
    w : ndarray, shape (n_weights,)
    bias : float
    objective : float
        The primal objective at w and bias.
    gap : float
        The primal minus the dual objective, at least 0.
    """

    w: np.ndarray
    bias: float
    objective: float
    gap: float

    @property
    def relative_gap(self) -> float:
        if self.gap == 0:
            return 0.0
        return self.gap / self.objective if self.objective else math.inf


def certify(
    objective: Objective,
    design: Design,
    points: Mapping[int, Point],
    estimates: Mapping[int, float],
) -> dict[int, Certificate]:
    """Compute the duality gaps of the visits' dual variables.

    Parameters
    ----------
    objective : Objective
    design : Design
    points : dict of ndarray and float
        The unshrunk weights v of the dual variables, and a guess of the intercept.
    estimates : dict of float
        Of the gaps.

    Returns
    -------
    dict of Certificate
        With the best intercepts for the weights.
    """
    weights = {k: objective.shrunk(v) for k, (v, _) in points.items()}
    if not objective.intercept:
        biases = dict.fromkeys(points, 0.0)
        sums = design.gaps(dict.fromkeys(points, (0.0, None)), weights)
    else:
        searches = {
            k: intercept_search(objective.loss, bias, BIAS_SHARE * estimates[k])
            for k, (_, bias) in points.items()
        }
        answers = design.predict({k: (weights[k], searches[k].places) for k in points})
        derivatives = {k: derivative for k, (_, derivative) in answers.items()}
        while derivatives := design.intercept_derivatives(
            {k: searches[k].places for k, at in derivatives.items() if not searches[k].update(at)}
        ):
            pass
        biases = {k: search.bias for k, search in searches.items()}
        sums = design.gaps({k: (biases[k], answers[k][0]) for k in points})
    certificates = {}
    for k, (v, _) in points.items():
        pair, projected = sums[k]
        v = v if projected is None else projected
        certificates[k] = assemble(objective, weights[k], biases[k], v, *pair)
    return certificates


def certify_linearized(
    objective: Objective,
    design: Design,
    points: Mapping[int, Point],
    linearizations: Mapping[int, Linearization],
) -> dict[int, Certificate]:
    """Compute duality gaps with minus the losses' derivatives as dual variables.

    The gap of the losses is 0 unless an intercept requires the dual variables to be projected.
    """
    if not objective.intercept:
        return {
            k: without_projection(objective, point, linearizations[k])
            for k, point in points.items()
        }
    sums = design.gaps({k: (bias, linearizations[k].residual) for k, (_, bias) in points.items()})
    certificates = {}
    for k, (w, bias) in points.items():
        (_, gap), v = sums[k]
        assert v is not None
        certificates[k] = assemble(objective, w, bias, v, linearizations[k].losses, gap)
    return certificates


def without_projection(
    objective: Objective, point: Point, linearization: Linearization
) -> Certificate:
    """Return the certificate if the dual variables need not be projected, else an estimate of it.

    It takes no pass over the rows. Only the gap is an estimate.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        v = -linearization.gradient[:-1] / objective.l2
    return assemble(objective, *point, v, linearization.losses, 0.0)


def assemble(
    objective: Objective, w: np.ndarray, bias: float, v: np.ndarray, losses: float, gap: float
) -> Certificate:
    """Return a certificate, given the sum of the losses and the examples' part of the gap.

    The gap is summed up from the Fenchel-Young gaps of the examples and of the weights, which are
    not negative: the difference of the two objectives would be mere rounding when it is small.
    """
    inside = np.clip(v, -objective.shrink, objective.shrink)
    with np.errstate(over="ignore", invalid="ignore"):  # a gap may be infinite
        apart = np.square(w - (v - inside)) / 2 + (objective.shrink * np.abs(w) - inside * w)
        gap = float(gap) + objective.l2 * float(apart.sum())
    return Certificate(w, bias, float(losses) + objective.penalty(w), max(gap, 0.0))
