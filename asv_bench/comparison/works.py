"""The works to measure: tfopt's side of each, and the loop with its memory traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from benchmarks.common import (
    RULES,
    TABLE,
    Step,
    clip_traffic_loop,
    filled,
    hyper,
    operands,
    public,
    same_traffic_loop,
)
from benchmarks.sparse import _distinct, _zipf

from comparison.mapping import TORCH, sample_hypers
from comparison.measure import Side

__all__ = ["Clip", "Dense", "Many", "Sparse", "Work", "works"]

#: Elements under which the loop runs on one thread: starting more takes longer than it saves.
SINGLE = 1 << 15


def hypers(rule: str) -> dict[str, Any]:
    """Return a value of each of a rule's hyperparameters."""
    return sample_hypers(RULES[rule].hypers, hyper)


def starting(rule: str, shape: int | tuple[int, ...]) -> list[np.ndarray]:
    """Return a variable, its slots and a gradient of both signs; always the same."""
    arrays = operands(rule, shape)
    for name, array in zip(RULES[rule].operands, arrays, strict=True):
        if name == "mg":
            array *= 0.1  # the square of a mean is less than the mean square
    arrays[-1] -= 0.55
    return arrays


def loop_over(arrays: list[np.ndarray], repeats: int) -> Step:
    """Return the loop over these arrays, on a suitable number of threads."""
    threads = public("threads.get_num_threads")() if arrays[0].size >= SINGLE else 1
    return same_traffic_loop([a.reshape(-1) for a in arrays], threads, repeats)


class Dense(NamedTuple):
    """One call of a rule for a whole variable."""

    rule: str
    size: int
    flags: tuple[str, ...] = ()
    kind = "dense"
    cold = False
    share = 1.0

    @property
    def variant(self) -> str:
        """The key of the mapping."""
        return " ".join((self.rule, *self.flags))

    @property
    def name(self) -> str:
        size = str(self.size) if self.size < 1 << 10 else f"2^{self.size.bit_length() - 1}"
        return f"{self.variant}, {size}"

    def arrays(self) -> list[np.ndarray]:
        return starting(self.rule, self.size)

    def options(self) -> dict[str, Any]:
        return {**hypers(self.rule), **dict.fromkeys(self.flags, True)}

    def ours(self) -> Side:
        """Return tfopt's side."""
        arrays = self.arrays()
        apply = public(f"training_ops.apply_{self.rule}")
        return Side(partial(apply, *arrays, **self.options()), lambda: arrays[:-1])

    def loop(self, changed: Sequence[np.ndarray]) -> Callable[[int], Step]:
        """Return a function that creates the loop, if possible over the arrays of a side."""
        return partial(loop_over, [*changed, filled(self.size)])


