"""The weighted mean of several arrays, or of the differences from a base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import computed, operand


def weighted_mean(
    members: Sequence[Any],
    weights: Any = None,
    *,
    base: Any = None,
    nonfinite: str = "raise",
) -> tuple[np.ndarray, np.ndarray]:
    """Return sum_k w_k x_k / sum_k w_k, or with a base sum_k w_k (base - x_k) / sum_k w_k.

    Members, one array each, are added in their order; each product and sum is rounded in the dtype
    of the computation. Members that are not finite are skipped, or propagate.

    McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017.
    """
    bad = np.array([not np.isfinite(np.asarray(x, np.float64)).all() for x in members])
    kept = [k for k in range(len(members)) if not (bad[k] and nonfinite == "skip")]
    w = np.ones(len(members)) if weights is None else np.asarray(weights, np.float64)
    w = w / w.max()
    w = w / w.sum()
    if len(kept) < len(members):
        w = w / w[kept].sum()
    like = np.asarray(members[0] if base is None else base)
    dtype = computed(like.dtype)
    total = operand(np.zeros(like.shape), dtype)
    for k in kept:
        x = operand(members[k], dtype)
        total = total + dtype.type(w[k]) * (x if base is None else operand(base, dtype) - x)
    return np.asarray(total).astype(like.dtype), bad
