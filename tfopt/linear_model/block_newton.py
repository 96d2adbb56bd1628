"""Newton's method over blocks of examples.

Where weights are few, blocks answer with their Hessians; otherwise a product with it is a round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.kernels import curvature
from tfopt.kernels.curvature_products import diagonal, product
from tfopt.linear_model import conjugate_gradients, newton
from tfopt.linear_model.blocks import Block, Order, bound_of, settled
from tfopt.linear_model.problem import NOBODY, Certificate, Problem, assembled, imbalance
from tfopt.linear_model.questions import answered
from tfopt.linear_model.sums import total

__all__ = [
    "EPOCHS",
    "Question",
    "Slopes",
    "bound_of_slopes",
    "curve",
    "look_for_losses",
    "lower",
    "slopes_at",
    "tangent",
    "tangent_and_bound",
]

#: What blocks are asked for: a function of theirs, and its order for one problem.
Question: TypeAlias = tuple[Callable[[Block, dict[int, Any]], tuple[Block, dict[int, Any]]], Any]

#: With more weights, a Hessian is more work than the products it saves, and a long message.
MOST_WEIGHTS = 64
#: How many epochs a step takes as long as, about.
EPOCHS = 5.0


class Slopes(NamedTuple):
    """The losses' derivatives, of all blocks.

    Attributes
    ----------
    v : ndarray, shape (n_weights,)
        The weights that belong to the dual variables that the slopes are.
    by_bias : float
    bends : ndarray, shape (n_weights + 1, n_weights + 1) or (n_weights + 1,)
        The second derivatives, or the diagonal of these.
    imbalance : ndarray
    """

    v: np.ndarray
    by_bias: float
    bends: np.ndarray
    imbalance: np.ndarray


def slopes_at(
    problem: Problem, order: Order, w: np.ndarray
) -> Generator[Question, Any, tuple[Slopes, Certificate]]:
    """Return the slopes at a point, and what it certifies with the dual variables they are.

    Parameters
    ----------
    problem : Problem
        Without rows, and without l1.
    order : Order
        For blocks that have looked at the point last, with its bias.
    w : ndarray, shape (n_weights,)
    """
    if problem.intercept:
        slopes = Slopes(*(yield tangent, order))
        (losses, gap), change = yield bound_of_slopes, (order.bias, slopes.imbalance)
        v = change.dense()
    else:
        found, ((losses, gap), _) = yield tangent_and_bound, order
        slopes = Slopes(*found)
        v = slopes.v
    return slopes, assembled(problem, NOBODY, w, order.bias, v, float(losses), float(gap))


def lower(
    problem: Problem, slopes: Slopes, point: Certificate
) -> Generator[Question, Any, tuple[np.ndarray, float] | None]:
    """Return a point, weights and bias, where the primal is lower by its due.

    Blocks have looked there then. There is none if the primal cannot be lowered any more, but for
    rounding.
    """
    gradient = problem.l2 * (point.w - slopes.v)
    gradient = np.append(gradient, slopes.by_bias if problem.intercept else 0.0)
    step = None
    if slopes.bends.ndim == 2:
        step = newton.direction(problem, slopes.bends.copy(), gradient)
    if step is None:
        step = yield from _approximate_direction(problem, slopes.bends, gradient)
    promised, share = -total(gradient, step), 1.0
    while share > newton.LEAST_SHARE:
        w, bias = point.w + share * step[:-1], point.bias + share * float(step[-1])
        losses = yield look_for_losses, (w, bias)
        if newton.is_lower(point, losses + problem.penalty(w), share * promised):
            return w, bias
        share /= 2
    return None


def _approximate_direction(
    problem: Problem, bends: np.ndarray, gradient: np.ndarray
) -> Generator[Question, np.ndarray, np.ndarray]:
    diagonal = bends if bends.ndim == 1 else np.diagonal(bends)
    search = conjugate_gradients.direction(problem, diagonal, gradient, newton.SHARE)
    if bends.ndim == 2:
        return answered(search, lambda s: np.sum(bends * s, axis=1))
    try:
        s = next(search)
        while True:
            s = search.send((yield curve, s))
    except StopIteration as end:
        direction: np.ndarray = end.value
        return direction


# ---- where a block lies


def tangent(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Take the losses' slopes at the last predictions and the order's bias.

    Returns
    -------
    Block
    dict
        Of each problem what `Slopes` has.
    """
    problem, lanes, answers = block.problem, {}, {}
    second = curvature.hessian if problem.n_weights <= MOST_WEIGHTS else diagonal
    for k, order in orders.items():
        lane = settled(block, k, order)
        weight, a = lane.examples["weight"], lane.a.copy()
        slopes, bends = problem.derivatives(lane.examples, lane.wx, order.bias)
        np.divide(-slopes, weight, out=a, where=weight > 0)
        lanes[k] = dataclasses.replace(lane, slopes=a, bends=bends)
        examples = lane.having(a)
        answers[k] = (
            problem.weights_of(examples),
            float(slopes.sum()),
            second(*problem.rows, bends, problem.n_weights, problem.threads),
            imbalance(examples, problem.loss),
        )
    return block.with_lanes(lanes), answers


def bound_of_slopes(
    block: Block, asked: dict[int, tuple[float, np.ndarray | None]]
) -> tuple[Block, dict[int, Any]]:
    """Answer as `bound` does, with the slopes."""
    return bound_of(block, asked, {k: block.lanes[k].slopes for k in asked})


def tangent_and_bound(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Do so and answer with `bound`, too, for problems without an intercept."""
    block, slopes = tangent(block, orders)
    block, bounds = bound_of_slopes(block, {k: (order.bias, None) for k, order in orders.items()})
    return block, {k: (slopes[k], bounds[k]) for k in orders}


def curve(block: Block, vectors: dict[int, np.ndarray]) -> tuple[Block, dict[int, np.ndarray]]:
    """Answer with the products of the losses' second derivatives and vectors."""
    problem = block.problem
    return block, {
        k: product(*problem.rows, block.lanes[k].bends, s, problem.threads)
        for k, s in vectors.items()
    }


def look_for_losses(
    block: Block, points: dict[int, tuple[np.ndarray, float]]
) -> tuple[Block, dict[int, float]]:
    """Predict all rows, and answer with the losses there."""
    problem, lanes, answers = block.problem, {}, {}
    for k, (w, bias) in points.items():
        lane = block.lanes[k]
        lanes[k] = dataclasses.replace(lane, wx=problem.predictions(w))
        answers[k] = problem.losses(lane.examples, lanes[k].wx, bias)
    return block.with_lanes(lanes), answers
