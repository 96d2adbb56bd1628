"""Clusters whose workers, scheduler or client are killed, slow, or out of disk: the same bits.

The messages that a fit takes are counted first, by kind; then a process is killed as it takes one
of them: each kind in turn, and of its messages any.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.dask_cluster import addresses, by_hand, processes, start, tasks
from common.dask_fits import OPTIONS, alone, fitted
from distributed import Client

from campaign.calls import one
from campaign.check import Case, Check
from tfopt.dask import SDCAClassifier
from tfopt.linear_model._blocks.execution import WorkerLostError

#: Messages that tests send themselves, and those by which processes say that they are there.
_OTHERS = {"run", "run_function", "broadcast", "heartbeat_worker", "heartbeat-client", "identity"}
#: Seconds within which a fit says that the scheduler is gone.
LIMIT = 20


def _handlers(server: Any) -> list[dict[str, Any]]:
    return [server.handlers, server.stream_handlers]


def _count(server: Any) -> None:
    """Let a worker or a scheduler count the messages that it takes."""
    server.taken = {}
    for handlers in _handlers(server):
        for kind, handle in [*handlers.items()]:
            if kind not in _OTHERS:
                handlers[kind] = _counting(server, kind, handle)


def _counting(server: Any, kind: str, handle: Any) -> Any:
    def count() -> None:
        server.taken[kind] = server.taken.get(kind, 0) + 1
        fault = getattr(server, "fault", None)
        if fault is not None and fault.takes(kind, server.taken[kind]):
            if fault.seconds is None:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(fault.seconds)

    @functools.wraps(handle)
    def counted(*arguments: Any, **options: Any) -> Any:
        count()
        return handle(*arguments, **options)

    @functools.wraps(handle)
    async def awaited(*arguments: Any, **options: Any) -> Any:
        count()
        return await handle(*arguments, **options)

    return awaited if inspect.iscoroutinefunction(handle) else counted


def _plant(server: Any, fault: Any) -> None:
    """Count from now on, and do something when a message of a kind comes for the n-th time."""
    if not hasattr(server, "taken"):
        _count(server)
    server.taken.clear()
    server.fault = fault


def _plant_worker(fault: Any, dask_worker: Any) -> None:
    _plant(dask_worker, fault)


def _plant_scheduler(fault: Any, dask_scheduler: Any) -> None:
    _plant(dask_scheduler, fault)


def _taken_worker(dask_worker: Any) -> dict[str, int]:
    return dict(dask_worker.taken)


def _taken_scheduler(dask_scheduler: Any) -> dict[str, int]:
    return dict(dask_scheduler.taken)


class Fault(NamedTuple):
    """What happens when a message comes: of a kind the n-th, of any kind each if None.

    The process dies, or is busy for some seconds.
    """

    kind: str | None
    number: int | None
    seconds: float | None

    def takes(self, kind: str, number: int) -> bool:
        """Whether it happens at the n-th message of a kind."""
        return self.kind is None or (self.kind, self.number) == (kind, number)


def _fault(
    random: np.random.Generator, taken: dict[str, int], turn: int, seconds: float | None
) -> Fault:
    """Return a fault at a message whose kind is the next one in turn."""
    kinds = sorted(taken)
    kind = kinds[turn % len(kinds)]
    return Fault(kind, int(random.integers(1, taken[kind] + 1)), seconds)


def _model(**options: Any) -> SDCAClassifier:
    return SDCAClassifier(**{**OPTIONS, **options})


class Fits:
    """Fits on a cluster of two workers that come back, each with a fault."""

    def __init__(self, client: Client) -> None:
        self.client, self.expected = client, alone()
        client.run(_plant_worker, None)
        client.run_on_scheduler(_plant_scheduler, None)
        assert fitted(_model()) == self.expected
        workers = client.run(_taken_worker).values()
        self.taken = {k: max(w.get(k, 0) for w in workers) for w in workers for k in w}
        self.taken_by_scheduler = client.run_on_scheduler(_taken_scheduler)
        client.run_on_scheduler(_plant_scheduler, None)

    def worker(self, random: np.random.Generator, turn: int) -> int:
        """A worker dies as it takes a message, or is slow, or both do."""
        chosen = addresses(self.client)[: int(random.integers(1, 3))]
        seconds = (one(random, (None, None, None, 0.2, 2.0)) for _ in chosen)
        return self._fitted([_fault(random, self.taken, turn, each) for each in seconds])

    def slow(self, random: np.random.Generator, turn: int) -> int:
        """A worker is busy whenever a message comes, but alive; or both are."""
        seconds = float(random.uniform(0.001, 0.02))
        return self._fitted([Fault(None, None, seconds)] * int(random.integers(1, 3)))

    def _fitted(self, faults: list[Fault]) -> int:
        """Fit while as many workers have faults."""
        self.client.wait_for_workers(2)
        before = {*self.client.run(os.getpid).values()}
        for address, fault in zip(addresses(self.client), faults, strict=False):
            self.client.run(_plant_worker, fault, workers=[address])
        for _ in faults:  # dual variables stay with the workers after the fit, and die with them
            with suppress(WorkerLostError):
                found = fitted(_model())
                break
        else:
            found = fitted(_model())
        assert found == self.expected, f"other bits, {faults}"
        with suppress(Exception):  # one that is dying now
            self.client.run(_plant_worker, None, on_error="ignore")
        self.client.wait_for_workers(2)
        gone = before - {*self.client.run(os.getpid).values()}
        return len(gone) + sum(fault.seconds is not None for fault in faults)

    def scheduler(self, random: np.random.Generator, turn: int) -> int:
        """The scheduler dies as it takes a message: the fit ends soon, and can be taken up."""
        fault = _fault(random, self.taken_by_scheduler, turn, None)
        with tempfile.TemporaryDirectory() as folder:
            saved = str(Path(folder, "saved"))
            with by_hand(Path(folder)) as (client, process):
                client.run_on_scheduler(_plant_scheduler, fault)
                try:
                    model = _model(checkpoint=saved, checkpoint_every=1)
                    found = fitted(model)
                except (OSError, CancelledError) as error:  # the latter when Dask itself reads
                    process.join(LIMIT)
                    assert not process.is_alive(), f"{fault}: {error!r}"
                else:  # it had not so many messages
                    assert found == self.expected, f"other bits, {fault}"
                    return 0
            with self.client.as_current():
                found = fitted(_model(), **_from(saved))
            assert found == self.expected, f"other bits, taken up after {fault}"
        return 1

    def own(self, random: np.random.Generator, turn: int) -> int:
        """The client dies: its tasks are forgotten, and the fit can be taken up."""
        with tempfile.TemporaryDirectory() as folder:
            saved = str(Path(folder, "saved"))
            other = start(_fit_until_killed, self.client.scheduler.address, saved)
            end = time.monotonic() + float(random.uniform(0.2, 3))
            while other.is_alive() and time.monotonic() < end:
                time.sleep(0.01)
            other.kill()
            other.join()
            assert fitted(_model(), **_from(saved)) == self.expected, "other bits, taken up"
        gc.collect()  # models that are no longer needed hold dual variables on the cluster
        left = tasks(self.client)
        assert not left, left
        return 1

    def disk(self, random: np.random.Generator, turn: int) -> int:
        """Disks of workers are full when they save: an error says so, and the last is whole."""
        self.client.wait_for_workers(2)
        at, size = int(random.integers(1, 5)), int(random.integers(0, 600))
        full = addresses(self.client)
        full = full if random.integers(3) == 0 else [one(random, full)]

        def fill(record: dict[str, Any]) -> None:
            if record["iteration"] == at:
                self.client.run(_limit_files, size, workers=full)

        with tempfile.TemporaryDirectory() as folder:
            saved = str(Path(folder, "saved"))
            try:
                model = _model(callback=fill, checkpoint=saved, checkpoint_every=1)
                fitted(model)
            except OSError as error:
                assert saved in str(error), repr(error)
            else:
                raise AssertionError("a save on a full disk was not noticed")
            finally:
                self.client.run(_limit_files, resource.RLIM_INFINITY, workers=full)
            assert bool(_from(saved)) == (at > 1)
            assert fitted(_model(), **_from(saved)) == self.expected, f"other bits, after {at}"
        return 1


def _from(saved: str) -> dict[str, str]:
    return {"resume": saved} if Path(saved, "manifest.npz").exists() else {}


def _limit_files(size: int) -> None:
    """Let writes beyond a size fail, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _fit_until_killed(address: str, saved: str) -> None:
    with Client(address):
        while True:
            fitted(_model(checkpoint=saved, checkpoint_every=1))


def _cases(seed: int) -> Iterator[Case]:
    with processes(2) as client:
        fits = Fits(client)
        tried = (fits.worker, fits.slow, fits.disk, fits.scheduler, fits.worker, fits.own)
        turns = {case: count(seed) for case in tried}
        for number, case in enumerate(cycle(tried)):
            random = np.random.default_rng((seed, number))
            yield functools.partial(_with, client, case, random, next(turns[case]))


def _with(client: Client, case: Callable[..., int], *arguments: Any) -> int:
    with client.as_current():
        return case(*arguments)


CHECK = Check(
    _cases,
    "A cluster fit during which a worker, scheduler or client dies, stalls or fills its disk",
    patience=180,
)
