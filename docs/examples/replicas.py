"""Training on several processes: gradient aggregators for two kinds of communicator.

Every process has a replica of the weights and a part of the data. Before each step the replicas'
gradients become their mean, so that all take the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt import IndexedSlices

Pairs = list[tuple[Any, Any]]


def with_mpi(comm: Any) -> Callable[[Pairs], Pairs]:
    """Return an aggregator for a communicator like mpi4py's: ``MPI.COMM_WORLD``."""
    replicas = comm.Get_size()

    def mean(pairs: Pairs) -> Pairs:
        aggregated: Pairs = []
        for grad, var in pairs:
            if isinstance(grad, IndexedSlices):
                aggregated.append((joined(comm.allgather(rows_of(grad))), var))
                continue
            total = np.empty_like(grad, order="C")
            comm.Allreduce(np.ascontiguousarray(grad), total)
            total /= replicas
            aggregated.append((total, var))
        return aggregated

    return mean


def with_torch(dist: Any, from_numpy: Callable[[np.ndarray], Any]) -> Callable[[Pairs], Pairs]:
    """Return an aggregator for ``torch.distributed``, to be given with ``torch.from_numpy``."""
    replicas = dist.get_world_size()

    def mean(pairs: Pairs) -> Pairs:
        aggregated: Pairs = []
        for grad, var in pairs:
            if isinstance(grad, IndexedSlices):
                parts: list[Any] = [None] * replicas
                dist.all_gather_object(parts, rows_of(grad))
                aggregated.append((joined(parts), var))
                continue
            total = np.array(grad)  # the tensor shares its memory
            dist.all_reduce(from_numpy(total))
            total /= replicas
            aggregated.append((total, var))
        return aggregated

    return mean


def rows_of(slices: IndexedSlices) -> tuple[np.ndarray, np.ndarray]:
    """Return what other processes need of some rows' gradient."""
    return np.asarray(slices.values), np.asarray(slices.indices)


def joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> IndexedSlices:
    """Return the mean of replicas' rows, which the step sums where an index occurs again."""
    values, indices = (np.concatenate(column) for column in zip(*parts, strict=True))
    values /= len(parts)
    return IndexedSlices(values, indices)