class Sparse(NamedTuple):
    """A step of the rows of a table that some ids name.

    ``way`` is "op", the rule's function, which steps repeated ids one after another, "merged",
    an optimizer's step, which sums their gradients first, or "catch up", one that ends where a
    dense step would. The rows are in memory at each step, if it is ``cold``, or where the step
    before has left them.
    """

    rule: str
    way: str
    drawn: str
    lookups: int
    rows: int
    width: int
    cold: bool
    kind = "sparse"

    @property
    def name(self) -> str:
        way = self.drawn if self.way == "op" else f"{self.drawn} {self.way}"
        place = "cold" if self.cold else "warm"
        table = f"{_short(self.rows)} x {self.width}"
        return f"{self.rule}, {_short(self.lookups)} {way} of {table}, {place}"

    @property
    def share(self) -> float:
        """The minimum traffic of the step as a fraction of that of the loop over the table."""
        changed = len(RULES[self.rule].slots) + 1
        row = 4 * self.width
        read_and_written = 2 * changed * np.unique(self.ids()).size * row
        return (read_and_written + self.lookups * (row + 8)) / ((2 * changed + 1) * self.rows * row)

    def ids(self) -> np.ndarray:
        return _ids(self.drawn, self.lookups, self.rows)

    def arrays(self) -> list[np.ndarray]:
        """Return the table, its slots and the gradient's rows."""
        *changed, _ = starting(self.rule, (self.rows, self.width))
        return [*changed, filled((self.lookups, self.width), seed=99) - np.float32(0.55)]

    def options(self) -> dict[str, Any]:
        return hypers(self.rule)

    def ours(self) -> Side:
        *changed, grad = self.arrays()
        ids = self.ids()
        if self.way == "op":
            apply = public(f"training_ops.apply_{self.rule}")
            return Side(
                partial(apply, *changed, grad, indices=ids, **self.options()), lambda: changed
            )
        slices = public("indexed_slices.IndexedSlices")(grad, ids)
        if self.rule in _OPTIMIZERS or self.way == "catch up":
            variable = public("variable.Variable")(changed[0])
            options = {"sparse": "catch_up"} if self.way == "catch up" else {}
            name = _OPTIMIZERS.get(self.rule, "Adam")
            opt = public(f"optimizers.{name}")(learning_rate=0.01, **options)
            return Side(
                partial(opt.apply_gradients, [(slices, variable)]),
                lambda: opt.flush() or [changed[0], *_slots(opt, variable)],
            )
        apply = partial(
            public(f"training_ops.apply_{self.rule}"), *changed, **self.options()
        )  # as an optimizer with this rule does

        def step() -> None:
            merged = slices.sum_duplicates()
            apply(merged.values, indices=merged.indices)

        return Side(step, lambda: changed)

    def loop(self, changed: Sequence[np.ndarray]) -> Callable[[int], Step]:
        return partial(loop_over, starting(self.rule, (self.rows, self.width)))


class Many(NamedTuple):
    """A step of many small variables, through an optimizer if there is one of the rule."""

    rule: str
    tensors: int
    size: int
    kind = "many"
    cold = False
    share = 1.0

    @property
    def name(self) -> str:
        return f"{self.rule}, {self.tensors} x {self.size}"

    @property
    def optimizer(self) -> bool:
        """Whether the slots are an optimizer's, which begin with zero."""
        return self.rule in _OPTIMIZERS

    def arrays(self) -> list[list[np.ndarray]]:
        """Return each variable with its slots and its gradient."""
        made = [starting(self.rule, self.size) for _ in range(self.tensors)]
        for _, *slots, _ in made:
            for slot in slots if self.optimizer else ():
                slot[...] = 0
        return made

    def options(self) -> dict[str, Any]:
        return hypers(self.rule)

    def ours(self) -> Side:
        made = self.arrays()
        if self.optimizer:
            opt = public(f"optimizers.{_OPTIMIZERS[self.rule]}")(learning_rate=0.01)
            variables = [public("variable.Variable")(var) for var, *_ in made]
            pairs = [(arrays[-1], var) for arrays, var in zip(made, variables, strict=True)]
            return Side(
                partial(opt.apply_gradients, pairs),
                lambda: [a for v in variables for a in (v.numpy(), *_slots(opt, v))],
            )
        apply = public(f"training_ops.apply_{self.rule}")
        columns = [list(column) for column in zip(*made, strict=True)]
        return Side(
            partial(apply, *columns, **self.options()),
            lambda: [array for arrays in made for array in arrays[:-1]],
        )

    def loop(self, changed: Sequence[np.ndarray]) -> Callable[[int], Step]:
        return partial(loop_over, starting(self.rule, self.tensors * self.size))


