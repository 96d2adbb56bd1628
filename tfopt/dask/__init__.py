"""Training on a Dask cluster: pure functions over blocks of data, and tables in parts.

`DataParallel` takes steps by gradients of blocks, `ShardedVariable` is a table whose rows lie on
several workers.
"""

try:
    import distributed  # noqa: F401
    import fsspec  # noqa: F401
except ImportError as error:
    raise ImportError("tfopt.dask needs Dask: pip install 'tfopt[dask]'") from error

from tfopt.dask.data_parallel import DataParallel
from tfopt.dask.initial import UniformRows
from tfopt.dask.sharded import LostShardError, ShardedVariable

__all__ = ["DataParallel", "LostShardError", "ShardedVariable", "UniformRows"]
