"""SciPy's functions that have no ufunc, of tensors: the same values, with gradients.

Modules and functions are named as SciPy's. SciPy itself converts their arguments to arrays, where
gradients end. Its ufuncs convert nothing, and have gradients under their own names.
"""

from tfopt.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]


def __dir__() -> list[str]:
    return __all__
