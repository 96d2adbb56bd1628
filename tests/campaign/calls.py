"""Random calls of the rules' functions, of every kind, dtype and layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from common.cases import (
    DTYPES,
    EXACT,
    LAYOUTS,
    RULES,
    edge_values,
    lay_out,
    ordinary_hypers,
    stocked,
    whole,
)
from common.updates import update

import tfopt
from tfopt.rules import Rule, checks_of

__all__ = ["RuleCall", "drawn_call", "one"]


@dataclass
class RuleCall:
    """A call of a rule's function: the operands' values and layouts, and the other arguments."""

    rule: Rule
    dtype: Any
    values: list[np.ndarray]
    layouts: list[str]
    options: dict[str, Any]

    def operands(self) -> list[np.ndarray]:
        """Return arrays of the values in their layouts."""
        return [lay_out(*each) for each in zip(self.values, self.layouts, strict=True)]

    def carry_out(self, package: Any, operands: list[Any]) -> None:
        """Call the function of a package."""
        update(package, self.rule.name, *operands, **self.options)

    def __str__(self) -> str:
        shapes = [value.shape for value in self.values]
        return f"{self.rule.name}, {self.dtype}, {shapes}, {self.layouts}, {self.options}"


def one(random: np.random.Generator, choices: Any) -> Any:
    """Return one of some things."""
    return choices[int(random.integers(len(choices)))]


def drawn_call(random: np.random.Generator) -> RuleCall:
    """Return a call of any rule: dense or of rows, mostly small, sometimes worth two threads."""
    rule, dtype = one(random, RULES), one(random, DTYPES)
    sparse = bool(random.integers(2)) and rule.reduction != "tensor"
    shape = _shape(random, sparse)
    options = _options(random, rule, dtype)
    grad_shape = shape
    if sparse:
        n = int(random.integers(0, 2 * shape[0] + 2)) if shape[0] else 0
        indices = random.integers(0, max(shape[0], 1), n)
        options["indices"] = indices.astype(one(random, (np.int32, np.int64)))
        kinds = ("sequential", "sum", "error") if rule.absent is None else ("sum", "error")
        options["duplicates"] = one(random, kinds)
        if options["duplicates"] == "error":
            n = min(n, shape[0])
            options["indices"] = random.permutation(shape[0])[:n]
        grad_shape = (n, *shape[1:])
    shapes = [rule.shape_of(name, shape) for name in rule.operands[:-1]] + [grad_shape]
    values = [stocked(random, dtype, s) for s in shapes]
    layouts = [one(random, [*LAYOUTS]) for _ in shapes]
    return RuleCall(rule, dtype, values, layouts, options)


def _shape(random: np.random.Generator, sparse: bool) -> tuple[int, ...]:
    size = random.random()
    if size < 0.02:
        rows = int(random.integers(30_000, 70_000))
        return (rows // 40, 40) if sparse else (rows,)
    if size < 0.1:
        return (int(random.integers(1, 40)), int(random.integers(1, 60)))
    n_dims = int(random.integers(1 if sparse else 0, 4))
    least = 1 if sparse else 0  # TensorFlow refuses empty rows
    return tuple(int(n) for n in random.integers(least, 6, n_dims))


def _options(random: np.random.Generator, rule: Rule, dtype: Any) -> dict[str, Any]:
    info = np.finfo(dtype)
    tiny = float(info.tiny)
    odd = [0.0, 1.0, 2.0, -0.5, tiny, tiny / 4, 1 - float(info.epsneg), np.inf, np.nan, 1e-3]
    odd += edge_values(dtype)
    options: dict[str, Any] = ordinary_hypers(rule)
    if random.random() < 0.5:
        fixed = {*EXACT, *checks_of(rule).limits}
        for name in options.keys() - fixed:
            options[name] = one(random, [options[name], *odd])
    options |= {name: bool(random.integers(2)) for name in rule.flags}
    scales = [(1.0, 1.0), (0.5, 0.999), (-3.0, 1.0), (1e-3, -0.5), (tiny, 0.0), (0.0, tiny)]
    options["grad_scale"], options["var_scale"] = one(random, scales)
    return options


def settings(random: np.random.Generator, packages: Any) -> None:
    """Choose the number of threads, and whether denormals are flushed."""
    tfopt.threads.set_num_threads(int(random.integers(1, 4)))
    flush = bool(random.integers(4))
    for package in packages:
        package.set_flush_denormals(flush)


def memory(operands: list[Any]) -> list[np.ndarray]:
    """Return copies of all memory of arrays, with what lies between their elements."""
    return [whole(array).copy() for array in operands]
