"""Updates of 16-bit variables, which are converted piece by piece, relative to float32."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from .common import best_times, operands, public, step, times

#: Elements, and steps per measurement; the small ones on one thread.
SIZES = {
    "2^12 on one thread": (1 << 12, 200),
    "2^16 on one thread": (1 << 16, 20),
    "2^20": (1 << 20, 2),
    "2^24": (1 << 24, 1),
}


class Halves:
    """The time of a step with all arrays in 16 bits relative to one in float32."""

    params = (
        ["gradient_descent", "momentum", "adamax", "adam", "rms_prop"],
        ["float16", "bfloat16"],
        list(SIZES),
    )
    param_names = ("rule", "dtype", "elements")
    unit = "times"

    def setup(self, rule: str, dtype: str, elements: str) -> None:
        if dtype == "bfloat16" and find_spec("ml_dtypes") is None:
            raise NotImplementedError("ml_dtypes is not installed")
        size, number = SIZES[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        kind = np.dtype(dtype if dtype == "float16" else import_module("ml_dtypes").bfloat16)
        single = operands(rule, size)
        self.single = times(number, step(rule, single))
        self.half = times(number, step(rule, [array.astype(kind) for array in single]))

    def track_ratio_to_float32(self, rule: str, dtype: str, elements: str) -> float:
        half, single = best_times(self.half, self.single)
        return half / single
