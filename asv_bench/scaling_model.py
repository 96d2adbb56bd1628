"""What a round of data-parallel training on Dask costs: a model, and the tables it gives.

A round sends the weights to all workers, runs a kernel over each block where it lies, adds up the
changes of all blocks in a tree, and brings the sum back. `scaling.py` measures the constants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("scaling.json")
PAGE = Path(__file__).parents[1] / "docs/scaling.md"


@dataclass(frozen=True)
class Constants:
    """Seconds of one thing."""

    latency: float  # a round in which nothing is done: the way of a task and of its result
    task: float  # the scheduler's work for one task
    hop: float  # a transfer of the broadcast in which nothing is sent
    send: float  # one byte of such a transfer
    add: float  # one byte that a worker gets from another one and adds to a sum
    nonzero: float  # one number of the data, in the kernel


@dataclass(frozen=True)
class Round:
    """What is done in a round."""

    workers: int
    blocks: int
    weights: float  # bytes that each worker gets
    change: float  # bytes that each block gives
    nonzeros: float  # of one block
    transfers: float = inf  # that go on at once: as many as there are cores, on one machine
    fan_in: int = 4


def transfers(workers: int, at_once: float) -> int:
    """Return how many transfers of a broadcast come one after another.

    From the client to the scheduler and to a first worker; then each worker that has the weights
    hands them to two others, round by round.
    """
    count, holders = 2, 1
    while holders < workers:
        new = min(2 * holders, workers - holders)
        count += ceil(max(new / holders, new / at_once))
        holders += new
    return count


def levels(blocks: int, fan_in: int) -> Iterator[int]:
    """Yield the numbers of tasks on the tree's levels."""
    while blocks > 1:
        blocks = ceil(blocks / fan_in)
        yield blocks


def added(round: Round) -> int:
    """Return how many changes are read one after another until all are summed, and brought back."""
    at_once = min(round.workers, round.transfers)
    sums = levels(round.blocks, round.fan_in)
    return 2 + sum(ceil(tasks / at_once) * (round.fan_in - 1) for tasks in sums)


def seconds(round: Round, constants: Constants) -> dict[str, float]:
    """Return what the parts of a round take, and the round; the scheduler works beside kernels."""
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

#: A network of 10 Gbit/s takes this long for a byte, beside what the processors do.
NETWORK = 0.8e-9
EXAMPLES, NONZEROS, WEIGHTS = 1e10, 50, 1e7  # numbers of 8 bytes
CLUSTERS = (1, 10, 100, 1000, 10_000)


def constants_of(results: dict[str, Any]) -> Constants:
    """Return the constants for all numbers of workers: the medians."""
    measured = list(results["constants"].values())
    middle = {key: sorted(one[key] for one in measured)[len(measured) // 2] for key in measured[0]}
    return Constants(**middle)


def over_a_network(constants: Constants) -> Constants:
    return replace(constants, send=constants.send + NETWORK, add=constants.add + NETWORK)


def cluster(workers: int, **changed: Any) -> Round:
    """Return a round over all examples, with one block for each worker."""
    usual = Round(workers, workers, 8 * WEIGHTS, 8 * WEIGHTS, EXAMPLES * NONZEROS / workers)
    return replace(usual, **changed)


def remedies(constants: Constants) -> dict[str, tuple[Round, Constants]]:
    """Return rounds on 1000 cores: as they are, and with what is changed, one after another."""
    sparse = {"change": 12 * WEIGHTS / 10}
    small = {**sparse, "weights": 4 * WEIGHTS}
    wide = replace(constants, nonzero=constants.nonzero / 8)
    return {
        "16 blocks for each worker": (
            cluster(1000, blocks=16_000, nonzeros=EXAMPLES * NONZEROS / 16_000),
            constants,
        ),
        "one block for each worker": (cluster(1000), constants),
        "changes of a tenth of the weights, as rows": (cluster(1000, **sparse), constants),
        "and weights sent in float32": (cluster(1000, **small), constants),
        "and 125 workers of 8 cores each": (cluster(125, **small), wide),
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables by their names."""
    names = {"latency": "ms", "task": "ms", "hop": "ms", "send": "ns", "add": "ns", "nonzero": "ns"}
    scale = {"ms": 1e3, "ns": 1e9}
    by_workers = results["constants"]
    chosen = constants_of(results)
    constants = table(
        ["workers", *(f"{name}, {unit}" for name, unit in names.items())],
        [
            [label, *(short(values[name] * scale[unit]) for name, unit in names.items())]
            for label, values in [*by_workers.items(), ("taken", vars(chosen))]
        ],
    )
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
    """Return a round that was measured: its kernels slept, so that cores did not limit them."""
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
    """Return a page with its tables, which stand between two comments, made anew."""
    for name, text in tables(results).items():
        opening, closing = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(opening)
        page = f"{before}{opening}\n\n{text}\n\n{closing}{rest.partition(closing)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), json.loads(RESULTS.read_text())))
