"""A fit of examples in blocks, from what is known of them together to certified weights."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from tfopt.kernels import sdca
from tfopt.linear_model import newton
from tfopt.linear_model.block_solver import Climb, climb
from tfopt.linear_model.blocks import Block, Lane, duals_of
from tfopt.linear_model.changes import Change
from tfopt.linear_model.executors import Executor
from tfopt.linear_model.problem import Problem, Start, allowed
from tfopt.linear_model.search import Settings, Solution
from tfopt.linear_model.solver import INTERCEPT_SHARE
from tfopt.linear_model.sums import total

__all__ = ["BlockFit", "Counts", "Labels", "Raw", "begin", "fit_blocks", "rows_of", "survey"]

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows_of(X: Any) -> Rows:
    """Return data, indices, indptr and a dense block: of a CSR matrix or of an array, no copies.

    Only an unusual matrix is copied: one whose rows name a feature twice, or whose index arrays
    have two types.
    """
    if not sparse.issparse(X):
        return np.zeros(0, X.dtype), np.zeros(0, np.int32), np.zeros(len(X) + 1, np.int32), X
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    indices, indptr = X.indices, X.indptr
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    return X.data, indices, indptr, np.zeros((X.shape[0], 0), X.dtype)


@dataclasses.dataclass(frozen=True)
class Raw:
    """A block as it is given.

    Attributes
    ----------
    number : int
    X : array or CSR matrix, shape (n_rows, n_features)
    y, weight : ndarray, shape (n_rows,)
    duals : ndarray, shape (n_problems, n_rows), or None
        Where to start.
    """

    number: int
    X: Any
    y: np.ndarray
    weight: np.ndarray
    duals: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Counts:
    """Classes, and how many rows and what weight each has.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
        In order.
    sums : ndarray, shape (n_classes, 2)
    """

    classes: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray) -> Counts:
        """Count rows."""
        classes, codes = np.unique(y, return_inverse=True)
        each = [np.bincount(codes, some, minlength=classes.size) for some in (None, weight)]
        return cls(classes, np.column_stack(each).astype(np.float64))

    def __add__(self, other: Counts) -> Counts:
        classes = np.union1d(self.classes, other.classes)
        sums = np.zeros((classes.size, 2))
        for part in (self, other):
            sums[np.searchsorted(classes, part.classes)] += part.sums
        return Counts(classes, sums)


@dataclasses.dataclass(frozen=True)
class Labels:
    """What an estimator makes of the labels of all blocks.

    Attributes
    ----------
    classes : ndarray or None
        None if labels are numbers to be predicted.
    weights : ndarray or None
        What the weights of each class's rows are multiplied by.
    positive : tuple of int
        Of each problem the class that is separated from the rest.
    biases : tuple of float
        Of each problem the intercept of a model that has nothing else, or a guess.
    """

    classes: np.ndarray | None
    weights: np.ndarray | None
    positive: tuple[int, ...]
    biases: tuple[float, ...]

    def of(self, raw: Raw) -> tuple[list[np.ndarray], np.ndarray]:
        """Return a block's targets for each problem, and its weights."""
        if self.classes is None:
            return [raw.y], raw.weight
        codes = np.searchsorted(self.classes, raw.y)
        weight = raw.weight if self.weights is None else raw.weight * self.weights[codes]
        return [np.where(codes == k, 1.0, -1.0) for k in self.positive], weight


@dataclasses.dataclass(frozen=True)
class Beginning:
    """What a block has to know before the first visit."""

    problem: Problem
    labels: Labels
    shift: np.ndarray | None
    seed: int


def survey(raw: Raw, told: tuple[bool, bool]) -> tuple[Raw, dict[str, Any]]:
    """Answer with what an estimator needs to know of all labels, and of dense features.

    It is told whether labels are classes, and whether there is an intercept.
    """
    of_classes, intercept = told
    n, is_sparse = len(raw.y), sparse.issparse(raw.X)
    answer: dict[str, Any] = {"n": n, "dense": 0 if is_sparse else n}
    answer["shapes"] = {raw.number: raw.X.shape}
    if of_classes:
        answer["counts"] = Counts.of(raw.y, raw.weight)
    else:
        y = raw.y.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            powers = np.ones_like(y), y, np.square(y)
            answer["targets"] = np.array([total(raw.weight, each) for each in powers])
    if intercept and not is_sparse:
        X = raw.X.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            answer["moments"] = np.array([X.sum(axis=0), np.einsum("ij,ij->j", X, X)])
    return raw, answer


