"""The design matrix in blocks on an executor: each method is a round over the blocks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.linear_model._blocks.blocks import BlockState, Decision, Method, after_decisions
from tfopt.linear_model._blocks.execution import Executor
from tfopt.linear_model._fit.design import (
    Design,
    GapSums,
    NewtonSystem,
    Point,
    RowFunction,
    Tangents,
)
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.rows import Linearization

__all__ = ["BlockDesign"]


class BlockDesign(Design):
    """Rows in blocks.

    States change in two phases. First, blocks visit rows and compute certificates. Then the share
    of the visits' changes to accept is decided, and whether the certificate is the best. The next
    request to each block carries these decisions.

    Parameters
    ----------
    executor : Executor
        Its blocks are BlockState.
    plan : Plan
    n_problems : int
    """

    def __init__(self, executor: Executor, plan: Plan, n_problems: int) -> None:
        self.executor, self.plan = executor, plan
        n_blocks = executor.n_blocks
        self._damping = [[1.0] * n_blocks for _ in range(n_problems)]
        self._is_best = [[False] * n_blocks for _ in range(n_problems)]
        self._linearizations: dict[int, Linearization] = {}

    def round(
        self,
        function: Callable[[BlockState, Any], tuple[BlockState, Any]],
        requests: Any,
        problems: Sequence[int] | Mapping[int, Any],
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Apply a function of blocks.py to all blocks or some, and return the sum of the answers.

        Parameters
        ----------
        function : callable
        requests : object
        problems : sequence of int
            The problems whose decisions the blocks receive.
        numbers : sequence of int, optional
            The numbers of the blocks; all by default.
        """
        numbers = range(self.executor.n_blocks) if numbers is None else numbers
        decisions = self.take_decisions(problems, numbers)
        call = after_decisions(function)
        return self.executor.map_reduce(call, (decisions, requests), numbers)

    def take_decisions(
        self, problems: Sequence[int] | Mapping[int, Any], numbers: Sequence[int]
    ) -> dict[int, Decision]:
        """Return the pending decisions for some blocks, and mark them as received."""
        decisions = {}
        for k in problems:
            decisions[k] = Decision(tuple(self._damping[k]), tuple(self._is_best[k]))
            for number in numbers:
                self._damping[k][number], self._is_best[k][number] = 1.0, False
        return decisions

    def damp(self, k: int, numbers: Sequence[int], damping: float) -> None:
        """Accept a share of the last changes of some blocks."""
        for number in numbers:
            self._damping[k][number] = damping

    def keep_best(self, k: int) -> None:
        self._is_best[k] = [True] * self.executor.n_blocks

    def _call(self, method: str, by_problem: Mapping[int, Any], *more: Any) -> Any:
        return self.round(Method(method), (by_problem, *more), by_problem)

    def predict(
        self, points: Mapping[int, tuple[np.ndarray, Sequence[float]]]
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return dict(self._call("predict", points))

    def intercept_derivatives(self, biases: Mapping[int, Sequence[float]]) -> dict[int, np.ndarray]:
        return dict(self._call("intercept_derivatives", biases)) if biases else {}

    def gaps(
        self,
        biases_and_residuals: Mapping[int, tuple[float, np.ndarray | None]],
        weights: Mapping[int, np.ndarray] | None = None,
    ) -> dict[int, GapSums]:
        sums = self._call("gaps", biases_and_residuals, weights)
        return {k: (pair, None if v is None else v.dense()) for k, (pair, v) in sums.items()}

    def tangents(
        self, points: Mapping[int, Point], after_steps: bool = False
    ) -> dict[int, Tangents]:
        if not points:
            return {}
        # to ask for the sums of derivatives later would cost another round
        if self.plan.forms_hessian:
            answers = self._call("linearize_with_hessians", points, after_steps)
        else:
            answers = self._call("linearize", points)
        self._linearizations |= {k: Linearization(*each) for k, each in answers.items()}
        found = {k: self._linearizations[k] for k in points}
        return {k: Tangents(each.losses, each.step_gap) for k, each in found.items()}

    def newton_systems(
        self, problems: Iterable[int], near: Container[int] = ()
    ) -> dict[int, NewtonSystem]:
        found = {k: self._linearizations[k] for k in problems}
        return {k: (each.gradient, each.hessian) for k, each in found.items()}

    def hessians_of(self, features: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        return dict(self._call("hessians_of", features))

    def hessian_products(self, vectors: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        return dict(self._call("hessian_products", vectors))

    def tangent_gaps(self, biases: Mapping[int, float]) -> dict[int, tuple[float, np.ndarray]]:
        requests = {k: (bias, self._linearizations[k].residual) for k, bias in biases.items()}
        answers = self._call("projected_tangent_gaps", requests)
        return {k: (gap, v.dense()) for k, (gap, v) in answers.items()}

    def step_gaps(self, biases: Mapping[int, float]) -> dict[int, float]:
        return dict(self._call("step_gaps", biases))

    def apply(self, requests: Mapping[int, RowFunction]) -> dict[int, Any]:
        return dict(self._call("apply", requests)) if requests else {}

    def last_decisions(self) -> dict[int, Decision]:
        """Return the decisions that `collect_duals` passes to the blocks."""
        n_problems = len(self._damping)
        return self.take_decisions(range(n_problems), range(self.executor.n_blocks))
