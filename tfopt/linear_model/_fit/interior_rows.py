"""The interior-point method's computations with the rows of one problem.

Each request is a function of the problem and the state of rows. It returns the next state and an
answer; the answers of blocks are added up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfopt.kernels.linear import hessian_products, interior_point, second_order
from tfopt.linear_model._fit.interior_fields import FIELD, centred, kept
from tfopt.linear_model._fit.problem import Problem, rows_at
from tfopt.linear_model._fit.rows import Near, RowState, dual_residual
from tfopt.linear_model.loss_record import weighted_sum

__all__ = [
    "Begin",
    "Candidate",
    "Centre",
    "Centred",
    "Choose",
    "Corrector",
    "Largest",
    "Predictor",
    "Step",
    "System",
    "curvatures",
]

#: With at most this many dense values, a step is computed by one call, on one thread.
FEW = 2**20

_NOTHING = np.zeros(0)
#: The first fields, without steps.
_VARIABLES = ("weight", "dual", "upper", "lower", "above", "below")


@dataclasses.dataclass(frozen=True)
class Largest:
    """A number whose "sum" with others is the largest of them."""

    value: float

    def __add__(self, other: Largest) -> Largest:
        return self if self.value >= other.value else other


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the concatenated parts; a single part is not copied."""
    first, *others = parts
    return np.concatenate([first, *others]) if others else first


def _repeated(problem: Problem, values: np.ndarray) -> np.ndarray:
    """Repeat the values of rows for each corner of the loss, the first corner of all rows first."""
    n_corners = len(problem.phi.corners(_NOTHING))
    return np.tile(values, n_corners) if n_corners > 1 else values


def _summed(problem: Problem, values: np.ndarray) -> np.ndarray:
    """Return the sum over the corners of each row."""
    n_corners = len(problem.phi.corners(_NOTHING))
    sums: np.ndarray = values
    if n_corners > 1:
        sums = np.add.reduce(values.reshape(*values.shape[:-1], n_corners, -1), axis=-2)
    return sums


def _sums(problem: Problem, factors: np.ndarray) -> np.ndarray:
    """Return X^T times the factors, followed by the sum of the factors."""
    constant = np.zeros(problem.n_weights + 1)
    constant[-1] = 1.0
    return hessian_products.product(*problem.rows, factors, constant, problem.threads)


def _near(problem: Problem, state: RowState) -> Problem:
    """Return the problem with the active rows: those that are not left out."""
    return problem if state.near is None else problem._replace(rows=state.near.rows)


@dataclasses.dataclass(frozen=True)
class Begin:
    """Answers with the total weight of corners, and the weighted sum of |place - z| at a point.

    Attributes
    ----------
    w : ndarray, shape (n_weights,)
    bias : float
    """

    w: np.ndarray
    bias: float

    def __call__(self, problem: Problem, state: RowState) -> tuple[RowState, np.ndarray]:
        state = state._replace(wx=problem.predictions(self.w))
        weight = _repeated(problem, state.examples["weight"])
        distance = np.abs(_residuals(problem, state, self.bias))
        return state, np.array([weight.sum(), weighted_sum(weight, distance)])


def _residuals(problem: Problem, state: RowState, bias: float) -> np.ndarray:
    """Return place - z of each corner, at the predictions of `Begin`."""
    places = _joined(corner.place for corner in problem.phi.corners(state.examples["y"]))
    residuals: np.ndarray = places - _repeated(problem, state.wx) - bias
    return residuals


@dataclasses.dataclass(frozen=True)
class Centre:
    """Sets the dual variables such that all products are mu, given the predictions of `Begin`.

    With `is_near`, they stay close to the dual variables of the last certificate. Answers with
    `Centred`.
    """

    mu: float
    bias: float
    is_near: bool = False

    def __call__(self, problem: Problem, state: RowState) -> tuple[RowState, Centred]:
        corners = problem.phi.corners(state.examples["y"])
        low, high = (_joined(corner[end] for corner in corners) for end in (1, 2))
        weight = _repeated(problem, state.examples["weight"])
        residual = _residuals(problem, state, self.bias)
        fields = centred(weight, residual, low, high, self.mu)
        if self.is_near:
            duals = _repeated(problem, state.certified)
            fields = kept(fields, residual, low, high, self.mu, duals)
        seen = state.wx + self.bias
        state = state._replace(interior=fields, near=None, seen=seen, reach=0.0)
        return state, _centre_of(problem, state)


