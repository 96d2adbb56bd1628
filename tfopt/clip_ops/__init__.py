"""Clipping by value and by norm.

Norms are accurate to the last bits and do not depend on the number of threads: squares are summed
in float64, in a fixed order (:mod:`tfopt_ref.norms` has it in a few lines), and neither overflow
nor underflow. Tensors are scaled by ``clip_norm / norm``, computed in float64 and rounded to the
tensor's dtype; a tensor that needs no scaling keeps its bits.

Tensors are arrays, Variables, IndexedSlices, whose values are clipped, or Python numbers and lists,
which become float32 or int32. For a :class:`tfopt.Tensor`, and for a Variable while a tape records,
the result is a Tensor and has gradients. With `out` nothing is allocated; a tensor may be its own
`out`. Tensors on a GPU are clipped there (``tfopt.cuda.clip_ops``), and the result stays there.
"""

from tfopt.clip_ops.by_global_norm import clip_by_global_norm, global_norm
from tfopt.clip_ops.by_norm import clip_by_average_norm, clip_by_norm
from tfopt.clip_ops.by_value import clip_by_value

__all__ = [
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
]


def __dir__() -> list[str]:
    return __all__
