"""Duality gaps, which bound the distance of a primal point from the minimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tfopt.linear_model._fit.design import Design, Point, Tangents
from tfopt.linear_model._fit.intercept import intercept_search
from tfopt.linear_model._fit.problem import Problem

__all__ = [
    "Certificate",
    "assemble",
    "certify",
    "certify_steps",
    "certify_tangents",
    "estimate_from_gradient",
    "estimate_from_step",
    "estimate_scaled",
    "penalty_gap",
    "scaled_gap",
    "scaled_gaps",
]

#: The largest amount that an inexact intercept may add to the gap, relative to its estimate.
BIAS_SHARE = 0.01
#: The relative rounding error of an objective, from sums over blocks and within them.
ROUNDING = 2.0**-48


class Certificate(NamedTuple):
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
    def stated_gap(self) -> float:
        """The gap, but at least the rounding of the objective."""
        return max(self.gap, ROUNDING * self.objective)

    @property
    def relative_gap(self) -> float:
        if self.gap == 0:
            return 0.0
        return self.gap / self.objective if self.objective else math.inf


def certify(
    problem: Problem,
    design: Design,
    points: Mapping[int, Point],
    estimates: Mapping[int, float],
) -> dict[int, Certificate]:
    """Compute the duality gaps of the visits' dual variables.

    Parameters
    ----------
    problem : Problem
    design : Design
    points : dict of ndarray and float
        The unshrunk weights v of the dual variables, and a guess of the intercept.
    estimates : dict of float
        Estimates of the gaps.

    Returns
    -------
    dict of Certificate
        Their intercepts are the best for the weights.
    """
    weights = {k: problem.shrunk(v) for k, (v, _) in points.items()}
    if not problem.intercept:
        biases = dict.fromkeys(points, 0.0)
        sums = design.gaps(dict.fromkeys(points, (0.0, None)), weights)
    else:
        phi = problem.phi
        searches = {
            k: intercept_search(phi, bias, BIAS_SHARE * estimates[k])
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
        if projected is not None:
            v = projected
        elif problem.l1 == 0:
            v = weights[k]  # except for the signs of zeros
        certificates[k] = assemble(problem, weights[k], biases[k], v, *pair)
    return certificates


def certify_tangents(
    problem: Problem,
    design: Design,
    points: Mapping[int, Point],
    tangents: Mapping[int, Tangents],
) -> dict[int, Certificate]:
    """Compute duality gaps with the negative derivatives of the losses as dual variables.

    The gap of the losses is 0 unless an intercept requires the dual variables to be projected.
    """
    gaps = design.tangent_gaps({k: bias for k, (_, bias) in points.items()}) if points else {}
    return {
        k: assemble(problem, *points[k], v, tangents[k].losses, gap) for k, (gap, v) in gaps.items()
    }


def certify_steps(
    problem: Problem,
    design: Design,
    points: Mapping[int, Point],
    tangents: Mapping[int, Tangents],
    weights: Mapping[int, np.ndarray],
) -> dict[int, Certificate]:
    """Compute duality gaps with the dual variables of the Newton steps that led to points.

    They are the negative derivatives that the tangents of phi' at the start of the step predict. By
    the Newton system, their unshrunk weights equal the weights of the point. So the gap comes from
    the losses only, up to rounding and the error of the system's solution, and needs no product
    with the rows.

    Parameters
    ----------
    problem, design, points, tangents
    weights : dict of ndarray
        The unshrunk weights of these dual variables, from the Newton system.

    Returns
    -------
    dict of Certificate
        Problems whose dual variables are outside the conjugate's domain are left out.
    """
    gaps = design.step_gaps({k: bias for k, (_, bias) in points.items()}) if points else {}
    return {
        k: assemble(problem, *points[k], weights[k], tangents[k].losses, gap)
        for k, gap in gaps.items()
        if math.isfinite(gap)
    }


def estimate_from_step(
    problem: Problem, point: Point, tangents: Tangents, weights: np.ndarray
) -> Certificate:
    """Return an estimate of the result of `certify_steps`, without a pass over the rows."""
    return assemble(problem, *point, weights, *tangents)


def estimate_from_gradient(
    problem: Problem, point: Point, tangents: Tangents, gradient: np.ndarray
) -> Certificate:
    """Return the result of `certify_tangents` without its projection, and without a pass."""
    v = -gradient[:-1] / problem.l2
    return assemble(problem, *point, v, tangents.losses, 0.0)


def estimate_scaled(
    problem: Problem, point: Point, losses: float, x_duals: np.ndarray, gap: float
) -> Certificate:
    """Return an estimate of the certificate for the best multiple of the dual variables.

    `x_duals` is X^T (weight * a), and `gap` is the examples' part of the gap.
    """
    apart, scale = scaled_gap(problem, point[0], losses, x_duals)
    gap += apart + (1 - scale) ** 2 * losses
    return Certificate(*point, losses + problem.penalty(point[0]), gap)


def assemble(
    problem: Problem, w: np.ndarray, bias: float, v: np.ndarray, losses: float, gap: float
) -> Certificate:
    """Return a certificate, given the sum of the losses and the examples' part of the gap.

    The gap is the sum of the Fenchel-Young gaps of the examples and the weights, which are
    nonnegative: a small difference of the two objectives would be rounding error.
    """
    if w is not v:
        gap = float(gap) + penalty_gap(problem, w, v)
    return Certificate(w, bias, float(losses) + problem.penalty(w), max(float(gap), 0.0))


def penalty_gap(
    problem: Problem, w: np.ndarray, v: np.ndarray, errors: np.ndarray | None = None
) -> float:
    """Return the Fenchel-Young gap of the penalties; l2 is not 0.

    Parameters
    ----------
    problem : Problem
    w, v : ndarray, shape (n_weights,)
        The weights, and the unshrunk weights of the dual variables.
    errors : ndarray, optional
        Bounds of the errors of v; the result is then an upper bound of the gap.
    """
    inside = np.clip(v, -problem.shrink, problem.shrink) if problem.l1 > 0 else None
    apart = w - (v if inside is None else v - inside)
    if errors is not None:
        apart = np.abs(apart) + errors
    gaps = np.square(apart) / 2
    if inside is not None:
        gaps += problem.shrink * np.abs(w) - inside * w
    return problem.l2 * float(np.add.reduce(gaps))


def scaled_gap(
    problem: Problem,
    w: np.ndarray,
    losses: float,
    x_duals: np.ndarray,
    errors: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return the Fenchel-Young gap of the penalties and the best multiple of dual variables.

    The dual is ::

        -sum of weight * phi*(-a) - sum of max(|X^T (weight * a)| - l1, 0)**2 / (2 * l2)

    For l2 = 0 the second sum becomes a constraint, and the dual variables are scaled to satisfy it;
    weights without any penalty are left to the caller. With l2 > 0 they are scaled if that gives
    the smaller gap, because a small l2 makes violations expensive. A factor s is assumed to add
    (1 - s)**2 times the losses to the examples' part. That is exact if the dual variables are the
    negative derivatives of the squared loss, or of any loss if s is 0.

    Parameters
    ----------
    problem : Problem
    w : ndarray, shape (n_weights,)
    losses : float
    x_duals : ndarray, shape (n_weights,)
        X^T (weight * a).
    errors : ndarray, optional
        Bounds of the errors of `x_duals`; the result is then an upper bound of the gap.

    Returns
    -------
    gap : float
    scale : float
        The factor, up to 1.
    """
    found = scaled_gaps(problem, w, x_duals, errors)
    return min(found, key=lambda each: each[0] + (1 - each[1]) ** 2 * losses)


def scaled_gaps(
    problem: Problem, w: np.ndarray, x_duals: np.ndarray, errors: np.ndarray | None = None
) -> list[tuple[float, float]]:
    """Return two results of `scaled_gap`: for the scale that l2 = 0 requires, and for every l2."""
    penalties, found = problem.penalties, []
    has_corner = penalties.up > 0
    reaches = penalties.reaches(x_duals, errors)
    for some in (has_corner & (penalties.l2 == 0), has_corner):
        scale = 1 / max(1.0, float(np.maximum.reduce(reaches[some], initial=0.0)))
        gaps = penalties.gaps(w, scale * x_duals, None if errors is None else scale * errors)
        found.append((float(np.add.reduce(gaps)), scale))
    return found
