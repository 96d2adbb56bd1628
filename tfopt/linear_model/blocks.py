"""What is computed where a block of examples lies: pure functions of the block and of an order.

Each returns the block as it is afterwards, which shares with the old one what has not changed, and
an answer, of which all blocks' are added up. A block never changes: whoever loses an answer can ask
for it again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfopt.kernels import sdca, sdca_blocks
from tfopt.linear_model.changes import Change
from tfopt.linear_model.problem import Problem, balanced, imbalance
from tfopt.linear_model.solver import bucket_for
from tfopt.linear_model.sums import total

__all__ = [
    "Block",
    "Lane",
    "Order",
    "bound",
    "duals_of",
    "look",
    "look_and_bound",
    "slopes",
    "visit",
]


@dataclasses.dataclass(frozen=True)
class Lane:
    """What a block knows of one problem.

    Attributes
    ----------
    examples : ndarray of EXAMPLE
    before : ndarray, shape (n_rows,)
        The dual variables before the last visit.
    wx : ndarray, shape (n_rows,)
        x . w of each row at the last look.
    seen, best : ndarray, shape (n_rows,)
        The dual variables of the last certificate, and those of the best.
    """

    examples: np.ndarray
    before: np.ndarray
    wx: np.ndarray
    seen: np.ndarray
    best: np.ndarray


@dataclasses.dataclass(frozen=True)
class Block:
    """Examples that stay together.

    Attributes
    ----------
    number : int
        Its place among the blocks.
    problem : Problem
        With the rows of this block.
    seed : int
    lanes : tuple of Lane
        One for each problem: these share their rows.
    """

    number: int
    problem: Problem
    seed: int
    lanes: tuple[Lane, ...]

    def plan(self, epoch: int, part: int, parts: int) -> np.ndarray:
        """Return the rows that are visited in one of the parts of an epoch."""
        n = len(self.lanes[0].examples)
        seed = self.seed + (self.number << 32)  # seeds are below 2^32
        order = sdca.shuffled(n, bucket_for(self.problem), seed, epoch)
        return order[n * part // parts : n * (part + 1) // parts]


@dataclasses.dataclass(frozen=True)
class Order:
    """What a lane is told.

    Attributes
    ----------
    v : ndarray, shape (n_weights,)
    bias, bias_curvature : float
    sigma : float
        How often changes are counted.
    theta : float
        What share is kept of what the last visits changed.
    best : bool
        Whether no certificate was better than the last.
    epoch, part, parts : int
        Of a visit.
    biases : ndarray or None
        Of a look: where slopes are asked for, if there is an intercept.
    """

    v: np.ndarray
    bias: float
    bias_curvature: float
    sigma: float
    theta: float
    best: bool
    epoch: int = 0
    part: int = 0
    parts: int = 1
    biases: np.ndarray | None = None


def _settled(lane: Lane, order: Order) -> Lane:
    """Return the lane as it is once it knows what was kept."""
    if order.best:
        lane = dataclasses.replace(lane, best=lane.seen)
    if order.theta == 1:
        return lane
    examples = lane.examples.copy()
    examples["a"] = lane.before + order.theta * (examples["a"] - lane.before)
    return dataclasses.replace(lane, examples=examples, before=examples["a"])


def _with(block: Block, lanes: dict[int, Lane]) -> Block:
    return dataclasses.replace(
        block, lanes=tuple(lanes.get(k, lane) for k, lane in enumerate(block.lanes))
    )


def visit(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Visit rows, and answer with what changed.

    Parameters
    ----------
    block : Block
    orders : dict of Order
        By the problem's number.

    Returns
    -------
    Block
    dict
        Of each problem the change of v; and own excess, change of the bias, estimate of the gap,
        and the weighted sums of the dual variables before and after.
    """
    problem, lanes, answers = block.problem, {}, {}
    for k, order in orders.items():
        lane = _settled(block.lanes[k], order)
        examples, u = lane.examples.copy(), order.v.copy()
        before = examples["a"].copy()
        bias, estimate = sdca_blocks.visit(
            *problem.rows,
            block.plan(order.epoch, order.part, order.parts),
            examples,
            u,
            problem.loss,
            problem.gamma,
            problem.l2,
            problem.shrink,
            order.bias,
            order.bias_curvature,
            order.sigma,
        )
        own = sdca_blocks.change(order.v, u, problem.shrink, order.sigma)
        moved = (bias - order.bias) / order.sigma
        if order.bias_curvature > 0:
            own += moved * moved / (2 * order.bias_curvature * problem.l2)
        drifts = [total(examples["weight"], a) for a in (before, examples["a"])]
        lanes[k] = dataclasses.replace(lane, examples=examples, before=before)
        answers[k] = (Change.of(u), np.array([own, moved, estimate, *drifts]))
    return _with(block, lanes), answers


def _looked(block: Block, orders: dict[int, Order]) -> Block:
    lanes = {}
    for k, order in orders.items():
        wx = block.problem.predictions(block.problem.shrunk(order.v))
        lanes[k] = dataclasses.replace(_settled(block.lanes[k], order), wx=wx)
    return _with(block, lanes)


def look(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Predict all rows, and answer with what a certificate with an intercept needs to know.

    Returns
    -------
    Block
    dict
        Of each problem the sums of `imbalance`, and those of `slopes` at the order's biases.
    """
    block = _looked(block, orders)
    _, found = slopes(block, {k: order.biases for k, order in orders.items()})
    return block, {
        k: (imbalance(block.lanes[k].examples, block.problem.loss), found[k]) for k in orders
    }


def slopes(block: Block, biases: dict[int, np.ndarray]) -> tuple[Block, dict[int, np.ndarray]]:
    """Answer with the first and the second derivatives of the losses' sum by the bias.

    Returns
    -------
    Block
    dict of ndarray, shape (2, n_biases)
    """
    answers = {}
    for k, asked in biases.items():
        lane = block.lanes[k]
        each = (block.problem.derivatives(lane.examples, lane.wx, b) for b in asked.tolist())
        answers[k] = np.array([[part.sum() for part in pair] for pair in each]).T
    return block, answers


def bound(
    block: Block, asked: dict[int, tuple[float, np.ndarray | None]]
) -> tuple[Block, dict[int, Any]]:
    """Answer with what the rows that were looked at contribute to a certificate.

    Parameters
    ----------
    block : Block
    asked : dict
        Of each problem the bias, and the sums of `imbalance` if there is an intercept.

    Returns
    -------
    Block
    dict
        Of each problem the losses and the gap; and the v of the balanced dual variables if there
        is an intercept.
    """
    problem, lanes, answers = block.problem, {}, {}
    for k, (bias, sums) in asked.items():
        lane = block.lanes[k]
        examples = lane.examples if sums is None else balanced(lane.examples, problem.loss, sums)
        v = None if sums is None else Change.of(problem.weights_of(examples))
        answers[k] = (np.array(problem.gaps(examples, lane.wx, bias)), v)
        lanes[k] = dataclasses.replace(lane, seen=examples["a"].copy())
    return _with(block, lanes), answers


def look_and_bound(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Do both, for problems without an intercept."""
    return bound(_looked(block, orders), dict.fromkeys(orders, (0.0, None)))


def duals_of(block: Block, best: dict[int, bool]) -> np.ndarray:
    """Return the dual variables of the best certificates.

    Parameters
    ----------
    block : Block
    best : dict of bool
        Whether it is the last that was the best.

    Returns
    -------
    ndarray, shape (n_problems, n_rows)
    """
    return np.array([lane.seen if best[k] else lane.best for k, lane in enumerate(block.lanes)])
