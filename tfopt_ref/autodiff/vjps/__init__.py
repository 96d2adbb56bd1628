"""The rules that propagate gradients back through NumPy's functions.

A function that consists of other functions, such as a variance or a norm, needs no rule of its own.
"""

from tfopt_ref.autodiff.vjps import clipping, elementwise, linear, moved

__all__ = ["clipping", "elementwise", "linear", "moved"]
