"""Newton's method over blocks of examples.

Where weights are few, blocks answer with their Hessians; otherwise a product with it is a round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.kernels import curvature, curvature_products
from tfopt.linear_model import conjugate_gradients, newton
from tfopt.linear_model.blocks import Block, Order, bound_of, settled
from tfopt.linear_model.problem import NOBODY, Certificate, Problem, assembled, imbalance
from tfopt.linear_model.questions import answered
from tfopt.linear_model.sums import total

__all__ = [
    "EPOCHS",
    "Point",
    "Question",
    "Tangent",
    "bound_of_slopes",
    "certified",
    "curve",
    "lower",
    "tangent",
]

#: What blocks are asked for: a function of theirs, and its order for one problem.
Question: TypeAlias = tuple[Callable[[Block, dict[int, Any]], tuple[Block, dict[int, Any]]], Any]

#: With more weights, a Hessian is more work than the products it saves, and a long message.
MOST_WEIGHTS = 64
#: How many epochs a step takes as long as, about.
EPOCHS = 5.0
#: So large are no losses where anybody would go; the sums of what is there overflow.
FAR = 1e200


class Tangent(NamedTuple):
    """What all blocks know of a point.

    Attributes
    ----------
    losses : float
    v : ndarray, shape (n_weights,)
        The weights that belong to the dual variables that the losses' slopes are.
    by_bias : float
        The losses' derivative.
    bends : ndarray, shape (n_weights + 1, n_weights + 1) or (n_weights + 1,)
        Their second derivatives, or the diagonal of these.
    imbalance : ndarray or None
        Of the dual variables, if there is an intercept.
    """

    losses: float
    v: np.ndarray
    by_bias: float
    bends: np.ndarray
    imbalance: np.ndarray | None


class Point(NamedTuple):
    """Weights and an intercept."""

    w: np.ndarray
    bias: float


def certified(problem: Problem, at: Point, found: Tangent) -> Generator[Question, Any, Certificate]:
    """Return what a point certifies with the dual variables that the slopes there are.

    They have a gap only where an intercept asks for another sum of them.
    """
    v, gap = found.v, 0.0
    if problem.intercept:
        (_, gap), change = yield bound_of_slopes, (at.bias, found.imbalance)
        v = change.dense()
    return assembled(problem, NOBODY, *at, v, float(found.losses), float(gap))


def lower(
    problem: Problem,
    point: Certificate,
    found: Tangent,
    look: Callable[[Point], Generator[Question, Any, Tangent]],
) -> Generator[Question, Any, tuple[Point, Tangent] | None]:
    """Return a point where the primal is lower by its due, and what blocks know of it.

    They have looked there last then. There is none if a step does not lower the primal; where that
    is a matter of rounding, there is.
    """
    gradient = problem.l2 * (point.w - found.v)
    gradient = np.append(gradient, found.by_bias if problem.intercept else 0.0)
    for exactly in (True, False):
        step = yield from _direction(problem, found.bends, gradient, exactly)
        if step is None:
            continue
        promised = -total(gradient, step)
        for share in newton.shares(point, promised):
            at = Point(point.w + share * step[:-1], point.bias + share * float(step[-1]))
            moved = yield from look(at)
            with np.errstate(over="ignore"):
                objective = moved.losses + problem.penalty(at.w)
            if newton.is_lower(point, objective, share * promised):
                return at, moved
    return None


def _direction(
    problem: Problem, bends: np.ndarray, gradient: np.ndarray, exactly: bool
) -> Generator[Question, np.ndarray, np.ndarray | None]:
    if exactly:
        return newton.direction(problem, bends.copy(), gradient) if bends.ndim == 2 else None
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


def tangent(block: Block, orders: dict[int, tuple[Order, np.ndarray]]) -> tuple[Block, Any]:
    """Look at a point: weights, and the bias of an order.

    Returns
    -------
    Block
    dict
        Of each problem what `Tangent` has.
    """
    problem, lanes, answers = block.problem, {}, {}
    for k, (order, w) in orders.items():
        lane = settled(block, k, order)
        weight, a = lane.examples["weight"], lane.a.copy()
        losses, wx, slopes, bends, gradient, second = curvature_products.tangent(
            *problem.rows,
            lane.examples,
            w,
            order.bias,
            problem.loss,
            problem.gamma,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            if problem.n_weights <= MOST_WEIGHTS:
                second = curvature.hessian(*problem.rows, bends, problem.n_weights, problem.threads)
            v = -gradient[:-1] / problem.l2
        if not (losses < FAR and np.isfinite(v).all() and np.isfinite(second).all()):
            losses, v, slopes = np.inf, np.zeros_like(v), np.zeros_like(slopes)
            second, gradient = np.zeros_like(second), np.zeros_like(gradient)
        np.divide(-slopes, weight, out=a, where=weight > 0)
        lanes[k] = dataclasses.replace(lane, wx=wx, bends=bends, seen=a)
        answers[k] = (
            losses,
            v,
            float(gradient[-1]),
            second,
            imbalance(lane.having(a), problem.loss) if problem.intercept else None,
        )
    return block.with_lanes(lanes), answers


def bound_of_slopes(
    block: Block, asked: dict[int, tuple[float, np.ndarray | None]]
) -> tuple[Block, dict[int, Any]]:
    """Answer as `bound` does, with the slopes that were seen last."""
    return bound_of(block, asked, {k: block.lanes[k].seen for k in asked})


def curve(block: Block, vectors: dict[int, np.ndarray]) -> tuple[Block, dict[int, np.ndarray]]:
    """Answer with the products of the losses' second derivatives and vectors."""
    problem = block.problem
    return block, {
        k: curvature_products.product(*problem.rows, block.lanes[k].bends, s, threads=1, shares=1)
        for k, s in vectors.items()
    }
