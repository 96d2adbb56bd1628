"""Gradient clipping fused into updates.

A norm needs a pass over the gradients; clamping and scaling do not, since the update does them
while it reads. So clipping by norm reads the gradients once more, and clipping by value causes no
additional memory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from tfopt.clip_ops import clip_by_global_norm, clip_by_norm, clip_by_value
from tfopt.clip_ops.scaling import scale
from tfopt.clip_ops.validation import Array, computed, of_rows, with_values
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.adjustments import gradients_of, set_bounds, set_scales
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.clip import factor
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.step.known_norms import KnownNorms, refuse_norm_on_device
from tfopt.optimizers.step.request import NotFinite
from tfopt.updates.rule_steps import RuleStep

__all__ = [
    "NO_LIMITS",
    "ClippedDense",
    "ClippedRows",
    "Limits",
    "clipped_calls",
    "clipped_gradients",
]

Factor: TypeAlias = tuple[float, float]
#: Of values, of norms and of the global norm
Limits: TypeAlias = tuple[float | None, float | None, float | None]
Norm: TypeAlias = tuple[float, int]  # (m, e) stands for m * 2**e

NO_LIMITS: Limits = (None, None, None)
_WITHIN: Factor = (1.0, 1.0)  # of a gradient within its limit


class ClippedDense:
    """The call of a dense update, which can be rebuilt with other gradients.

    Parameters
    ----------
    step : callable
        Returns the RuleStep of the call.
    operands : tuple of list of ndarray
        The variables, their first slots, their second slots and so on.
    call : Call
    places : sequence of int
        The positions of these gradients among those of the step.
    """

    def __init__(
        self,
        step: Callable[[], RuleStep],
        operands: tuple[list[Array], ...],
        call: Call,
        places: Sequence[int],
    ) -> None:
        self._step, self._operands, self.places = step, operands, places
        self.call = call
        self.gradients = gradients_of(self.call)

    def remade(self, gradients: list[Array]) -> Call:
        """Check and return a call with other gradients."""
        return self._step().dense(self._operands, gradients)


class ClippedRows:
    """The call of a sparse update, which can be rebuilt with other gradients.

    Parameters
    ----------
    step : RuleStep
    arrays : tuple of ndarray
        The variable and its slots.
    slices : IndexedSlices
    workspace : Workspace
        Where gradients of the same row are summed.
    place : int
        The position of this gradient among those of the step.
    merge : {"after", "before"}
        Whether gradients of the same row are summed after clipping or before it.
    """

    def __init__(
        self,
        step: RuleStep,
        arrays: tuple[Array, ...],
        slices: IndexedSlices,
        workspace: Workspace,
        place: int,
        merge: str,
    ) -> None:
        self._step, self._arrays, self._workspace = step, arrays, workspace
        # a rule that also steps rows without a gradient takes each row once
        unsummed = "sum" if step.everywhere else "sequential"
        self._duplicates = step.duplicates
        self.call = step.rows(arrays, slices, workspace, unsummed)
        if merge == "before":
            slices = slices.sum_duplicates()
            self._duplicates = "error" if step.everywhere else "sequential"  # there are none
            self.call = step.rows(arrays, slices, workspace, self._duplicates)
        self._slices, self.places = slices, (place,)
        self.sums = step.duplicates == "sum" and merge == "after"
        self.gradients = [slices.values] if step.everywhere else gradients_of(self.call)

    def remade(self, gradients: list[Array]) -> Call:
        """Check and return a call with other gradients."""
        slices = IndexedSlices(gradients[0], self._slices.indices)
        return self._step.rows(self._arrays, slices, self._workspace, self._duplicates)

    def summed(self, bound: float | None, scale: float) -> Call:
        """Check and return a call whose gradients are clamped to a bound, scaled and summed."""
        step, bound = self._step, math.inf if bound is None else bound
        rows = (*self._arrays, self._slices.values), self._slices.indices
        arguments = *rows, step.hypers, step.flags, 1.0, step.lazy, self._workspace
        call = sparse_call(step.kernel, *arguments, step.var_scale, bound, scale)
        return step.completed(call)


def clipped_calls(
    checked: Sequence[ClippedDense | ClippedRows],
    clipvalue: float | None,
    clipnorm: float | None,
    global_clipnorm: float | None,
    scale: float = 1.0,
    finite: bool = False,
    known: KnownNorms | None = None,
) -> tuple[list[Call], bool]:
    """Return calls that clip scaled gradients, and whether any norm exceeds its limit.

    The gradients are clipped by value, then by norm. As they have not been multiplied by `scale`
    yet, the limits are divided by it instead. With `finite`, all norms must be finite. What is
    known of norms is not computed.

    Raises
    ------
    InvalidTypeError
        If a gradient is complex.
    NotFinite
        If `finite` is true and a norm is not finite.
    """
    if scale != 1:
        limits = clipvalue, clipnorm, global_clipnorm
        clipvalue, clipnorm, global_clipnorm = _unscaled(limits, scale)
    bounds = [_bounds(part.gradients, clipvalue) for part in checked]
    together = None
    if clipnorm is None and global_clipnorm is not None:
        together = _norm(*_in_order(checked, bounds), finite, known)
    calls, clips = [], False
    for part, own in zip(checked, bounds, strict=True):
        factors: list[Factor] | None = None
        if clipnorm is not None:
            factors = _own_factors(part.gradients, own, clipnorm, finite, known)
        elif together is not None and global_clipnorm is not None:
            factors = _common_factors(part.gradients, together, global_clipnorm)
        clips = clips or _any_clips(factors)
        calls.append(_clipped(part, own, factors, scale))
    return calls, clips


def _bounds(gradients: list[Array], clipvalue: float | None) -> list[float] | None:
    """Return the bounds of real gradients' elements, in their dtypes; None if there are none."""
    bounds = []
    for gradient in gradients:
        dtype = gradient.dtype
        if dtype.kind == "c":
            raise InvalidTypeError(f"gradients of {dtype} cannot be clipped")
        if clipvalue is not None:
            bounds.append(_bound(clipvalue, dtype))
    return bounds or None


