"""Training on a Dask cluster: steps by gradients of blocks of data, and tables in parts.

`pip install 'tfopt[dask]'`.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Public names and the modules that have them: none is imported before it is asked for.
_HOMES = {
    "DataParallel": "tfopt.dask.data_parallel",
    "LostShardError": "tfopt.dask.sharded",
    "ShardedVariable": "tfopt.dask.sharded",
    "UniformRows": "tfopt.dask.initial",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dask", "distributed"):
            raise
        raise ImportError(f"tfopt.dask needs {error.name}: pip install 'tfopt[dask]'") from error


def __dir__() -> list[str]:
    return __all__
