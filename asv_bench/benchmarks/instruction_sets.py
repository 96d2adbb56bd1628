"""Speedups by newer instruction sets."""

from __future__ import annotations

from .common import RULES, hyper, least_printed, public

CODE = """
from timeit import repeat
import ml_dtypes
import numpy as np
import tfopt
tfopt.threads.set_num_threads(1)
arrays = [np.full(1 << 16, 0.5, "{dtype}") for _ in range(4)]
step = lambda: tfopt.training_ops.apply_adamax(*arrays, **{hypers})
print(min(repeat(step, number=20, repeat=50)))
"""


def _ratio(dtype: str, *sets: str) -> float:
    """Return the time of 2^16 elements on one thread, compiled for one set, to another's."""
    for needed in sets:
        if needed not in public("kernels.available"):
            raise NotImplementedError(f"this machine does not run {needed}")
    hypers = {name: hyper(name) for name in RULES["adamax"].hypers}
    code = CODE.format(dtype=dtype, hypers=hypers)
    worse, better = least_printed(*((code, {"TFOPT_CPU": cpu}) for cpu in sets), runs=5)
    return worse / better


class InstructionSets:
    unit = "times"
    better = "more"

    def track_adamax_baseline_to_v3(self) -> float:
        return _ratio("float32", "baseline", "v3")

    def track_adamax_bfloat16_v3_to_v4(self) -> float:
        return _ratio("bfloat16", "v3", "v4")
