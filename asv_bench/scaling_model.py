"""A cost model of one round of data-parallel training on Dask, and the tables computed from it.

A round sends the weights to all workers, runs a kernel over each block on the worker that holds
it, adds up the changes of all blocks in a tree, and returns the sum to the client. `scaling.py`
measures the constants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

from page import origin
from page_text import between, table

RESULTS = Path(__file__).with_name("scaling.json")
PAGE = Path(__file__).parents[1] / "docs/scaling.md"


@dataclass(frozen=True)
class Constants:
    """Times of the elementary operations, in seconds."""

    latency: float  # an empty round: a task to a worker, and its result back
    task: float  # the scheduler's work for one task
    hop: float  # an empty transfer of the broadcast
    send: float  # one byte of such a transfer
    add: float  # one byte that a worker receives from another and adds to a sum
    nonzero: float  # one nonzero of the data, in the kernel


@dataclass(frozen=True)
class Round:
    """The amount of work in a round."""

    workers: int
    blocks: int
    weights: float  # bytes sent to each worker
    change: float  # bytes returned by each block
    nonzeros: float  # per block
    transfers: float = inf  # concurrent transfers: on one machine, the number of cores
    fan_in: int = 4


def transfers(workers: int, at_once: float) -> int:
    """Return the number of sequential transfers in a broadcast.

    The weights go from the client to the scheduler and to a first worker; then each worker that has
    them sends them to two others, round by round.
    """
    count, holders = 2, 1
    while holders < workers:
        new = min(2 * holders, workers - holders)
        count += ceil(max(new / holders, new / at_once))
        holders += new
    return count


def levels(blocks: int, fan_in: int) -> Iterator[int]:
    """Yield the number of tasks on each level of the tree."""
    while blocks > 1:
        blocks = ceil(blocks / fan_in)
        yield blocks


def added(round: Round) -> int:
    """Return the number of changes read sequentially until the client has the sum."""
    at_once = min(round.workers, round.transfers)
    sums = levels(round.blocks, round.fan_in)
    return 2 + sum(ceil(tasks / at_once) * (round.fan_in - 1) for tasks in sums)


def seconds(round: Round, constants: Constants) -> dict[str, float]:
    """Return the time of each part of a round, and of the round.

    The scheduler works while kernels run.
    """
    tasks = round.blocks + sum(levels(round.blocks, round.fan_in))
    parts = {
        "broadcast": transfers(round.workers, round.transfers)
        * (constants.hop + round.weights * constants.send),
        "kernels": ceil(round.blocks / round.workers) * round.nonzeros * constants.nonzero,
        "tasks": constants.latency + tasks * constants.task,
        "sums": added(round) * round.change * constants.add,
    }
    total = parts["broadcast"] + max(parts["kernels"], parts["tasks"]) + parts["sums"]
    return {**parts, "round": total}


# ---- the tables of docs/scaling.md

#: Time per byte that a 10 Gbit/s network adds to the processors' work.
NETWORK = 0.8e-9
EXAMPLES, NONZEROS, WEIGHTS = 1e10, 50, 1e7  # numbers of 8 bytes
CLUSTERS = (1, 10, 100, 1000, 10_000)


def constants_of(results: dict[str, Any]) -> Constants:
    """Return the medians of the constants over all numbers of workers."""
    measured = list(results["constants"].values())
    return Constants(
        **{key: sorted(run[key] for run in measured)[len(measured) // 2] for key in measured[0]}
    )


def over_a_network(constants: Constants) -> Constants:
    return replace(constants, send=constants.send + NETWORK, add=constants.add + NETWORK)


def cluster(workers: int, **changed: Any) -> Round:
    """Return a round over all examples, with one block for each worker."""
    usual = Round(workers, workers, 8 * WEIGHTS, 8 * WEIGHTS, EXAMPLES * NONZEROS / workers)
    return replace(usual, **changed)


def remedies(constants: Constants) -> dict[str, tuple[Round, Constants]]:
    """Return rounds on 1000 cores, with one more remedy applied in each."""
    sparse = {"change": 12 * WEIGHTS / 10}
    small = {**sparse, "weights": 4 * WEIGHTS}
    wide = replace(constants, nonzero=constants.nonzero / 8)
    return {
        "16 blocks per worker": (
            cluster(1000, blocks=16_000, nonzeros=EXAMPLES * NONZEROS / 16_000),
            constants,
        ),
        "one block per worker": (cluster(1000), constants),
        "sparse changes of a tenth of the weights": (cluster(1000, **sparse), constants),
        "and weights sent in float32": (cluster(1000, **small), constants),
        "and 125 workers of 8 cores each": (cluster(125, **small), wide),
    }


def short(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page by name."""
    names = {"latency": "ms", "task": "ms", "hop": "ms", "send": "ns", "add": "ns", "nonzero": "ns"}
    scale = {"ms": 1e3, "ns": 1e9}
    by_workers = results["constants"]
    chosen = constants_of(results)
    constants = table(
        ["workers", *(f"{name}, {unit}" for name, unit in names.items())],
        [
            [label, *(short(values[name] * scale[unit]) for name, unit in names.items())]
            for label, values in [*by_workers.items(), ("model", vars(chosen))]
        ],
    )
    run = results["run"]
    facts = "; ".join([origin(run), run["machine"], f"Python {run['python']}"])
    constants += f"\n\n*{facts}:* `{run['command']}`"
    check = table(
        ["workers", "blocks", "predicted, s", "measured, s", "measured / predicted", "busy, s"],
        [
            [str(one["workers"]), str(one["blocks"]), f"{here:.2f}", f"{one['seconds']:.2f}",
             f"{one['seconds'] / here:.2f}", f"{one['busy']:.2f}"]
            for one in results["check"]
            for here in [seconds(_checked(one, results, chosen), chosen)["round"]]
        ],
    )  # fmt: skip
    there = over_a_network(chosen)
    parts = ["broadcast", "kernels", "tasks", "sums", "round"]
    scaled = {workers: seconds(cluster(workers), there) for workers in CLUSTERS}
    first = scaled[1]["round"]
    extrapolation = table(
        ["workers", *(f"{part}, s" for part in parts), "speed-up"],
        [
            [f"{workers:,}", *(short(costs[part]) for part in parts), short(first / costs["round"])]
            for workers, costs in scaled.items()
        ],
    )
    changed = {what: seconds(*case) for what, case in remedies(there).items()}
    remedy = table(
        ["1000 cores", *(f"{part}, s" for part in parts)],
        [[what, *(short(costs[part]) for part in parts)] for what, costs in changed.items()],
    )
    return {
        "constants": constants,
        "check": check,
        "extrapolation": extrapolation,
        "remedies": remedy,
    }


def _checked(one: dict[str, Any], results: dict[str, Any], constants: Constants) -> Round:
    """Return a measured round; its kernels slept, so cores did not limit them."""
    sent = one["bytes"]
    return Round(
        one["workers"],
        one["blocks"],
        sent,
        sent,
        one["kernel"] / constants.nonzero,
        results["cores"],
    )


def written(page: str, results: dict[str, Any]) -> str:
    """Return a page with its tables, each between two comments, regenerated."""
    for name, text in tables(results).items():
        page = between(page, name, text)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), json.loads(RESULTS.read_text())))
