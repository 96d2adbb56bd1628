"""A fit of an estimator to blocks: summary, initial state, ascent, result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.kernels.linear import visits
from tfopt.linear_model._blocks.ascent import BlockAscent, BlockVisits
from tfopt.linear_model._blocks.blocks import BlockState, collect_duals
from tfopt.linear_model._blocks.checkpoints import BlockFitCheckpoints
from tfopt.linear_model._blocks.design import BlockDesign
from tfopt.linear_model._blocks.execution import Executor
from tfopt.linear_model._blocks.input import BlockInput, FirstBlocks, common_feature_names
from tfopt.linear_model._fit.fit import Epochs, FitResult, Minimization
from tfopt.linear_model._fit.interior_point import InteriorPoint
from tfopt.linear_model._fit.newton import Newton
from tfopt.linear_model._fit.plan import make_block_plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem, as_rows, centering_shift
from tfopt.linear_model._fit.reductions import SparseDelta
from tfopt.linear_model._fit.row_visits import INTERCEPT_SHARE
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import INTERIOR, Parameters

__all__ = [
    "ClassCounts",
    "TargetEncoding",
    "init_block",
    "fit_blocks",
    "summarize_block",
]


@dataclasses.dataclass(frozen=True)
class ClassCounts:
    """The classes, each with its number of rows and total weight.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
        Sorted.
    sums : ndarray, shape (n_classes, 2)
    """

    classes: np.ndarray
    sums: np.ndarray

    @classmethod
    def from_labels(cls, y: np.ndarray, weight: np.ndarray) -> ClassCounts:
        """Count rows."""
        classes, codes = np.unique(y, return_inverse=True)
        sums = [np.bincount(codes, weights, minlength=classes.size) for weights in (None, weight)]
        return cls(classes, np.column_stack(sums).astype(np.float64))

    def __add__(self, other: ClassCounts) -> ClassCounts:
        classes = np.union1d(self.classes, other.classes)
        sums = np.zeros((classes.size, 2))
        for part in (self, other):
            sums[np.searchsorted(classes, part.classes)] += part.sums
        return ClassCounts(classes, sums)


@dataclasses.dataclass(frozen=True)
class TargetEncoding:
    """The encoding of labels as targets, given the labels of all blocks.

    Attributes
    ----------
    classes : ndarray or None
        None for regression.
    weights : ndarray or None
        The class weights: factors of the sample weights.
    positive : tuple of int
        For each problem, the index of the class that is separated from the rest.
    biases : tuple of float
        For each problem, an initial guess of the intercept.
    """

    classes: np.ndarray | None
    weights: np.ndarray | None
    positive: tuple[int, ...]
    biases: tuple[float, ...]

    def encode(self, block: BlockInput) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the targets of a block for each problem, and its sample weights."""
        if self.classes is None:
            return [block.y], block.weight
        codes = np.searchsorted(self.classes, block.y)
        weight = block.weight if self.weights is None else block.weight * self.weights[codes]
        return [np.where(codes == k, 1.0, -1.0) for k in self.positive], weight


@dataclasses.dataclass(frozen=True)
class InitRequest:
    """The data that blocks receive before the first visit."""

    problem: Problem
    encoding: TargetEncoding
    shift: np.ndarray | None
    seed: int


def summarize_block(
    block: BlockInput, request: tuple[bool, bool]
) -> tuple[BlockInput, dict[str, Any]]:
    """Answer with statistics of the labels, and of dense features.

    The request says whether labels are classes, and whether there is an intercept.
    """
    has_classes, intercept = request
    n, is_sparse = len(block.y), sparse.issparse(block.X)
    answer: dict[str, Any] = {"n": n, "dense": 0 if is_sparse else n}
    answer["shapes"] = {block.number: block.X.shape}
    answer["names"] = FirstBlocks({block.names: block.number})
    if has_classes:
        answer["counts"] = ClassCounts.from_labels(block.y, block.weight)
    else:
        y = block.y.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            powers = np.ones_like(y), y, np.square(y)
            answer["targets"] = np.array([weighted_sum(block.weight, power) for power in powers])
    if intercept and not is_sparse:
        answer["moments"] = {block.X.shape[1]: visits.moments(block.X, 1)}
    return block, answer


