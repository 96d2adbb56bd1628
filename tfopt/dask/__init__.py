"""Training on a Dask cluster: linear models with a certificate, steps, and tables in parts.

Dask distributes the data and schedules the work; the computations are those of `tfopt` on one
machine, and with the same blocks the results have the same bits.
"""

from __future__ import annotations

from typing import Any

from tfopt.imports import imported

#: Public names and the modules that have them: none is imported before it is asked for.
_HOMES = {
    "DataParallel": "tfopt.dask.steps.data_parallel",
    "FTRLClassifier": "tfopt.dask.linear.ftrl",
    "FTRLRegressor": "tfopt.dask.linear.ftrl",
    "LinearClassifier": "tfopt.dask.linear.estimators",
    "LinearRegressor": "tfopt.dask.linear.estimators",
    "LostShardError": "tfopt.dask.table.sharded",
    "SDCAClassifier": "tfopt.dask.linear.estimators",
    "SDCARegressor": "tfopt.dask.linear.estimators",
    "ShardedVariable": "tfopt.dask.table.sharded",
    "UniformRows": "tfopt.dask.table.shard",
    "read_libsvm": "tfopt.dask.linear.blocks",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(imported(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dask", "distributed"):
            raise
        raise ImportError(
            f"tfopt.dask needs {error.name}: pip install dask distributed scikit-learn"
        ) from error


def __dir__() -> list[str]:
    return __all__
