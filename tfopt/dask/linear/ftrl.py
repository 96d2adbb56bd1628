"""FTRL estimators for data on a Dask cluster, which learn from one block after another."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

import dask
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from tfopt import linear_model
from tfopt.dask.cluster import check_scheduler, current_client, gathered
from tfopt.dask.linear.blocks import as_blocks
from tfopt.dask.linear.checkpoints import StreamFitCheckpoints
from tfopt.dask.linear.ftrl_blocks import epoch, label_totals, load_block, summarize_labels
from tfopt.dask.linear.predictions import ClusterClassifier, ClusterRegressor
from tfopt.linear_model.ftrl_stopping import improvement_of
from tfopt.linear_model.progress import ProgressBar
from tfopt.linear_model.signatures import parameters_of
from tfopt.linear_model.validation import check_count, class_factors

__all__ = ["FTRLClassifier", "FTRLRegressor"]


class _ClusterFTRL(BaseEstimator):  # type: ignore[misc]
    """Shared by the estimators: a model that is passed from block to block."""

    def fit(
        self: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        resume: str | None = None,
    ) -> Any:
        """Fit the model in several epochs over all blocks; with `warm_start`, continue a fit.

        Parameters
        ----------
        X : dask array or DataFrame, shape (n_samples, n_features), or list of blocks
            See `LinearClassifier.fit`.
        y, sample_weight : dask array or Series, shape (n_samples,), or list of blocks
        offset : as y, or float, optional
            See `tfopt.linear_model.FTRLClassifier.fit`.
        resume : str, optional
            The checkpoint folder of a fit with the same data and options, to continue it.

        Returns
        -------
        estimator
            This one.
        """
        self._check_options()
        if self.early_stopping:
            raise ValueError(
                "early_stopping=True holds out samples, which a fit on a cluster does not: set "
                "tol, and it ends when the loss no longer falls"
            )
        if self.checkpoint is not None:
            check_count("checkpoint_every", self.checkpoint_every, 1)
        client = current_client()
        # a lost block can be computed again from its source
        held = [
            client.compute(dask.delayed(load_block)(number, *block))
            for number, block in enumerate(
                as_blocks(X, y=y, sample_weight=sample_weight, offset=offset)
            )
        ]
        try:
            self._learn_blocks(client, held, resume)
        except CancelledError:
            check_scheduler(client)
            raise
        finally:  # an error's traceback would keep them alive
            for future in held:
                future.release()
        return self

    def _learn_blocks(self: Any, client: Any, held: list[Any], resume: str | None) -> None:
        surveyed = client.map(summarize_labels, held, of_classes=self._has_classes, pure=False)
        try:
            labels = client.sync(gathered, client, surveyed)
        finally:  # an error's traceback would keep them alive
            for future in surveyed:
                future.release()
        model, random = self._unfitted_model(), check_random_state(self.random_state)
        own = {"max_iter", "verbose", "callback"}
        identity = {
            **{name: value for name, value in model.get_params().items() if name not in own},
            "random_state": str(self.random_state),  # for a generator, only its type
            "rows": [rows for rows, _ in labels],
        }
        classes = None
        if self._has_classes:
            classes, totals = label_totals([of_block for _, of_block in labels])
            identity |= {"classes": classes.tolist(), "class_weight": str(self.class_weight)}
            factors = class_factors(self.class_weight, classes, totals)
            if factors is not None:
                model.class_weight = dict(zip(classes.tolist(), factors.tolist(), strict=True))
        if self._is_warm:
            options = self.get_params()
            vars(model).update({k: v for k, v in vars(self).items() if k not in options})
        improvement = improvement_of(self)
        checkpoints = StreamFitCheckpoints(self.checkpoint, self.checkpoint_every, resume, identity)
        first, state = checkpoints.start(model, random, classes, improvement)
        ended = False
        with ProgressBar(self.verbose, self.max_iter) as progress:
            number = first
            for number in range(first + 1, self.max_iter + 1):
                losses = getattr(state[0], "_losses", np.zeros((2, 2)))[1]
                state = epoch(client, state, held, classes)
                model, random = state
                sums = model._losses[1]
                model._losses = np.stack([sums - losses, sums])  # an epoch's, not a block's
                record = {**model._record(), "iteration": number}
                ended = improvement is not None and improvement.has_ended(record)
                checkpoints.after_epoch(number, model, random, improvement)
                progress(record)
                ended = self._tell(record) or ended
                if ended:
                    break
        if improvement is not None and not ended:
            improvement.warn(self.max_iter)
        model, _ = state
        vars(self).pop("feature_names_in_", None)  # that of the last fit
        vars(self).update({k: v for k, v in vars(model).items() if k not in self.get_params()})
        self.n_iter_ = number


@parameters_of(linear_model.FTRLClassifier, checkpoint=None, checkpoint_every=1)
class FTRLClassifier(_ClusterFTRL, ClusterClassifier, linear_model.FTRLClassifier):
    """`tfopt.linear_model.FTRLClassifier` for data on a Dask cluster.

    An epoch processes the blocks in order, each on the worker that holds it, and passes the state,
    three numbers for each weight, from one block to the next. More workers do not make it faster:
    it is meant for data that are on a cluster or exceed the memory of one machine.

    Parameters
    ----------
    loss, learning_rate, beta, initial_accumulator, l1, l2, gamma, batch_size, max_iter, n_hashes
        See `tfopt.linear_model.FTRLClassifier`. With `n_hashes`, blocks are delayed lists of dicts.
    fit_intercept, class_weight, average, n_iter_no_change, tol, warm_start
        See there, too.
    early_stopping : bool, default=False
        `fit` refuses True, since no samples are held out; use `tol`, which watches the loss.
    validation_fraction : float, default=0.1
        Not used.
    shuffle : bool, default=True
        Whether the samples of each block are shuffled before each epoch. The blocks are not.
    random_state
        See there, too.
    verbose, callback
        See there, too; they act on the client.
    checkpoint : str, optional
        A folder, or a URL that fsspec understands, to which the client can write. A previous
        checkpoint in it is replaced.
    checkpoint_every : int, default=1
        The number of epochs between checkpoints.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_, t_, n_features_in_
        As of `tfopt.linear_model.FTRLClassifier`.

    Raises
    ------
    ValueError
        If an option is out of its range, or data are invalid: the message names the block.
    ConnectionError
        If the scheduler is lost. `fit` can continue from a checkpoint, on any cluster.

    Notes
    -----
    The result has the same bits as that of `partial_fit` of the estimator for data in memory,
    called with one block after another in each epoch, for any number of workers. If a worker is
    lost, others load its blocks again, and at most one epoch is repeated. `partial_fit` takes data
    in memory.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from tfopt.dask import FTRLClassifier
    >>> X = da.random.default_rng(0).standard_normal((1000, 5), chunks=(250, 5))
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0"):
    ...     model = FTRLClassifier().fit(X, X[:, 0] > 0)
    ...     round(model.score(X, X[:, 0] > 0), 1)
    1.0
    """

    _LOCAL_CLASS = linear_model.FTRLClassifier
    _has_classes = True


@parameters_of(linear_model.FTRLRegressor, checkpoint=None, checkpoint_every=1)
class FTRLRegressor(_ClusterFTRL, ClusterRegressor, linear_model.FTRLRegressor):
    """`tfopt.linear_model.FTRLRegressor` for data on a Dask cluster.

    Parameters
    ----------
    loss, learning_rate, beta, initial_accumulator, l1, l2, epsilon, quantile, power, batch_size
        See `tfopt.linear_model.FTRLRegressor`.
    max_iter, n_hashes, fit_intercept, average, n_iter_no_change, tol, warm_start
        See there, too.
    early_stopping, validation_fraction, shuffle, random_state, verbose, callback
        See `FTRLClassifier`.
    checkpoint, checkpoint_every
        See `FTRLClassifier`.

    Attributes
    ----------
    coef_, intercept_, n_iter_, t_, n_features_in_
        As of `tfopt.linear_model.FTRLRegressor`.

    Raises
    ------
    ValueError, ConnectionError
        See `FTRLClassifier`.
    """

    _LOCAL_CLASS = linear_model.FTRLRegressor
    _has_classes = False
