"""Shards of a table: layout, configuration, initial rows, and the actor on a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.checkpoints.folder import Folder
from tfopt.errors import (
    CheckpointError,
    IndexOutOfRangeError,
    InvalidArgumentError,
    InvalidTypeError,
)
from tfopt.imports import bfloat16
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.restoration import kind_of
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import StepRequest
from tfopt.sparse_conversion import as_slices
from tfopt.variable import Variable

__all__ = [
    "Initializer",
    "SavedRows",
    "ShardConfig",
    "Shard",
    "UniformRows",
    "check_ids",
    "check_gradient_rows",
    "check_size",
    "dtype_from_name",
    "partition_edges",
    "first_rows",
    "route",
    "shard_config",
]

_TABLE = "table"  # the variable's name in a state dictionary


class SavedRows(NamedTuple):
    """A file of a saved table, and its rows."""

    file: str
    start: int
    stop: int


class Shard:
    """Consecutive rows of a table with their own optimizer: a Dask actor.

    Parameters
    ----------
    config : ShardConfig
    start, stop : int
        The range of rows, `stop` excluded.
    """

    def __init__(self, config: ShardConfig, start: int, stop: int) -> None:
        rows = first_rows(config.initializer, start, stop, config.width, config.dtype)
        self._variable = Variable(rows, config.name)
        self._optimizer = config.optimizer.from_config(config.optimizer_config)
        if not config.decays:
            self._optimizer.exclude_from_weight_decay([self._variable])
        self._start, self._stop = start, stop
        self._prepared: PreparedStep | None = None

    def answer(self, method: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """Call a method and return its errors, so that a missing answer means a lost worker."""
        try:
            return getattr(self, method)(*arguments), None
        except Exception as error:
            return None, error

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return copies of rows, numbered from the shard's first."""
        self._optimizer.catch_up(self._variable, rows)
        gathered: np.ndarray = self._variable.numpy()[rows]
        return gathered

    def prepare(self, rows: np.ndarray, values: np.ndarray) -> int:
        """Check and prepare a step for `commit`; return the number of steps so far."""
        self._prepared = None
        # kernels need aligned arrays; those from a message may not be
        gradients = (IndexedSlices(np.require(values, None, "A"), np.require(rows, None, "A")),)
        self._prepared = self._optimizer.prepare(StepRequest(gradients, (self._variable,)))
        return self.steps()

    def commit(self) -> int:
        """Take the prepared step."""
        assert self._prepared is not None
        step, self._prepared = self._prepared, None
        step.carry_out()
        return self.steps()

    def steps(self) -> int:
        """Return the number of steps taken."""
        return int(self._optimizer.iterations)

    def save(self, folder: str, file: str) -> None:
        """Write the rows and the optimizer's state, after all pending updates of rows."""
        self._optimizer.flush()
        state = self._optimizer.state_dict({_TABLE: self._variable})
        tree = {"start": self._start, "rows": self._variable.numpy(), "optimizer": state}
        Folder(folder).save(file, tree)

    def load(self, folder: str, pieces: list[SavedRows]) -> None:
        """Load rows and state from files that together contain all rows of this shard."""
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

    def _take(self, ours: np.ndarray, theirs: np.ndarray, piece: SavedRows) -> None:
        low, high = max(self._start, piece.start), min(self._stop, piece.stop)
        ours[low - self._start : high - self._start] = theirs[
            low - piece.start : high - piece.start
        ]


class ShardConfig(NamedTuple):
    """The common properties of all shards of a table."""

    name: str
    width: int
    dtype: np.dtype[Any]
    initializer: Initializer
    optimizer: type[Any]
    optimizer_config: dict[str, Any]
    decays: bool


