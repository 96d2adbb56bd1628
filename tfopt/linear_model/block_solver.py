"""Dual coordinate ascent over blocks of examples that stay where they are.

What is known of all of them, weights and scalars, is here; what is computed with rows is in
blocks.py, and whoever executes that adds up the answers in one order. So the result depends on the
data, the seed and the blocks alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tfopt.kernels import sdca_blocks
from tfopt.linear_model import block_newton, blocks, newton
from tfopt.linear_model.bias import bias_search
from tfopt.linear_model.block_newton import Point, Question, Tangent
from tfopt.linear_model.blocks import PARTS, Order
from tfopt.linear_model.changes import Change
from tfopt.linear_model.executors import Executor
from tfopt.linear_model.problem import NOBODY, Certificate, Problem, assembled
from tfopt.linear_model.questions import answered_together
from tfopt.linear_model.search import Search, Settings

__all__ = ["Climb", "climb"]

#: Of the estimate of the gap, what an intercept that is not the best may add to the gap.
BIAS_SHARE = 0.01
#: What a climb knows at the end of an epoch.
_STATE = ("v", "bias", "drift", "sigma", "best", "done", "newton_at")
#: How many blocks are visited side by side, at most: the more, the more epochs it takes. The number
#: must not depend on that of the workers, for the result depends on it.
SIDE_BY_SIDE = 8


class Climb:
    """One problem's weights, and what the blocks have to be told of them.

    Parameters
    ----------
    problem : Problem
        Without rows.
    settings : Settings
    executor : Executor
    v : ndarray, shape (n_weights,)
    bias, bias_curvature : float
    drift : float
        The weighted sum of the dual variables.
    number : int
        The problem's.
    """

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        executor: Executor,
        v: np.ndarray,
        bias: float,
        bias_curvature: float,
        drift: float,
        number: int,
    ) -> None:
        self.problem, self.executor = problem, executor
        n_blocks = executor.n_blocks
        self.v, self.bias, self.bias_curvature = v, bias, bias_curvature
        self.drift = drift
        self.recentre()
        self.sigma = 1 + (min(n_blocks, SIDE_BY_SIDE) - 1) / 2
        self.thetas, self.told = [1.0] * n_blocks, [True] * n_blocks
        self.best, self.done = False, False
        newton_cost = block_newton.EPOCHS if newton.applies(problem) else math.inf
        self.search = Search(settings, newton_cost, number)
        self.newton_at: dict[str, Any] | None = None
        self.tangent: Tangent | None = None
        self.estimate = 0.0

    def order(self, numbers: Sequence[int], **more: Any) -> Order:
        """Return an order for some blocks; what one tells a block, the next does not tell again."""
        best = tuple(self.best and not told for told in self.told)
        order = Order(
            self.v, self.bias, self.bias_curvature, self.sigma, tuple(self.thetas), best, **more
        )
        for number in numbers:
            self.thetas[number], self.told[number] = 1.0, True
        return order

    def merge(self, numbers: Sequence[int], change: Change, sums: np.ndarray) -> None:
        """Keep what can be kept of the changes that visits of some blocks have made."""
        problem, dv = self.problem, change.dense()
        own, moved, estimate, drift = sums.tolist()
        joint, bound = sdca_blocks.excesses(self.v, dv, problem.shrink)
        if self.bias_curvature > 0:
            more = moved * moved / (2 * self.bias_curvature * problem.l2)
            joint, bound = joint + more, bound + more
        theta, self.sigma = sdca_blocks.kept(joint, own, bound, len(numbers), self.sigma)
        self.v = self.v + theta * dv
        self.bias += theta * moved
        self.drift += theta * drift
        self.estimate += estimate
        for number in numbers:
            self.thetas[number] = theta

    def recentre(self) -> None:
        """Move the intercept's centre to where it is; see solver.py."""
        self.bias += self.bias_curvature * self.drift

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, at the end of an iteration, when all blocks know all."""
        own = {name: getattr(self, name) for name in _STATE}
        return own | {"search": self.search.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in _STATE:
            setattr(self, name, state[name])
        self.search.restore(state["search"])

    def certified(self, number: int, point: Certificate) -> None:
        """Take in a certificate of an epoch."""
        self.done = self.search.ends(point, number, self.estimate)
        self._note(point)
        if self.search.wants_newton:
            self.begin_newton(point.w, point.bias)

    def begin_newton(self, w: np.ndarray, bias: float) -> None:
        """Have the next iteration be a step of Newton's method, from a point."""
        self.newton_at = {"w": w, "bias": bias}

    def newton_step(self) -> Generator[Question, Any, None]:
        """Certify where Newton's method is, and go on from there if that is not enough.

        Visits, if they have to go on, do so from where they were.
        """
        assert self.newton_at is not None
        at = Point(**self.newton_at)
        found = self.tangent
        if found is None:
            found = yield from self._look(at)
            if not np.isfinite(found.losses):  # where a fit is warm may be far away
                at = Point(np.zeros_like(at.w), 0.0)
                found = yield from self._look(at)
        point = yield from block_newton.certified(self.problem, at, found)
        self.done = self.search.polished(point)
        self._note(point)
        self.newton_at = self.tangent = None
        if not self.done:
            moved = yield from block_newton.lower(self.problem, point, found, self._look)
            if moved is not None:
                self.newton_at, self.tangent = moved[0]._asdict(), moved[1]

    def _look(self, at: Point) -> Generator[Question, Any, Tangent]:
        nothing = np.zeros(0)
        order = self.order(range(self.executor.n_blocks))
        order = dataclasses.replace(order, v=nothing, bias=at.bias)
        found = yield block_newton.tangent, (order, at.w)
        self.best = False  # blocks have been told, and put those dual variables by
        return Tangent(*found)

    def _note(self, point: Certificate) -> None:
        """Take note whether a certificate, the last, is the best; the blocks are still to know."""
        self.best = self.search.best is point
        self.told = [False] * len(self.told)


