"""Labelled rows in blocks: of one file, or of the files of a folder.

The blocks are where an executor has them: in this process, or on a cluster.
"""

from __future__ import annotations

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
from tfopt.cli.settings import Settings
from tfopt.linear_model._solver.reductions import tree_reduce
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.stored_model import Columns, StoredModel
from tfopt.linear_model.table_facts import Facts


class Executor:
    """Holds blocks in the memory of this process, applies functions to them, and fits models."""

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Apply a function to each row of the columns and the shared arguments."""
        return [function(*row, *shared) for row in zip(*columns, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Return a large value in a form to be shared."""
        return value

    def persist(
        self, function: Callable[..., Any], values: Sequence[Any], shared: Any
    ) -> list[Any]:
        """Apply a function to each value and a shared one, once; keep the results in place."""
        return self.map(function, values, shared=(shared,))

    def gather(self, values: list[Any]) -> list[Any]:
        """Return the values of blocks."""
        return values

    def fit(
        self,
        name: str,
        options: dict[str, Any],
        train: Rows,
        classes: tuple[float, ...] | None,
        settings: Settings,
    ) -> Any:
        """Return a fitted estimator, given the name of its class and its parameters."""
        X, y, weights = train.examples(classes, settings.bias_feature)
        features = X[0]
        if len(X) > 1:
            is_sparse = sparse.issparse(features)
            features = sparse.vstack(X, format="csr") if is_sparse else np.vstack(X)
        lengths = train.block_lengths(settings.blocks)
        estimator = getattr(linear_model, name)(num_loss_partitions=lengths, n_jobs=-1, **options)
        sample_weight = None if weights is None else np.concatenate(weights)
        used, n_features = None, features.shape[1]
        if sparse.issparse(features) and features.nnz < n_features and lengths is None:
            # a fit needs memory for each feature, and weights of those that do not occur are 0
            used, columns = np.unique(features.indices, return_inverse=True)
            parts = features.data, columns, features.indptr
            features = sparse.csr_matrix(parts, (features.shape[0], max(used.size, 1)))
        estimator.fit(features, np.concatenate(y), sample_weight)
        if used is not None:
            coef = np.atleast_2d(estimator.coef_)
            estimator.coef_ = np.zeros((len(coef), n_features))
            estimator.coef_[:, used] = coef[:, : used.size]
        return estimator


@dataclasses.dataclass(frozen=True)
class Summary:
    """What is known of a block without its rows; `labels` are all, or the distinct ones.

    `facts` are of a table to train on.
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
    executor : Executor
    blocks : list
        Data as the executor holds them, all with the same `n_features`, `zero_based` and classes.
    summaries : list of Summary
        Of each block, as its file has it.
    n_features : int
    zero_based : bool
    columns : Columns or None
        Of tables.
    labels : ndarray
        All labels or, of classes in parts, the distinct ones.
    n_skipped : int
        Malformed lines that were left out.
    in_parts : bool
        Whether the rows need never be in one place: those of a folder.
    """

    name: str
    executor: Executor
    blocks: list[Any]
    summaries: list[Summary]
    n_features: int
    zero_based: bool
    columns: Columns | None
    labels: np.ndarray
    n_skipped: int
    in_parts: bool

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

    def fingerprint(self) -> str:
        """Return a hash of the data, without names and line numbers."""
        parts = self.executor.gather(self.executor.map(Data.fingerprint, self.blocks))
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def examples(
        self, classes: tuple[float, ...] | None, bias: float | None
    ) -> tuple[list[Any], list[Any], list[Any] | None]:
        """Return features, targets and weights in blocks; unless `bias` is None, add that feature.

        See `tfopt.cli.data.targets`.
        """
        parts = self.executor.map(examples_of, self.blocks, shared=(classes, bias))
        X, y, weights = ([part[k] for part in parts] for k in range(3))
        return X, y, weights if self.summaries[0].is_weighted else None

    def block_lengths(self, n_blocks: int | None) -> list[int] | None:
        """Return the sizes of the blocks to be fitted; None: no blocks.

        Rows in parts are in blocks already. Otherwise sizes differ by at most 1, larger ones first,
        and none is 0.
        """
        if self.in_parts:
            return list(self.lengths)
        if n_blocks is None:
            return None
        of_each, more = divmod(self.n_rows, n_blocks)
        return [of_each + (k < more) for k in range(min(n_blocks, self.n_rows))]

    def evaluate(self, model: StoredModel) -> tuple[float, dict[str, float | None]]:
        """Return the mean loss and the scores of a model.

        If the loss is not finite, there are no scores.
        """
        shared = (self.executor.broadcast(model),)
        calls = self.executor.map(evaluated, self.blocks, shared=shared)
        found: Evaluation = tree_reduce(self.executor.gather(calls))
        return found.loss, found.scores() if math.isfinite(found.loss) else {}


# ---- functions of a block


def examples_of(
    data: Data, classes: tuple[float, ...] | None, bias: float | None
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return features, targets and weights; unless `bias` is None, add a constant feature."""
    X, y = data.features, targets(data, classes)
    if bias is not None:
        constant = np.full((X.shape[0], 1), bias)
        is_sparse = sparse.issparse(X)
        X = sparse.hstack([X, constant], format="csr") if is_sparse else np.hstack([X, constant])
    return X, y, data.weights
