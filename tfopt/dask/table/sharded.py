"""Tables whose rows are distributed over the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from distributed import Client

from tfopt.checkpoints.folder import MANIFEST, Folder
from tfopt.dask.cluster import current_client, gathered
from tfopt.dask.table.shard import (
    Initializer,
    SavedRows,
    Shard,
    check_gradient_rows,
    check_ids,
    check_size,
    dtype_from_name,
    partition_edges,
    route,
    shard_config,
)
from tfopt.errors import CheckpointError
from tfopt.optimizers.base.optimizer_v2 import Optimizer
from tfopt.optimizers.state.config import deserialize

__all__ = ["LostShardError", "ShardedVariable"]

_FORMAT, _VERSION = "tfopt sharded table", 1
_PATIENCE = 1.0  # seconds between checks whether a silent worker is alive


class LostShardError(RuntimeError):
    """A worker was lost, and with it its rows of a table."""


class ShardedVariable:
    """A table whose rows are distributed over the workers of a Dask cluster.

    Each shard is a Dask actor with consecutive rows, their slots and an optimizer of its own. No
    process holds the whole table.

    Parameters
    ----------
    rows, width : int
        The table's shape.
    optimizer : Optimizer
        An optimizer with a rule in the table (Adam, Ftrl, SGD and so on) that has not taken a step.
        Each shard gets a copy; this object is not changed.
    dtype : dtype, default float32
    initializer : float or callable, default 0.0
        The initial values: a constant, or a function ``initializer(start, stop, width)`` that
        returns the rows from `start` to before `stop`, for instance `UniformRows`.
    shards : int, optional
        The number of shards; by default the number of workers.
    name : str, default "ShardedVariable"
    client : distributed.Client, optional
        The current one by default.

    Raises
    ------
    InvalidTypeError
        If `optimizer` has no rule in the table, or a number is not an integer.
    InvalidArgumentError
        If the optimizer clips by norms, has hooks (`gradient_aggregator`, `gradient_transformers`)
        or a function as its learning rate, or has taken steps; or if a number is out of range.
    ValueError
        If there is no client.

    Notes
    -----
    Rows and slots equal, bit for bit, those of an undivided table after the same calls, for any
    number of shards and workers, and in all modes of `sparse`. Every shard takes every step, even
    without rows in it, so that bias corrections and decaying moments are those of an undivided
    table. Clipping by norm is not supported: a shard knows only the norm of its own rows.

    The rows of a lost worker cannot be recomputed: the next call raises `LostShardError`, and
    `load` restores what was saved last.

    A table that is passed to a task can be read there with `gather`.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from tfopt import IndexedSlices
    >>> from tfopt.dask import ShardedVariable
    >>> from tfopt.optimizers import SGD
    >>> with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
    ...     table = ShardedVariable(1000, 2, SGD(0.5), shards=3)
    ...     steps = table.apply_gradients(IndexedSlices(np.ones((2, 2), np.float32), [7, 999]))
    ...     table.gather([[7, 8], [999, 999]])[..., 0]
    array([[-0.5,  0. ],
           [-0.5, -0.5]], dtype=float32)
    """

    def __init__(
        self,
        rows: int,
        width: int,
        optimizer: Optimizer,
        *,
        dtype: Any = np.float32,
        initializer: Initializer = 0.0,
        shards: int | None = None,
        name: str = "ShardedVariable",
        client: Client | None = None,
    ) -> None:
        client = current_client() if client is None else client
        workers = sorted(client.nthreads())
        rows, width = check_size("rows", rows), check_size("width", width)
        parts = check_size("shards", min(len(workers), rows) if shards is None else shards, rows)
        config = shard_config(optimizer, name, width, np.dtype(dtype), initializer)
        self.name = name
        self.shape = (rows, width)
        self.dtype = config.dtype
        self._config = config
        self._edges = partition_edges(rows, parts)
        self._lock = threading.Lock()
        self._futures = [
            client.submit(
                Shard,
                config,
                start,
                stop,
                actor=True,
                pure=False,
                workers=[workers[k * len(workers) // parts]],
            )
            for k, (start, stop) in enumerate(self._bounds())
        ]
        self._shards = client.sync(gathered, client, self._futures)

    # ---- reading and training

    def gather(self, ids: Any) -> np.ndarray:
        """Return copies of rows.

        Parameters
        ----------
        ids : array_like of int32 or int64, of any shape
            May contain duplicates.

        Returns
        -------
        ndarray, of the shape of `ids` and one more dimension, the width

        Raises
        ------
        InvalidTypeError
            If the ids are not integers.
        IndexOutOfRangeError
            If one is out of range; the message names it.
        LostShardError
            If a worker with some of the rows was lost.

        Notes
        -----
        Each row is read between steps; but while another process takes a step, some shards may be
        read before it and others after it.
        """
        array = check_ids(ids, self.shape[0])
        flat = array.reshape(-1)
        places = route(flat, self._edges)
        named = [k for k, own in enumerate(places) if own.size]
        answers = self._call("gather", [(k, flat[places[k]] - self._edges[k]) for k in named])
        gathered = np.empty((flat.size, self.shape[1]), self.dtype)
        for k, rows in zip(named, answers, strict=True):
            gathered[places[k]] = rows
        return gathered.reshape(*array.shape, self.shape[1])

    def apply_gradients(self, slices: Any) -> int:
        """Take one step by gradients of some rows.

        All shards check their rows before any of them is updated, so a call that raises changes
        nothing.

        Parameters
        ----------
        slices : IndexedSlices
            Indices of dtype int32 or int64 and shape (n,), values of the table's dtype and shape
            (n, width). Rows with the same index are applied in order. SciPy sparse matrices and
            arrays are accepted, too.

        Returns
        -------
        int
            The number of steps taken.

        Raises
        ------
        InvalidTypeError
            If it is not `IndexedSlices`, or of another dtype.
        IndexOutOfRangeError
            If an index is out of range; the message names it.
        InvalidArgumentError
            If shapes do not match.
        LostShardError
            If a worker was lost. Others may have taken the step: `load` the table.
        """
        gradients = check_gradient_rows(slices, *self.shape)
        places = route(gradients.indices, self._edges)
        calls = [
            (k, gradients.indices[own] - self._edges[k], gradients.values[own])
            for k, own in enumerate(places)
        ]
        with self._exclusive():
            before = self._call("prepare", calls)
            if len(set(before)) > 1:
                raise LostShardError(
                    f"parts of {self.name} have taken {min(before)} to {max(before)} steps, for a "
                    "call was broken off: load what was last saved"
                )
            steps: int = self._call("commit", self._all_shards())[0]
        return steps

    @property
    def iterations(self) -> int:
        """The number of steps taken."""
        steps: int = self._call("steps", [(0,)])[0]
        return steps

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._shards)

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the table and the optimizers' state: each shard is written by its worker.

        Parameters
        ----------
        path : path-like or str
            A folder that all workers can access, or a URL that fsspec understands, such as
            ``s3://bucket/folder``. A table that was saved there before stays valid until all of the
            new files are written, and is then removed. Nothing else may be saved in the folder.

        Raises
        ------
        OSError
            If a file cannot be written. The table that was saved before is unchanged.
        LostShardError
            If a worker was lost.
        """
        folder = Folder(os.fspath(path))
        folder.make()
        token = secrets.token_hex(4)
        pieces = [SavedRows(f"rows-{a}-{b}-{token}.npz", a, b) for a, b in self._bounds()]
        with self._exclusive():
            self._call("save", [(k, folder.url, piece.file) for k, piece in enumerate(pieces)])
        rows, width = self.shape
        folder.save(
            MANIFEST,
            {
                "format": _FORMAT,
                "version": _VERSION,
                "name": self.name,
                "rows": rows,
                "width": width,
                "dtype": self.dtype.name,
                "optimizer": {
                    "class_name": self._config.optimizer.__name__,
                    "config": self._config.optimizer_config,
                },
                "files": [piece._asdict() for piece in pieces],
            },
        )
        folder.keep_only({piece.file for piece in pieces}, "rows-")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        optimizer: Optimizer | None = None,
        *,
        shards: int | None = None,
        client: Client | None = None,
    ) -> ShardedVariable:
        """Load a saved table; training continues bit for bit.

        Parameters
        ----------
        path : path-like or str
            As in `save`.
        optimizer : Optimizer, optional
            Needed for a class of your own; it gets the saved settings and state.
        shards : int, optional
            The number of shards, which may differ from that of the saved table: workers then read
            each file that has some of their rows, one after another.
        client : distributed.Client, optional
            The current one by default.

        Raises
        ------
        CheckpointError
            If there is no saved table, or a file is damaged or missing.
        InvalidArgumentError
            If the optimizer is of another class.
        """
        folder = Folder(os.fspath(path))
        manifest = folder.load(MANIFEST)
        if manifest.get("format") != _FORMAT or manifest.get("version") != _VERSION:
            raise CheckpointError(f"{folder.url} is not a table of version {_VERSION}")
        made = deserialize(manifest["optimizer"]) if optimizer is None else optimizer
        table = cls(
            manifest["rows"],
            manifest["width"],
            made,
            dtype=dtype_from_name(manifest["dtype"]),
            shards=shards,
            name=manifest["name"],
            client=client,
        )
        pieces = [SavedRows(**entry) for entry in manifest["files"]]
        wanted = [
            [piece for piece in pieces if piece.start < b and a < piece.stop]
            for a, b in table._bounds()
        ]
        table._call("load", [(k, folder.url, own) for k, own in enumerate(wanted)])
        return table

    def close(self) -> None:
        """Free the workers' memory. The table cannot be used any more."""
        self._shards.clear()
        for future in self._futures:
            future.release()

    # ---- calls of the shards

    def _bounds(self) -> list[tuple[int, int]]:
        return list(zip(self._edges[:-1].tolist(), self._edges[1:].tolist(), strict=True))

    def _all_shards(self) -> list[tuple[int]]:
        return [(k,) for k in range(self.shards)]

    def _call(self, method: str, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a method of several shards at once; wait for all of them, also after an error."""
        pending = [(k, self._send(k, method, arguments)) for k, *arguments in calls]
        answers = [self._receive(k, future) for k, future in pending]
        for _, error in answers:
            if error is not None:
                raise error
        return [answer for answer, _ in answers]

    def _send(self, k: int, method: str, arguments: list[Any]) -> Any:
        if not self._shards:
            raise RuntimeError(f"{self.name} has been closed")
        try:
            return self._shards[k].answer(method, *arguments)
        except Exception as error:
            raise self._lost(k) from error

    def _receive(self, k: int, future: Any) -> tuple[Any, Exception | None]:
        while True:
            try:
                answer: tuple[Any, Exception | None] = future.result(timeout=_PATIENCE)
                return answer
            except Exception as error:
                # Dask may never answer a call whose worker died during it
                if isinstance(error, TimeoutError) and self._is_there(k):
                    continue
                lost = self._lost(k)
                lost.__cause__ = error
                return None, lost

    def _is_there(self, k: int) -> bool:
        """Whether the worker of a shard is alive; in a task, a broken connection would tell."""
        return not self._futures or self._futures[k].status == "finished"

    def _lost(self, k: int) -> LostShardError:
        start, stop = self._edges[k], self._edges[k + 1]
        return LostShardError(
            f"rows {start} to {stop - 1} of {self.name} were lost with their worker: load what was "
            "last saved"
        )

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other threads while a step is taken or saved; other processes may do neither."""
        if self._lock is None:
            raise RuntimeError(f"{self.name} is trained and saved where it was made")
        with self._lock:
            yield

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_futures": []}

    def __repr__(self) -> str:
        return (
            f"<ShardedVariable {self.name!r} shape={self.shape} dtype={self.dtype} "
            f"shards={self.shards}>"
        )
