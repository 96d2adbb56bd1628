"""The rules: for each function of NumPy, how a gradient is propagated back through it.

A rule is ``vjp(g, y, *inputs, **keywords)``: `g` is the gradient of the output `y`. Complex
gradients are conjugate ones, as TensorFlow's: that of ``x * x`` is ``g * conj(2 * x)``.
"""

from tfopt.autodiff.vjps import (
    arguments,
    assembly,
    clipping,
    complex_parts,
    composed,
    decompositions,
    differences,
    einsum,
    elementwise,
    fourier,
    indexing,
    joining,
    linalg,
    nan_reductions,
    norms,
    reductions,
    scans,
    shapes,
    sparse,
    special,
    statistics,
    ufuncs,
    without_gradients,
)  # fmt: skip

__all__ = [
    "arguments", "assembly", "clipping", "complex_parts", "composed", "decompositions",
    "differences", "einsum", "elementwise", "fourier", "indexing", "joining", "linalg",
    "nan_reductions", "norms", "reductions", "scans", "shapes", "sparse", "special", "statistics",
    "ufuncs", "without_gradients",
]  # fmt: skip
