"""Losses that `minimize` scales, and steps that replicas leave out together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfopt

STEPS = 3


def stacks(own: Any) -> dict[str, Callable[[], Any]]:
    """Return optimizers with a loss scale somewhere, which doubles at every step or every other."""

    def sgd(rate: float = 0.0625) -> Any:
        return own.SGD(rate, momentum=0.5)

    def scaled(inner: Any, scale: float = 8.0, growth: int = 1) -> Any:
        return own.LossScaleOptimizer(inner, scale, growth)

    return {
        "alone": lambda: scaled(sgd()),
        "by default": lambda: own.LossScaleOptimizer(sgd()),
        "twice": lambda: scaled(scaled(sgd(), 2.0, 2), 4.0),
        "in an average": lambda: own.WeightAverage(scaled(sgd())),
        "around an average": lambda: scaled(own.WeightAverage(sgd())),
        "in an accumulation": lambda: own.GradientAccumulation(scaled(sgd()), 1),
        "around an accumulation": lambda: scaled(own.GradientAccumulation(sgd(), 1)),
        "in some groups": lambda: own.ParameterGroups(sgd(), [("^b", scaled(sgd()))]),
        "in each group": lambda: own.ParameterGroups(
            scaled(sgd(), 64.0, 2), [("^b", scaled(sgd()))]
        ),
        "around groups": lambda: scaled(own.ParameterGroups(sgd(), [("^b", sgd())])),
    }


def trained(opt: Any, how: str, dtype: Any) -> list[np.ndarray]:
    a = tfopt.Variable(np.array([3.0, -4.0], dtype), "a")
    b = tfopt.Variable(np.array([1.5], dtype), "b")
    table = tfopt.Variable(np.ones((3, 2), dtype), "table")
    rows = np.array([2, 0, 2])
    given = [a, b, table]

    def loss() -> Any:
        return np.sum(a * a) + np.sum(b * b * b) + np.sum(table[rows] * dtype(0.5))

    def gradients() -> list[Any]:
        slices = tfopt.IndexedSlices(np.full((3, 2), 0.5, dtype), rows)
        return [2 * a.numpy(), 3 * b.numpy() ** 2, slices]

    def step() -> None:
        if how == "apply":
            opt.apply_gradients(zip(gradients(), given, strict=True))
        elif how == "pair":
            opt.minimize(lambda: (0.0, gradients()), given)
        elif how == "tape":
            with tfopt.GradientTape() as tape:
                made = loss()
            opt.minimize(made, given, tape=tape)
        elif how == "upstream":
            with tfopt.GradientTape() as tape:
                made = np.stack([loss(), loss()])
            opt.minimize(made, given, np.array([0.5, 0.5], dtype), tape=tape)
        elif how == "vector":
            with tfopt.GradientTape() as tape:
                made = np.stack([loss() * dtype(0.25), loss() * dtype(0.75)])
            opt.minimize(made, given, tape=tape)
        else:
            opt.minimize(loss, given)

    taken = tfopt.function(step) if how == "traced" else step
    for _ in range(STEPS):
        taken()
    return [variable.numpy() for variable in given]


CASES = [
    *((which, how) for which in stacks(None) for how in ("callable", "pair", "traced")),
    *(
        (which, how)
        for which in ("twice", "in each group")
        for how in ("tape", "upstream", "vector")
    ),
]


@pytest.mark.parametrize(("which", "how"), CASES)
def test_a_minimized_loss_is_scaled(which: str, how: str) -> None:
    own = tfopt.optimizers
    expected = trained(own.SGD(0.0625, momentum=0.5), how, np.float32)
    opt = stacks(own)[which]()
    for wanted, got in zip(expected, trained(opt, how, np.float32), strict=True):
        np.testing.assert_array_equal(wanted, got)
    assert int(opt.iterations) == STEPS


def test_the_scale_is_what_keeps_small_gradients() -> None:
    """Their backward pass, in float16, is one of the scaled loss."""
    own, ends, small = tfopt.optimizers, [], np.float16(2.0**-14)
    for opt in (own.SGD(2.0**15), own.LossScaleOptimizer(own.SGD(2.0**15))):
        w = tfopt.Variable(np.zeros(1, np.float16))
        opt.minimize(lambda w=w: np.sum(w * small) * small, [w])
        ends.append(float(w.numpy()[0]))
    assert ends == [0, -(2.0**-13)]


def test_a_scaled_loss_that_overflows_is_a_step_left_out() -> None:
    own, w = tfopt.optimizers, tfopt.Variable(np.full(1, 4.0, np.float16))
    opt = own.LossScaleOptimizer(own.SGD(0.25), 2.0**16)
    for _ in range(3):
        opt.minimize(lambda: np.sum(w * w), [w])
    # the scale, then the gradients, do not fit float16
    assert float(opt.dynamic_scale) == 2.0**13 and w.numpy().tolist() == [4]
    opt.minimize(lambda: np.sum(w), [w])
    assert w.numpy().tolist() == [3.75]


@pytest.mark.parametrize("traced", [False, True])
def test_scale_loss_follows_the_scale(traced: bool) -> None:
    own = tfopt.optimizers
    opt = own.LossScaleOptimizer(own.LossScaleOptimizer(own.SGD(0.5), 2.0, 1), 4.0, 1)
    w = tfopt.Variable(np.ones(2, np.float32))

    def step() -> Any:
        with tfopt.GradientTape() as tape:
            scaled = opt.scale_loss(np.sum(w * w))
        opt.apply_gradients([(tape.gradient(scaled, w), w)])
        return scaled

    run = tfopt.function(step) if traced else step
    assert float(run()) == 16 and w.numpy().tolist() == [0, 0]
    w.assign(np.ones(2, np.float32))
    scaled = run()
    assert float(scaled) == 64 and scaled.dtype == np.float32 and w.numpy().tolist() == [0, 0]


def test_groups_with_scales_of_their_own_have_no_common_one() -> None:
    own = tfopt.optimizers
    groups = own.ParameterGroups(own.SGD(), [("a", own.LossScaleOptimizer(own.SGD()))])
    with pytest.raises(tfopt.InvalidArgumentError, match="groups"):
        own.LossScaleOptimizer(groups).scale_loss(1.0)


# ---- replicas


class Replicas:
    """Two replicas in two threads, and the mean of their gradients."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=10)
        self.given: list[Any] = [None, None]
        self.calls = [0, 0]

    def mean(self, rank: int) -> Callable[[Any], Any]:
        def aggregator(pairs: Any) -> Any:
            self.given[rank] = [(np.array(grad), var) for grad, var in pairs]
            self.calls[rank] += 1
            self.barrier.wait()
            both = [[grad for grad, _ in own] for own in self.given]
            self.barrier.wait()
            return [((a + b) / 2, var) for a, b, (_, var) in zip(*both, pairs, strict=True)]

        return aggregator

    def run(self, work: Callable[[int], None]) -> None:
        errors: list[BaseException] = []

        def guarded(rank: int) -> None:
            try:
                work(rank)
            except BaseException as error:
                self.barrier.abort()
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


