"""Steps by gradients of blocks: equal bits wherever the blocks lie, faults, refusals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
from common.dask_cluster import addresses, processes
from distributed import Client

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.dask import DataParallel
from tfopt.optimizers import SGD, Adam, GradientAccumulation, ParameterGroups, WeightAverage

BLOCKS = 11
ROWS, WIDTH = 20, 3


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(2) as made:
        yield made


def numbers() -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.normal(size=(6, WIDTH)).astype(np.float32) for _ in range(BLOCKS)]


def params() -> dict[str, Any]:
    random = np.random.default_rng(3)
    table = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return {"w": np.ones(WIDTH, np.float32), "deep": [table, np.zeros(2, np.float16)]}


def loss_and_grad(params: dict[str, Any], block: np.ndarray, step: int = 0) -> Any:
    """Dense gradients of two precisions, and rows, some of them several times."""
    table, half = params["deep"]
    ids = (np.abs(block[:, 0]) * 10 + step).astype(np.int64) % ROWS
    error = block @ params["w"] - table[ids].sum(1)
    rows = IndexedSlices(error[:, None] * block, ids, table.shape)
    grads = {"w": error @ block, "deep": [rows, (half + block[0, :2]).astype(np.float16)]}
    return np.sum(error**2), grads


def in_a_tree(things: list[Any], add: Any) -> Any:
    while len(things) > 1:
        groups = [things[k : k + 4] for k in range(0, len(things), 4)]
        things = [add(group) for group in groups]
    return things[0]


def add_rows(group: list[IndexedSlices]) -> IndexedSlices:
    values = np.concatenate([slices.values for slices in group])
    return IndexedSlices(values, np.concatenate([s.indices for s in group])).sum_duplicates()


def plain_step(optimizer: Any, params: Any, blocks: list[np.ndarray], step: int) -> float:
    """What a step is to give, said once more, on one machine."""
    losses, grads = zip(*(loss_and_grad(params, block, step) for block in blocks), strict=True)
    n = np.float32(len(blocks))
    w = in_a_tree([grad["w"] for grad in grads], sum_in_turn) / n
    rows = in_a_tree([grad["deep"][0].sum_duplicates() for grad in grads], add_rows) / n
    halves = [grad["deep"][1].astype(np.float32) for grad in grads]
    half = (in_a_tree(halves, sum_in_turn) / n).astype(np.float16)
    optimizer.step(params, {"w": w, "deep": [rows, half]})
    return in_a_tree([float(loss) for loss in losses], sum_in_turn) / len(blocks)


def sum_in_turn(group: list[Any]) -> Any:
    result = group[0]
    for other in group[1:]:
        result = result + other
    return result


def bits(params: Any) -> list[bytes]:
    return [params["w"].tobytes(), *(array.tobytes() for array in params["deep"])]


def optimizers() -> list[Any]:
    return [
        Adam(0.1),
        Adam(0.1, sparse="lazy", global_clipnorm=0.5),
        GradientAccumulation(SGD(0.1, momentum=0.9), 2),
        WeightAverage(SGD(0.1)),
        ParameterGroups(SGD(0.1), [("w", Adam(0.01))]),
    ]


def check_steps(client: Client, optimizer: Any, other: Any) -> None:
    parallel = DataParallel(optimizer, loss_and_grad, numbers(), client=client)
    ours, theirs = params(), params()
    for step in range(3):
        assert parallel.step(ours, step) == plain_step(other, theirs, numbers(), step)
    assert bits(ours) == bits(theirs) != bits(params())
    assert int(optimizer.iterations) == int(other.iterations)


@pytest.mark.parametrize("k", range(5))
def test_steps_are_those_of_one_machine(client: Client, k: int) -> None:
    check_steps(client, optimizers()[k], optimizers()[k])


@pytest.mark.parametrize("n", [1, 4])
def test_the_number_of_workers_changes_no_bit(n: int) -> None:
    with processes(n) as other:
        check_steps(other, Adam(0.1), Adam(0.1))


def kill_once(params: Any, block: np.ndarray, marker: str) -> Any:
    if block[0, 0] == numbers()[5][0, 0] and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return loss_and_grad(params, block)


@pytest.mark.parametrize("n", [1, 2])
def test_a_killed_worker_changes_no_bit(n: int, tmp_path: Path) -> None:
    """With one worker, all that was sent is lost."""
    ours, theirs, optimizer, other = params(), params(), Adam(0.1), Adam(0.1)
    with processes(n) as client:
        parallel = DataParallel(optimizer, kill_once, numbers(), client=client)
        for step in range(2):
            parallel.step(ours, str(tmp_path / "killed"))
            plain_step(other, theirs, numbers(), 0)
            assert (tmp_path / "killed").exists()
            assert bits(ours) == bits(theirs) and int(optimizer.iterations) == step + 1


@pytest.mark.parametrize("kind", ["delayed", "futures", "bag", "array", "tuple"])
def test_blocks_of_other_kinds(client: Client, kind: str) -> None:
    blocks: Any = numbers()
    if kind == "delayed":
        blocks = [dask.delayed(np.copy)(block) for block in blocks]
    elif kind == "futures":
        blocks = client.scatter(blocks, hash=False)
    elif kind == "bag":
        blocks = dask.bag.from_sequence(blocks, npartitions=len(blocks)).map_partitions(
            np.concatenate
        )
    elif kind == "array":
        blocks = dask.array.from_array(np.concatenate(blocks), chunks=(6, WIDTH))
    else:
        blocks = tuple(blocks)
    ours, theirs = params(), params()
    parallel = DataParallel(Adam(0.1), loss_and_grad, blocks, client=client)
    assert parallel.step(ours) == plain_step(Adam(0.1), theirs, numbers(), 0)
    assert bits(ours) == bits(theirs)


def test_sums_instead_of_means(client: Client) -> None:
    blocks = [np.float64(k) for k in range(6)]
    parallel = DataParallel(SGD(1.0), linear, blocks, reduction="sum", client=client)
    w = Variable(np.zeros(2))
    assert parallel.step([w]) == 0
    assert w.numpy().tolist() == [-15, -15]
    loss, [grad] = parallel.gradients([w])
    assert loss == -15 * 15 * 2 and grad.tolist() == [15, 15]
    assert w.numpy().tolist() == [-15, -15] and int(parallel.optimizer.iterations) == 1


def linear(params: Any, block: float) -> Any:
    return block * params[0].sum(), [np.full(2, block)]


def seen_by_kernels(params: Any, block: Any) -> Any:
    arrays = [params["w"], block[0], block[1]["x"]]
    return float(all(array.flags.aligned for array in arrays)), params


def test_arrays_are_where_kernels_can_read_them(client: Client) -> None:
    blocks = [(np.ones(3), {"x": np.ones(k + 1)}, "name") for k in range(4)]
    parallel = DataParallel(SGD(1.0), seen_by_kernels, blocks, client=client)
    assert parallel.step({"w": np.ones(3)}) == 1


def failing(params: Any, block: float) -> Any:
    if block == 3:
        raise KeyError("no such word")
    return linear(params, block)


def writing(params: Any, block: float) -> Any:
    params[0][0] = 1
    return linear(params, block)


def differing(params: Any, block: float) -> Any:
    loss, [grad] = linear(params, block)
    return loss, [IndexedSlices(grad[:, None], np.arange(2)) if block == 4 else grad]


def nothing(params: Any, block: float) -> Any:
    return 0.0, [None] if block else [np.ones(2)]


def longer(params: Any, block: float) -> Any:
    return 0.0, [np.ones(2), np.ones(2)]


def alone(params: Any, block: float) -> Any:
    return 1.0


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (failing, KeyError, "block 3"),
        (writing, ValueError, "read-only"),
        (differing, tfopt.InvalidArgumentError, "at 0 is .* in block ., but "),
        (nothing, tfopt.InvalidArgumentError, "None in block 1, but an array of float64"),
        (longer, tfopt.InvalidArgumentError, "params and grads differ"),
        (alone, TypeError, "unpack"),
    ],
)
def test_what_fails_is_said_and_changes_nothing(
    client: Client, function: Any, error: type[Exception], says: str
) -> None:
    w, optimizer = np.zeros(2), SGD(1.0)
    parallel = DataParallel(optimizer, function, [float(k) for k in range(6)], client=client)
    with pytest.raises(error) as caught:
        parallel.step([w])
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert caught.match(says) if "block 3" not in says else says in said
    assert w.tolist() == [0, 0] and int(optimizer.iterations) == 0


def test_an_error_leaves_nothing_but_the_blocks(client: Client) -> None:
    blocks = client.scatter([float(k) for k in range(6)], hash=False)
    before = set(client.futures)
    parallel = DataParallel(SGD(1.0), failing, blocks, client=client)
    with pytest.raises(KeyError):
        parallel.step([np.zeros(2)])
    until(lambda: set(client.futures) <= before)  # what is released goes a moment later


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_arguments_are_checked(client: Client) -> None:
    for wrong, error in [
        ((SGD, linear, [1.0]), tfopt.InvalidTypeError),
        ((SGD(1.0), "linear", [1.0]), tfopt.InvalidTypeError),
        ((SGD(1.0), linear, []), tfopt.InvalidArgumentError),
        ((SGD(1.0), linear, 3), tfopt.InvalidTypeError),
    ]:
        with pytest.raises(error):
            DataParallel(*wrong, client=client)
    with pytest.raises(tfopt.InvalidArgumentError, match="reduction"):
        DataParallel(SGD(1.0), linear, [1.0], reduction="max", client=client)


def test_consecutive_blocks_lie_together(client: Client) -> None:
    parallel = DataParallel(SGD(1.0), linear, list(range(4)), client=client)
    holders = [client.who_has(future)[future.key] for future in parallel._futures]
    first, second = addresses(client)
    assert holders == [(first,)] * 2 + [(second,)] * 2
