"""What is known of a step's gradients before it: their global norm, and sums of their squares."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.clip_ops.validation import as_limit
from tfopt.core.engine import Tensor, raw
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.reduce.norms import all_finite, span_sums
from tfopt.kernels.update.commit import Write

__all__ = [
    "KnownNorms",
    "Measured",
    "as_known",
    "as_scale",
    "measured",
    "refuse_norm_on_device",
]

_NOTHING: dict[int, Measured] = {}


class Measured(NamedTuple):
    """An array and the sums of squares of its spans."""

    array: np.ndarray
    sums: NDArray[np.float64]
    finite: bool


class KnownNorms(NamedTuple):
    """What a step need not compute.

    Attributes
    ----------
    norm : float, optional
        What clipping by the global norm takes for the norm of all gradients, as they are before
        they are scaled.
    arrays : mapping of int to Measured
        By the `id` of an array, so that nothing is known of the array that a wrapper makes of it.
    writes : tuple of Write
        What is carried out together with the step.
    """

    norm: float | None = None
    arrays: Mapping[int, Measured] = _NOTHING
    writes: tuple[Write, ...] = ()

    def sums(self, arrays: Sequence[np.ndarray]) -> list[NDArray[np.float64] | None]:
        """Return the sums of squares of arrays, None for those that are not known."""
        return [None if (m := self.arrays.get(id(each))) is None else m.sums for each in arrays]

    def split(self, arrays: Sequence[np.ndarray]) -> tuple[bool, list[np.ndarray]]:
        """Return whether those that are known are finite, and the others."""
        known = [self.arrays[id(each)] for each in arrays if id(each) in self.arrays]
        finite = self.norm is None or math.isfinite(self.norm)
        others = [each for each in arrays if id(each) not in self.arrays]
        return finite and all(each.finite for each in known), others

    def times(self, scale: float) -> KnownNorms:
        """Return what is known of the gradients' copies, multiplied by a number."""
        return KnownNorms(None if self.norm is None else self.norm * scale, writes=self.writes)


def measured(array: np.ndarray) -> Measured:
    """Return an array with the sums of its squares, in one pass over it.

    A complex one becomes an array of real and imaginary parts.
    """
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).ravel().view(array.real.dtype)
    sums, total = span_sums(array)
    finite = math.isfinite(total)
    if not finite and array.dtype == np.float64:
        finite = all_finite([array])  # squares may overflow
    return Measured(array, sums, finite)


def as_scale(grad_scale: Any) -> float:
    """Return the number that a caller multiplies gradients by."""
    if grad_scale is None:
        return 1.0
    scale = _number(grad_scale, "grad_scale")
    least, most = sys.float_info.min, 1 / sys.float_info.min  # limits are divided by it
    if not least <= scale <= most:
        raise InvalidArgumentError(f"grad_scale must be between {least} and {most}, not {scale}")
    return scale


def as_known(use_norm: Any) -> KnownNorms | None:
    """Return what a caller knows of gradients."""
    if use_norm is None:
        return None
    norm = _number(use_norm, "use_norm")
    if norm < 0:
        raise InvalidArgumentError(f"use_norm must not be negative: {norm}")
    return KnownNorms(norm)


def refuse_norm_on_device(known: KnownNorms | None) -> None:
    """Refuse a given norm of variables on a GPU."""
    if known is not None and known.norm is not None:
        raise InvalidArgumentError(
            "use_norm is for variables in host memory: of those on a GPU the step computes the norm"
        )


def _number(value: Any, name: str) -> float:
    return as_limit(raw(value) if isinstance(value, Tensor) else value, name)
