"""`tfopt train --solver sdca` on a Dask cluster: its executor, and its checkpoints."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, get_client, wait
from distributed.comm import CommClosedError
from distributed.utils import silence_logging_cmgr

import tfopt.dask
from tfopt.cli.checkpoints import check_origin, run_origin
from tfopt.cli.files import CommandError, note
from tfopt.cli.rows import Executor, Rows
from tfopt.cli.settings import CheckpointFlags, Settings
from tfopt.dask.cluster import (
    POLL_INTERVAL,
    WORKER_LOST_ERRORS,
    assign_workers,
    wait_for_workers,
    worker_threads,
)
from tfopt.dask.folder import MANIFEST, Folder
from tfopt.errors import CheckpointError
from tfopt.linear_model._solver.execution import MAX_WORKER_LOSSES

#: Seconds for a scheduler to answer.
CONNECT_TIMEOUT = 10
_NANNY = "distributed.nanny.pre-spawn-environ"
#: Visits free and reallocate the same memory: workers that keep it are a quarter faster.
MALLOC_SETTINGS = {
    f"{_NANNY}.MALLOC_TRIM_THRESHOLD_": 2**30,
    f"{_NANNY}.MALLOC_MMAP_THRESHOLD_": 2**25,
}
_DEAD = "workers died again and again, or the whole cluster is gone"


@contextlib.contextmanager
def connect(
    address: str | None, n_workers: int | None, files: CheckpointFlags
) -> Iterator[ClusterExecutor]:
    """Use a cluster within a block; start one, and close it, if there is no address.

    A CommandError says that the address is invalid, or that no scheduler answers there.
    """
    if address is None:
        with (
            dask.config.set(MALLOC_SETTINGS),
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                host="127.0.0.1",
                # an arbitrary port for the unused dashboard: the default may be in use
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,  # errors are reported in one line
            ) as cluster,
            Client(cluster),
        ):
            yield ClusterExecutor(files)
        return
    try:
        # otherwise a failed client would remain the default
        client = Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except ValueError as error:
        raise CommandError(f"{address}: is not an address such as tcp://host:port") from error
    except OSError as error:
        raise CommandError(
            f"{address}: no Dask scheduler answers within {CONNECT_TIMEOUT} s"
        ) from error
    with silence_logging_cmgr(logging.CRITICAL), client, client.as_current():
        yield ClusterExecutor(files)


class ClusterExecutor(Executor):
    """The workers of the current cluster.

    `map` and `broadcast` are lazy; `gather` computes. What a lost worker had is computed again.
    """

    def __init__(self, files: CheckpointFlags) -> None:
        self._files = files

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return delayed calls of a function, one for each row of the columns."""
        make = dask.delayed(function)
        return [make(*each, *shared) for each in zip(*columns, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Return a delayed value, which is sent once instead of with every block."""
        return dask.delayed(_identity)(value)

    def persist(
        self, function: Callable[..., Any], values: Sequence[Any], shared: Any
    ) -> list[Any]:
        """Return futures, each computed on the worker where a fit would place the block.

        A CommandError says that there are no workers, or that they die repeatedly.
        """
        client = get_client()
        options = {"pure": False, "allow_other_workers": True}
        with _cluster_errors():
            for _ in range(MAX_WORKER_LOSSES):
                locations = assign_workers(wait_for_workers(client), len(values))
                futures = [
                    client.submit(function, value, shared, workers=[worker], **options)
                    for value, worker in zip(values, locations, strict=True)
                ]
                if _are_made(futures, locations):
                    # a later recomputation must not wait for a lost worker
                    anywhere: dict[str, list[str]] = {future.key: [] for future in futures}
                    client.sync(client.scheduler.set_restrictions, worker=anywhere)
                    return futures
                client.cancel(futures, force=True)
        raise CommandError(_DEAD)

    def gather(self, values: list[Any]) -> list[Any]:
        """Return the results of tasks.

        A CommandError says that a task refuses its data, or that workers die repeatedly.
        """
        client = get_client()
        with _large_graphs():  # a model may be large
            futures = client.compute(values)
        with _cluster_errors():
            try:
                answers: list[Any] = client.gather(futures)
                return answers
            except CommandError:
                for future in futures:  # raise the error of the first one
                    future.result()
                raise

    def fit(
        self,
        name: str,
        options: dict[str, Any],
        train: Rows,
        classes: tuple[float, ...] | None,
        settings: Settings,
    ) -> Any:
        """Fit an estimator of `tfopt.dask`; save it, and take it up, as the flags say."""
        resume = None
        if self._files.wanted:
            saved = _RunFolder(self._files, settings, train)
            resume = saved.begin()
            if self._files.every is not None:
                options = options | {
                    "checkpoint": saved.path,
                    "checkpoint_every": self._files.every,
                }
        blocks = train.examples(classes, settings.bias_feature)
        if not train.in_parts:  # the rows of a file are here, and not yet in blocks
            ends = np.cumsum([0, *(train.block_lengths(settings.blocks) or ())]).tolist()
            cuts = [*itertools.pairwise(ends)]
            X, y, weights = (part and [part[0][a:b] for a, b in cuts] for part in blocks)
        else:
            X, y, weights = blocks
        estimator = getattr(tfopt.dask, name)(**options)
        goes_on = "; --resume goes on from the last checkpoint" if "checkpoint" in options else ""
        try:
            with _large_graphs():  # tasks carry the data, so that a lost block can be sent again
                return estimator.fit(X, y, weights, resume=resume)
        except CheckpointError as error:
            raise CommandError(str(error)) from error
        except CommClosedError as error:  # of a request to the scheduler that was under way
            raise CommandError(f"the connection to the scheduler is lost{goes_on}") from error
        except (ConnectionError, RuntimeError, TimeoutError) as error:  # of the cluster
            raise CommandError(f"{error}{goes_on}") from error
        except KeyboardInterrupt as error:
            if not goes_on:
                raise
            raise KeyboardInterrupt(
                f"interrupted; --resume goes on from {self._files.path}"
            ) from error


@contextlib.contextmanager
def _large_graphs() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


@contextlib.contextmanager
def _cluster_errors() -> Iterator[None]:
    """Convert errors of the cluster to one line."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise CommandError(str(error)) from error
    except WORKER_LOST_ERRORS as error:
        raise CommandError(_DEAD) from error


def _are_made(futures: list[Any], locations: list[str]) -> bool:
    """Wait until all blocks are loaded or one is refused; return False if a worker is lost."""
    while True:
        try:
            wait(futures, timeout=POLL_INTERVAL)
            return True
        except TimeoutError:
            if any(future.status == "error" for future in futures):
                return True
            if not {*locations} <= {*worker_threads(get_client())}:
                return False


def _identity(value: Any) -> Any:
    return value


# ---- checkpoints

_NAME = "run.npz"


class _RunFolder:
    """The folder of an estimator's checkpoints, with a file that identifies the run.

    `path` is an absolute path or a URL, which is the same for the workers.
    """

    def __init__(self, flags: CheckpointFlags, settings: Settings, train: Rows) -> None:
        self.path, self._flags = _absolute(flags.path), flags
        self._folder = Folder(self.path)
        self._origin = run_origin(settings, {"train": train.fingerprint()})

    def begin(self) -> str | None:
        """Return the folder if the run is to be resumed and there is a checkpoint.

        Otherwise, if this run is to be saved, remove an earlier one. A CommandError says that the
        folder is of a run with other settings or data, or of no run.
        """
        saved = self._saved() if self._folder.has(MANIFEST) else None
        if self._flags.resume and saved:
            check_origin(self.path, saved, self._origin)
            return self.path
        if self._flags.resume and not self._flags.quiet:
            note(f"{self._flags.path}: not there, so training begins anew")
        if self._flags.every is not None:
            self._folder.make()
            _clear(self._folder)
            self._folder.save(_NAME, self._origin)
        return None

    def _saved(self) -> dict[str, Any]:
        """Return the origin of the saved run."""
        try:
            tree: dict[str, Any] = self._folder.load(_NAME)
        except CheckpointError as error:
            raise CommandError(f"{self.path}: is not a run of tfopt train") from error
        return tree


def remove(path: str) -> None:
    """Remove the checkpoints, and the folder if it is then empty."""
    folder = Folder(_absolute(path))
    if folder.has(_NAME):
        _clear(folder)
        folder.remove_if_empty()


def _absolute(path: str) -> str:
    """Return an absolute path, or a URL."""
    return path if "://" in path else os.path.abspath(path)


def _clear(folder: Folder) -> None:
    # the manifest first, because it lists the others; the file that identifies the run last
    for prefix in (MANIFEST, "epoch-", _NAME):
        folder.keep_only(set(), prefix)
