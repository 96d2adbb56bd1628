"""The rules: how gradients are propagated back through NumPy's functions.

A function that other functions make up (a variance, a norm) needs no rule: its gradient is theirs.
"""

from tfopt_ref.autodiff.vjps import clipping, elementwise, linear, moved

__all__ = ["clipping", "elementwise", "linear", "moved"]
