"""The documented aggregators, with two processes that talk over loopback."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt import IndexedSlices

EXAMPLE = Path(__file__).parents[2] / "docs/examples/replicas.py"
STEPS = 5


def example() -> Any:
    spec = importlib.util.spec_from_file_location("replicas", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pair:
    """Two processes: what mpi4py's communicators and torch.distributed have, as far as needed."""

    def __init__(self, connection: Connection, rank: int) -> None:
        self.connection, self.rank = connection, rank

    def allgather(self, mine: Any) -> list[Any]:
        self.connection.send(mine)
        other = self.connection.recv()
        return [other, mine] if self.rank else [mine, other]

    def Get_size(self) -> int:
        return 2

    def Allreduce(self, mine: np.ndarray, total: np.ndarray) -> None:
        total[...] = sum(self.allgather(mine))

    def get_world_size(self) -> int:
        return 2

    def all_gather_object(self, parts: list[Any], mine: Any) -> None:
        parts[:] = self.allgather(mine)

    def all_reduce(self, tensor: np.ndarray) -> None:
        tensor[...] = sum(self.allgather(np.array(tensor)))


def gradients(step: int, rank: int) -> tuple[np.ndarray, IndexedSlices]:
    random = np.random.default_rng([step, rank])
    rows = IndexedSlices(random.normal(size=(3, 2)), random.integers(0, 6, 3))
    return random.normal(size=4), rows


def train(comm: Pair, kind: str) -> list[np.ndarray]:
    made = example()
    mean = made.with_mpi(comm) if kind == "mpi" else made.with_torch(comm, lambda array: array)
    opt = tfopt.optimizers.Adam(0.1, gradient_aggregator=mean)
    w, table = np.ones(4), np.ones((6, 2))
    for step in range(STEPS):
        dense, rows = gradients(step, comm.rank)
        opt.apply_gradients([(dense, w), (rows, table)])
    return [w, table]


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_two_processes_take_the_steps_of_one_with_all_data(kind: str) -> None:
    with Listener(("127.0.0.1", 0), authkey=b"replicas") as listener:
        command = [sys.executable, __file__, str(listener.address[1]), kind]
        paths = [str(Path(tfopt.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        other = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
        try:
            with listener.accept() as connection:
                ours = train(Pair(connection, 0), kind)
                theirs = connection.recv()
        finally:
            assert other.wait(60) == 0
    opt, w, table = tfopt.optimizers.Adam(0.1), np.ones(4), np.ones((6, 2))
    for step in range(STEPS):
        both = [gradients(step, rank) for rank in range(2)]
        rows = [slices for _, slices in both]
        values = np.concatenate([slices.values for slices in rows]) / 2
        merged = IndexedSlices(values, np.concatenate([slices.indices for slices in rows]))
        opt.apply_gradients([((both[0][0] + both[1][0]) / 2, w), (merged, table)])
    for mine, its, expected in zip(ours, theirs, [w, table], strict=True):
        assert mine.tobytes() == its.tobytes() == expected.tobytes()


@pytest.mark.parametrize("returned", [[], [1.0], 3, [(np.ones(2), np.zeros(1))]])
def test_what_an_aggregator_returns_is_checked(returned: Any) -> None:
    opt, w = tfopt.optimizers.SGD(1.0, gradient_aggregator=lambda pairs: returned), np.zeros(1)
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.apply_gradients([(np.ones(1), w)])
    assert w[0] == 0 and int(opt.iterations) == 0


def test_an_accumulated_mean_is_aggregated_once_a_step() -> None:
    seen: list[float] = []

    def look(pairs: Any) -> Any:
        seen.extend(float(grad[0]) for grad, _ in pairs)
        return pairs

    inner, w = tfopt.optimizers.SGD(1.0, gradient_aggregator=look), np.zeros(1)
    opt = tfopt.optimizers.GradientAccumulation(inner, 2)
    for k in range(4):
        opt.apply_gradients([(np.full(1, float(k)), w)])
    opt.apply_gradients([(np.ones(1), w)], experimental_aggregate_gradients=False)
    opt.apply_gradients([(np.ones(1), w)], experimental_aggregate_gradients=False)
    assert seen == [0.5, 2.5] and w.tolist() == [-4]


def test_every_group_comes_to_its_aggregator() -> None:
    """Also if another group's gradients leave the step out: other replicas are waiting there."""
    own, seen = tfopt.optimizers, []

    def sgd(name: str) -> Any:
        return own.SGD(0.5, gradient_aggregator=lambda pairs: seen.append(name) or pairs)

    params = {name: np.ones(1) for name in "abc"}
    groups = own.ParameterGroups(sgd("c"), [("a", sgd("a")), ("b", sgd("b"))])
    opt = own.LossScaleOptimizer(groups, 4.0)
    opt.step(params, {**params, "a": np.full(1, np.inf)})
    assert seen == ["a", "b", "c"] and float(opt.dynamic_scale) == 2
    assert [params[name][0] for name in "abc"] == [1, 1, 1]


if __name__ == "__main__":
    with Client(("127.0.0.1", int(sys.argv[1])), authkey=b"replicas") as made:
        made.send(train(Pair(made, 1), sys.argv[2]))
