"""Rules of the parts, angles and conjugates of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.operands import as_tensor, operand
from tfopt.autodiff.ops import elementwise, implements, method
from tfopt.autodiff.vjps.arguments import is_operation
from tfopt.core.engine import Op, apply

elementwise(np.conjugate, lambda g, y, x: conj(g))
REAL = Op("real", np.real, views=True)
REAL.define(lambda g, y, x: g + 0j if np.iscomplexobj(x) else g)
IMAG = Op("imag", np.imag, views=True)
IMAG.define(lambda g, y, x: g * 1j if np.iscomplexobj(x) else np.zeros_like(x))
ANGLE = Op("angle", lambda x, deg=False: np.angle(x, deg))
ANGLE.define((lambda g, y, x, deg=False: _angle(g * (180 / np.pi) if deg else g, x), "a"))


def _angle(g: Any, x: Any) -> Any:
    if not np.iscomplexobj(x):
        return np.zeros_like(x)
    size = np.absolute(x)
    return g * np.where(size == 0, 0, x * 1j / np.where(size == 0, 1, size * size))


method("real")(is_operation(np.real, REAL))
method("imag")(is_operation(np.imag, IMAG))


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """Return the argument of complex numbers."""
    return apply(ANGLE, (operand(z),), {"deg": True} if deg else None)


#: Whether the result is real, values say.
REAL_IF_CLOSE = Op("real_if_close", np.real_if_close, views=True, sized=False)
REAL_IF_CLOSE.define(lambda g, y, a, tol: g)


@implements(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Any:
    """Return the real parts, if the imaginary ones are close to 0."""
    return apply(REAL_IF_CLOSE, (operand(a),), {"tol": tol})


method("conj", "conjugate")(lambda x: conj(as_tensor(x)))
