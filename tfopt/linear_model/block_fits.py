"""Fits of SDCA estimators to samples in blocks, held by any executor."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.linear_model._blocks.checkpoints import checkpoints_of, folder_of
from tfopt.linear_model._blocks.execution import Executor, ThreadExecutor
from tfopt.linear_model._blocks.fit import fit_blocks as fit_held_blocks
from tfopt.linear_model._blocks.input import BlockInput, load_block, set_feature_names
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.loss_record import PointwiseLoss

#: The folder to save to, the number of epochs between checkpoints, and the folder to resume from.
_Saving: TypeAlias = tuple[str | None, int, str | None]

__all__ = ["fit_blocks", "fit_partitions"]


def fit_blocks(
    model: Any,
    blocks: Sequence[Any],
    executor: Executor | None = None,
    *,
    checkpoint: str | None = None,
    checkpoint_every: int = 10,
    resume: str | None = None,
) -> Any:
    """Fit an estimator to samples in blocks, without moving them from where an executor holds them.

    Parameters
    ----------
    model : LinearClassifier or LinearRegressor
        The options must be ``solver="auto"``, ``adaptive=False`` and ``num_loss_partitions=None``:
        the blocks are the partitions. `n_jobs` only affects the default executor.
    blocks : sequence
        Each block is a tuple (X, y), (X, y, sample_weight) or (X, y, sample_weight, offset), where
        the last two may be None; or a function without arguments that returns such a tuple and is
        called where the block is held; or the engine's handle of such a tuple, for instance an
        ``ObjectRef`` of Ray. X is an array, a data frame or a sparse matrix; float64 and float32,
        C-ordered or CSR, are not converted. For the offset, see `LinearRegressor.fit`.
    executor : Executor, optional
        By default, threads of this process. It holds the blocks until it is used for another fit or
        its ``with`` block ends. It can serve one fit at a time.
    checkpoint : str, optional
        A folder, or a URL that fsspec understands, to which this process and all processes that
        hold blocks can write. A previous checkpoint in it is replaced. Each of several quantiles
        has a folder inside.
    checkpoint_every : int, default=10
        The number of epochs between checkpoints.
    resume : str, optional
        The checkpoint folder of a fit with the same data and options, to continue it. Any executor
        or `tfopt.dask` may have written it. If `random_state` is not an integer, the seed of the
        checkpoint is used.

    Returns
    -------
    LinearClassifier or LinearRegressor
        The model. Its bits are the same for all executors, and for `fit` with
        ``num_loss_partitions=[rows of each block]``.

    Raises
    ------
    TypeError
        If the model is not one of those estimators, or a block is not such a tuple.
    CheckpointError
        If there is no checkpoint to continue from, or it belongs to another fit.
    ValueError
        If there are no blocks, an option does not apply, or data are invalid. The message names the
        block and, if possible, the row.

    See Also
    --------
    tfopt.dask.LinearClassifier : Reloads the blocks of lost workers.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.linear_model import LinearClassifier, fit_blocks
    >>> X = np.random.default_rng(0).standard_normal((1000, 5))
    >>> y = X[:, 0] > 0
    >>> model = fit_blocks(LinearClassifier(), [(X[:600], y[:600]), (X[600:], y[600:])])
    >>> alone = LinearClassifier(num_loss_partitions=[600, 400]).fit(X, y)
    >>> bool((model.coef_ == alone.coef_).all())
    True
    """
    if not isinstance(model, SDCAEstimator) or "num_loss_partitions" not in model.get_params():
        raise InvalidTypeError(
            "model must be a LinearClassifier or LinearRegressor of tfopt.linear_model, not "
            f"{type(model).__module__}.{type(model).__name__}"
        )
    if model.num_loss_partitions is not None:
        raise InvalidArgumentError(
            "blocks are the partitions: set num_loss_partitions=None, not "
            f"{model.num_loss_partitions!r}"
        )
    blocks = list(blocks)
    if not blocks:
        raise InvalidArgumentError("there are no blocks: give one tuple (X, y) for each")
    if (several := model._several()) is not None:
        with model._all_or_nothing():
            model._fit_several(
                several,
                lambda each, value: fit_blocks(
                    each,
                    blocks,
                    executor,
                    checkpoint=folder_of(checkpoint, value),
                    checkpoint_every=checkpoint_every,
                    resume=folder_of(resume, value),
                ),
            )
        return model
    with model._all_or_nothing():
        model._blocks_are_held = True
        _fit(model, blocks, executor, (checkpoint, checkpoint_every, resume))
    del model._blocks_are_held
    return model


def fit_partitions(model: Any, X: Any, y: np.ndarray, weights: np.ndarray) -> None:
    """Fit an estimator to samples in the fixed blocks of its `num_loss_partitions`."""
    ends = np.cumsum(model.num_loss_partitions)
    if ends.size == 0 or ends[-1] != len(y):
        raise ValueError(
            f"num_loss_partitions must add up to the number of samples, {len(y)}, not "
            f"{ends[-1] if ends.size else 0}"
        )
    starts = (ends - model.num_loss_partitions).tolist()
    is_warm = model._is_warm and hasattr(model, "dual_coef_")  # otherwise the fit is refused
    duals = np.atleast_2d(model.dual_coef_) if is_warm else None
    blocks = [
        (X[i:j], y[i:j], weights[i:j], duals if duals is None else duals[:, i:j])
        for i, j in zip(starts, ends.tolist(), strict=True)
    ]
    with ThreadExecutor(min(model._n_threads(), len(blocks))) as executor:
        fit = _fit_on(model, executor, BlockInput, blocks, (None, 1, None))
    model._warn_unconverged(fit.results)


def _fit_on(
    model: Any,
    executor: Executor,
    load: Callable[..., BlockInput],
    sources: list[tuple[Any, ...]],
    saving: _Saving,
) -> FitResult:
    """Solve the problems in blocks that an executor loads from sources."""
    with model._solver_options() as options:
        checkpoints, options = checkpoints_of(model, *saving, options)
        executor.persist(load, sources)
        collect = executor.map if model.keep_duals else None
        fit = fit_held_blocks(model, executor, model._problem(0, 1), options, collect, checkpoints)
    if fit.duals is not None:
        fit = dataclasses.replace(fit, duals=np.concatenate(fit.duals, axis=-1))
    model._set_attributes(fit)
    return fit


def _fit(model: Any, blocks: list[Any], executor: Executor | None, saving: _Saving) -> None:
    model._check_options()
    sources = [*zip(blocks, _duals_of(model, len(blocks)), strict=True)]
    load = partial(_load, phi=model._problem(0, 1).phi)
    if executor is None:
        with ThreadExecutor(min(model._n_threads(), len(blocks))) as threads:
            fit = _fit_on(model, threads, load, sources, saving)
    else:
        fit = _fit_on(model, executor, load, sources, saving)
    set_feature_names(model, fit.names)
    model.n_features_in_ = fit.results[0].certificate.w.size
    model._block_lengths = fit.lengths
    model._warn_unconverged(fit.results)


def _duals_of(model: Any, n_blocks: int) -> list[Any]:
    """Return the initial dual variables of each block, or None for each."""
    if not model._is_warm:
        return [None] * n_blocks
    lengths = getattr(model, "_block_lengths", ())
    duals = np.atleast_2d(model.dual_coef_) if model.keep_duals else np.empty((1, 0))
    if len(lengths) != n_blocks or sum(lengths) != duals.shape[1]:
        raise InvalidArgumentError(
            f"warm_start goes on from a fit of the same {n_blocks} blocks, with keep_duals=True; "
            "set warm_start=False"
        )
    ends = np.cumsum([0, *lengths]).tolist()
    return [duals[:, start:stop] for start, stop in itertools.pairwise(ends)]


def _load(number: int, block: Any, duals: Any, phi: PointwiseLoss) -> BlockInput:
    if callable(block):
        block = block()
    if not isinstance(block, tuple) or not 2 <= len(block) <= 4:
        raise InvalidTypeError(
            f"block {number}: must be a tuple (X, y), (X, y, sample_weight) or (X, y, "
            f"sample_weight, offset), or a function that returns one, not {type(block).__name__}"
        )
    X, y, weight, offset = (*block, None, None)[:4]
    return load_block(number, X, y, weight, offset, duals, phi)
