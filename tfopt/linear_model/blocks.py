"""What is computed where a block of examples lies: pure functions of the block and of an order.

Each returns the block as it is afterwards, which shares with the old one what has not changed, and
an answer, of which all blocks' are added up. A block never changes: whoever loses an answer can ask
for it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.kernels import sdca, sdca_blocks
from tfopt.linear_model.changes import Change
from tfopt.linear_model.problem import Problem, balanced, imbalance
from tfopt.linear_model.solver import bucket_for

__all__ = [
    "PARTS",
    "Block",
    "Lane",
    "Order",
    "bound",
    "bound_of",
    "duals_of",
    "look",
    "look_and_bound",
    "settled",
    "slopes",
    "visit",
]

#: In how many parts an epoch visits a block. Examples stay in their block, and what one block has
#: learned is news to the others: to merge after each part takes a third of the epochs. The parts
#: are drawn anew each epoch; the same ones each time would be as bad as none.
PARTS = 4

_NOTHING = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class Lane:
    """What a block knows of one problem.

    Attributes
    ----------
    examples : ndarray of EXAMPLE
        Their dual variables are those to start from.
    a : ndarray, shape (n_rows,)
        The dual variables.
    rows, before : ndarray
        The rows of the last visits, and their dual variables before.
    wx : ndarray, shape (n_rows,)
        x . w of each row at the last look.
    seen, best : ndarray, shape (n_rows,)
        The dual variables of the last certificate, and those of the best. Where Newton's method has
        looked since, the last are those that the losses' slopes there are.
    bends : ndarray, shape (n_rows,)
        The losses' second derivatives there.
    """

    examples: np.ndarray
    a: np.ndarray
    rows: np.ndarray
    before: np.ndarray
    wx: np.ndarray
    seen: np.ndarray
    best: np.ndarray
    bends: np.ndarray = dataclasses.field(default_factory=lambda: _NOTHING)

    @classmethod
    def of(cls, examples: np.ndarray) -> Lane:
        """Return a lane that nobody has visited."""
        a, no_rows = examples["a"].copy(), np.zeros(0, np.int64)
        return cls(examples, a, no_rows, _NOTHING, _NOTHING, a, a)

    def now(self) -> np.ndarray:
        """Return the examples with their dual variables as they are."""
        return self.having(self.a)

    def having(self, a: np.ndarray) -> np.ndarray:
        """Return the examples with some dual variables."""
        examples = self.examples.copy()
        examples["a"] = a
        return examples


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
    plan : tuple of int and ndarray
        The last epoch, and the order in which it visits the rows.
    """

    number: int
    problem: Problem
    seed: int
    lanes: tuple[Lane, ...]
    plan: tuple[int, np.ndarray] = (0, _NOTHING)

    def planned(self, epoch: int) -> Block:
        """Return the block with a plan for an epoch."""
        if self.plan[0] == epoch:
            return self
        seed = self.seed + (self.number << 32)  # seeds are below 2^32
        n_rows = len(self.lanes[0].examples)
        order = sdca.shuffled(n_rows, bucket_for(self.problem), seed, epoch)
        return dataclasses.replace(self, plan=(epoch, order))

    def with_lanes(self, lanes: dict[int, Lane]) -> Block:
        """Return the block with other lanes in the places of some."""
        return dataclasses.replace(
            self, lanes=tuple(lanes.get(k, lane) for k, lane in enumerate(self.lanes))
        )


@dataclasses.dataclass(frozen=True)
class Order:
    """What a lane is told.

    Attributes
    ----------
    v : ndarray, shape (n_weights,)
    bias, bias_curvature : float
    sigma : float
        How often changes are counted.
    thetas : tuple of float
        What share is kept of what the last visits of each block changed.
    best : tuple of bool
        Whether a block does not know yet that its last certificate was the best.
    epoch, part : int
        Of a visit.
    biases : list of float
        Of a look with an intercept: where slopes are asked for.
    """

    v: np.ndarray
    bias: float
    bias_curvature: float
    sigma: float
    thetas: tuple[float, ...]
    best: tuple[bool, ...]
    epoch: int = 0
    part: int = 0
    biases: Sequence[float] = ()


def settled(block: Block, k: int, order: Order) -> Lane:
    """Return a lane as it is once it knows what was kept."""
    lane, theta = block.lanes[k], order.thetas[block.number]
    if order.best[block.number]:
        lane = dataclasses.replace(lane, best=lane.seen)
    if theta == 1:
        return lane
    a = lane.a.copy()
    a[lane.rows] = lane.before + theta * (a[lane.rows] - lane.before)
    return dataclasses.replace(lane, a=a)


def visit(block: Block, orders: dict[int, Order]) -> tuple[Block, dict[int, Any]]:
    """Visit a part of the rows, and answer with what changed.

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
        and change of the weighted sum of the dual variables.
    """
    some = next(iter(orders.values()))
    block = block.planned(some.epoch)
    n = len(block.plan[1])
    rows = block.plan[1][n * some.part // PARTS : n * (some.part + 1) // PARTS]
    lanes, answers = {}, {}
    for k, order in orders.items():
        lane = settled(block, k, order)
        lanes[k], answers[k] = _visited(block.problem, lane, rows, order)
    return block.with_lanes(lanes), answers


def _visited(problem: Problem, lane: Lane, rows: np.ndarray, order: Order) -> tuple[Lane, Any]:
    before, u = lane.a[rows], order.v.copy()
    visited = lane.examples.take(rows)  # indexing takes twenty times as long
    visited["a"] = before
    bias, estimate = sdca_blocks.visit(
        *problem.rows,
        rows,
        visited,
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
    drift = float(np.sum(visited["weight"] * (visited["a"] - before)))
    a = lane.a.copy()
    a[rows] = visited["a"]
    lane = dataclasses.replace(lane, a=a, rows=rows, before=before)
    return lane, (Change.of(u), np.array([own, moved, estimate, drift]))


def _looked(block: Block, orders: dict[int, Order]) -> Block:
    lanes = {}
    for k, order in orders.items():
        wx = block.problem.predictions(block.problem.shrunk(order.v))
        lanes[k] = dataclasses.replace(settled(block, k, order), wx=wx)
    return block.with_lanes(lanes)


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
        k: (imbalance(block.lanes[k].now(), block.problem.loss), found[k]) for k in orders
    }


def slopes(block: Block, biases: dict[int, Sequence[float]]) -> tuple[Block, dict[int, np.ndarray]]:
    """Answer with the first and the second derivatives of the losses' sum by the bias.

    Returns
    -------
    Block
    dict of ndarray, shape (2, n_biases)
    """
    answers = {}
    for k, asked in biases.items():
        lane = block.lanes[k]
        each = (block.problem.derivatives(lane.examples, lane.wx, b) for b in asked)
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
    return bound_of(block, asked, {k: block.lanes[k].a for k in asked})


def bound_of(
    block: Block,
    asked: dict[int, tuple[float, np.ndarray | None]],
    duals: dict[int, np.ndarray],
) -> tuple[Block, dict[int, Any]]:
    """Do so with other dual variables."""
    problem, lanes, answers = block.problem, {}, {}
    for k, (bias, sums) in asked.items():
        lane = block.lanes[k]
        examples = lane.having(duals[k])
        v = None
        if sums is not None:
            examples = balanced(examples, problem.loss, sums)
            v = Change.of(problem.weights_of(examples))
        answers[k] = (np.array(problem.gaps(examples, lane.wx, bias)), v)
        lanes[k] = dataclasses.replace(lane, seen=examples["a"].copy())
    return block.with_lanes(lanes), answers


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