def check_size(what: str, number: Any, most: int | None = None) -> int:
    """Check a number of rows, columns or shards.

    Raises
    ------
    InvalidTypeError
        If it is no integer.
    InvalidArgumentError
        If it is below 1, or above the limit.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise InvalidTypeError(f"{what} must be an integer, not {number!r}")
    if number < 1 or (most is not None and number > most):
        limit = "" if most is None else f" and at most {most}"
        raise InvalidArgumentError(f"{what} must be at least 1{limit}, not {number}")
    return int(number)


def dtype_from_name(name: str) -> Any:
    """Return the dtype of a name."""
    if name != "bfloat16":
        return name
    return bfloat16()


def shard_config(
    optimizer: Any, name: str, width: int, dtype: np.dtype[Any], initializer: Initializer
) -> ShardConfig:
    """Return the configuration of shards; refuse optimizers that shards do not support."""
    if not isinstance(optimizer, RuleOptimizer):
        raise InvalidTypeError(
            "the optimizer must be one of tfopt.optimizers whose step is a rule of the "
            f"table, not {type(optimizer).__name__}"
        )
    if optimizer.clipnorm is not None or optimizer.global_clipnorm is not None:
        raise InvalidArgumentError(
            "clipping by norm needs all rows, and each part of a table has some only"
        )
    if optimizer.gradient_aggregator is not None or optimizer.gradient_transformers:
        raise InvalidArgumentError(
            "a gradient_aggregator or gradient_transformers cannot be sent to workers"
        )
    if optimizer.stochastic_rounding is not None:
        raise InvalidArgumentError(
            "stochastic_rounding needs the place of a row in the table, which a part does not know"
        )
    if int(optimizer.iterations):
        raise InvalidArgumentError("the optimizer has already taken steps")
    optimizer_config = optimizer._saved_config()
    if optimizer_config["learning_rate"] is None:
        raise InvalidArgumentError("a learning rate that is a function must be a schedule")
    decays = Variable(np.empty((0, width), dtype), name) not in optimizer._exclusion
    return ShardConfig(name, width, dtype, initializer, type(optimizer), optimizer_config, decays)


Initializer: TypeAlias = float | Callable[[int, int, int], Any]

_BLOCK = 1024  # rows that share a generator
_MOST = 1 << 16  # rows per call of the initializer


@dataclass(frozen=True)
class UniformRows:
    """Random rows that depend on their numbers and a seed, not on the shards.

    Parameters
    ----------
    low, high : float
        The bounds of the values.
    seed : int, default 0
        At least 0, and below 2**64.

    Raises
    ------
    InvalidArgumentError
        If the seed is out of range.

    Notes
    -----
    Each block of 1024 rows has a Philox generator, whose key is the seed and the block's number.

    Examples
    --------
    >>> from tfopt.dask import UniformRows
    >>> rows = UniformRows(seed=7)
    >>> bool((rows(0, 2000, 3)[1500:] == rows(1500, 2000, 3)).all())
    True
    """

    low: float = -0.05
    high: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise InvalidArgumentError(f"seed must be at least 0 and below 2**64, not {self.seed}")

    def __call__(self, start: int, stop: int, width: int) -> np.ndarray:
        """Return rows from `start` to before `stop`, float64."""
        first = start // _BLOCK
        blocks = [self._block(number, width) for number in range(first, -(-stop // _BLOCK))]
        together = np.concatenate(blocks) if blocks else np.empty((0, width))
        return together[start - first * _BLOCK : stop - first * _BLOCK]

    def _block(self, number: int, width: int) -> np.ndarray:
        key = np.array([self.seed, number], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        return generator.uniform(self.low, self.high, (_BLOCK, width))


def first_rows(
    initializer: Initializer, start: int, stop: int, width: int, dtype: np.dtype[Any]
) -> np.ndarray:
    """Return the initial rows of a shard.

    Raises
    ------
    InvalidArgumentError
        If a function returns another shape than that of the rows it is asked for.
    """
    if not callable(initializer):
        return np.full((stop - start, width), initializer, dtype)
    rows = np.empty((stop - start, width), dtype)
    for low in range(start, stop, _MOST):
        high = min(low + _MOST, stop)
        made = np.asarray(initializer(low, high, width))
        if made.shape != (high - low, width):
            raise InvalidArgumentError(
                f"the initializer returned shape {list(made.shape)} for rows {low} to {high} of "
                f"width {width}"
            )
        rows[low - start : high - start] = made
    return rows


def partition_edges(rows: int, shards: int) -> np.ndarray:
    """Return the boundaries of the shards: shard k has the rows from edge k to edge k + 1."""
    return np.array([rows * k // shards for k in range(shards + 1)], np.int64)


def route(ids: np.ndarray, edges: np.ndarray) -> list[np.ndarray]:
    """Return for each shard the positions of its ids, in order."""
    part = np.searchsorted(edges[1:], ids, side="right")
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, len(edges) - 1)))


def check_ids(ids: Any, rows: int) -> np.ndarray:
    """Check that ids are rows of a table, and return them as an array.

    Raises
    ------
    InvalidTypeError
        If they are not int32 or int64.
    IndexOutOfRangeError
        If one is out of range; the message names it.
    """
    array = np.asarray(ids)
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)
    if array.dtype not in (np.int32, np.int64):
        raise InvalidTypeError(f"ids must be int32 or int64, not {array.dtype}")
    outside = (array < 0) | (array >= rows)
    if outside.any():
        place = int(np.argmax(outside))
        raise IndexOutOfRangeError(
            f"ids[{place}] = {array.reshape(-1)[place]} is not in [0, {rows})"
        )
    return array


def check_gradient_rows(slices: Any, rows: int, width: int) -> IndexedSlices:
    """Check the gradient of a table; the optimizer checks its dtype.

    Raises
    ------
    InvalidTypeError
        If it is not `IndexedSlices`, or the indices are neither int32 nor int64.
    InvalidArgumentError
        If shapes do not fit, or an index is out of range.
    """
    slices = as_slices(slices)
    if not isinstance(slices, IndexedSlices):
        raise InvalidTypeError(
            f"the gradient of a table is IndexedSlices, not {type(slices).__name__}"
        )
    indices = check_ids(slices.indices, rows)
    if indices.ndim != 1:
        raise InvalidArgumentError(f"indices must be one-dimensional: {list(indices.shape)}")
    values = np.asarray(slices.values)
    if values.shape != (indices.size, width):
        raise InvalidArgumentError(
            f"values must have shape {[indices.size, width]}, not {list(values.shape)}"
        )
    return IndexedSlices(values, indices)
