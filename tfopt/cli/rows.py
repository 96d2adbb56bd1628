"""Labelled rows of a file or folder, held in this process or on a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tfopt import linear_model
from tfopt.cli.data import Data, Layout, targets
from tfopt.cli.metrics import evaluated
from tfopt.cli.options import FILES
from tfopt.cli.settings import Settings
from tfopt.linear_model._blocks.execution import Executor, ThreadExecutor, recovered
from tfopt.linear_model._fit.reductions import tree_reduce
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.stored_model import Columns, StoredModel
from tfopt.linear_model.table_facts import Facts


class Place:
    """Where rows are held and models are fitted: this process."""

    #: Whether rows of a folder stay where an executor holds them.
    is_elsewhere = False

    def executor(self) -> Executor:
        """Return an executor for the files of a folder."""
        return ThreadExecutor()

    def errors(self) -> contextlib.AbstractContextManager[object]:
        """Return a context that converts the place's errors to one line."""
        return contextlib.nullcontext()

    def fit(
        self,
        name: str,
        options: dict[str, Any],
        train: Rows,
        classes: tuple[float, ...] | None,
        settings: Settings,
        lengths: list[int] | None,
    ) -> Any:
        """Return a fitted estimator, given the name of its class and its parameters.

        `lengths` are the sizes of the blocks to be fitted; None: all rows at once.
        """
        parts = train.map(examples_of, classes, settings.bias_feature)
        features, y, weights, offset = (_joined(column) for column in zip(*parts, strict=True))
        if offset is not None and classes is not None and len(classes) > 2:
            raise ValueError("--offset is for two classes, or for numbers")
        estimator = getattr(linear_model, name)(num_loss_partitions=lengths, n_jobs=-1, **options)
        used, n_features = None, features.shape[1]
        if sparse.issparse(features) and features.nnz < n_features and lengths is None:
            # a fit needs memory for each feature, and weights of those that do not occur are 0
            used, columns = np.unique(features.indices, return_inverse=True)
            arrays = features.data, columns, features.indptr
            features = sparse.csr_matrix(arrays, (features.shape[0], max(used.size, 1)))
        estimator.fit(features, y, weights, offset=offset)
        if used is not None:
            coef = np.atleast_2d(estimator.coef_)
            estimator.coef_ = np.zeros((len(coef), n_features))
            estimator.coef_[:, used] = coef[:, : used.size]
        return estimator


def _joined(parts: Sequence[Any]) -> Any:
    """Return arrays or matrices of successive rows as one; None if all are."""
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


class Blocks:
    """The files of a folder as the blocks of an executor; a view converts them when they are used.

    Parameters
    ----------
    place : Place
    load : callable
        Takes a number and a source; returns the block that the executor holds.
    sources : list of tuple
    """

    def __init__(
        self, place: Place, load: Callable[..., Any], sources: list[tuple[Any, ...]]
    ) -> None:
        self.place, self.load, self.sources = place, load, sources
        self.executor = place.executor()
        self.view: Callable[[Any], Any] | None = None
        self.are_loaded = False

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Apply a function to each block as the view shows it; load lost blocks again."""

        def attempt() -> list[Any]:
            if not self.are_loaded:
                self.executor.persist(self.load, self.sources)
            self.are_loaded = False
            values = self.executor.map(_Viewed(self.view, function), arguments)
            self.are_loaded = True
            return values

        with self.place.errors():
            return recovered(attempt)


@dataclasses.dataclass(frozen=True)
class _Viewed:
    """A function of blocks as a view shows them."""

    view: Callable[[Any], Any] | None
    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, block: Any, arguments: tuple[Any, ...]) -> Any:
        return self.function(block if self.view is None else self.view(block), *arguments)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Facts about a block without its rows; `labels` are all labels, or the distinct ones.

    `facts` are those of a table of training data.
    """

    n_rows: int
    n_features: int
    n_values: int
    zero_based: bool
    total_weight: float
    is_weighted: bool
    label_sum: float
    n_skipped: int
    columns: Columns | None
    labels: np.ndarray = dataclasses.field(compare=False)
    fingerprint: str = ""
    facts: tuple[Facts, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rows:
    """Labelled rows in blocks, for a fit and its report.

    Attributes
    ----------
    name : str
        In messages.
    blocks : list of Data, or Blocks
        All have the same `n_features`, `zero_based` and classes; `Blocks` are on a cluster.
    summaries : list of Summary
        One for each block, as its file has it.
    n_features : int
    zero_based : bool
    columns : Columns or None
        Of tables.
    labels : ndarray
        All labels; for classes in blocks, the distinct ones.
    n_skipped : int
        Malformed lines that were left out.
    """

    name: str
    blocks: list[Data] | Blocks
    summaries: list[Summary]
    n_features: int
    zero_based: bool
    columns: Columns | None
    labels: np.ndarray
    n_skipped: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of rows of the blocks."""
        return tuple(summary.n_rows for summary in self.summaries)

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @property
    def total_weight(self) -> float:
        """The number of rows, unless they have weights."""
        return sum(summary.total_weight for summary in self.summaries)

    @property
    def layout(self) -> Layout:
        return Layout(self.zero_based, self.columns)

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Apply a function to each block, where the block is."""
        if isinstance(self.blocks, Blocks):
            return self.blocks.map(function, *arguments)
        return [function(data, *arguments) for data in self.blocks]

    def fingerprint(self) -> str:
        """Return a hash of the data, without names and line numbers."""
        return hashlib.sha256("".join(self.map(Data.fingerprint)).encode()).hexdigest()

    def block_lengths(self, blocks: int | str | None) -> list[int] | None:
        """Return the sizes of the blocks to be fitted, given the option; None: no blocks.

        Rows on a cluster are in blocks already. Otherwise, unless each file is a block, sizes
        differ by at most 1, larger ones first, and none is 0.
        """
        if isinstance(self.blocks, Blocks) or blocks == FILES:
            return list(self.lengths)
        if blocks is None:
            return None
        of_each, more = divmod(self.n_rows, int(blocks))
        return [of_each + (k < more) for k in range(min(int(blocks), self.n_rows))]

    def evaluate(self, model: StoredModel) -> tuple[float, dict[str, float | None]]:
        """Return the mean loss and the scores of a model.

        If the loss is not finite, there are no scores.
        """
        found: Evaluation = tree_reduce(self.map(evaluated, model))
        return found.loss, found.scores() if math.isfinite(found.loss) else {}


# ---- functions of a block


def examples_of(
    data: Data, classes: tuple[float, ...] | None, bias: float | None
) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return features, targets, weights and offset; unless `bias` is None, add a constant."""
    X, y = data.features, targets(data, classes)
    if bias is not None:
        constant = np.full((X.shape[0], 1), bias)
        is_sparse = sparse.issparse(X)
        X = sparse.hstack([X, constant], format="csr") if is_sparse else np.hstack([X, constant])
    return X, y, data.weights, data.offset
