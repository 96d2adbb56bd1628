"""Tables whose rows lie on the workers of a cluster."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from distributed import Client, get_client

from tfopt.dask.files import MANIFEST, Folder
from tfopt.dask.initial import Initializer
from tfopt.dask.routing import checked_ids, checked_rows, edges_of, route
from tfopt.dask.settings import checked_size, dtype_of, settings_of
from tfopt.dask.shard import Piece, Shard
from tfopt.errors import CheckpointError
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.serialization import deserialize

__all__ = ["LostShardError", "ShardedVariable"]

_FORMAT, _VERSION = "tfopt sharded table", 1
_PATIENCE = 1.0  # seconds after which is looked whether a worker that does not answer lives


class LostShardError(RuntimeError):
    """A worker is gone, and with it the rows of a table that it had."""


class ShardedVariable:
    """A table in parts of consecutive rows, each in the memory of one worker of a Dask cluster.

    Each part is a Dask actor with its rows, its slots and an optimizer of its own. No process has
    the whole table.

    Parameters
    ----------
    rows, width : int
        The table's shape.
    optimizer : Optimizer
        One of the table of rules (Adam, Ftrl, SGD and so on) that has taken no step. Each part
        gets one like it; this one is left alone.
    dtype : dtype, default float32
    initializer : float or callable, default 0.0
        The first values: one for all, or a function ``initializer(start, stop, width)`` that
        returns the rows from `start` to before `stop`, for instance `UniformRows`.
    shards : int, optional
        The number of parts. As many as there are workers by default.
    name : str, default "ShardedVariable"
    client : distributed.Client, optional
        The current one by default.

    Raises
    ------
    InvalidTypeError
        If `optimizer` is not one of the table, or a number is no integer.
    InvalidArgumentError
        If it clips by norms, has hooks (`gradient_aggregator`, `gradient_transformers`) or a
        function as its learning rate, or has taken steps; or if a number does not fit.
    ValueError
        If there is no client.

    Notes
    -----
    Whatever the number of parts and workers, rows and slots have the bits of one table's that gets
    the same calls, in all modes of `sparse`. Each step is one of every part, also of those it has
    no rows for, so that bias corrections go on and moments decay as they do in one table.
    Norms would be those of parts, which is why clipping by them is refused.

    What a dead worker had is lost, for it was the result of all steps before. The next call raises
    `LostShardError`; `load` brings back what was last saved.

    Sent to a task, a table can be read there, by `gather`.

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
        client = get_client() if client is None else client
        workers = sorted(client.nthreads())
        rows, width = checked_size("rows", rows), checked_size("width", width)
        parts = checked_size("shards", min(len(workers), rows) if shards is None else shards, rows)
        settings = settings_of(optimizer, name, width, np.dtype(dtype), initializer)
        self.name = name
        self.shape = (rows, width)
        self.dtype = settings.dtype
        self._settings = settings
        self._edges = edges_of(rows, parts)
        self._lock = threading.Lock()
        self._futures = [
            client.submit(
                Shard,
                settings,
                start,
                stop,
                actor=True,
                pure=False,
                workers=[workers[k * len(workers) // parts]],
            )
            for k, (start, stop) in enumerate(self._bounds())
        ]
        self._shards = [future.result() for future in self._futures]

    # ---- reading and training

    def gather(self, ids: Any) -> np.ndarray:
        """Return copies of rows.

        Parameters
        ----------
        ids : array_like of int32 or int64, of any shape
            Repeated ones are taken repeatedly.

        Returns
        -------
        ndarray, of the shape of `ids` and one more dimension, the width

        Raises
        ------
        InvalidTypeError
            If the ids are not integers.
        IndexOutOfRangeError
            If the table does not have one of them, which is named.
        LostShardError
            If a worker with some of the rows is gone.

        Notes
        -----
        Rows are those after whole steps; while a step is being taken elsewhere, those of some parts
        may be those after, and of others those before it.
        """
        array = checked_ids(ids, self.shape[0])
        flat = array.reshape(-1)
        places = route(flat, self._edges)
        named = [k for k, own in enumerate(places) if own.size]
        answers = self._ask("gather", [(k, flat[places[k]] - self._edges[k]) for k in named])
        gathered = np.empty((flat.size, self.shape[1]), self.dtype)
        for k, rows in zip(named, answers, strict=True):
            gathered[places[k]] = rows
        return gathered.reshape(*array.shape, self.shape[1])

    def apply_gradients(self, slices: Any) -> int:
        """Take one step by gradients of some rows.

        All parts check their rows before any part is updated, so a refused call changes nothing.

        Parameters
        ----------
        slices : IndexedSlices
            Indices int32 or int64 of shape (n,), values of the table's dtype and shape (n, width).
            Rows of one index count in the order they come in. Sparse matrices and arrays of scipy's
            are taken, too.

        Returns
        -------
        int
            The number of steps taken.

        Raises
        ------
        InvalidTypeError
            If it is not `IndexedSlices`, or of another dtype.
        IndexOutOfRangeError
            If the table does not have a row, which is named.
        InvalidArgumentError
            If shapes do not fit.
        LostShardError
            If a worker is gone. Others may have taken the step: `load` the table.
        """
        given = checked_rows(slices, *self.shape)
        places = route(given.indices, self._edges)
        calls = [
            (k, given.indices[own] - self._edges[k], given.values[own])
            for k, own in enumerate(places)
        ]
        with self._alone():
            before = self._ask("prepare", calls)
            if len(set(before)) > 1:
                raise LostShardError(
                    f"parts of {self.name} have taken {min(before)} to {max(before)} steps, for a "
                    "call was broken off: load what was last saved"
                )
            steps: int = self._ask("commit", self._everyone())[0]
        return steps

    @property
    def iterations(self) -> int:
        """The number of steps taken."""
        steps: int = self._ask("steps", [(0,)])[0]
        return steps

    @property
    def shards(self) -> int:
        """The number of parts."""
        return len(self._shards)

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table and the optimizers' state: each worker its parts, one file for each.

        Parameters
        ----------
        path : path-like or str
            A folder that all workers see, or what fsspec takes, as ``s3://bucket/folder``. What was
            saved there before counts until all of the new files are written; then it is removed.
            Nothing else may be saved in it.

        Raises
        ------
        OSError
            If a file cannot be written. What was saved before is as it was.
        LostShardError
            If a worker is gone.
        """
        folder = Folder(os.fspath(path))
        folder.make()
        token = secrets.token_hex(4)
        pieces = [Piece(f"rows-{a}-{b}-{token}.npz", a, b) for a, b in self._bounds()]
        with self._alone():
            self._ask("save", [(k, folder.url, piece.file) for k, piece in enumerate(pieces)])
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
                    "class_name": self._settings.optimizer.__name__,
                    "config": self._settings.config,
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
        """Return a table as it was saved; steps go on from there, bit for bit.

        Parameters
        ----------
        path : path-like or str
            As in `save`.
        optimizer : Optimizer, optional
            Needed for a class of your own; it gets the saved settings and state.
        shards : int, optional
            The number of parts, which need not be that of the saved table. A worker then reads each
            file that has some of its rows, one after another.
        client : distributed.Client, optional
            The current one by default.

        Raises
        ------
        CheckpointError
            If nothing was saved there, or a file is damaged or missing.
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
            dtype=dtype_of(manifest["dtype"]),
            shards=shards,
            name=manifest["name"],
            client=client,
        )
        pieces = [Piece(**entry) for entry in manifest["files"]]
        wanted = [
            [piece for piece in pieces if piece.start < b and a < piece.stop]
            for a, b in table._bounds()
        ]
        table._ask("load", [(k, folder.url, own) for k, own in enumerate(wanted)])
        return table

    def close(self) -> None:
        """Give the workers' memory back. The table cannot be used any more."""
        self._shards.clear()
        for future in self._futures:
            future.release()

    # ---- the parts

    def _bounds(self) -> list[tuple[int, int]]:
        return list(zip(self._edges[:-1].tolist(), self._edges[1:].tolist(), strict=True))

    def _everyone(self) -> list[tuple[int]]:
        return [(k,) for k in range(self.shards)]

    def _ask(self, method: str, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a method of parts at once, and wait for all, so that none goes on after an error."""
        asked = [(k, self._asked(k, method, arguments)) for k, *arguments in calls]
        answers = [self._answer(k, future) for k, future in asked]
        for _, error in answers:
            if error is not None:
                raise error
        return [answer for answer, _ in answers]

    def _asked(self, k: int, method: str, arguments: list[Any]) -> Any:
        if not self._shards:
            raise RuntimeError(f"{self.name} has been closed")
        try:
            return self._shards[k].answer(method, *arguments)
        except Exception as error:
            raise self._lost(k) from error

    def _answer(self, k: int, future: Any) -> tuple[Any, Exception | None]:
        while True:
            try:
                answer: tuple[Any, Exception | None] = future.result(timeout=_PATIENCE)
                return answer
            except Exception as error:
                # Dask may leave a call for ever without an answer whose worker dies in it
                if isinstance(error, TimeoutError) and self._is_there(k):
                    continue
                lost = self._lost(k)
                lost.__cause__ = error
                return None, lost

    def _is_there(self, k: int) -> bool:
        """Whether a part's worker lives, as far as is known: a task is told by its connection."""
        return not self._futures or self._futures[k].status == "finished"

    def _lost(self, k: int) -> LostShardError:
        start, stop = self._edges[k], self._edges[k + 1]
        return LostShardError(
            f"rows {start} to {stop - 1} of {self.name} were lost with their worker: load what was "
            "last saved"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads from taking or saving a step; other processes may not at all."""
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