def begin(raw: Raw, told: Beginning) -> tuple[Block, dict[str, Any]]:
    """Make a block ready for visits; answer with sums that the first of them needs."""
    targets, weight = told.labels.of(raw)
    problem = dataclasses.replace(
        told.problem, rows=rows_of(raw.X if told.shift is None else raw.X - told.shift)
    )
    curvature = sdca.squared_norms(problem.rows[0], problem.rows[2], problem.rows[3]) / problem.l2
    if not np.isfinite(curvature).all():
        row = int(np.flatnonzero(~np.isfinite(curvature))[0])
        raise ValueError(
            f"block {raw.number}, row {row}: the squares of X, divided by l2, overflow: scale the "
            "features"
        )
    if problem.loss == "poisson_loss" and (raw.y < 0).any():
        row = int(np.flatnonzero(raw.y < 0)[0])
        raise ValueError(
            f"block {raw.number}, row {row}: loss='poisson' needs non-negative targets"
        )
    lanes = []
    for k, y in enumerate(targets):
        a = np.zeros(len(y)) if raw.duals is None else allowed(raw.duals[k], y, problem.loss)
        lanes.append(Lane.of(Start(y, weight, curvature, a, 0.0).examples()))
    return Block(raw.number, problem, told.seed, tuple(lanes)), {
        "curvature": curvature.sum(),
        "v": tuple(Change.of(problem.weights_of(lane.examples)) for lane in lanes),
        "drifts": np.array([total(weight, lane.a) for lane in lanes]),
    }


@dataclasses.dataclass(frozen=True)
class BlockFit:
    """What a fit of blocks has found.

    Attributes
    ----------
    solutions : list of Solution
    duals : object
        What the executor makes of the dual variables of all blocks.
    shift : ndarray or None
        What was subtracted from the features.
    lengths : tuple of int
        How many rows each block has.
    """

    solutions: list[Solution]
    duals: Any
    shift: np.ndarray | None
    lengths: tuple[int, ...]


def _off_centre(found: dict[str, Any]) -> np.ndarray | None:
    """Return the features' means if they hide the features' differences; see base.off_centre."""
    if "moments" not in found:  # there is no intercept, or the features are sparse
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean, square = found["moments"] / found["n"]
        norm = np.square(mean).sum()
        shift: np.ndarray = mean
        return shift if norm > square.sum() - norm else None


class Journal(Protocol):
    """Where a fit is written down as it goes on."""

    def begin(self, executor: Executor, climbs: list[Climb]) -> int:
        """Take a fit up where it was, and return the number of its next epoch."""

    def after(self, number: int) -> None:
        """Take note that an epoch is over."""


def fit_blocks(
    estimator: Any,
    executor: Executor,
    problem: Problem,
    settings: Settings,
    journal: Journal | None = None,
) -> BlockFit:
    """Fit an estimator to blocks.

    Parameters
    ----------
    estimator : SDCAEstimator
    executor : Executor
        Of blocks that are Raw.
    problem : Problem
        Without rows, and without a number of weights.
    settings : Settings
    journal : Journal, optional
        Where the fit is written down after some epochs, and read from.

    Returns
    -------
    BlockFit
    """
    found = executor.ask(survey, (estimator._is_of_classes, problem.intercept))
    lengths, n_weights = _agreed(found["shapes"])
    problem = dataclasses.replace(problem, n_weights=n_weights)
    labels = estimator._labels(found)
    estimator._check_warm_start(found["n"], len(labels.positive), n_weights)
    shift = _off_centre(found)
    biases = estimator._biases(labels.biases, shift).tolist()
    begun = executor.ask(begin, Beginning(problem, labels, shift, settings.seed))
    curvature = 0.0
    if problem.intercept:
        curvature = INTERCEPT_SHARE * float(begun["curvature"] / found["n"]) or 1.0
    climbs = [
        Climb(problem, settings, executor, v.dense(), bias, curvature, drift, number)
        for number, (v, bias, drift) in enumerate(
            zip(begun["v"], biases, begun["drifts"].tolist(), strict=True)
        )
    ]
    # to visit a dense row takes as long as several looks, and tells other blocks little
    if found["dense"] == found["n"] and newton.applies_afar(problem):
        last = estimator._last_weights()
        for k, one in enumerate(climbs):
            one.begin_newton(one.v if last is None else last[k], biases[k])
    first = 1 if journal is None else journal.begin(executor, climbs)
    after = None if journal is None else journal.after
    climb(problem, executor, climbs, settings, after, first)
    duals = executor.each(duals_of, {k: one.best for k, one in enumerate(climbs)})
    return BlockFit([one.search.solution() for one in climbs], duals, shift, lengths)


def _agreed(shapes: dict[int, tuple[int, int]]) -> tuple[tuple[int, ...], int]:
    """Return the numbers of rows, and the number of features, which all blocks have."""
    n_features = shapes[0][1]
    for number, (_, own) in sorted(shapes.items()):
        if own != n_features:
            raise ValueError(f"block {number} has {own} features, but block 0 has {n_features}")
    return tuple(shapes[number][0] for number in sorted(shapes)), n_features
