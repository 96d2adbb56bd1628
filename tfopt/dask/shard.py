"""One part of a table, on the worker that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfopt.dask.files import Folder
from tfopt.dask.initial import first_rows
from tfopt.dask.settings import Settings
from tfopt.errors import CheckpointError
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.base.state_parts import kind_of
from tfopt.optimizers.execution.route import DIRECT
from tfopt.variable import Variable

__all__ = ["Piece", "Shard"]

_TABLE = "table"  # the variable's name in a state dictionary


class Piece(NamedTuple):
    """A file with rows of a saved table."""

    file: str
    start: int
    stop: int


class Shard:
    """Consecutive rows of a table, and an optimizer of their own.

    Parameters
    ----------
    settings : Settings
    start, stop : int
        The rows: from the first, to before the second.
    """

    def __init__(self, settings: Settings, start: int, stop: int) -> None:
        rows = first_rows(settings.initializer, start, stop, settings.width, settings.dtype)
        self._variable = Variable(rows, settings.name)
        self._optimizer = settings.optimizer.from_config(settings.config)
        if not settings.decays:
            self._optimizer.exclude_from_weight_decay([self._variable])
        self._start, self._stop = start, stop
        self._commit: Callable[[], None] | None = None

    def answer(self, method: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """Call a method; an error is an answer, so that no answer means that the worker is gone."""
        try:
            return getattr(self, method)(*arguments), None
        except Exception as error:
            return None, error

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return copies of rows, numbered from the part's first."""
        self._optimizer.catch_up(self._variable, rows)
        gathered: np.ndarray = self._variable.numpy()[rows]
        return gathered

    def prepare(self, rows: np.ndarray, values: np.ndarray) -> int:
        """Check a step and keep it for `commit`; return the number of steps taken so far."""
        self._commit = None
        # kernels need aligned arrays, and one from a message may lie anywhere in it
        gradients = (IndexedSlices(np.require(values, None, "A"), np.require(rows, None, "A")),)
        self._commit = self._optimizer._prepared(gradients, (self._variable,), DIRECT)
        return self.steps()

    def commit(self) -> int:
        """Take the step that was prepared."""
        assert self._commit is not None
        commit, self._commit = self._commit, None
        commit()
        return self.steps()

    def steps(self) -> int:
        """Return the number of steps taken."""
        return int(self._optimizer.iterations)

    def save(self, folder: str, file: str) -> None:
        """Write the rows and the optimizer's state; no row owes a step then."""
        self._optimizer.flush()
        state = self._optimizer.state_dict({_TABLE: self._variable})
        tree = {"start": self._start, "rows": self._variable.numpy(), "optimizer": state}
        Folder(folder).save(file, tree)

    def load(self, folder: str, pieces: list[Piece]) -> None:
        """Take rows and state from files that have all of the rows, and maybe others."""
        slots: dict[str, np.ndarray] = {}
        state: dict[str, Any] = {}
        for piece in pieces:
            tree = Folder(folder).load(piece.file)
            state = tree["optimizer"]
            if tree["start"] != piece.start or len(tree["rows"]) != piece.stop - piece.start:
                raise CheckpointError(f"{piece.file} does not have the rows it is listed with")
            self._take(self._variable.numpy(), tree["rows"], piece)
            for name, array in state["slots"].get(_TABLE, {}).items():
                whole = slots.setdefault(name, np.empty(self._variable.shape, array.dtype))
                self._take(whole, array, piece)
        state["slots"] = {_TABLE: slots} if slots else {}
        state["variables"] = {_TABLE: kind_of(self._variable)}
        self._optimizer.load_state_dict(state, {_TABLE: self._variable})

    def _take(self, ours: np.ndarray, theirs: np.ndarray, piece: Piece) -> None:
        low, high = max(self._start, piece.start), min(self._stop, piece.stop)
        ours[low - self._start : high - self._start] = theirs[
            low - piece.start : high - piece.start
        ]