def _in_order(
    checked: Sequence[ClippedDense | ClippedRows], bounds: list[list[float] | None]
) -> tuple[list[Array], list[float] | None]:
    """Return all gradients and bounds in the order of the step, which fixes the summation order."""
    if len(checked) == 1:
        return checked[0].gradients, bounds[0]
    gradients = [gradient for part in checked for gradient in part.gradients]
    places = [place for part in checked for place in part.places]
    order = sorted(range(len(places)), key=places.__getitem__)
    limits = [bound for own in bounds if own is not None for bound in own]
    return [gradients[k] for k in order], [limits[k] for k in order] if limits else None


def _unscaled(limits: Limits, scale: float) -> Limits:
    value, by_norm, by_global_norm = (None if limit is None else limit / scale for limit in limits)
    return value, by_norm, by_global_norm


@lru_cache(1000)  # steps that are repeated have the same limits; a loss scale changes them
def _bound(clipvalue: float, dtype: np.dtype[Any]) -> float:
    """Return the bound rounded to a gradient's dtype."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float64(clipvalue).astype(dtype))


def _norm(
    gradients: list[Array],
    bounds: list[float] | None,
    finite: bool,
    known: KnownNorms | None,
    all_of_step: bool = True,
) -> Norm:
    """Return a norm; one that is given is that of all gradients of a step."""
    if known is None:
        root, exponent = norm(gradients, bounds)
    elif all_of_step and known.norm is not None:
        root, exponent = known.norm, 0
    else:
        root, exponent = norm(gradients, bounds, None if bounds else known.sums(gradients))
    if finite and not math.isfinite(root):
        raise NotFinite
    return root, exponent


def _own_factors(
    gradients: list[Array],
    bounds: list[float] | None,
    limit: float,
    finite: bool,
    known: KnownNorms | None,
) -> list[Factor]:
    """Return the factor of each gradient by its own norm."""
    factors = []
    for k, gradient in enumerate(gradients):
        root, exponent = _norm([gradient], bounds and [bounds[k]], finite, known, False)
        factors.append(factor(root, exponent, limit, _is_single(gradient.dtype)))
    return factors


@lru_cache(None)  # of the few dtypes of gradients
def _is_single(dtype: np.dtype[Any]) -> bool:
    """Whether gradients of a dtype are clipped in float32."""
    return computed(dtype) is np.float32


def _common_factors(gradients: list[Array], measured: Norm, limit: float) -> list[Factor]:
    """Return the factor of each gradient by the norm of all, rounded to what it is computed in."""
    root, exponent = measured
    if not math.isfinite(root) and limit != math.inf:
        limit = math.nan  # everything becomes NaN, as in clip_by_global_norm
    double, single = (factor(root, exponent, limit, narrow) for narrow in (False, True))
    return [single if _is_single(gradient.dtype) else double for gradient in gradients]


def _any_clips(factors: list[Factor] | None) -> bool:
    return factors is not None and factors.count(_WITHIN) < len(factors)


def _clipped(
    part: ClippedDense | ClippedRows,
    bounds: list[float] | None,
    factors: list[Factor] | None,
    scale: float,
) -> Call:
    call, clips = part.call, _any_clips(factors)
    if clips and factors is not None and any(by[1] != 1 for by in factors):
        # a factor too small for a normal number takes two multiplications
        each = zip(part.gradients, bounds or repeat(None), factors, strict=False)
        call = part.remade([_clip(g, bound, by) if by[1] != 1 else g for g, bound, by in each])
        if all(by[1] != 1 for by in factors):
            return call
        factors = [by if by[1] == 1 else _WITHIN for by in factors]
    elif isinstance(part, ClippedRows) and part.sums:
        first = 1.0 if factors is None else factors[0][0]
        return part.summed(None if bounds is None else bounds[0], first * scale)
    if bounds is not None:
        set_bounds(call, bounds)
    if clips and factors is not None:
        set_scales(call, [first * scale for first, _ in factors])
    return call


def _clip(gradient: Array, bound: float | None, by: Factor) -> Array:
    """Return a clipped copy of a gradient."""
    clipped: Array = np.array(gradient) if bound is None else clip_by_value(gradient, -bound, bound)
    scale([clipped], [clipped], *by)
    return clipped


def clipped_gradients(
    grads: tuple[Any, ...], merge: str, limits: Limits, known: KnownNorms | None
) -> tuple[tuple[Any, ...], bool]:
    """Return clipped copies of gradients, for steps without fused clipping.

    Also return whether any norm exceeds its limit; of gradients on a GPU this is not known.
    """
    if limits == NO_LIMITS:
        return grads, False
    clipvalue, clipnorm, global_clipnorm = limits
    if merge == "before":
        grads = tuple(g.sum_duplicates() if isinstance(g, IndexedSlices) else g for g in grads)
    if any(not isinstance(array, np.ndarray) for array in _arrays(grads)):
        refuse_norm_on_device(known)
        return _clipped_on_device(grads, *limits), False
    if clipvalue is not None:
        grads = tuple(clip_by_value(grad, -clipvalue, clipvalue) for grad in grads)
    arrays = _arrays(grads)
    _bounds(arrays, None)  # which refuses complex ones
    factors: list[Factor] | None = None
    if clipnorm is not None:
        factors = _own_factors(arrays, None, clipnorm, False, known)
    elif global_clipnorm is not None:
        together = _norm(arrays, None, False, known)
        factors = _common_factors(arrays, together, global_clipnorm)
    if factors is None:
        return grads, False
    clipped = [_clip(array, None, by) for array, by in zip(arrays, factors, strict=True)]
    each = zip(grads, clipped, strict=True)
    return tuple(with_values(grad, array) for grad, array in each), _any_clips(factors)


def _arrays(grads: tuple[Any, ...]) -> list[Any]:
    return [of_rows(grad) for grad in grads]


def _clipped_on_device(
    grads: tuple[Any, ...],
    clipvalue: float | None,
    clipnorm: float | None,
    global_clipnorm: float | None,
) -> tuple[Any, ...]:
    if clipvalue is not None:
        grads = tuple(clip_by_value(grad, -clipvalue, clipvalue) for grad in grads)
    if clipnorm is not None:
        grads = tuple(clip_by_norm(grad, clipnorm) for grad in grads)
    if global_clipnorm is not None:
        grads = tuple(clip_by_global_norm(list(grads), global_clipnorm)[0])
    return grads
