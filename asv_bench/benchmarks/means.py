"""The weighted mean of ten models, relative to one scan of them and to NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .common import best_times, filled, public

MEMBERS = 10
SIZE = 1 << 22


@cache
def _calls() -> dict[str, Callable[[], Any]]:
    weighted_mean = public("means.weighted_mean")
    members, base = [filled(SIZE) for _ in range(MEMBERS)], filled(SIZE)
    weights = np.arange(1.0, MEMBERS + 1)
    step = public("optimizers.Adam")().step
    bits = [member.view(np.uint32) for member in members]

    def with_adam() -> None:
        step(base, weighted_mean(members, weights, base=base).mean)

    return {
        "a scan of the members": lambda: [each.max() for each in bits],
        "the mean, checked": lambda: weighted_mean(members, weights),
        "the mean below a base, checked, and Adam": with_adam,
        "np.average": lambda: np.average(members, axis=0, weights=weights.astype(np.float32)),
    }


class WeightedMeans:
    """Ten float32 models of 2**22 elements."""

    params = ["the mean, checked", "the mean below a base, checked, and Adam", "np.average"]
    param_names = ("call",)
    unit = "times a scan of the members"

    def track_ratio(self, call: str) -> float:
        calls = _calls()
        scan, time = best_times(calls["a scan of the members"], calls[call])
        return time / scan
