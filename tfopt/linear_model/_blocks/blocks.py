"""Pure functions of a block of examples and a request, run where the block is stored.

Each returns the next state of the block, which shares unchanged arrays with the last one, and an
answer; the answers of all blocks are added up. States are immutable, so a request can be repeated
if its answer is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfopt.kernels.linear import blocks as sdca_blocks
from tfopt.kernels.linear import visits
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.design import MemoryDesign, Point
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.reductions import SparseDelta
from tfopt.linear_model._fit.row_visits import bucket_for
from tfopt.linear_model._fit.rows import Linearization, RowState
from tfopt.linear_model.parameters import SDCA

__all__ = [
    "PARTS",
    "BlockState",
    "Decision",
    "VisitRequest",
    "Method",
    "after_decisions",
    "apply_decisions",
    "collect_duals",
    "visit",
]

#: The number of merges in an epoch, one after each part of the blocks. A fit then takes a third of
#: the epochs that it takes with a single merge. Each epoch draws new parts of a block; with fixed
#: parts nothing would be gained.
PARTS = 4

_NOTHING = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class BlockState:
    """A block of examples and the state of each problem.

    Attributes
    ----------
    number : int
        Its position among the blocks.
    problem : Problem
        The problem with the rows of this block.
    seed : int
    states : tuple of RowState
        One for each problem; they share the rows.
    factor : ndarray or float
        See `BlockInput`.
    plan : tuple of int and ndarray
        The last epoch, and the order in which it visits the rows.
    """

    number: int
    problem: Problem
    seed: int
    states: tuple[RowState, ...]
    factor: np.ndarray | float = 1.0
    plan: tuple[int, np.ndarray] = (0, _NOTHING)

    def planned(self, epoch: int) -> BlockState:
        """Return the block with the order of its visits in an epoch."""
        if self.plan[0] == epoch:
            return self
        seed = self.seed + (self.number << 32)  # seeds are below 2^32
        n_rows = len(self.states[0].examples)
        plan = visits.shuffled(n_rows, bucket_for(self.problem), seed, epoch)
        return dataclasses.replace(self, plan=(epoch, plan))

    def with_states(self, states: Mapping[int, RowState]) -> BlockState:
        """Return the block with some of the states replaced."""
        return dataclasses.replace(
            self, states=tuple(states.get(k, state) for k, state in enumerate(self.states))
        )


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decisions about a problem's last visits and its last certificate.

    Attributes
    ----------
    damping : tuple of float
        For each block, the share of its last changes that was accepted.
    is_best : tuple of bool
        For each block, whether it has yet to keep the last certificate as the best.
    """

    damping: tuple[float, ...]
    is_best: tuple[bool, ...]


def apply_decisions(block: BlockState, decisions: Mapping[int, Decision]) -> BlockState:
    """Return the block after decisions about some problems."""
    states = {}
    for k, decision in decisions.items():
        state, damping = block.states[k], decision.damping[block.number]
        if decision.is_best[block.number]:
            state = state._replace(best=state.certified)
        if damping != 1:
            a = state.a.copy()
            a[state.visited] = state.before + damping * (a[state.visited] - state.before)
            state = state._replace(a=a)
        states[k] = state
    return block.with_states(states)


@dataclasses.dataclass(frozen=True)
class after_decisions:
    """A function of a block that applies pending decisions first."""

    function: Callable[[BlockState, Any], tuple[BlockState, Any]]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(
        self, block: BlockState, request: tuple[Mapping[int, Decision], Any]
    ) -> tuple[BlockState, Any]:
        decisions, rest = request
        return self.function(apply_decisions(block, decisions), rest)


@dataclasses.dataclass(frozen=True)
class VisitRequest:
    """The request to visit a part of the blocks' rows for one problem.

    Attributes
    ----------
    v : ndarray, shape (n_weights,)
    bias, bias_curvature : float
    sigma : float
        The factor by which visits overestimate their changes (the sigma' of CoCoA+).
    epoch, part : int
    """

    v: np.ndarray
    bias: float
    bias_curvature: float
    sigma: float
    epoch: int
    part: int


def visit(
    block: BlockState, requests: Mapping[int, VisitRequest]
) -> tuple[BlockState, dict[int, Any]]:
    """Visit a part of the rows, and answer with the changes.

    Returns
    -------
    BlockState
    dict
        For each problem, the change of v and four numbers: the block's excess, the change of the
        bias, the estimate of the gap, and the change of the weighted sum of the dual variables.
    """
    first = next(iter(requests.values()))
    block = block.planned(first.epoch)
    n = len(block.plan[1])
    part = block.plan[1][n * first.part // PARTS : n * (first.part + 1) // PARTS]
    states, answers = {}, {}
    for k, request in requests.items():
        states[k], answers[k] = _visited(block.problem, block.states[k], part, request)
    return block.with_states(states), answers


def _visited(
    problem: Problem, state: RowState, part: np.ndarray, request: VisitRequest
) -> tuple[RowState, Any]:
    before, u = state.a[part], request.v.copy()
    visited = state.examples.take(part)  # twenty times as fast as indexing
    visited["a"] = before
    bias, estimate = sdca_blocks.visit(
        *problem.rows,
        part,
        visited,
        u,
        *problem.loss,
        problem.l2,
        problem.shrink,
        request.bias,
        request.bias_curvature,
        request.sigma,
    )
    excess = sdca_blocks.change(request.v, u, problem.shrink, request.sigma)
    moved = (bias - request.bias) / request.sigma
    if request.bias_curvature > 0:
        excess += moved * moved / (2 * request.bias_curvature * problem.l2)
    dual_sum = float(np.sum(visited["weight"] * (visited["a"] - before)))
    a = state.a.copy()
    a[part] = visited["a"]
    state = state._replace(a=a, visited=part, before=before)
    return state, (SparseDelta.from_dense(u), np.array([excess, moved, estimate, dual_sum]))


# ---- the methods of `Design`, of the rows of a block


class _BlockRows(MemoryDesign):
    """The rows of a block; their states hold the dual variables of the visits."""

    def __init__(self, block: BlockState) -> None:
        super().__init__(block.problem, (), Plan(SDCA, SDCA), lambda k: self.states[k].a)
        self.states = list(block.states)

    def linearize_with_hessians(
        self, points: Mapping[int, Point], after_steps: bool
    ) -> dict[int, Linearization]:
        """Return linearizations with Hessians instead of their diagonals."""
        found = {}
        for k, point in points.items():
            state, losses, step_gap = rows.tangents(
                self.problem, self.states[k], *point, after_steps
            )
            system = rows.newton_system(self.problem, state)
            residual = rows.tangent_residual(self.problem, state)
            self.states[k] = state
            found[k] = Linearization(losses, *system, residual, step_gap)
        return found


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of `Design` as a function of a block; it answers weights as `SparseDelta`."""

    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, block: BlockState, arguments: tuple[Any, ...]) -> tuple[BlockState, Any]:
        found = _BlockRows(block)
        answers = getattr(found, self.name)(*arguments)
        if self.name in ("gaps", "projected_tangent_gaps"):
            answers = {
                k: (sums, None if v is None else SparseDelta.from_dense(v))
                for k, (sums, v) in answers.items()
            }
        return block.with_states(dict(enumerate(found.states))), answers


def collect_duals(block: BlockState, decisions: Mapping[int, Decision]) -> np.ndarray:
    """Return the dual variables of the best certificates, of shape (n_problems, n_rows)."""
    duals = np.array([state.best for state in apply_decisions(block, decisions).states])
    return duals * block.factor if np.ndim(block.factor) else duals
