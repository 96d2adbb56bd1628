"""Whether to center dense features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["centering_shift"]

#: The share of a squared mean that rounding may make of a Hessian that is not centered.
MEAN_ROUNDING = 1e-8


def centering_shift(
    moments: np.ndarray, n: int, is_factorized: Callable[[], bool]
) -> np.ndarray | None:
    """Return the feature means if dense features should be centered, else None.

    The moments are sums over n samples.

    With an unpenalized intercept, centering does not change the minimum, but coordinate ascent
    converges slowly if the means are large beside the standard deviations. CSR matrices are not
    centered, to keep them sparse. Where Hessians are factorized, the intercept among the unknowns,
    or coordinate descent eliminates it, centering only saves digits: it is left out, and with it a
    copy of X, if enough of them remain.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, square = moments / n
        squared_mean = np.square(mean)
        variance = square - squared_mean
        if not squared_mean.sum() > variance.sum():
            return None
        keeps_digits = (MEAN_ROUNDING * squared_mean <= variance).all()
    return None if keeps_digits and is_factorized() else np.asarray(mean)
