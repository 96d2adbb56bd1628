"""An update by either package: tfopt's op in place, or what the specification's formula makes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import tfopt
import tfopt_ref
from tfopt_ref.update import Rows, updated

__all__ = ["update"]


def update(package: ModuleType, rule: str, *operands: Any, **options: Any) -> None:
    """Update a variable and its slots by a rule and a gradient."""
    if package is tfopt:
        getattr(tfopt.training_ops, f"apply_{rule}")(*operands, **options)
        return
    op = getattr(tfopt_ref.training_ops, f"apply_{rule}")
    *arrays, grad = map(np.asarray, operands)
    duplicates = options.pop("duplicates", "sequential")
    indices = options.pop("indices", None)
    scales = {name: options.pop(name, 1.0) for name in ("grad_scale", "var_scale")}
    given = grad if indices is None else Rows(grad, indices)
    new = updated(op, arrays, given, options, duplicates=duplicates, **scales)
    for array, value in zip(arrays, new, strict=True):
        array[...] = value