@dataclasses.dataclass(frozen=True)
class Choose:
    """Leaves out rows far from the only corner of their loss, after a share of the last step.

    A row is left out if its residual exceeds both the largest change of a prediction since the last
    choice and the last threshold times `shortened`; its dual variable becomes an end of its
    interval. A row that returns begins with products of mu. If `shortened` is 0, no row is left
    out. Needs the predictions of `Begin`. Answers with `Centred`.

    Attributes
    ----------
    mu, bias, share : float
    shortened : float
        The factor of the last threshold; 0 for the first choice.
    """

    mu: float
    bias: float
    share: float
    shortened: float

    def __call__(self, problem: Problem, state: RowState) -> tuple[RowState, Centred]:
        examples, last = state.examples, state
        weight, y, n_rows = examples["weight"], examples["y"], len(examples)
        (_, low, high), z = problem.phi.corners(y)[0], state.wx + self.bias
        residual = _residuals(problem, state, self.bias)
        counts, moved = weight > 0, np.abs(z - state.seen)
        reach = 0.0
        if self.shortened > 0:
            reach = max(float(moved[counts].max(initial=0.0)), self.shortened * state.reach)
        is_near, near = counts & (np.abs(residual) <= reach), None
        if reach > 0 and 0 < is_near.sum() <= n_rows // 2:
            at, duals = np.flatnonzero(is_near), np.zeros(n_rows)
            far = counts & ~is_near
            duals[far] = -problem.phi.gradient(z[far], y[far])
            losses = weighted_sum(weight[far], problem.phi.value(z[far], y[far]))
            far_sums = _sums(problem, weight * duals)
            near = Near(at, rows_at(problem, at), duals, far_sums, losses)
        else:
            at = np.arange(n_rows)
        fields = centred(weight[at], residual[at], low[at], high[at], self.mu)
        _keep(fields, at, last, self.share)
        state = state._replace(interior=fields, near=near, seen=z, reach=reach)
        return state, _centre_of(problem, state)


def _centre_of(problem: Problem, state: RowState) -> Centred:
    """Return the sums over the active rows, and over the rows that are left out."""
    weight, dual, upper, lower, above, below = state.interior[: len(_VARIABLES)]
    sums = _sums(_near(problem, state), _summed(problem, weight * dual))
    losses = weighted_sum(weight, (dual + upper) * above - (dual - lower) * below)
    far = np.zeros_like(sums)
    if state.near is not None:
        far = state.near.sums
        losses += state.near.losses
    products = weighted_sum(weight, upper * above + lower * below)
    return Centred(far + sums, losses, far, float(weight.sum()), products)


@dataclasses.dataclass(frozen=True)
class Centred:
    """Sums over the rows after new dual variables were set; those of blocks are added.

    Attributes
    ----------
    sums : ndarray, shape (n_weights + 1,)
        X^T times the weighted dual variables of all rows, followed by their sum.
    losses : float
    far : ndarray, shape (n_weights + 1,)
        The part of `sums` that comes from rows that are left out.
    total, products : float
        The weight of the corners of the active rows, and the weighted sum of their products.
    """

    sums: np.ndarray
    losses: float
    far: np.ndarray
    total: float
    products: float

    def __add__(self, other: Centred) -> Centred:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Centred(*(one + another for one, another in pairs))


def _keep(fields: np.ndarray, at: np.ndarray, last: RowState, share: float) -> None:
    """Keep the fields of rows that were active before, after a share of the last step."""
    before = last.interior.copy()
    interior_point.advance(before, share)
    numbers = np.arange(before.shape[1]) if last.near is None else last.near.at
    place = np.minimum(np.searchsorted(numbers, at), numbers.size - 1)
    kept = np.flatnonzero(numbers[place] == at)
    fields[:, kept] = before[:, place[kept]]


def curvatures(problem: Problem, state: RowState, share: float) -> np.ndarray:
    """Return the curvatures of the rows in the Newton system after a share of the last step."""
    found: np.ndarray = _summed(problem, interior_point.advance(state.interior.copy(), share)[0])
    return found