INNER: dict[str, Callable[[Any, Any], Any]] = {
    "alone": lambda own, mean: own.SGD(1.0, gradient_aggregator=mean),
    "clipped": lambda own, mean: own.SGD(1.0, gradient_aggregator=mean, global_clipnorm=1e6),
    "in NumPy": lambda own, mean: own.Adafactor(1.0, gradient_aggregator=mean),
    "summed": lambda own, mean: own.GradientAccumulation(own.SGD(1.0, gradient_aggregator=mean), 2),
    "twice": lambda own, mean: own.LossScaleOptimizer(
        own.SGD(1.0, gradient_aggregator=mean), 2.0, 100
    ),
    "averaged": lambda own, mean: own.WeightAverage(own.SGD(1.0, gradient_aggregator=mean)),
    "grouped": lambda own, mean: own.ParameterGroups(
        own.SGD(1.0, gradient_aggregator=mean), [("b", own.SGD(1.0, gradient_aggregator=mean))]
    ),
}


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("which", INNER)
def test_replicas_leave_out_a_step_together(which: str, bad: float) -> None:
    """One has a gradient that is not finite; both reduce, both leave the step out."""
    own, replicas = tfopt.optimizers, Replicas()
    opts = [
        own.LossScaleOptimizer(INNER[which](own, replicas.mean(rank)), 4.0) for rank in range(2)
    ]
    ends: list[Any] = [None, None]

    def work(rank: int) -> None:
        a, b = (tfopt.Variable(np.zeros(2, np.float32), name) for name in "ab")
        for k in range(8):
            grad = np.full(2, 8.0, np.float32)
            if rank == 1 and k in (2, 5):
                grad[k % 2] = bad
            opts[rank].apply_gradients([(grad, a), (np.ones(2, np.float32), b)])
        ends[rank] = [a.numpy(), b.numpy(), *opts[rank].get_weights()]

    replicas.run(work)
    assert replicas.calls[0] == replicas.calls[1] == {"summed": 4, "grouped": 16}.get(which, 8)
    for mine, its in zip(*ends, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert np.isfinite(ends[0][0]).all() and (ends[0][0] != 0).all()
    assert int(opts[0].iterations) == {"summed": 2}.get(which, 6)
    assert float(opts[0].dynamic_scale) == 1


def test_what_has_been_aggregated_already_is_looked_at_here() -> None:
    own, seen, w = tfopt.optimizers, [], np.zeros(1)
    inner = own.SGD(1.0, gradient_aggregator=lambda pairs: seen.append(1) or pairs)
    opt = own.LossScaleOptimizer(own.GradientAccumulation(inner, 2), 4.0)
    for grad in (np.inf, 4.0, 4.0):
        opt.apply_gradients([(np.full(1, grad), w)], experimental_aggregate_gradients=False)
    assert not seen and int(opt.iterations) == 1 and float(opt.dynamic_scale) == 2


def test_a_sum_of_aggregated_batches_that_is_not_finite_is_forgotten() -> None:
    own, w = tfopt.optimizers, np.zeros(1)
    inner = own.SGD(1.0, gradient_aggregator=lambda pairs: pairs)
    opt = own.LossScaleOptimizer(own.GradientAccumulation(inner, 2), 4.0)
    for grad in (np.inf, 4.0, 2.0, 6.0):
        opt.apply_gradients([(np.full(1, grad), w)])
    assert float(opt.dynamic_scale) == 2 and w.tolist() == [-2] and int(opt.pending) == 0
