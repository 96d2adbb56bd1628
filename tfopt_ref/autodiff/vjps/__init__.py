"""The rules: how gradients go back through NumPy's functions."""

from tfopt_ref.autodiff.vjps import elementwise, indexing, linalg, reductions, shapes

__all__ = ["elementwise", "indexing", "linalg", "reductions", "shapes"]
