"""SDCA estimators for data on a Dask cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from sklearn.base import BaseEstimator

from tfopt import linear_model
from tfopt.dask.cluster import current_client
from tfopt.dask.linear.blocks import as_blocks
from tfopt.dask.linear.executor import DaskExecutor
from tfopt.dask.linear.predictions import ClusterClassifier, ClusterRegressor
from tfopt.linear_model._blocks.checkpoints import checkpoints_of, folder_of
from tfopt.linear_model._blocks.execution import recovered
from tfopt.linear_model._blocks.fit import fit_blocks
from tfopt.linear_model._blocks.input import load_block, set_feature_names
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model.signatures import parameters_of

__all__ = ["LinearClassifier", "LinearRegressor", "SDCAClassifier", "SDCARegressor"]

#: Parameters of estimators for data in memory: blocks are the partitions, which workers' threads
#: visit, and dual variables stay there; or parameters of solvers that are for these alone.
_LOCAL = (
    *("solver", "adaptive", "num_loss_partitions", "n_jobs", "keep_duals"),
    *("penalty_factor", "positive"),
)


class _ClusterSDCA(BaseEstimator):  # type: ignore[misc]
    """Shared by the estimators: a fit that continues when workers are lost."""

    solver: Any = "auto"
    adaptive: Any = False
    num_loss_partitions: Any = None
    n_jobs: Any = None
    keep_duals = True
    _in_blocks = True

    def fit(
        self: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        resume: str | None = None,
    ) -> Any:
        """Find the weights.

        Parameters
        ----------
        X : dask array or DataFrame, shape (n_samples, n_features), or list of blocks
            The blocks are the row chunks of an array, the partitions of a data frame, or the
            arrays, CSR matrices, futures and delayed values of a list.
        y, sample_weight : dask array or Series, shape (n_samples,), or list of blocks
        offset : as y, or float, optional
            For a regressor: see `tfopt.linear_model.LinearRegressor.fit`.
        resume : str, optional
            The checkpoint folder of a fit with the same data and options, to continue it. If
            `random_state` is not an integer, the seed of the checkpoint is used. Each of several
            quantiles has a folder inside.

        Returns
        -------
        estimator
            This one.
        """
        with self._all_or_nothing():
            if (values := self._several()) is not None:

                def fit(model: Any, value: float) -> None:
                    model.checkpoint = folder_of(self.checkpoint, value)
                    saved = folder_of(resume, value)
                    model.fit(X, y, sample_weight, offset=offset, resume=saved)

                self._fit_several(values, fit)
                return self
            self._check_options()
            blocks = as_blocks(X, y=y, sample_weight=sample_weight, offset=offset)
            sources = [
                (*block, duals)
                for block, duals in zip(blocks, self._duals_by_block(len(blocks)), strict=True)
            ]
            with DaskExecutor(current_client()) as executor:
                load = partial(load_block, phi=self._problem(0, 1).phi)
                results = self._fit_held(executor, load, sources, resume)
            self._warn_unconverged(results)
        return self

    def _fit_held(
        self: Any,
        executor: DaskExecutor,
        load: Callable[..., Any],
        sources: list[Any],
        resume: str | None,
        prepare: tuple[Callable[[Any, Any], Any], Any] | None = None,
    ) -> list[SolverResult]:
        """Fit to blocks that an executor loads from sources, and `prepare` makes BlockInput of.

        If workers are lost, resume from the last checkpoint, or from the beginning.
        """
        with self._solver_options() as options:
            saving = self.checkpoint, self.checkpoint_every, resume
            checkpoints, options = checkpoints_of(self, *saving, options)

            def attempt() -> FitResult:
                executor.persist(load, sources)
                if prepare is not None:
                    executor.map_reduce(*prepare)
                problem, collect = self._problem(0, 1), executor.futures
                return fit_blocks(self, executor, problem, options, collect, checkpoints)

            fit = recovered(attempt, lambda: checkpoints.reached)
        self._set_attributes(dataclasses.replace(fit, duals=_concatenated_duals(fit)))
        set_feature_names(self, fit.names)
        self.n_features_in_ = fit.results[0].certificate.w.size
        return fit.results

    def _duals_by_block(self: Any, n_blocks: int) -> list[Any]:
        if not self._is_warm:
            return [None] * n_blocks
        duals = self.dual_coef_ if self.dual_coef_.ndim == 2 else self.dual_coef_[None]
        if duals.numblocks[1] != n_blocks:
            raise ValueError(
                f"warm_start goes on from the same blocks: there were {duals.numblocks[1]}, now "
                f"{n_blocks}"
            )
        return list(duals.to_delayed().ravel())


def _concatenated_duals(fit: FitResult) -> da.Array:
    """Return the dual variables of all blocks as an array on the cluster."""
    n_problems = len(fit.results)
    return da.concatenate(
        [
            da.from_delayed(future, (n_problems, length), np.float64)
            for future, length in zip(fit.duals, fit.lengths, strict=True)
        ],
        axis=1,
    )


@parameters_of(linear_model.LinearClassifier, without=_LOCAL, checkpoint=None, checkpoint_every=10)
class LinearClassifier(ClusterClassifier, _ClusterSDCA, linear_model.LinearClassifier):
    """`tfopt.linear_model.LinearClassifier` for data on a Dask cluster.

    The result has the same bits as that of the estimator for data in memory with
    ``num_loss_partitions=[rows of each block]``, for any number of workers, and if workers are lost
    during the fit.

    Parameters
    ----------
    loss, l1, l2, C, gamma, fit_intercept, class_weight, max_iter, max_time, tol, random_state
        See `tfopt.linear_model.LinearClassifier`.
    warm_start
        Start from the weights and dual variables of the last fit, which had the same blocks.
    verbose, callback
        As there; epochs repeated after the loss of a worker are reported again.
    checkpoint : str, optional
        A folder, or a URL that fsspec understands, to which the client and all workers can write. A
        previous checkpoint in it is replaced.
    checkpoint_every : int, default=10
        The number of epochs between checkpoints.

    Attributes
    ----------
    classes_, coef_, intercept_, objective_, dual_gap_, n_iter_, history_, solver_
    n_features_in_
        As of `tfopt.linear_model.LinearClassifier`.
    dual_coef_ : dask array of float64, shape (1, n_samples) or (n_classes, n_samples)
        It stays on the cluster, a chunk for each block.
    feature_names_in_ : ndarray of str
        The columns, if X is a data frame or a list of data frames. All of them, and those given to
        `predict` and `score`, must have the same columns in the same order.

    Raises
    ------
    ValueError
        If an option is out of its range, or data are invalid: the message names the block and the
        row. Nothing is left on the cluster.
    RuntimeError
        If workers are lost repeatedly without progress.
    TimeoutError
        If there are no workers for two minutes.
    ConnectionError
        If the scheduler is lost, within seconds. `fit` can continue from a checkpoint, on any
        cluster.

    Notes
    -----
    There are no parameters `solver`, `adaptive`, `num_loss_partitions` and `n_jobs`, because the
    blocks are the partitions, which the workers' threads visit; nor `penalty_factor` and
    `positive`, which are for samples in memory; nor `keep_duals`, because the dual variables stay
    on the workers.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from tfopt.dask import LinearClassifier
    >>> X = da.random.default_rng(0).standard_normal((1000, 5), chunks=(250, 5))
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0"):
    ...     model = LinearClassifier().fit(X, X[:, 0] > 0)
    ...     round(model.score(X, X[:, 0] > 0), 1)
    1.0
    """


@parameters_of(linear_model.LinearRegressor, without=_LOCAL, checkpoint=None, checkpoint_every=10)
class LinearRegressor(ClusterRegressor, _ClusterSDCA, linear_model.LinearRegressor):
    """`tfopt.linear_model.LinearRegressor` for data on a Dask cluster.

    Parameters
    ----------
    loss, l1, l2, C, epsilon, quantile, power, fit_intercept, max_iter, max_time, tol,
    random_state, warm_start
        See `tfopt.linear_model.LinearRegressor`.
    verbose, callback, checkpoint, checkpoint_every
        See `LinearClassifier`.

    Attributes
    ----------
    coef_, intercept_, objective_, dual_gap_, n_iter_, history_, solver_, n_features_in_
        As of `tfopt.linear_model.LinearRegressor`.
    dual_coef_ : dask array of float64, shape (n_samples,)
    feature_names_in_ : ndarray of str
        See `LinearClassifier`.

    Raises
    ------
    ValueError, RuntimeError, TimeoutError, ConnectionError
        See `LinearClassifier`.
    """


#: The names of earlier versions.
SDCAClassifier, SDCARegressor = LinearClassifier, LinearRegressor
