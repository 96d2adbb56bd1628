"""The rules: how gradients go back through NumPy's functions."""

from tfopt_ref.autodiff.vjps import composed, elementwise, indexing, linalg, reductions, shapes

__all__ = ["composed", "elementwise", "indexing", "linalg", "reductions", "shapes"]
