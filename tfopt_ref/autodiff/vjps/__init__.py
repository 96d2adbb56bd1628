"""The rules: how gradients go back through NumPy's functions."""

from tfopt_ref.autodiff.vjps import (
    composed,
    decompositions,
    derived,
    elementwise,
    indexing,
    linalg,
    linear,
    norms,
    reductions,
    shapes,
    special,
    statistics,
)  # fmt: skip

__all__ = [
    "composed", "decompositions", "derived", "elementwise", "indexing", "linalg", "linear",
    "norms", "reductions", "shapes", "special", "statistics",
]  # fmt: skip
