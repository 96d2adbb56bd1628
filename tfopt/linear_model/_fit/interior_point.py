"""A primal-dual interior-point method with Mehrotra's predictor and corrector.

It applies to piecewise linear losses, whose dual variables are in intervals. An iteration makes
three passes over the rows: for the Newton system, for the length of the predictor's step, and for
that of the corrector's step. (Mehrotra: On the implementation of a primal-dual interior point
method, 1992; Ferris, Munson: Interior-point methods for massive support vector machines, 2002.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit.certificate import Certificate, assemble
from tfopt.linear_model._fit.design import Design, Point
from tfopt.linear_model._fit.interior_penalty import PenaltyRows, inside
from tfopt.linear_model._fit.interior_rows import (
    Begin,
    Candidate,
    Centre,
    Choose,
    Corrector,
    Predictor,
    Step,
    System,
)
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model.loss_record import weighted_sum

__all__ = ["LOOSE", "InteriorPoint"]

#: The estimate of a gap is too large by about this factor.
LOOSE = 2.0

#: While dual variables violate the constraints of l2 = 0, the gap counts as this multiple of the
#: losses.
FAR = 1e12
#: The length of a step, relative to the step with which a variable would become 0.
NEARLY = 0.9995
#: A smaller share of a step is rounding.
SHORTEST = 1e-8
#: The method ends if a certified gap is above this share of the last one, or if a whole step near
#: the minimum does not reduce the products below this share.
STALLED = 0.9
#: The initial mean product of a warm start, relative to the mean product that its gap implies. With
#: less, many dual variables start too close to an end of their interval and have to move back.
WIDER = 100.0
#: Up to this relative gap a point is near the minimum: a warm start then begins with the dual
#: variables of the last certificate.
NEAR = 1e-2
#: Rows are chosen again when the products have fallen to this share of their last value, and are at
#: most this many times the gap.
SMALLER, MOSTLY = 0.5, 2.0


@dataclasses.dataclass
class _Iterate:
    """A point of the method, without the variables of the rows.

    Attributes
    ----------
    u : ndarray, shape (n_weights + 1,)
        The weights and the intercept.
    share : float
        The share of the last step that the rows will take with the next request.
    total, products, losses : float
        The total weight of the rows, the weighted sum of products, and the losses.
    quadratic, linear : float
        The gap that the dual constraints' violation at the first point adds: the term that is
        quadratic in the violation, and the linear one.
    far : ndarray, shape (n_weights + 1,)
        X^T times the weighted dual variables of the rows that are left out, followed by their sum.
    chosen : float
        The mean product when these rows were chosen.
    is_doubted : bool
        Whether there was a certificate since: a row may have been left out by mistake.
    left : float
        The remaining share of the violation.
    gap : float
        The gap of the last certificate.
    """

    u: np.ndarray
    share: float
    total: float
    products: float
    losses: float
    quadratic: float
    linear: float
    far: np.ndarray
    chosen: float = math.inf
    is_doubted: bool = False
    left: float = 1.0
    gap: float = math.inf

    @property
    def point(self) -> Point:
        return self.u[:-1].copy(), float(self.u[-1])

    def certificate(self, problem: Problem) -> Certificate:
        """Return an estimate of the certificate."""
        w, bias = self.point
        penalty = weighted_sum(problem.penalties.l2 / 2 * w, w)
        return Certificate(w, bias, max(self.losses, 0.0) + penalty, max(self.gap_estimate, 0.0))

    @property
    def gap_estimate(self) -> float:
        return self.products + self.left * (self.left * self.quadratic + self.linear)


def _nowhere(point: Point) -> Point:
    return np.zeros_like(point[0]), 0.0


class InteriorPoint(Steps):
    """The method for several problems that share their rows.

    Parameters
    ----------
    problem : Problem
        Its rows are not used.
    design : Design

    Attributes
    ----------
    iterates : dict
        The iterates of the active problems, by number.
    """

    def __init__(self, problem: Problem, design: Design) -> None:
        self.problem, self.design = problem, design
        self.iterates: dict[int, _Iterate] = {}
        self._penalties: dict[int, PenaltyRows] = {}
        self._whole: set[int] = set()
        self._leaves_out = design.plan.leaves_out_rows
        self._starts: dict[int, Point] = {}
        self._stuck: list[int] = []
        self._certified: dict[int, Certificate] = {}

    @property
    def active(self) -> Collection[int]:
        """The problems that are being solved or will be with the next step."""
        return {**self._starts, **self.iterates}.keys()

    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        """Begin at a point when the next step is taken."""
        self._starts[k] = w, bias

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        """Take steps; return estimates of certificates, and the certificates that are due."""
        starts, self._starts = self._starts, {}
        bests = {k: monitors[k].best for k in starts}
        self.begin(starts, {k: best for k, best in bests.items() if best is not None})
        self._stuck, estimates = self._take_steps(), self.estimates()
        self._certified = self.certify(
            [
                k
                for k, estimate in estimates.items()
                if k in self._stuck or monitors[k].should_certify_step(estimate, LOOSE)
            ]
        )
        return estimates, self._certified

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        """Return the problems that make no more progress."""
        ended = [
            k
            for k, point in self._certified.items()
            if k in going and (k in self._stuck or self.stalls(k, point))
        ]
        return [k for k in ended if not self.restarts(k)]

    def begin(self, points: Mapping[int, Point], certificates: Mapping[int, Certificate]) -> None:
        """Begin at points, with dual variables on the central path for these weights.

        Near the minimum, the dual variables start close to those of the last certificate instead.

        Parameters
        ----------
        points : dict of ndarray and float
        certificates : dict of Certificate
            The best certificates of some of the problems.
        """
        if not points:
            return
        begun = self.design.apply({k: Begin(*point) for k, point in points.items()})
        far = {k: _nowhere(points[k]) for k, sums in begun.items() if not np.isfinite(sums).all()}
        points = {**points, **far}  # a warm start may overflow
        begun |= self.design.apply({k: Begin(*point) for k, point in far.items()})
        if self.problem.positive:
            points, begun = inside(self.design, points, begun)
        requests = {}
        for k, (total, distance) in begun.items():
            mean, is_near = distance / total, False
            if k in certificates:
                mean = min(mean, WIDER * certificates[k].gap / (2 * total))
                is_near = k not in far and certificates[k].relative_gap <= NEAR
            requests[k] = Centre(float(mean) or 1.0, points[k][1], is_near)
        self._centre(points, begun, requests)
        for k, request in requests.items():
            if request.is_near:  # rows may be chosen by their moves from this point
                self.iterates[k].chosen = self.iterates[k].products / self.iterates[k].total

    def _centre(
        self,
        points: Mapping[int, Point],
        begun: Mapping[int, np.ndarray],
        requests: Mapping[int, Centre | Choose],
    ) -> None:
        """Begin at points with the variables set by requests, given the answers of `Begin`."""
        l2 = self.problem.penalties.l2
        for k, found in self.design.apply(requests).items():
            (w, bias), (total, distance) = points[k], begun[k].tolist()
            if self.problem.l1 > 0 or not self.problem.is_plain:
                self._penalties[k] = PenaltyRows(self.problem, w, requests[k].mu, total)
                found = found + self._penalties[k].numbers()
            square, quadratic = np.square(found.sums[:-1] - l2 * w), FAR * found.losses
            quadratic = float((square / (2 * l2)).sum()) if l2.all() else quadratic
            off = abs(float(found.sums[-1])) if self.problem.intercept else 0.0
            self.iterates[k] = _Iterate(
                *(np.append(w, bias), 0.0, found.total, found.products, found.losses),
                *(quadratic, off * distance / total, found.far),
            )

    def _choose_rows(self) -> None:
        """Choose rows to leave out, if products are much smaller than at the last choice.

        Products must also be most of the gap: before that, residuals are not informative.
        """
        due = {
            k: each.products / (2 * each.total)
            for k, each in self.iterates.items()
            if self._leaves_out
            and k not in self._whole
            and (each.is_doubted or each.products <= SMALLER * each.chosen * each.total)
            and each.gap_estimate <= MOSTLY * each.products
        }
        if not due:
            return
        points = {k: self.iterates[k].point for k in due}
        begun = self.design.apply({k: Begin(*point) for k, point in points.items()})
        requests, gaps = {}, {k: self.iterates[k].gap for k in due}
        for k, mu in due.items():
            shortened = math.sqrt(min(2 * mu / self.iterates[k].chosen, 1.0))
            requests[k] = Choose(mu, points[k][1], self.iterates[k].share, shortened)
        self._centre(points, begun, requests)
        for k, gap in gaps.items():
            new = self.iterates[k]
            new.chosen, new.gap = new.products / new.total, gap

    def _take_steps(self) -> list[int]:
        """Take a step of each problem; return the problems where rounding prevents one.

        The rows take the step with the next request.
        """
        self._choose_rows()
        steps = self._steps_at_once() if Step.applies(self.problem) else self._steps_in_rounds()
        for each in self.iterates.values():
            each.share = 0.0
        return [k for k in self.iterates if steps.get(k) is None or not self._moved(k, *steps[k])]

    def _steps_at_once(self) -> dict[int, Any]:
        """Return steps with their ratios and sums, by one request."""
        parts = {k: (at.u, at.share, at.products, at.total) for k, at in self.iterates.items()}
        return self.design.apply({k: Step(*part) for k, part in parts.items()})

    def _steps_in_rounds(self) -> dict[int, Any]:
        """Return steps with their ratios and sums, by three requests."""
        problem = self.problem
        systems = self.design.apply({k: System(each.share) for k, each in self.iterates.items()})
        factors, predictors = {}, {}
        for k, (matrix, pull) in systems.items():
            u = self.iterates[k].u
            right = pull + self.iterates[k].far - np.append(problem.penalties.l2 * u[:-1], 0.0)
            matrix[np.diag_indices(len(u) - 1)] += problem.penalties.l2
            if k in self._penalties:
                self._penalties[k].add_system(self.iterates[k].share, matrix, right)
            if not problem.intercept:
                matrix[-1] = matrix[:, -1] = right[-1] = 0.0
                matrix[-1, -1] = 1.0
            solved = second_order.solve(matrix, right, least_pivot=0.0)
            if solved and np.isfinite(right).all():
                factors[k], predictors[k] = matrix, right
        answers = self.design.apply({k: Predictor(step) for k, step in predictors.items()})
        correctors = {}
        for k, (ratio, sums, *pulls) in answers.items():
            total, products = self.iterates[k].total, self.iterates[k].products
            if k in self._penalties:
                ratio, sums = self._penalties[k].add_predictor(predictors[k], ratio, sums, pulls)
            first, second, _ = sums.tolist()
            share = 1 / max(ratio.value, 1.0)
            reached = (products + share * (first + share * second)) / products
            target = reached**3 * products / (2 * total)
            right = target * pulls[0] + pulls[1]
            if not problem.intercept:
                right[-1] = 0.0
            second_order.solve(factors[k], right, is_factor=True)
            correctors[k] = Corrector(predictors[k] + right, target)
        found = {}
        for k, (ratio, sums) in self.design.apply(correctors).items():
            if k in self._penalties:
                ratio, sums = self._penalties[k].add_corrector(correctors[k], ratio, sums)
            found[k] = correctors[k].step, ratio.value, sums
        return found

    def _moved(self, k: int, step: np.ndarray, ratio: float, sums: np.ndarray) -> bool:
        """Take a step of the weights; return False if it makes no progress."""
        iterate = self.iterates[k]
        first, second, slope = sums.tolist()
        slope -= weighted_sum(iterate.far, step)
        share = NEARLY / max(ratio, NEARLY)
        products = iterate.products + share * (first + share * second)
        losses = iterate.losses + share * slope
        u = iterate.u + share * step
        if not (share > SHORTEST and math.isfinite(products + losses) and np.isfinite(u).all()):
            return False
        is_whole = iterate.left <= SHORTEST and share == 1  # from a feasible point
        is_near = iterate.certificate(self.problem).relative_gap <= NEAR
        if is_whole and is_near and products > STALLED * iterate.products:
            return False  # no progress; farther from the minimum, the step may only have centred
        iterate.u, iterate.share, iterate.products, iterate.losses = u, share, products, losses
        iterate.left *= 1 - share
        return True

    def estimates(self) -> dict[int, Certificate]:
        """Return estimates of the certificates of all problems."""
        return {k: each.certificate(self.problem) for k, each in self.iterates.items()}

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        """Compute the duality gaps of the points."""
        if not problems:
            return {}
        problem, certificates = self.problem, {}
        points = {k: self.iterates[k].point for k in problems}
        if self._penalties:
            numbers = {k: (self.iterates[k].share, self.iterates[k].losses) for k in problems}
            ends = {k: self._penalties[k].end(*points[k], *numbers[k]) for k in problems}
            return self.design.apply(ends)
        answers = self.design.apply(
            {k: Candidate(w, self.iterates[k].share) for k, (w, _) in points.items()}
        )
        residuals = answers if problem.intercept else dict.fromkeys(problems)
        sums = self.design.gaps({k: (bias, residuals[k]) for k, (_, bias) in points.items()})
        for k, point in points.items():
            pair, projected = sums[k]
            v = answers[k][:-1] / problem.l2 if projected is None else projected
            certificates[k] = assemble(problem, *point, v, *pair)
        return certificates

    def stalls(self, k: int, point: Certificate) -> bool:
        """Record a certificate; return whether its gap is hardly smaller than the last one."""
        iterate = self.iterates[k]
        last, iterate.gap = iterate.gap, point.gap
        iterate.is_doubted = True
        return point.gap > STALLED * last

    def restarts(self, k: int) -> bool:
        """Begin anew from the weights 0 with all rows; return False if that is not possible."""
        if not self._leaves_out or k in self._whole:
            return False
        point = self.iterates[k].point
        self._whole.add(k)
        self.end(k)
        self.begin({k: _nowhere(point)}, {})
        return True

    def end(self, k: int) -> None:
        """Take no more steps of a problem."""
        self._starts.pop(k, None)
        self.iterates.pop(k, None)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "newton_points": {
                str(k): {"w": w, "bias": bias} for k, (w, bias) in self._starts.items()
            },
            "interior": {str(k): dataclasses.asdict(each) for k, each in self.iterates.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self._starts = {
            int(k): (point["w"], point["bias"]) for k, point in state["newton_points"].items()
        }
        self.iterates = {}
        for k, each in state.get("interior", {}).items():
            arrays = {name: each[name] for name in ("u", "far")}
            numbers: dict[str, Any] = {n: float(x) for n, x in each.items() if n not in arrays}
            self.iterates[int(k)] = _Iterate(**arrays, **numbers)