@dataclasses.dataclass(frozen=True)
class System:
    """Takes a share of the last step, and answers with the Newton system: matrix and right side."""

    share: float

    def __call__(
        self, problem: Problem, state: RowState
    ) -> tuple[RowState, tuple[np.ndarray, np.ndarray]]:
        fields = state.interior.copy()
        each = interior_point.advance(fields, self.share, problem.threads)
        curvatures, pulls = _summed(problem, each)
        right, matrix = second_order.newton_system(
            *_near(problem, state).rows,
            *(pulls, curvatures, problem.n_weights, problem.threads),
        )
        return state._replace(interior=fields), (matrix, right)


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Computes the rows' step to products of 0, given the step of the weights and the intercept.

    Answers with the ratio and the sums of `interior_point.predict`, and the right sides of the
    corrector's system.
    """

    step: np.ndarray

    def __call__(
        self, problem: Problem, state: RowState
    ) -> tuple[RowState, tuple[Largest, np.ndarray, np.ndarray, np.ndarray]]:
        problem = _near(problem, state)
        fields, changes = state.interior.copy(), problem.predictions(self.step[:-1])
        pulls, (ratio, *sums) = interior_point.predict(
            fields, _repeated(problem, changes), float(self.step[-1]), problem.threads
        )
        centring, products = (_sums(problem, each) for each in _summed(problem, pulls))
        answer = Largest(float(ratio)), np.array(sums), centring, products
        return state._replace(interior=fields), answer


@dataclasses.dataclass(frozen=True)
class Corrector:
    """Computes the rows' step to products of `target`; answers with ratio and sums of `correct`."""

    step: np.ndarray
    target: float

    def __call__(
        self, problem: Problem, state: RowState
    ) -> tuple[RowState, tuple[Largest, np.ndarray]]:
        problem = _near(problem, state)
        fields, changes = state.interior.copy(), problem.predictions(self.step[:-1])
        changes = _repeated(problem, changes)
        ratio, *sums = interior_point.correct(
            fields, changes, float(self.step[-1]), self.target, problem.threads
        )
        return state._replace(interior=fields), (Largest(float(ratio)), np.array(sums))


@dataclasses.dataclass(frozen=True)
class Step:
    """A whole step at once, for few dense rows in this process; it changes their state in place.

    Answers with the step of u and the ratio and sums of `correct`; or with None, if the Newton
    system is not positive definite.

    Attributes
    ----------
    u : ndarray, shape (n_weights + 1,)
    share, products, total : float
        See `interior_point.step`.
    """

    u: np.ndarray
    share: float
    products: float
    total: float

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether the problem has few dense rows, no l1, and the same penalty for all weights."""
        data, _, _, dense = problem.rows
        is_plain = problem.l1 == 0 and problem.is_plain
        return is_plain and data.size == 0 and 0 < dense.size <= FEW

    def __call__(
        self, problem: Problem, state: RowState
    ) -> tuple[RowState, tuple[np.ndarray, float, np.ndarray] | None]:
        X, step = problem.rows[3].astype(np.float64, copy=False), self.u.copy()
        numbers = interior_point.step(
            *(X, state.interior, step, problem.l2, problem.intercept),
            *(self.share, self.products, self.total),
        )
        return state, None if numbers is None else (step, float(numbers[0]), numbers[1:])


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Chooses the dual variables after a share of the last step for certification at weights w.

    Answers with `rows.dual_residual` if there is an intercept, else with X^T times the weighted
    dual variables, followed by their sum.
    """

    w: np.ndarray
    share: float

    def __call__(self, problem: Problem, state: RowState) -> tuple[RowState, Any]:
        examples, fields = state.examples, state.interior
        dual = fields[FIELD["dual"]] + self.share * fields[FIELD["dual_step"]]
        dual, weight = _summed(problem, dual), examples["weight"]
        if state.near is not None:
            others = state.near.duals.copy()
            others[state.near.at] = dual
            dual = others
        inside = problem.phi.clip_duals(dual, examples["y"])
        state = state._replace(
            wx=problem.predictions(self.w),
            certified=np.where(weight > 0, inside, state.a),
        )
        if problem.intercept:
            return state, dual_residual(problem, state)
        return state, _sums(problem, weight * state.certified)
