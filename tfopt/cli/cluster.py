"""`tfopt train --solver sdca` on a Dask cluster."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster
from distributed.utils import silence_logging_cmgr

import tfopt.dask
from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.cli.fit_folder import FitFolder
from tfopt.cli.report import Result
from tfopt.cli.rows import Rows
from tfopt.cli.sdca_fit import fit as fit_blocks
from tfopt.cli.settings import CheckpointFlags, ClusterFlags, SdcaSettings
from tfopt.errors import CheckpointError

__all__ = ["connected", "fit"]

#: Seconds for a scheduler to answer.
PATIENCE = 10
_NANNY = "distributed.nanny.pre-spawn-environ"
#: A visit frees and takes the same memory again: workers that keep it are a quarter faster.
KEEP = {f"{_NANNY}.MALLOC_TRIM_THRESHOLD_": 2**30, f"{_NANNY}.MALLOC_MMAP_THRESHOLD_": 2**25}


@contextlib.contextmanager
def connected(flags: ClusterFlags) -> Iterator[None]:
    """Make a cluster the current one within a block, and end it if it was started for that.

    Raises
    ------
    CommandError
        If the address is none, or no scheduler answers there.
    """
    if flags.address is None:
        with (
            dask.config.set(KEEP),
            LocalCluster(
                n_workers=flags.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                # there is no dashboard to look at, but None would take a port that may be taken
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,  # what matters is said in one line
            ) as cluster,
            Client(cluster),
        ):
            yield
        return
    try:
        # one that finds nobody would stay this process's default
        client = Client(flags.address, timeout=PATIENCE, set_as_default=False)
    except ValueError as error:
        address = printable(flags.address)
        raise CommandError(f"{address}: is not an address such as tcp://host:port") from error
    except OSError as error:
        address = printable(flags.address)
        raise CommandError(f"{address}: no Dask scheduler answers within {PATIENCE} s") from error
    with silence_logging_cmgr(logging.CRITICAL), client, client.as_current():
        yield


def fit(
    train: Rows, test: Rows | None, settings: SdcaSettings, quiet: bool, files: CheckpointFlags
) -> Result:
    """Find the minimum on the current cluster and score the model.

    Parameters
    ----------
    train : Rows
    test : Rows or None
    settings : SdcaSettings
        With a number of blocks.
    quiet : bool
        Show no progress, and do not say that there is no run to go on with.
    files : CheckpointFlags
        The folder that the fit is saved in, and whether one that was is taken up.

    Returns
    -------
    Result
    """
    if not files.wanted:
        return fit_blocks(train, test, settings, quiet, fitted)
    saved = FitFolder(files, settings, train)
    resume = saved.begin()
    if files.resume and resume is None and not quiet:
        print(f"{printable(files.path)}: not there, so training begins anew", file=sys.stderr)
    every = (
        {} if files.every is None else {"checkpoint": saved.path, "checkpoint_every": files.every}
    )

    def solver(
        name: str, options: dict[str, Any], X: list[Any], y: list[Any], rows: list[int]
    ) -> Any:
        return fitted(name, options | every, X, y, rows, resume)

    return fit_blocks(train, test, settings, quiet, solver)


def fitted(
    name: str,
    options: dict[str, Any],
    X: list[Any],
    y: list[Any],
    rows: list[int],
    resume: str | None = None,
) -> Any:
    """Return an estimator, fitted on the current cluster.

    Parameters
    ----------
    name : str
        Of an estimator of `tfopt.dask`.
    options : dict
        Its parameters.
    X : list of CSR matrix, shape (n_samples, n_features), or of delayed
    y : list of ndarray, shape (n_samples,), or of delayed
        In the blocks that lie on the cluster; or, of a file, one of all rows.
    rows : list of int
        Of each block that is to be fitted.
    resume : str, optional
        A folder to go on from.

    Raises
    ------
    CommandError
        If the scheduler is lost, or workers again and again, or there are none, or a checkpoint is
        refused.
    ValueError
        If data are refused.
    """
    if len(X) < len(rows):
        ends = np.cumsum([0, *rows]).tolist()
        X, y = ([part[a:b] for a, b in itertools.pairwise(ends)] for (part,) in (X, y))
    estimator = getattr(tfopt.dask, name)(**options)
    try:
        with warnings.catch_warnings():
            # with what the tasks are sent, a block that is lost can be sent again
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return estimator.fit(X, y, resume=resume)
    except CheckpointError as error:
        raise CommandError(printable(str(error))) from error
    except (ConnectionError, RuntimeError, TimeoutError) as error:  # of the cluster
        more = "; --resume goes on from the last checkpoint" if "checkpoint" in options else ""
        raise CommandError(printable(f"{error}{more}")) from error
