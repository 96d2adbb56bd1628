"""Functions that ignore NaN, whose gradient is 0 there."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.vjps.composed import composed
from tfopt.autodiff.vjps.reductions import mask_of


def _filled(function: Any, fill: float) -> Any:
    """Apply a function to an array whose NaN are replaced by a number."""
    return lambda a, *args, **kwargs: function(np.where(np.isnan(a), fill, a), *args, **kwargs)


def _without(function: Any) -> Any:
    """Apply a function to the elements that are not NaN."""

    def composition(a: Any, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        known = np.logical_and(~np.isnan(a), mask_of(where))
        return function(np.where(np.isnan(a), 0, a), *args, where=known, **kwargs)

    return composition


_function: Any
_plain: Any
for _function, _plain, _fill in (
    (np.nansum, np.sum, 0), (np.nanprod, np.prod, 1), (np.nancumsum, np.cumsum, 0),
    (np.nancumprod, np.cumprod, 1), (np.nanmax, np.max, -np.inf), (np.nanmin, np.min, np.inf),
):  # fmt: skip
    composed(_function, _filled(_plain, _fill))
for _function, _plain in ((np.nanmean, np.mean), (np.nanvar, np.var), (np.nanstd, np.std)):
    composed(_function, _without(_plain))
