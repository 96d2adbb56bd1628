"""Time pooled lookups of a table on a GPU, and steps of it, beside torch; a part of bench.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from bench_optimizers import FREQUENCIES, Bench, Row, Step, applied, lookups, tried

import tfopt

__all__ = ["pooled"]

EACH = 20  # ids of a bag


def pooled(bench: Bench, rows: int, width: int, n: int) -> list[Row]:
    """Time means of bags of n ids, of which some occur often."""
    made: list[Row] = []
    for name, exponent in FREQUENCIES.items():
        ids = lookups(rows, n, exponent).astype(np.int64)
        offsets, table = np.arange(0, n, EACH), bench.filled(rows, width)
        g = bench.filled(offsets.size, width)
        steps = ours(ids, offsets, table, g) | theirs(bench, ids, offsets, table, g)
        where = f"{offsets.size} bags of {EACH} rows of {width}, {name}"
        made += [tried(f"{which}, {where}", bench, lambda each=each: each)
                 for which, each in steps.items()]  # fmt: skip
    return made


def ours(ids: np.ndarray, offsets: np.ndarray, table: Any, g: Any) -> dict[str, Step]:
    def of_batch() -> tfopt.Bags:
        return tfopt.Bags(ids, offsets, len(table), "mean")

    kept, opt = of_batch(), tfopt.optimizers.Adagrad()

    def step(bags: tfopt.Bags) -> None:
        bags.lookup(table)
        applied(opt, [table], [bags.gradient(g)])()

    return {
        "Bags": of_batch,
        "lookup": lambda: kept.lookup(table),
        "lookup, gradient, Adagrad": lambda: step(kept),
        "Bags, lookup, gradient, Adagrad": lambda: step(of_batch()),
        "lookup, summed gradient, Adagrad": lambda: (
            kept.lookup(table),
            applied(opt, [table], [summed(kept.gradient(g))])(),
        ),
    }


def summed(gradient: tfopt.IndexedSlices) -> tfopt.IndexedSlices:
    """Return a gradient whose rows are summed before the step."""
    return tfopt.IndexedSlices(gradient.values, gradient.indices, gradient.dense_shape)


def theirs(
    bench: Bench, ids: np.ndarray, offsets: np.ndarray, table: Any, g: Any
) -> dict[str, Step]:
    weight = torch.nn.Parameter(table.as_subclass(torch.Tensor))
    there = bench.tensor(ids), bench.tensor(offsets)

    def pool() -> Any:
        look_up = torch.nn.functional.embedding_bag
        return look_up(there[0], weight, there[1], mode="mean", sparse=True)

    def step(opt: Any) -> None:
        opt.zero_grad()
        pool().backward(g)
        opt.step()

    steps: dict[str, Step] = {"torch embedding_bag": pool}
    for kind in ("Adagrad", "SparseAdam"):
        opt = getattr(torch.optim, kind)([weight], lr=1e-3)
        steps[f"torch embedding_bag, backward, {kind}"] = lambda opt=opt: step(opt)
    return steps
