"""What is to be minimized, and how far a pair of points is from the minimum."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfopt.kernels import curvature, sdca
from tfopt.linear_model.bias import newton_on_bias
from tfopt.linear_model.questions import answered
from tfopt.linear_model.sums import total

__all__ = [
    "NOBODY",
    "Certificate",
    "Problem",
    "Start",
    "allowed",
    "assembled",
    "balance",
    "balanced",
    "best_bias",
    "certify",
    "certify_balanced",
    "imbalance",
]

#: The examples of a certificate whose dual variables are elsewhere.
NOBODY = np.zeros(0, sdca.EXAMPLE)
CLASSIFICATION = ("logistic_loss", "hinge_loss", "smooth_hinge_loss")


@dataclasses.dataclass(frozen=True)
class Problem:
    """The sum of weight * phi(x . w + b; y) + l1 * |w|_1 + l2 / 2 * |w|**2, but for y and weight.

    A loss phi counts from its least value, so that it is never negative: of a count it is half the
    deviance.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, as the kernels take them: data, indices, indptr, dense.
    n_weights : int
    loss : str
    gamma : float
        The width of a smooth hinge.
    l1, l2 : float
    intercept : bool
        Whether there is a b, which has no penalty; otherwise it is 0.
    threads : int
        At most so many; 0 leaves it to `tfopt.threads`.
    """

    rows: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    n_weights: int
    loss: str
    gamma: float
    l1: float
    l2: float
    intercept: bool
    threads: int

    @property
    def n_features(self) -> int:
        """How many features are stored, of all examples."""
        return int(self.rows[0].size + self.rows[3].size)

    @property
    def shrink(self) -> float:
        return self.l1 / self.l2

    def shrunk(self, v: np.ndarray) -> np.ndarray:
        """Return sign(v) * max(|v| - shrink, 0), the weights that belong to v."""
        inside: np.ndarray = np.clip(v, -self.shrink, self.shrink)
        w: np.ndarray = v - inside
        return w

    def weights_of(self, examples: np.ndarray) -> np.ndarray:
        """Return the unshrunk weights that belong to the dual variables."""
        v = np.zeros(self.n_weights)
        sdca.weights_of(*self.rows, examples, v, self.l2)
        return v

    def predictions(self, w: np.ndarray) -> np.ndarray:
        """Return x . w of each example."""
        return sdca.predictions(*self.rows, w, 0.0, self.threads)

    def gaps(self, examples: np.ndarray, wx: np.ndarray, bias: float) -> tuple[float, float]:
        """Return the losses' sum, and that of the gaps of Fenchel and Young."""
        return curvature.gaps(examples, wx, bias, self.loss, self.gamma, self.threads)

    def losses(self, examples: np.ndarray, wx: np.ndarray, bias: float) -> float:
        """Return the losses' sum."""
        return curvature.losses(examples, wx, bias, self.loss, self.gamma, self.threads)

    def derivatives(
        self, examples: np.ndarray, wx: np.ndarray, bias: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return phi' and phi'' of each example, each times its weight."""
        return curvature.derivatives(examples, wx, bias, self.loss, self.gamma, self.threads)

    def penalty(self, w: np.ndarray) -> float:
        """Return l1 * |w|_1 + l2 / 2 * |w|**2."""
        with np.errstate(over="ignore"):
            return float(self.l1 * np.abs(w).sum() + self.l2 / 2 * np.square(w).sum())


@dataclasses.dataclass(frozen=True)
class Start:
    """A problem's labels and weights, and where to start.

    Attributes
    ----------
    y, weight, curvature : ndarray, shape (n_examples,)
        The curvature is |x|**2 / l2.
    a : ndarray, shape (n_examples,)
        The dual variables.
    bias : float
        About the intercept.
    """

    y: np.ndarray
    weight: np.ndarray
    curvature: np.ndarray
    a: np.ndarray
    bias: float

    def examples(self) -> np.ndarray:
        """Return all of it but the bias as an array of EXAMPLE."""
        examples = np.zeros(len(self.y), sdca.EXAMPLE)
        for name in ("a", "y", "weight", "curvature"):
            examples[name] = getattr(self, name)
        return examples


def allowed(a: np.ndarray, y: np.ndarray, loss: str) -> np.ndarray:
    """Return the dual variables nearest to `a` that the labels allow."""
    if loss in CLASSIFICATION:
        return np.asarray(y * np.clip(y * a, 0, 1))
    return np.minimum(a, y) if loss == "poisson_loss" else a


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A point of the primal and one of the dual: the minimum lies between their objectives.

    Attributes
    ----------
    w : ndarray, shape (n_weights,)
    bias : float
    examples : ndarray of EXAMPLE
        Whose dual variables sum to 0, weighted, if there is an intercept.
    v : ndarray, shape (n_weights,)
        The unshrunk weights that belong to them.
    objective : float
        The primal's, at w and bias.
    gap : float
        What the dual's is below, 0 at least.
    """

    w: np.ndarray
    bias: float
    examples: np.ndarray
    v: np.ndarray
    objective: float
    gap: float

    @property
    def relative_gap(self) -> float:
        if self.gap == 0:
            return 0.0
        return self.gap / self.objective if self.objective else math.inf


def certify(
    problem: Problem,
    examples: np.ndarray,
    w: np.ndarray,
    wx: np.ndarray,
    bias: float,
    v: np.ndarray | None = None,
) -> Certificate:
    """Bound the minimum from both sides.

    Parameters
    ----------
    problem : Problem
    examples : ndarray of EXAMPLE
    w : ndarray, shape (n_weights,)
    wx : ndarray, shape (n_examples,)
        x . w of each example.
    bias : float
        About the best for `w`, which is looked for if there is an intercept.
    v : ndarray, optional
        The weights that belong to the dual variables, if known.

    Returns
    -------
    Certificate
    """
    if problem.intercept:
        examples, v = balance(examples, problem.loss), None
    return certify_balanced(
        problem, examples, w, wx, bias, problem.weights_of(examples) if v is None else v
    )


def certify_balanced(
    problem: Problem,
    examples: np.ndarray,
    w: np.ndarray,
    wx: np.ndarray,
    bias: float,
    v: np.ndarray,
) -> Certificate:
    """Do so with dual variables whose weighted sum is 0 if there is an intercept, and their v.

    Notes
    -----
    The gap is the sum of what each example and each weight adds to it (Fenchel and Young), no term
    of which is negative: the difference of the objectives would be of no use when it is small.
    """
    if problem.intercept:
        bias = best_bias(problem, examples, wx, bias)
    losses, gap = problem.gaps(examples, wx, bias)
    return assembled(problem, examples, w, bias, v, losses, gap)


def assembled(
    problem: Problem,
    examples: np.ndarray,
    w: np.ndarray,
    bias: float,
    v: np.ndarray,
    losses: float,
    gap: float,
) -> Certificate:
    """Return a certificate, given the losses and what the examples add to the gap."""
    inside = np.clip(v, -problem.shrink, problem.shrink)
    with np.errstate(over="ignore", invalid="ignore"):  # a gap may be infinite
        apart = np.square(w - (v - inside)) / 2 + (problem.shrink * np.abs(w) - inside * w)
        gap += problem.l2 * float(apart.sum())
    objective = losses + problem.penalty(w)
    return Certificate(w, bias, examples, v, objective, max(gap, 0.0))


def balance(examples: np.ndarray, loss: str) -> np.ndarray:
    """Return the examples with the nearest dual variables of a kind whose weighted sum is 0."""
    return balanced(examples, loss, imbalance(examples, loss))


def imbalance(examples: np.ndarray, loss: str) -> np.ndarray:
    """Return the two sums over all examples that `balanced` has to know."""
    a, y, weight = examples["a"], examples["y"], examples["weight"]
    if loss == "squared_loss":
        return np.array([total(weight, a), weight.sum()])
    if loss == "poisson_loss":
        return np.array([total(weight, y), total(weight, y - a)])
    return np.array([total(weight, np.abs(a) * (side == (y > 0))) for side in (0, 1)])


def balanced(examples: np.ndarray, loss: str, sums: np.ndarray) -> np.ndarray:
    """Return examples, all or some, with the dual variables that `balance` has for all."""
    a, y = examples["a"], examples["y"]
    found = examples.copy()
    if loss == "squared_loss":
        found["a"] = a - sums[0] / sums[1]
    elif loss == "poisson_loss":  # y - a is not negative, and must have the mean of y
        found["a"] = y - (y - a) * (sums[0] / sums[1])
    else:  # y * a is not negative, nor above 1: the heavier class has to give way
        heavy = int(sums[1] > sums[0])
        if sums[heavy] > sums[1 - heavy]:
            found["a"][(y > 0) == heavy] *= sums[1 - heavy] / sums[heavy]
    return found


@np.errstate(over="ignore", invalid="ignore")
def best_bias(problem: Problem, examples: np.ndarray, wx: np.ndarray, bias: float) -> float:
    """Return the bias that minimizes the sum of the losses, near enough."""
    y, weight = examples["y"], examples["weight"]
    if problem.loss == "squared_loss":
        return float(total(weight, y - wx) / weight.sum())
    if problem.loss == "poisson_loss":
        counts = weight > 0
        y, weight, wx = y[counts], weight[counts], wx[counts]
        top = wx.max()
        return float(np.log(total(weight, y) / total(weight, np.exp(wx - top))) - top)
    if problem.loss == "hinge_loss":  # of lines whose slope grows by a weight at each corner
        corners = y - wx
        order = np.argsort(corners, kind="stable")
        passed = np.cumsum(weight[order])
        first = np.searchsorted(passed, weight[y > 0].sum())
        return float(corners[order[min(first, order.size - 1)]])

    def slopes(asked: list[float]) -> np.ndarray:
        (at,) = asked
        slopes, bends = problem.derivatives(examples, wx, at)
        return np.array([[slopes.sum()], [bends.sum()]])

    return float(answered(newton_on_bias(bias), slopes))
