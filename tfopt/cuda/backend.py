"""The CUDA backend: the package's interface to arrays on NVIDIA GPUs.

Arrays are described, filled, copied and written; variables are updated by a rule of the table; a
step of an optimizer is checked, and run with or without clipping; tensors are clipped; rows of
tables are pooled.
"""

from tfopt.cuda.adafactor import adafactor_updates
from tfopt.cuda.bags import BagsBeside
from tfopt.cuda.calls import apply
from tfopt.cuda.clip_ops import (
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
    l2_loss,
)
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.cuda.device_array import as_device_array as describe
from tfopt.cuda.memory import dtype_of, filled_like, new_like, to_host, write
from tfopt.cuda.rows import adding_rows, joined_rows
from tfopt.cuda.steps import (
    are_finite,
    check_gradient,
    checked_updates,
    copy_of,
    launch_of,
    limits_of,
)

__all__ = [
    "BagsBeside",
    "adafactor_updates",
    "adding_rows",
    "apply",
    "are_finite",
    "check_gradient",
    "checked_updates",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "copy_of",
    "describe",
    "dtype_of",
    "filled_like",
    "global_norm",
    "l2_loss",
    "joined_rows",
    "launch_of",
    "limits_of",
    "new_like",
    "run_clipped",
    "to_host",
    "write",
]