def climb(
    problem: Problem,
    executor: Executor,
    climbs: list[Climb],
    settings: Settings,
    after: Callable[[int], None] | None = None,
    first: int = 1,
) -> None:
    """Visit the blocks until all certificates are enough.

    Parameters
    ----------
    problem : Problem
        Without rows.
    executor : Executor
    climbs : list of Climb
    settings : Settings
    after : callable, optional
        Called with each iteration's number when it is over: each problem that is not done had an
        epoch, or a step of Newton's method.
    first : int
        The number of the first iteration.
    """
    for number in range(first, settings.max_iter + 1):
        going = {k: one for k, one in enumerate(climbs) if not one.done}
        steps = {k: one for k, one in going.items() if one.newton_at is not None}
        _epoch(problem, executor, {k: one for k, one in going.items() if k not in steps}, number)
        _newton_steps(executor, steps)
        if all(one.done for one in climbs):
            break
        if after is not None:
            after(number)


def _epoch(problem: Problem, executor: Executor, going: dict[int, Climb], number: int) -> None:
    """Visit the blocks, for some problems, and certify those that are due."""
    if not going:
        return
    everyone = range(executor.n_blocks)
    n_waves = -(-executor.n_blocks // SIDE_BY_SIDE)
    waves = [everyone[wave::n_waves] for wave in range(n_waves)]
    for one in going.values():
        one.estimate = 0.0
    for part, wave in itertools.product(range(PARTS), waves):
        orders = {k: one.order(wave, epoch=number, part=part) for k, one in going.items()}
        for k, answer in executor.ask(blocks.visit, orders, wave).items():
            going[k].merge(wave, *answer)
    for one in going.values():
        one.recentre()
    due = {k: one for k, one in going.items() if one.search.due(number, one.estimate)}
    for k, point in _certificates(problem, executor, due).items():
        due[k].certified(number, point)


def _certificates(
    problem: Problem, executor: Executor, due: dict[int, Climb]
) -> dict[int, Certificate]:
    if not due:
        return {}
    biases, everyone = dict.fromkeys(due, 0.0), range(executor.n_blocks)
    if problem.intercept:
        searches = {
            k: bias_search(problem.loss, one.bias, BIAS_SHARE * one.estimate)
            for k, one in due.items()
        }
        orders = {k: one.order(everyone, biases=next(searches[k])) for k, one in due.items()}
        looked = executor.ask(blocks.look, orders)
        biases = answered_together(
            searches,
            lambda asked: executor.ask(blocks.slopes, asked),
            first={k: slopes for k, (_, slopes) in looked.items()},
        )
        parts = executor.ask(blocks.bound, {k: (biases[k], looked[k][0]) for k in due})
    else:
        orders = {k: one.order(everyone) for k, one in due.items()}
        parts = executor.ask(blocks.look_and_bound, orders)
    return {
        k: assembled(
            problem,
            NOBODY,
            problem.shrunk(one.v),
            biases[k],
            one.v if parts[k][1] is None else parts[k][1].dense(),
            *parts[k][0].tolist(),
        )
        for k, one in due.items()
    }


def _newton_steps(executor: Executor, steps: dict[int, Climb]) -> None:
    """Have some problems take a step each; where they ask for the same, a round serves them all."""

    def answer(asked: dict[int, Question]) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        for function in dict.fromkeys(function for function, _ in asked.values()):
            orders = {k: order for k, (wanted, order) in asked.items() if wanted is function}
            answers |= executor.ask(function, orders)
        return answers

    answered_together({k: one.newton_step() for k, one in steps.items()}, answer)
