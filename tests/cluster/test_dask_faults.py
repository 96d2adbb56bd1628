"""Fits on clusters whose scheduler dies, or whose workers come back where they were."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common.dask_cluster import (
    ROWS,
    addresses,
    blocks,
    by_hand,
    copy_blocks,
    data,
    kill_one,
    processes,
)
from common.dask_fits import OPTIONS, alone, fitted
from distributed import Client

from tfopt import checkpoints
from tfopt.dask import FTRLRegressor, SDCAClassifier
from tfopt.dask.cluster import gathered
from tfopt.dask.linear.checkpoints import StreamFitCheckpoints
from tfopt.dask.linear.executor import DaskExecutor


def test_a_fit_goes_on_with_another_scheduler(tmp_path: Path) -> None:
    saved, killed = str(tmp_path / "saved"), []

    def end(record: dict[str, Any]) -> None:
        if record["iteration"] == 3:
            scheduler.kill()
            killed.append(time.monotonic())

    with by_hand(tmp_path) as (_, scheduler):
        model = SDCAClassifier(**OPTIONS, callback=end, checkpoint=saved, checkpoint_every=1)
        with pytest.raises(ConnectionError, match="the connection to the scheduler is lost"):
            fitted(model)
        assert time.monotonic() - killed[0] < 10  # Dask would try for 30
    seen: list[int] = []
    with processes(1):
        model = SDCAClassifier(**OPTIONS, callback=lambda record: seen.append(record["iteration"]))
        assert fitted(model, resume=saved) == alone()
    assert seen == [3, 4, 5]


def test_a_stream_ends_with_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = data("squared")
    after = StreamFitCheckpoints.after_epoch
    with by_hand(tmp_path) as (_, scheduler):

        def end(journal: Any, number: int, *state: Any) -> None:
            after(journal, number, *state)
            if number == 2:
                scheduler.kill()

        monkeypatch.setattr(StreamFitCheckpoints, "after_epoch", end)
        with pytest.raises(ConnectionError, match="the connection to the scheduler is lost"):
            FTRLRegressor(checkpoint=str(tmp_path)).fit(*blocks(X, y))
    assert checkpoints.load(tmp_path / "manifest.npz")["epoch"] == 2


def test_a_request_that_the_scheduler_no_longer_answers(tmp_path: Path) -> None:
    """An OSError without a number is Dask's word for it; without a loss it is the request's own."""
    with by_hand(tmp_path) as (client, scheduler):
        executor = DaskExecutor(client)

        async def refused() -> None:
            raise OSError("Timed out")

        async def lost() -> None:
            scheduler.kill()
            while client.status == "running":
                await asyncio.sleep(0.01)
            raise OSError("Timed out")

        with pytest.raises(OSError, match="Timed out"):
            executor._wait(refused, of_blocks=False)
        with pytest.raises(ConnectionError, match="the connection to the scheduler is lost"):
            executor._wait(lost, of_blocks=False)


def test_results_that_are_no_longer_wanted_spoil_no_others() -> None:
    """As after Ctrl-C, at any step of Dask's loop; see distributed's `Client._gather`."""

    async def abandoned(client: Client, futures: list[Any], steps: int) -> bool:
        task = asyncio.ensure_future(gathered(client, futures))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    with processes(1) as client:
        future = client.submit(abs, -7)
        assert client.gather(future) == 7
        cancelled = []
        for steps in range(12):
            cancelled.append(client.sync(abandoned, client, [future], steps))
            assert client.gather(future) == 7, steps
        assert sum(cancelled) > 4


def pids(client: Client) -> dict[str, int]:
    return client.run(os.getpid, on_error="ignore")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_worker_may_come_back_under_its_address(at_once: bool) -> None:
    """Before the fit notices that it was gone, or while it waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with processes(1, worker_port=port) as client:
        before, told = pids(client), []

        def end(record: dict[str, Any]) -> None:
            told.append(record["iteration"])
            if told == [1, 2]:
                kill_one(client)
                while not at_once and pids(client) in ({}, before):
                    time.sleep(0.01)

        assert fitted(SDCAClassifier(**OPTIONS, callback=end)) == alone()
        after = pids(client)
        assert after.keys() == before.keys() and after != before
    assert told == [1, 2, 1, 2, 3, 4, 5]


def before_rounds(
    monkeypatch: pytest.MonkeyPatch, *events: tuple[int, Callable[[], object]]
) -> None:
    """Call functions before rounds of these numbers."""
    map_reduce, numbers = DaskExecutor.map_reduce, itertools.count()

    def counted(*arguments: Any) -> Any:
        number = next(numbers)
        for at, event in events:
            if at == number:
                event()
        return map_reduce(*arguments)

    monkeypatch.setattr(DaskExecutor, "map_reduce", counted)


@pytest.mark.parametrize("age", [None, 0, 1, 8])
def test_a_fit_goes_back_if_the_worker_of_a_block_leaves(
    monkeypatch: pytest.MonkeyPatch, age: int | None
) -> None:
    """To the beginning without checkpoints, whatever the rounds of the copies that Dask made."""
    told: list[int] = []
    made: list[str] = []
    with processes(2) as client:
        client.amm.stop()  # it would remove copies
        retired = addresses(client)[0]
        if age is None:
            before_rounds(monkeypatch, (20, lambda: kill_one(client)))
        else:
            before_rounds(
                monkeypatch,
                (20 - age, lambda: copy_blocks(client)),
                (20, lambda: client.retire_workers([retired], close_workers=True, remove=True)),
            )
        compute = client.compute
        monkeypatch.setattr(
            client, "compute", lambda *a, **options: made.append("") or compute(*a, **options)
        )
        ours = SDCAClassifier(**OPTIONS, callback=lambda record: told.append(record["iteration"]))
        assert fitted(ours) == alone()
    assert told[-5:] == [1, 2, 3, 4, 5]
    assert told[:-5] == [1, 2, 3, 4, 5][: len(told) - 5] != []
    if age is not None:  # what Dask has copied is not read again
        assert len(made) == len(ROWS)
