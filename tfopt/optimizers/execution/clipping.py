"""Gradients clipped on their way into an update.

A norm needs a pass over the gradients; clamping and scaling do not, for the update does them as it
reads. So clipping by norm reads the gradients once more, and by value moves no memory at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.clip_ops import clip_by_global_norm, clip_by_norm, clip_by_value
from tfopt.clip_ops.scaling import scale
from tfopt.clip_ops.validation import Array, computed
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import factor, set_bounds, set_scales
from tfopt.kernels.norms import norm
from tfopt.optimizers.execution.route import NotFinite
from tfopt.optimizers.schedules.schedule import refuse_variable

__all__ = ["Checked", "Limit", "clipped_calls", "clipped_gradients"]

Factor: TypeAlias = tuple[float, float]
Norm: TypeAlias = tuple[float, int]  # which is the first times two to the power of the second


class Limit:
    """An attribute that holds None or a number that is at least 0; infinity clips nothing."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: Any, owner: type | None = None) -> float | None:
        number: float | None = optimizer.__dict__.get(self.name)
        return number

    def __set__(self, optimizer: Any, value: Any) -> None:
        if value is not None:
            refuse_variable(self.name, value)
            if isinstance(value, (str, bytes, bool)) or getattr(value, "shape", ()) != ():
                raise InvalidTypeError(f"{self.name} must be a number, not {value!r}")
            try:
                value = float(value)
            except (TypeError, ValueError):
                raise InvalidTypeError(f"{self.name} must be a number, not {value!r}") from None
            except OverflowError:
                raise InvalidArgumentError(f"{self.name} is beyond what a float holds") from None
            if not value >= 0:
                raise InvalidArgumentError(f"Expected {self.name} >= 0, received: {value}")
            norms = {"clipnorm": optimizer.clipnorm, "global_clipnorm": optimizer.global_clipnorm}
            if self.name in norms:
                norms[self.name] = value
                if None not in norms.values():
                    passed = ", ".join(f"`{name}` {limit}" for name, limit in norms.items())
                    raise InvalidArgumentError(
                        f"Cannot accept both `clipnorm` and `global_clipnorm`, passed {passed}"
                    )
        optimizer.__dict__[self.name] = value


class Checked(NamedTuple):
    """A call that has been checked, and how to make it anew of other gradients."""

    call: Call
    gradients: list[Array]
    places: Sequence[int]  # of the gradients among those of the step
    remake: Callable[[list[Array]], Call]
    summed: Callable[[float | None, float], Call] | None  # of rows that are clipped and then summed


def clipped_calls(
    checked: list[Checked],
    clipvalue: float | None,
    clipnorm: float | None,
    global_clipnorm: float | None,
    scale: float = 1.0,
    finite: bool = False,
) -> tuple[list[Call], bool]:
    """Return calls that clip gradients times a scale: to bounds, then by norms.

    And whether any norm is to be made smaller.

    As the gradients are there without it, the limits are divided by it instead. If they are to be
    `finite`, norms have to be.

    Raises
    ------
    InvalidTypeError
        If a gradient is complex.
    NotFinite
        If a norm is not finite but has to be.
    """
    clipvalue, clipnorm, global_clipnorm = (
        None if limit is None else limit / scale for limit in (clipvalue, clipnorm, global_clipnorm)
    )
    for one in checked:
        for gradient in one.gradients:
            if gradient.dtype.kind == "c":
                raise InvalidTypeError(f"gradients of {gradient.dtype} cannot be clipped")
    bounds = [[_bound(clipvalue, g.dtype) for g in one.gradients] for one in checked]
    if clipnorm is not None:
        factors = [
            [
                _factor(g, _norm([g], [bound], finite), clipnorm)
                for g, bound in zip(one.gradients, own, strict=True)
            ]
            for one, own in zip(checked, bounds, strict=True)
        ]
    elif global_clipnorm is not None:
        common = _norm(*_in_order(checked, bounds), finite)
        factors = _global_factors([one.gradients for one in checked], common, global_clipnorm)
    else:
        factors = [[(1.0, 1.0)] * len(own) for own in bounds]
    clips = any(first != 1 for own in factors for first, _ in own)
    each = zip(checked, bounds, factors, strict=True)
    return [_clipped(one, bound, factor, scale) for one, bound, factor in each], clips


