"""The dtypes of blocks of codes, and a comparison of stored arrays."""

from __future__ import annotations

import numpy as np

from tfopt.storage import DYNAMIC8, POSITIVE4, POSITIVE8, POSITIVE_DYNAMIC8, SIGNED4, SIGNED8

BLOCKS = [SIGNED8, POSITIVE8, SIGNED4, POSITIVE4, DYNAMIC8, POSITIVE_DYNAMIC8]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays hold the same bits, but for the payloads of NaNs."""
    if a.dtype in BLOCKS:
        unit = a.dtype.names[0]
        return same(a[unit], b[unit]) and bool((a["codes"] == b["codes"]).all())
    wide = np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))
    return a.dtype == b.dtype and bool(
        ((a.view(f"u{a.itemsize}") == b.view(f"u{a.itemsize}")) | (wide[0] & wide[1])).all()
    )
