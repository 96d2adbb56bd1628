"""What the better instruction set brings."""

from __future__ import annotations

from .common import RULES, hyper, least_printed, public

CODE = """
from timeit import repeat
import numpy as np
import tfopt
tfopt.threads.set_num_threads(1)
arrays = [np.full(1 << 16, 0.5, np.float32) for _ in range(4)]
step = lambda: tfopt.training_ops.apply_adamax(*arrays, **{})
print(min(repeat(step, number=20, repeat=50)))
"""


class InstructionSets:
    unit = "times"
    better = "more"

    def setup(self) -> None:
        if "v3" not in public("kernels.available"):
            raise NotImplementedError("this machine runs the baseline only")

    def track_adamax_baseline_to_v3(self) -> float:
        """Return the time of 2^16 elements on one thread, compiled for any machine, to v3's."""
        code = CODE.format({name: hyper(name) for name in RULES["adamax"].hypers})
        baseline, v3 = least_printed(
            (code, {"TFOPT_CPU": "baseline"}), (code, {"TFOPT_CPU": "v3"}), runs=5
        )
        return baseline / v3
