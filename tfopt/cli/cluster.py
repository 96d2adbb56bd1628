"""`tfopt train` on a Dask cluster: the places of its rows, and its checkpoints."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, get_client
from distributed.comm import CommClosedError
from distributed.utils import silence_logging_cmgr

import tfopt.dask
from tfopt.checkpoints.folder import MANIFEST, Folder
from tfopt.cli.files import CommandError, note
from tfopt.cli.rows import Blocks, Place, Rows, examples_of
from tfopt.cli.settings import CheckpointFlags, Settings, check_origin, run_origin
from tfopt.dask.cluster import WORKER_LOST_ERRORS
from tfopt.dask.linear.executor import DaskExecutor
from tfopt.errors import CheckpointError
from tfopt.linear_model._blocks.execution import WorkerLostError
from tfopt.linear_model._blocks.input import BlockInput, load_block

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
) -> Iterator[Cluster]:
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
            Cluster(files) as place,
        ):
            yield place
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
    with (
        silence_logging_cmgr(logging.CRITICAL),
        client,
        client.as_current(),
        Cluster(files) as place,
    ):
        yield place


class Cluster(Place):
    """The workers of the current cluster."""

    is_elsewhere = True

    def __init__(self, files: CheckpointFlags) -> None:
        self._files, self._executors = files, contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: Any) -> None:
        self._executors.__exit__(*error)

    def executor(self) -> DaskExecutor:
        return self._executors.enter_context(DaskExecutor(get_client()))

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors of the cluster to one line."""
        try:
            yield
        except (ConnectionError, TimeoutError) as error:
            raise CommandError(str(error)) from error
        except (WorkerLostError, *WORKER_LOST_ERRORS) as error:
            raise CommandError(_DEAD) from error

    def fit(
        self,
        name: str,
        options: dict[str, Any],
        train: Rows,
        classes: tuple[float, ...] | None,
        settings: Settings,
        lengths: list[int] | None,
    ) -> Any:
        """Fit an estimator of `tfopt.dask`, with the flags for saving and resuming."""
        resume = None
        if self._files.wanted:
            saved = _RunFolder(self._files, settings, train)
            resume = saved.begin()
            if self._files.every is not None:
                options = options | {
                    "checkpoint": saved.path,
                    "checkpoint_every": self._files.every,
                }
        estimator = getattr(tfopt.dask, name)(**options)
        goes_on = "; --resume goes on from the last checkpoint" if "checkpoint" in options else ""
        request = classes, settings.bias_feature
        try:
            if isinstance(train.blocks, Blocks):
                return _fit_files(estimator, train.blocks, request, resume)
            # the rows of a file are here, and not yet in blocks
            assert lengths is not None
            cuts = [*itertools.pairwise(np.cumsum([0, *lengths]).tolist())]
            parts = examples_of(train.blocks[0], *request)
            X, y, weights, offset = (
                part if part is None else [part[a:b] for a, b in cuts] for part in parts
            )
            with warnings.catch_warnings():
                # tasks carry the data, so that a lost block can be sent again
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
                return estimator.fit(X, y, weights, offset=offset, resume=resume)
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


def _fit_files(estimator: Any, blocks: Blocks, request: tuple[Any, ...], resume: str | None) -> Any:
    """Fit an estimator to the files that an executor holds."""
    blocks.are_loaded = False  # the fit changes what the executor holds
    estimator._check_options()
    prepare = _as_input, (blocks.view, request, estimator._problem(0, 1).phi)
    estimator._fit_held(blocks.executor, blocks.load, blocks.sources, resume, prepare)
    return estimator


def _as_input(loaded: Any, request: tuple[Any, ...]) -> tuple[BlockInput, None]:
    """Make the first state of a fit of a file that was loaded."""
    view, arguments, phi = request
    X, y, weights, offset = examples_of(view(loaded), *arguments)
    return load_block(loaded[0], X, y, weights, offset, None, phi), None


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

        Otherwise remove an earlier run, if this one is to be saved. A CommandError says that the
        folder belongs to a run with other settings or data, or to no run.
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
