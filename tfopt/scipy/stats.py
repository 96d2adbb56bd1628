"""``scipy.stats``: the logarithm of the normal distribution's density."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.autodiff.operands import array_operand
from tfopt.scipy.functions import composed

__all__ = ["norm"]


def _logpdf(x: Any, loc: Any, scale: Any) -> Any:
    if any(part is None or np.iscomplexobj(part) for part in (x, loc, scale)):
        raise LookupError("no gradient of norm.logpdf with None or complex numbers")
    scale = array_operand(scale)
    scale = np.where(scale > 0, scale, np.nan)
    z = (array_operand(x) - loc) / scale
    return -z * z / 2 - np.log(scale) - math.log(2 * math.pi) / 2


class Norm:
    """The normal distribution, as ``scipy.stats.norm``."""

    __slots__ = ()

    def logpdf(self, x: Any, loc: Any = 0, scale: Any = 1) -> Any:
        """Return the logarithm of the density.

        Parameters
        ----------
        x : array_like, Tensor or Variable
        loc, scale : array_like, Tensor or Variable
            The mean and the standard deviation, which broadcast with `x`.

        Returns
        -------
        Tensor of float64; of arrays alone, what SciPy returns
            NaN where `scale` is not positive.

        Notes
        -----
        ``scipy.stats.norm.logpdf``, which computes the values. The other functions of this
        distribution are ufuncs of ``scipy.special``: ``ndtr``, ``log_ndtr`` and ``ndtri``.

        Examples
        --------
        >>> import tfopt
        >>> from tfopt.scipy.stats import norm
        >>> x = tfopt.constant([0.0, 3.0])
        >>> with tfopt.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = norm.logpdf(x, loc=1.0)
        >>> tape.gradient(y, x).tolist()
        [1.0, -2.0]
        """
        return composed("stats.norm.logpdf", _logpdf, x, loc, scale)


#: The normal distribution.
norm = Norm()
