"""Data-parallel training on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from dask.base import is_dask_collection
from distributed import Client, Future
from distributed.client import FutureCancelledError

from tfopt.core.nest import flatten, pack
from tfopt.dask.cluster import current_client, gathered
from tfopt.dask.steps.gradient_sums import block_gradients, finish, sum_parts
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.state.variables import as_variable

__all__ = ["DataParallel"]

_FAN_IN = (
    4  # parts that one task adds up: 2 make the most tasks, many make one worker read the most
)
_ATTEMPTS = 4  # of a step, if workers are lost


class DataParallel:
    """Steps of an optimizer by gradients that a cluster's workers find, each for its blocks.

    A step sends the weights to each worker, calls `loss_and_grad` once for each block on the worker
    that holds it, adds up losses and gradients in a tree on the workers, and lets the optimizer
    take one step on the client.

    Parameters
    ----------
    optimizer : Optimizer
        Any optimizer, including wrappers.
    loss_and_grad : callable
        Called as ``loss_and_grad(params, block)``, it returns the loss, a number, and the gradients
        in the structure of `params`: arrays, `IndexedSlices` or None. The arrays in `params` are
        read-only. Its result must depend only on its arguments, because it may be called twice for
        a block.
    blocks : list, or a Dask bag, array or dataframe
        The blocks are the partitions of a collection, or the elements of a list: delayed objects,
        futures, or any other objects, which are then sent to workers immediately.
    reduction : {"mean", "sum"}
        Whether sums are divided by the number of blocks. If all blocks have the same size, this
        gives the mean over the examples; otherwise let the function divide its sums by the total
        number of examples, and use "sum".
    client : distributed.Client, optional
        The current one by default.

    Raises
    ------
    InvalidTypeError
        If `optimizer` is not an optimizer, or `loss_and_grad` is not callable.
    InvalidArgumentError
        If there are no blocks, or `reduction` is something else.
    ValueError
        If there is no client.

    Notes
    -----
    The results depend only on the list of blocks, and not on the number of workers, the location of
    the blocks or timing. The gradients of the blocks are added up in groups of four consecutive
    ones, then the sums of the groups, and so on; 16-bit gradients are added in float32 and rounded
    once. In each group, rows of `IndexedSlices` with the same index are added up.

    If a worker dies, its blocks are computed or sent again, and another worker runs its tasks.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from tfopt.dask import DataParallel
    >>> from tfopt.optimizers import SGD
    >>> def distance(params, block):
    ...     difference = params["w"] - block
    ...     return np.sum(difference**2), {"w": 2 * difference}
    >>> params = {"w": np.zeros(2)}
    >>> blocks = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    >>> with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
    ...     parallel = DataParallel(SGD(0.25), distance, blocks)
    ...     parallel.step(params)
    15.0
    >>> params["w"]
    array([1. , 1.5])
    """

    def __init__(
        self,
        optimizer: OptimizerBase,
        loss_and_grad: Callable[..., Any],
        blocks: Any,
        *,
        reduction: str = "mean",
        client: Client | None = None,
    ) -> None:
        if not isinstance(optimizer, OptimizerBase):
            raise InvalidTypeError(
                f"optimizer must be an optimizer, not {type(optimizer).__name__}"
            )
        if not callable(loss_and_grad):
            raise InvalidTypeError("loss_and_grad must be a function")
        if reduction not in ("mean", "sum"):
            raise InvalidArgumentError(f'reduction must be "mean" or "sum", not {reduction!r}')
        block_list = _as_list(blocks)
        if not block_list:
            raise InvalidArgumentError("there are no blocks")
        self.optimizer = optimizer
        self.reduction = reduction
        self._loss_and_grad = loss_and_grad
        self._client = current_client() if client is None else client
        self._blocks = block_list
        self._futures = self._place_blocks([None] * len(block_list))

    def step(self, params: Any, *arguments: Any) -> float:
        """Take one step.

        Parameters
        ----------
        params : dict, list or tuple of arrays and Variables, nested or not, or one of these
            Updated in place, as by `Optimizer.step`.
        *arguments
            Further arguments of `loss_and_grad`, after the block: for instance the number of the
            step, to select a batch.

        Returns
        -------
        loss : float
            The mean or the sum of the losses of the blocks, before the step.

        Raises
        ------
        InvalidArgumentError
            If gradients of two blocks differ in structure, form, shape or dtype; or as
            `Optimizer.step` raises it.
        Exception
            The exception that `loss_and_grad` raised, with a note that names the block. In any case
            nothing has changed.
        """
        loss, grads = self.gradients(params, *arguments)
        self.optimizer.step(params, grads)
        return loss

    def gradients(self, params: Any, *arguments: Any) -> tuple[float, Any]:
        """Return the loss and the gradients that `step` would use, without taking a step.

        Parameters
        ----------
        params, *arguments
            As in `step`.

        Returns
        -------
        loss : float
        grads
            In the structure that `loss_and_grad` returned, which need not be that of `params` here.

        Raises
        ------
        InvalidArgumentError, Exception
            As in `step`.
        """
        arrays = pack(params, [as_variable(leaf).numpy() for leaf in flatten(params)])
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                part = self._sum_of_blocks(arrays, arguments)
                break
            except FutureCancelledError:  # data of a lost worker
                if attempt == _ATTEMPTS:
                    raise
                self._futures = self._place_blocks(self._futures)
        return finish(part, len(self._blocks) if self.reduction == "mean" else 1)

    def _sum_of_blocks(self, arrays: Any, arguments: tuple[Any, ...]) -> Any:
        call = self._loss_and_grad, arrays, arguments
        # in a list, because scatter treats a dict or list as many objects
        [sent] = self._client.scatter([call], broadcast=True, hash=False)
        numbers = range(len(self._futures))
        # pure=False: unique keys instead of hashes
        parts = self._client.map(
            block_gradients, [sent] * len(numbers), self._futures, numbers, pure=False
        )
        futures = [sent, *parts]
        try:
            while len(parts) > 1:
                groups = [parts[k : k + _FAN_IN] for k in range(0, len(parts), _FAN_IN)]
                parts = self._client.map(sum_parts, groups, pure=False)
                futures += parts
            return self._client.sync(gathered, self._client, parts)[0]
        finally:  # an error's traceback would keep them alive
            for future in futures:
                future.release()

    def _place_blocks(self, before: Sequence[Future[Any] | None]) -> list[Future[Any]]:
        """Return futures of the blocks; those that are missing or lost are sent again."""
        workers = sorted(self._client.nthreads())
        return [
            self._place_block(block, workers[k * len(workers) // len(before)] if workers else None)
            if future is None or future.status in ("cancelled", "lost")
            else future
            for k, (block, future) in enumerate(zip(self._blocks, before, strict=True))
        ]

    def _place_block(self, block: Any, worker: str | None) -> Future[Any]:
        """Send a block to a worker; Dask places collections and delayed objects itself."""
        if isinstance(block, Future):
            return block
        if is_dask_collection(block):
            computed: Future[Any] = self._client.compute(block)
            return computed
        future: Future[Any]
        [future] = self._client.scatter([block], workers=[worker] if worker else None, hash=False)
        return future


def _as_list(blocks: Any) -> list[Any]:
    if hasattr(blocks, "to_delayed"):
        return list(np.ravel(blocks.to_delayed()))
    if not isinstance(blocks, Iterable):
        raise InvalidTypeError(f"blocks must be a list, not {type(blocks).__name__}")
    return list(blocks)
