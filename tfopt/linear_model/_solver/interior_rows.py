"""What the interior-point method computes with the rows of one problem.

Each request is a function of the objective and the state of rows; the answers of blocks add up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfopt.kernels.sdca import hessian_products, interior_point, second_order
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model._solver.rows import RowState, dual_residual

__all__ = [
    "Begin",
    "Candidate",
    "Centre",
    "Corrector",
    "Largest",
    "Predictor",
    "Step",
    "System",
]

#: So many dense values are few: a step of them is computed by one call, on one thread.
FEW = 2**20

_NOTHING = np.zeros(0)
_FIELD = {name: k for k, name in enumerate(interior_point.FIELDS)}


@dataclasses.dataclass(frozen=True)
class Largest:
    """A number; what it and others "add up" to is the largest."""

    value: float

    def __add__(self, other: Largest) -> Largest:
        return self if self.value >= other.value else other


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the parts one after another, without a copy if it is one."""
    first, *others = parts
    return np.concatenate([first, *others]) if others else first


def _repeated(objective: Objective, values: np.ndarray) -> np.ndarray:
    """Return values of rows for the corners of these: those of the first ones come first."""
    n_corners = len(objective.phi.corners(_NOTHING))
    return np.tile(values, n_corners) if n_corners > 1 else values


def _summed(objective: Objective, values: np.ndarray) -> np.ndarray:
    """Return the sums of the corners of each row."""
    n_corners = len(objective.phi.corners(_NOTHING))
    sums: np.ndarray = values
    if n_corners > 1:
        sums = np.add.reduce(values.reshape(*values.shape[:-1], n_corners, -1), axis=-2)
    return sums


def _sums(objective: Objective, factors: np.ndarray) -> np.ndarray:
    """Return X^T of numbers, with their sum as the last."""
    constant = np.zeros(objective.n_weights + 1)
    constant[-1] = 1.0
    return hessian_products.product(*objective.rows, factors, constant, objective.threads)


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

    def __call__(self, objective: Objective, state: RowState) -> tuple[RowState, np.ndarray]:
        places = _joined(corner.place for corner in objective.phi.corners(state.examples["y"]))
        weight = _repeated(objective, state.examples["weight"])
        residual = places - _repeated(objective, objective.predictions(self.w)) - self.bias
        fields = np.zeros((len(_FIELD), places.size))
        fields[_FIELD["weight"]], fields[_FIELD["above"]] = weight, residual
        sums = np.array([weight.sum(), weighted_sum(weight, np.abs(residual))])
        return state._replace(interior=fields), sums


@dataclasses.dataclass(frozen=True)
class Centre:
    """Sets the dual variables to where all products are mu, given the residuals of `Begin`.

    Answers with X^T and the sum of the weighted dual variables, and the losses.
    """

    mu: float

    def __call__(
        self, objective: Objective, state: RowState
    ) -> tuple[RowState, tuple[np.ndarray, float]]:
        fields = state.interior.copy()
        weight, residual = fields[_FIELD["weight"]], fields[_FIELD["above"]]
        corners = objective.phi.corners(state.examples["y"])
        low, high = (_joined(corner[end] for corner in corners) for end in (1, 2))
        width, mu = high - low, self.mu
        # mu / near - mu / (width - near) = |residual|
        near = (
            2
            * mu
            * width
            / (width * np.abs(residual) + 2 * mu + np.hypot(width * residual, 2 * mu))
        )
        upper = np.where(residual > 0, near, width - near)
        lower = np.where(residual > 0, width - near, near)
        dual = np.where(residual > 0, high - near, low + near)
        above, below = mu / upper, mu / lower
        for name, values in zip(
            ("dual", "upper", "lower", "above", "below"),
            (dual, upper, lower, above, below),
            strict=True,
        ):
            fields[_FIELD[name]] = values
        losses = weighted_sum(weight, high * above - low * below)
        sums = _sums(objective, _summed(objective, weight * dual))
        return state._replace(interior=fields), (sums, losses)


@dataclasses.dataclass(frozen=True)
class System:
    """Takes a share of the last step, and answers with the Newton system: matrix and right side."""

    share: float

    def __call__(
        self, objective: Objective, state: RowState
    ) -> tuple[RowState, tuple[np.ndarray, np.ndarray]]:
        fields = state.interior.copy()
        each = interior_point.advance(fields, self.share, objective.threads)
        curvatures, pulls = _summed(objective, each)
        right, matrix = second_order.newton_system(
            *objective.rows, pulls, curvatures, objective.n_weights, objective.threads
        )
        return state._replace(interior=fields), (matrix, right)


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Computes the step to products of 0, given that of the weights and the intercept.

    Answers with the ratio and the sums of `interior_point.predict`, and the corrector's right
    sides.
    """

    step: np.ndarray

    def __call__(
        self, objective: Objective, state: RowState
    ) -> tuple[RowState, tuple[Largest, np.ndarray, np.ndarray, np.ndarray]]:
        fields, changes = state.interior.copy(), objective.predictions(self.step[:-1])
        pulls, (ratio, *sums) = interior_point.predict(
            fields, _repeated(objective, changes), float(self.step[-1]), objective.threads
        )
        centring, products = (_sums(objective, each) for each in _summed(objective, pulls))
        answer = Largest(float(ratio)), np.array(sums), centring, products
        return state._replace(interior=fields), answer


@dataclasses.dataclass(frozen=True)
class Corrector:
    """Computes the step to products of `target`; answers with the ratio and sums of `correct`."""

    step: np.ndarray
    target: float

    def __call__(
        self, objective: Objective, state: RowState
    ) -> tuple[RowState, tuple[Largest, np.ndarray]]:
        fields, changes = state.interior.copy(), objective.predictions(self.step[:-1])
        changes = _repeated(objective, changes)
        ratio, *sums = interior_point.correct(
            fields, changes, float(self.step[-1]), self.target, objective.threads
        )
        return state._replace(interior=fields), (Largest(float(ratio)), np.array(sums))


@dataclasses.dataclass(frozen=True)
class Step:
    """All of a step at once, of few dense rows in this process, whose variables it changes.

    Answers with the step of u and the ratio and sums of `correct`; or with nothing, if the Newton
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
    def applies(objective: Objective) -> bool:
        """Whether the objective's rows, if it has any, are few and dense."""
        data, _, _, dense = objective.rows
        return data.size == 0 and 0 < dense.size <= FEW

    def __call__(
        self, objective: Objective, state: RowState
    ) -> tuple[RowState, tuple[np.ndarray, float, np.ndarray] | None]:
        X, step = objective.rows[3].astype(np.float64, copy=False), self.u.copy()
        numbers = interior_point.step(
            *(X, state.interior, step, objective.l2, objective.intercept),
            *(self.share, self.products, self.total),
        )
        return state, None if numbers is None else (step, float(numbers[0]), numbers[1:])


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Has the dual variables certified after a share of the last step, at weights w.

    Answers with `rows.dual_residual` if there is an intercept, else with X^T of the weighted dual
    variables.
    """

    w: np.ndarray
    share: float

    def __call__(self, objective: Objective, state: RowState) -> tuple[RowState, Any]:
        examples, fields = state.examples, state.interior
        dual = fields[_FIELD["dual"]] + self.share * fields[_FIELD["dual_step"]]
        inside = objective.phi.clip_duals(_summed(objective, dual), examples["y"])
        weight = examples["weight"]
        state = state._replace(
            wx=objective.predictions(self.w),
            certified=np.where(weight > 0, inside, state.a),
        )
        if objective.intercept:
            return state, dual_residual(objective, state)
        return state, _sums(objective, weight * state.certified)