def init_block(block: BlockInput, request: InitRequest) -> tuple[BlockState, dict[str, Any]]:
    """Return the initial state of a block, and the sums that the first request needs."""
    targets, weight = request.encoding.encode(block)
    problem = request.problem._replace(
        rows=as_rows(block.X if request.shift is None else block.X - request.shift)
    )
    curvature = visits.squared_norms(problem.rows[0], problem.rows[2], problem.rows[3]) / problem.l2
    if not np.isfinite(curvature).all():
        row = int(np.flatnonzero(~np.isfinite(curvature))[0])
        raise ValueError(
            f"block {block.number}, row {row}: the squares of X, divided by l2, overflow: scale "
            "the features"
        )
    states = []
    for k, y in enumerate(targets):
        a = np.zeros(len(y)) if block.duals is None else problem.phi.clip_duals(block.duals[k], y)
        examples = InitialPoint(y, weight, lambda: curvature, a, 0.0).examples()
        examples["curvature"] = curvature
        states.append(RowState.initial(examples))
    factor = block.factor
    return BlockState(block.number, problem, request.seed, tuple(states), factor), {
        "curvature": curvature.sum(),
        "v": tuple(SparseDelta.from_dense(problem.weights_of(state.examples)) for state in states),
        "dual_sums": np.array([weighted_sum(weight, state.a) for state in states]),
    }


def fit_blocks(
    estimator: Any,
    executor: Executor,
    problem: Problem,
    options: Parameters,
    collect: Callable[[Callable[..., Any], Any], Any] | None,
    checkpoints: BlockFitCheckpoints | None = None,
) -> FitResult:
    """Fit an estimator to blocks.

    Parameters
    ----------
    estimator : SDCAEstimator
    executor : Executor
        Its blocks are BlockInput.
    problem : Problem
        The problem without rows, and without a number of weights.
    options : Parameters
    collect : callable, optional
        The executor's method that returns the dual variables of the blocks; None if they are not
        needed.
    checkpoints : BlockFitCheckpoints, optional
        Saves the state after some iterations, and restores it.

    Returns
    -------
    FitResult
    """
    summary = executor.map_reduce(summarize_block, (estimator._has_classes, problem.intercept))
    if not summary["n"]:
        raise ValueError("all blocks are empty: a fit needs samples")
    names = common_feature_names(summary["names"])
    lengths, n_weights = _agreed_shape(summary["shapes"])
    problem = problem._replace(n_weights=n_weights)
    encoding = estimator._target_encoding(summary)
    shift = None
    if "moments" in summary:  # with an intercept and dense features
        moments = summary["moments"][n_weights]
        shift = centering_shift(moments, summary["n"], lambda: False)
    last = estimator._last_fit(summary["n"], len(encoding.positive), n_weights, shift)
    biases = list(encoding.biases) if last is None else last.bias.tolist()
    sums = executor.map_reduce(init_block, InitRequest(problem, encoding, shift, options.seed))
    curvature = 0.0
    if problem.intercept:
        curvature = INTERCEPT_SHARE * float(sums["curvature"] / summary["n"]) or 1.0
    n_problems = len(biases)
    ascents = [
        BlockAscent(problem, executor.n_blocks, v.dense(), bias, curvature, dual_sum)
        for v, bias, dual_sum in zip(sums["v"], biases, sums["dual_sums"].tolist(), strict=True)
    ]
    plan = make_block_plan(problem, is_dense=summary["dense"] == summary["n"])
    design = BlockDesign(executor, plan, n_problems)
    visits = BlockVisits(design, ascents)
    steps: Steps = (InteriorPoint if plan.steps == INTERIOR else Newton)(problem, design)
    epochs = Epochs(problem, design, lambda: visits)
    minimization = Minimization(plan, steps, epochs, design.keep_best, options, n_problems)
    if plan.begins_with_steps:
        for k, ascent in enumerate(ascents):
            w = ascent.v if last is None else last.w[k]
            certifies = last is not None and plan.steps == INTERIOR
            minimization.begin_steps(k, w, biases[k], tentatively=certifies)
    if checkpoints is not None:
        counts = summary.get("counts")  # of classes
        totals = summary["targets"][None] if counts is None else counts.sums
        checkpoints.start(minimization, visits, totals.tolist())
    minimization.run(None if checkpoints is None else checkpoints.after_iteration)
    results = [monitor.result() for monitor in minimization.monitors]
    duals = None if collect is None else collect(collect_duals, design.last_decisions())
    return FitResult(results, duals, shift, lengths, names)


def _agreed_shape(shapes: dict[int, tuple[int, int]]) -> tuple[tuple[int, ...], int]:
    """Return the blocks' numbers of rows and the number of features, equal in all blocks."""
    n_features = shapes[0][1]
    for number, (_, width) in sorted(shapes.items()):
        if width != n_features:
            raise ValueError(f"block {number} has {width} features, but block 0 has {n_features}")
    return tuple(shapes[number][0] for number in sorted(shapes)), n_features