def _in_order(
    checked: list[Checked], bounds: list[list[float | None]]
) -> tuple[list[Array], list[float | None]]:
    """Return all gradients and bounds in the order of the step, in which squares are added."""
    gradients = [gradient for one in checked for gradient in one.gradients]
    limits = [bound for own in bounds for bound in own]
    if len(checked) == 1:
        return gradients, limits
    places = [place for one in checked for place in one.places]
    order = sorted(range(len(places)), key=places.__getitem__)
    return [gradients[k] for k in order], [limits[k] for k in order]


def _bound(clipvalue: float | None, dtype: np.dtype[Any]) -> float | None:
    """Return the bound as a gradient's dtype holds it."""
    if clipvalue is None:
        return None
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float64(clipvalue).astype(dtype))


def _norm(gradients: list[Array], bounds: list[float | None], finite: bool) -> Norm:
    given = [bound for bound in bounds if bound is not None]
    root, exponent = norm(gradients, given if len(given) == len(bounds) else None)
    if finite and not math.isfinite(root):
        raise NotFinite
    return root, exponent


def _factor(gradient: Array, measured: Norm, limit: float) -> Factor:
    return factor(*measured, limit, computed(gradient.dtype) is np.float32)


def _global_factors(
    gradients: list[list[Array]], measured: Norm, limit: float
) -> list[list[Factor]]:
    root, exponent = measured
    if not math.isfinite(root) and limit != math.inf:
        limit = math.nan  # everything becomes NaN, as in clip_by_global_norm

    @cache
    def of(single: bool) -> Factor:
        return factor(root, exponent, limit, single)

    return [[of(computed(g.dtype) is np.float32) for g in own] for own in gradients]


def _clipped(one: Checked, bounds: list[float | None], factors: list[Factor], scale: float) -> Call:
    limits = [bound for bound in bounds if bound is not None]
    call, firsts = one.call, [first for first, _ in factors]
    if any(second != 1 for _, second in factors):
        # A factor too small for a normal number: no single multiplication will do.
        each = zip(one.gradients, bounds, factors, strict=True)
        call = one.remake([_clip(g, bound, by) if by[1] != 1 else g for g, bound, by in each])
        if all(second != 1 for _, second in factors):
            return call
        firsts = [first if second == 1 else 1.0 for first, second in factors]
    elif one.summed is not None:
        return one.summed(bounds[0], firsts[0] * scale)
    if limits:
        set_bounds(call, limits)
    if any(first != 1 for first in firsts):
        set_scales(call, [first * scale for first in firsts])
    return call


def _clip(gradient: Array, bound: float | None, by: Factor) -> Array:
    """Return a clipped gradient."""
    clipped: Array = np.array(gradient) if bound is None else clip_by_value(gradient, -bound, bound)
    scale([clipped], [clipped], *by)
    return clipped


def clipped_gradients(
    grads: tuple[Any, ...],
    merge: str,
    clipvalue: float | None,
    clipnorm: float | None,
    global_clipnorm: float | None,
) -> tuple[Any, ...]:
    """Return clipped copies of gradients, for steps that do not clip as they read."""
    if merge == "before":
        grads = tuple(g.sum_duplicates() if isinstance(g, IndexedSlices) else g for g in grads)
    if clipvalue is not None:
        grads = tuple(clip_by_value(grad, -clipvalue, clipvalue) for grad in grads)
    if clipnorm is not None:
        grads = tuple(clip_by_norm(grad, clipnorm) for grad in grads)
    if global_clipnorm is not None:
        grads = _clipped_together(grads, global_clipnorm)
    return grads


def _clipped_together(grads: tuple[Any, ...], limit: float) -> tuple[Any, ...]:
    """Return copies of gradients, of one dtype or several, clipped by their common norm."""
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) <= 1:
        return tuple(clip_by_global_norm(list(grads), limit)[0])
    for dtype in dtypes:
        if dtype.kind == "c":
            raise InvalidTypeError(f"gradients of {dtype} cannot be clipped with real ones")
    measured = _norm(arrays, [None] * len(arrays), False)
    factors = _global_factors([arrays], measured, limit)[0]
    clipped = [_clip(array, None, by) for array, by in zip(arrays, factors, strict=True)]
    return tuple(
        IndexedSlices(array, grad.indices) if isinstance(grad, IndexedSlices) else array
        for grad, array in zip(grads, clipped, strict=True)
    )