class Clip(NamedTuple):
    """Clipping of gradients in place by their common norm, or that norm alone.

    ``way`` is "norm", "clip", which scales at every call, or "within", which finds nothing to clip.
    """

    way: str
    tensors: int
    size: int
    rule = "clipping"
    kind = "clipping"
    cold = False
    share = 1.0

    @property
    def name(self) -> str:
        size = f"2^{self.size.bit_length() - 1}" if self.tensors == 1 else str(self.size)
        what = {"norm": "global norm", "clip": "clip by norm", "within": "norm within limit"}
        return f"{what[self.way]}, {self.tensors} x {size}"

    def arrays(self) -> list[np.ndarray]:
        """Return gradients of both signs."""
        return [filled(self.size, seed=k % 9) - np.float32(0.55) for k in range(self.tensors)]

    def limits(self) -> Callable[[], float]:
        """Return a function that gives a limit for each call, a little lower if it clips."""
        limit = 10.0 if self.way == "clip" else 1e30

        def following() -> float:
            nonlocal limit
            limit *= 0.9999
            return limit

        return following

    def ours(self) -> Side:
        grads, limit = self.arrays(), self.limits()
        if self.way == "norm":
            norm, answers = public("clip_ops.global_norm"), np.zeros(1, np.float32)

            def measure() -> None:
                answers[0] = norm(grads)

            return Side(measure, lambda: [answers])
        clip = public("clip_ops.clip_by_global_norm")
        return Side(lambda: clip(grads, limit(), out=grads), lambda: grads)

    def loop(self, changed: Sequence[np.ndarray]) -> Callable[[int], Step]:
        array = filled(self.tensors * self.size)
        threads = public("threads.get_num_threads")() if array.size >= SINGLE else 1
        return partial(clip_traffic_loop, array, self.way == "clip", threads)


Work = Dense | Sparse | Many | Clip

#: The optimizer of a rule, for rules that have one with TensorFlow's defaults.
_OPTIMIZERS = {"adamax": "Adamax", "gradient_descent": "SGD"}


def _slots(opt: Any, variable: Any) -> list[np.ndarray]:
    return [opt.get_slot(variable, name).numpy() for name in opt.get_slot_names()]


@cache
def _ids(drawn: str, lookups: int, rows: int) -> np.ndarray:
    draw = {"zipf": _zipf, "distinct": _distinct}[drawn]
    return draw(lookups, rows, np.random.default_rng(0))


def _short(number: int) -> str:
    """Return 100k for 100 000, 1M for a million."""
    return f"{number // 10**6}M" if number >= 10**6 else f"{number // 1000}k"


def works(quick: bool) -> list[Work]:
    """Return everything that is measured, a rule of the table at a time."""
    rules = [rule.name for rule in TABLE.ELEMENTWISE]
    sizes = [16, 1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 26]
    shapes = [64, 1000]
    if quick:
        rules = ["gradient_descent", "adagrad", "adam", "adamax", "ftrl"]
        sizes = [16, 1 << 12, 1 << 20]
        shapes = [64]
    table = (100_000, 1_000_000, 32)
    tables = [
        ("adamax", "merged", "zipf", *table),
        ("adam", "merged", "zipf", *table),
        ("adam", "catch up", "zipf", *table),
        ("adagrad", "op", "zipf", *table),
        ("adagrad", "op", "distinct", *table),
        ("ftrl", "op", "zipf", *table),
        ("ftrl", "op", "distinct", 1_000_000, 10_000_000, 1),
    ]
    sparse = [Sparse(*it, cold=cold) for it in tables for cold in (False, True)]
    flagged = [key.split() for key in TORCH if " " in key and not quick]
    clips = [(1000, 64), (1000, 1000), (1, 1 << 20), *([] if quick else [(1, 1 << 26)])]
    return [
        *(Clip(way, *shape) for shape in clips for way in ("norm", "clip", "within")),
        *(Many(rule, 1000, n) for rule in ("gradient_descent", "adamax", "adam") for n in shapes),
        *(sparse[:8:2] if quick else sparse),
        *(Dense(rule, size) for size in sizes for rule in rules),
        *(Dense(rule, size, tuple(on)) for size in sizes for rule, *on in flagged if rule in RULES),
    ]
