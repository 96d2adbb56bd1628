"""Stochastic dual coordinate ascent over fixed blocks of examples, which merges changes (CoCoA+).

This file keeps the weights and scalars; blocks.py computes with rows, and an executor adds up the
answers in a fixed order. So the result depends on the data, the seed and the blocks only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.kernels.linear import blocks as sdca_blocks
from tfopt.linear_model._blocks import blocks
from tfopt.linear_model._blocks.blocks import PARTS, VisitRequest
from tfopt.linear_model._blocks.design import BlockDesign
from tfopt.linear_model._fit.design import Point
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.reductions import SparseDelta

__all__ = ["BlockAscent", "BlockVisits"]

#: The largest number of blocks that are visited at once: more blocks would take more epochs. It
#: must not depend on the number of workers, because the result depends on it.
SIDE_BY_SIDE = 8


class BlockAscent:
    """The ascent of one problem: its weights, and the merging of the blocks' changes.

    Parameters
    ----------
    problem : Problem
        The problem without rows.
    n_blocks : int
    v : ndarray, shape (n_weights,)
    bias, bias_curvature : float
    dual_sum : float
        The weighted sum of the dual variables.
    """

    def __init__(
        self,
        problem: Problem,
        n_blocks: int,
        v: np.ndarray,
        bias: float,
        bias_curvature: float,
        dual_sum: float,
    ) -> None:
        self.problem = problem
        self.v, self.bias, self.bias_curvature = v, bias, bias_curvature
        self.dual_sum, self.estimate = dual_sum, 0.0
        self.update_multiplier()
        self.sigma = 1 + (min(n_blocks, SIDE_BY_SIDE) - 1) / 2

    def merge(self, n_blocks: int, change: SparseDelta, sums: np.ndarray) -> float:
        """Accept the largest share of some blocks' changes that is guaranteed to increase the dual.

        Return the share.
        """
        problem, dv = self.problem, change.dense()
        own_excess, moved, estimate, dual_sum = sums.tolist()
        joint, upper = sdca_blocks.excesses(self.v, dv, problem.shrink)
        if self.bias_curvature > 0:
            more = moved * moved / (2 * self.bias_curvature * problem.l2)
            joint, upper = joint + more, upper + more
        damping, self.sigma = sdca_blocks.kept(joint, own_excess, upper, n_blocks, self.sigma)
        self.v = self.v + damping * dv
        self.bias += damping * moved
        self.dual_sum += damping * dual_sum
        self.estimate += estimate
        return damping

    def update_multiplier(self) -> None:
        """Update the multiplier, which is the intercept; see `RowVisits.update_multiplier`."""
        self.bias += self.bias_curvature * self.dual_sum


#: The attributes that checkpoints save.
_SAVED = ("v", "bias", "dual_sum", "sigma")


class BlockVisits:
    """Epochs over the blocks of a design, for several problems.

    Parameters
    ----------
    design : BlockDesign
    ascents : list of BlockAscent
    """

    def __init__(self, design: BlockDesign, ascents: list[BlockAscent]) -> None:
        self.design, self.ascents = design, ascents

    def run(self, epoch: int, problems: Sequence[int]) -> dict[int, float]:
        """Visit the examples once, and return estimates of the problems' gaps."""
        all_blocks = range(self.design.executor.n_blocks)
        n_waves = -(-len(all_blocks) // SIDE_BY_SIDE)
        waves = [all_blocks[wave::n_waves] for wave in range(n_waves)]
        active = {k: self.ascents[k] for k in problems}
        for ascent in active.values():
            ascent.estimate = 0.0
        for part, wave in itertools.product(range(PARTS), waves):
            requests = {
                k: VisitRequest(
                    ascent.v, ascent.bias, ascent.bias_curvature, ascent.sigma, epoch, part
                )
                for k, ascent in active.items()
            }
            for k, answer in self.design.round(blocks.visit, requests, problems, wave).items():
                self.design.damp(k, wave, active[k].merge(len(wave), *answer))
        for ascent in active.values():
            ascent.update_multiplier()
        return {k: ascent.estimate for k, ascent in active.items()}

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Return the unshrunk weights and the intercepts of problems, to certify them."""
        return {k: (self.ascents[k].v, self.ascents[k].bias) for k in problems}

    def state(self) -> list[dict[str, Any]]:
        """Return the state for a checkpoint; the blocks must have received all decisions."""
        return [{name: getattr(each, name) for name in _SAVED} for each in self.ascents]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Restore the state of a checkpoint."""
        for ascent, saved in zip(self.ascents, state, strict=True):
            for name in _SAVED:
                setattr(ascent, name, saved[name])
