"""Gradients clipped before an update: to bounds, then by norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand
from tfopt_ref.clip_ops import clip_by_global_norm, clip_by_norm, clip_by_value, scaled
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.norms import computed, factors, norm
from tfopt_ref.optimizers.schedules import refuse_variable

__all__ = ["Limit", "clipped", "clipped_gradients"]

Call = tuple[tuple[np.ndarray, ...], dict[str, Any]]


class Limit:
    """An attribute that holds None or a number that is at least 0."""

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


def clipped(calls: list[Call], optimizer: Any, scale: float) -> tuple[list[Call], bool]:
    """Return calls, each an op's arrays and options, of clipped gradients times a scale.

    And whether a norm was made smaller. The limits are those of the products.
    """
    limits = optimizer.clipvalue, optimizer.clipnorm, optimizer.global_clipnorm
    if limits == (None, None, None):
        return [(arrays, {**options, "grad_scale": scale}) for arrays, options in calls], False
    clipvalue, clipnorm, global_clipnorm = (None if x is None else x / scale for x in limits)
    if any(arrays[-1].dtype.kind == "c" for arrays, _ in calls):
        raise InvalidTypeError(
            f"gradients of {next(a[-1].dtype for a, _ in calls if a[-1].dtype.kind == 'c')} "
            "cannot be clipped"
        )
    if optimizer.merge == "before":
        calls = [merged(*call) for call in calls]
    bound = clipvalue
    if bound is not None:
        calls = [
            ((*arrays, clip_by_value(grad, -bound, bound)), options)
            for (*arrays, grad), options in calls
        ]
    grads = [arrays[-1] for arrays, _ in calls]
    if clipnorm is not None:
        norms = [norm([grad]) for grad in grads]
        limit = np.float64(clipnorm)
    elif global_clipnorm is not None:
        root, exponent = norm(grads)
        norms = [(root, exponent)] * len(grads)
        limit = np.float64(global_clipnorm)
        if not np.isfinite(root) and limit != np.inf:
            limit = np.float64(np.nan)
    else:
        norms, limit = [(np.float64(0), 0)] * len(grads), np.float64(np.inf)
    own = [
        factors(*one, limit, computed(grad.dtype)) for one, grad in zip(norms, grads, strict=True)
    ]
    made = [scaled_call(*call, *by, scale) for call, by in zip(calls, own, strict=True)]
    return made, any(first != 1 for first, _ in own)


def merged(arrays: tuple[np.ndarray, ...], options: dict[str, Any]) -> Call:
    """Return a call whose rows of one index have been summed."""
    if "indices" not in options:
        return arrays, options
    *variables, grad = arrays
    slices = IndexedSlices(grad, options["indices"]).sum_duplicates()
    return (*variables, slices.values), {
        **options,
        "indices": slices.indices,
        "duplicates": "error",  # there are none
    }


def scaled_call(
    arrays: tuple[np.ndarray, ...], options: dict[str, Any], first: Any, second: Any, scale: float
) -> Call:
    """Return a call whose gradient is multiplied by what clips it, and by a scale.

    The product is not rounded to 16 bits before it is used.
    """
    *variables, grad = arrays
    dtype = computed(grad.dtype)
    if second != 1:
        return (*variables, scaled(grad, first, second)), {**options, "grad_scale": scale}
    first = float(first) * scale
    if options.get("duplicates") != "sum":
        return arrays, {**options, "grad_scale": first}
    with np.errstate(all="ignore"):
        rows = np.asarray(operand(grad, dtype) * operand(first, dtype))
        summed = IndexedSlices(rows, options["indices"]).sum_duplicates()
        options = {**options, "indices": summed.indices}
        return (*variables, summed.values.astype(grad.dtype)), options


def clipped_gradients(optimizer: Any, grads: list[Any]) -> list[Any]:
    """Return clipped copies of gradients: to bounds, then by norms."""
    if optimizer.merge == "before":
        grads = [g.sum_duplicates() if isinstance(g, IndexedSlices) else g for g in grads]
    if optimizer.clipvalue is not None:
        grads = [clip_by_value(g, -optimizer.clipvalue, optimizer.clipvalue) for g in grads]
    if optimizer.clipnorm is not None:
        grads = [clip_by_norm(g, optimizer.clipnorm) for g in grads]
    if optimizer.global_clipnorm is not None:
        grads = clipped_together(grads, optimizer.global_clipnorm)
    return grads


def clipped_together(grads: list[Any], limit: float) -> list[Any]:
    """Return copies of gradients, of one dtype or several, clipped by their common norm."""
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    if len({array.dtype for array in arrays}) <= 1:
        clipped: list[Any] = clip_by_global_norm(grads, limit)[0]
        return clipped
    for array in arrays:
        if array.dtype.kind == "c":
            raise InvalidTypeError(f"gradients of {array.dtype} cannot be clipped with real ones")
    root, exponent = norm(arrays)
    most = np.float64(np.nan if not np.isfinite(root) and limit != np.inf else limit)
    made = [scaled(a, *factors(root, exponent, most, computed(a.dtype))) for a in arrays]
    return [
        IndexedSlices(array, grad.indices) if isinstance(grad, IndexedSlices) else array
        for grad, array in zip(grads, made, strict=True)
    ]
