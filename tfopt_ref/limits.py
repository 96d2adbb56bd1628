"""Limits of gradients before a step: bounds of elements, then norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import computed, operand
from tfopt_ref.clip_ops import maximum, minimum, scaled
from tfopt_ref.norms import factors, norm
from tfopt_ref.update import Gradient, Rows, mapped, summed, times, values_of

# A gradient, the treatment of its repeated rows, and its factor.
Limited = tuple[Gradient, str, float]


def limited(
    grads: Sequence[Gradient], config: Mapping[str, Any], scale: float, duplicates: Sequence[str],
    known: float | None = None,
) -> list[Limited]:  # fmt: skip
    """Return each gradient, the treatment of its repeated rows, and a factor to keep the limits.

    A rule multiplies by the factor without rounding the product. Where rows are summed first, the
    products are summed, and the sums are rounded. `known` is the norm of all gradients, if known.
    """
    if not has_limits(config):
        return [(grad, how, scale) for grad, how in zip(grads, duplicates, strict=True)]
    if config.get("merge") == "before":
        duplicates = ["error"] * len(duplicates)  # no row is repeated
    found: list[Limited] = []
    grads, made = scales(grads, config, scale, known)
    for grad, (first, second), how in zip(grads, made, duplicates, strict=True):
        if second != 1:
            found.append((mapped(scaled, grad, first, second), how, scale))
        elif isinstance(grad, Rows) and how == "sum":
            found.append((_scaled_sum(grad, float(first) * scale), "error", 1.0))
        else:
            found.append((grad, how, float(first) * scale))
    return found


def copied(
    grads: Sequence[Gradient], config: Mapping[str, Any], scale: float, known: float | None = None
) -> list[Gradient]:
    """Return gradients multiplied by a scale and limited, each rounded to its dtype."""
    grads = [times(grad, scale) for grad in grads]
    if not has_limits(config):
        return list(grads)
    grads, made = scales(grads, config, 1.0, None if known is None else known * scale)
    both = zip(grads, made, strict=True)
    return [mapped(scaled, grad, *pair) for grad, pair in both]


def has_limits(config: Mapping[str, Any]) -> bool:
    """Return whether an optimizer limits gradients."""
    return bool({"clipvalue", "clipnorm", "global_clipnorm"} & set(config))


def scales(
    grads: Sequence[Gradient], config: Mapping[str, Any], scale: float, known: float | None
) -> tuple[list[Gradient], list[tuple[Any, Any]]]:
    """Return gradients with clipped elements, and two factors for each that limit the norm.

    The limits apply to the gradients times a scale. The second factor is 1, unless the product of
    both is not a normal number.
    """
    if config.get("merge") == "before":
        grads = [summed(grad) if isinstance(grad, Rows) else grad for grad in grads]
    if "clipvalue" in config:
        grads = [mapped(_bounded, grad, config["clipvalue"] / scale) for grad in grads]
    arrays = [values_of(grad) for grad in grads]
    limit = np.float64(config.get("clipnorm", config.get("global_clipnorm", np.inf)) / scale)
    if "global_clipnorm" in config:
        root, exponent = norm(arrays) if known is None else (np.float64(known), 0)
        norms = [(root, exponent) for _ in arrays]
        limit = limit if np.isfinite(root) or limit == np.inf else np.float64(np.nan)
    else:
        norms = [norm([x]) for x in arrays]
    made = zip(arrays, norms, strict=True)
    return list(grads), [factors(*each, limit, computed(x.dtype)) for x, each in made]


def densified(grad: Gradient, variable: np.ndarray) -> np.ndarray:
    """Return a gradient of some rows as a gradient of the whole variable, with zeros elsewhere."""
    if not isinstance(grad, Rows):
        return grad
    rows = summed(grad)
    dense = np.zeros(variable.shape, rows.values.dtype)
    dense[rows.indices] = rows.values
    return dense


def _scaled_sum(rows: Rows, factor: float) -> Rows:
    dtype = computed(rows.values.dtype)
    with np.errstate(all="ignore"):
        product = np.asarray(operand(rows.values, dtype) * operand(factor, dtype))
        total = summed(Rows(product, rows.indices))
        return Rows(total.values.astype(rows.values.dtype), total.indices)


def _bounded(x: np.ndarray, bound: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        high = np.asarray(bound).astype(x.dtype)
        return maximum(minimum(x, high), -high)
