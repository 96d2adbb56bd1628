from typing import Any, SupportsFloat

import numpy as np

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.step_table import Kernel

def sparse_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    indices: Any,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    lazy: bool = False,
    workspace: Any = None,
    var_scale: SupportsFloat = 1.0,
    bound: float = ...,
    scale: float = 1.0,
) -> Call: ...
def shared_rows_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    at: np.ndarray,
    indices: Any,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    lazy: bool,
    workspace: Any,
    var_scale: SupportsFloat,
    exact: bool,
) -> Call | None: ...
