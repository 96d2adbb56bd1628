"""Conventions for gradients where functions have none: at kinks, poles, ties and for NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golden.autodiff.behaviours import gradient
from golden.autodiff.facades import plain

__all__ = ["CONVENTIONS", "RECOMMENDED"]

INF, NAN = float("inf"), float("nan")


def _of(function: Callable[..., Any], *values: Any) -> Callable[[Any], Any]:
    """Return what finds the gradients of a function of NumPy and arrays."""
    return lambda t: gradient(t, lambda *x: function(t.np, *x), *values)


def _complex(function: Callable[..., Any]) -> Callable[[Any], Any]:
    def found(t: Any) -> Any:
        x = t.constant(3 + 4j)
        with t.GradientTape() as tape:
            tape.watch(x)
            y = function(t.np, x)
        g = tape.gradient(y, x)
        return plain([t.np.real(g), t.np.imag(g)])

    return found


CONVENTIONS: dict[str, Callable[[Any], Any]] = {
    "inf times 0": _of(lambda np, x: x * INF, 0.0),
    "0 / 0": _of(lambda np, x, y: x / y, 0.0, 0.0),
    "1 / 0": _of(lambda np, x, y: x / y, 1.0, 0.0),
    "base 0": _of(lambda np, x: np.power(x, [1.0, 2.0, 0.5, -1.0]), [0.0] * 4),
    "base 0, exponent 0": _of(lambda np, x: np.power(x, [0.0]), [0.0]),
    "negative base": _of(lambda np, x: np.power(x, [2.0, 3.0]), [-2.0, -2.0]),
    "exponent of a base not positive": _of(
        lambda np, x, y: np.power(x, y), [-2.0, 0.0], [2.0, 2.0]
    ),
    "log": _of(lambda np, x: np.log(x), [0.0, -1.0]),
    "log1p": _of(lambda np, x: np.log1p(x), [-1.0]),
    "sqrt": _of(lambda np, x: np.sqrt(x), [0.0, -1.0]),
    "sqrt of a branch not taken": _of(lambda np, x: np.where(x > 0, np.sqrt(x), 0.0), [0.0, 4.0]),
    "log of a branch not taken": _of(lambda np, x: np.where(x > 0, np.log(x), 0.0), [0.0, 4.0]),
    "reciprocal": _of(lambda np, x: np.reciprocal(x), [0.0]),
    "absolute": _of(lambda np, x: np.absolute(x), [0.0, -0.0, 2.0, -2.0]),
    "sign": _of(lambda np, x: np.sign(x), [0.0, 2.0]),
    "floor": _of(lambda np, x: np.floor(x), [0.5]),
    "rint": _of(lambda np, x: np.rint(x), [0.5]),
    "floor_divide": _of(lambda np, x, y: x // y, [5.0], [2.0]),
    "comparison": _of(lambda np, x: np.where(x > 0.0, 1.0, 0.0), [1.0]),
    "argmax": _of(lambda np, x: np.argmax(x), [1.0, 2.0]),
    "maximum, tie": _of(lambda np, x, y: np.maximum(x, y), [1.0], [1.0]),
    "maximum, NaN": _of(lambda np, x, y: np.maximum(x, y), [NAN, 1.0], [1.0, NAN]),
    "maximum with 0": _of(lambda np, x: np.maximum(x, 0.0), [0.0, -1.0, 1.0]),
    "0 with maximum": _of(lambda np, x: np.maximum(0.0, x), [0.0, -1.0, 1.0]),
    "minimum, tie": _of(lambda np, x, y: np.minimum(x, y), [1.0], [1.0]),
    "minimum, NaN": _of(lambda np, x, y: np.minimum(x, y), [NAN, 1.0], [1.0, NAN]),
    "where": _of(lambda np, x, y: np.where(x > y, x, y), [1.0, 3.0], [2.0, 2.0]),
    "clip": _of(lambda np, x, a, b: np.clip(x, a, b), [0.0, 1.0, 2.0, 3.0, 4.0], 1.0, 3.0),
    "remainder": _of(lambda np, x, y: np.remainder(x, y), [5.5, -5.5], [2.0, 2.0]),
    "arcsin": _of(lambda np, x: np.arcsin(x), [1.0]),
    "arccos": _of(lambda np, x: np.arccos(x), [1.0]),
    "arccosh": _of(lambda np, x: np.arccosh(x), [1.0]),
    "arctanh": _of(lambda np, x: np.arctanh(x), [1.0]),
    "arctan2": _of(lambda np, y, x: np.arctan2(y, x), [0.0, 1.0], [0.0, 2.0]),
    "hypot": _of(lambda np, x, y: np.sqrt(x * x + y * y), [3.0], [4.0]),
    "hypot at 0": _of(lambda np, x, y: np.hypot(x, y), [0.0], [0.0]),
    "prod": _of(lambda np, x: np.prod(x), [2.0, 0.0, 4.0]),
    "prod, two zeros": _of(lambda np, x: np.prod(x), [2.0, 0.0, 0.0]),
    "max, ties": _of(lambda np, x: np.max(x), [3.0, 1.0, 3.0]),
    "max, NaN": _of(lambda np, x: np.max(x), [NAN, 1.0]),
    "std of a constant": _of(lambda np, x: np.std(x), [2.0, 2.0]),
    "logsumexp": _of(lambda np, x: np.logsumexp(x), [1.0, 2.0, -INF]),
    "logsumexp of -inf": _of(lambda np, x: np.logsumexp(x), [-INF, -INF]),
    "norm": _of(lambda np, x: np.norm(x), [3.0, 4.0]),
    "norm at 0": _of(lambda np, x: np.norm(x), [0.0, 0.0]),
    "norm 1": _of(lambda np, x: np.norm(x, ord=1), [3.0, -4.0, 0.0]),
    "norm inf": _of(lambda np, x: np.norm(x, ord=INF), [3.0, -3.0, 1.0]),
    "cumprod": _of(lambda np, x: np.cumprod(x), [2.0, 3.0, 4.0]),
    "cumprod, a zero": _of(lambda np, x: np.cumprod(x), [2.0, 0.0, 4.0]),
    "sort, ties": _of(lambda np, x: np.sort(x) * [1.0, 10.0, 100.0], [2.0, 1.0, 2.0]),
    "mean of nothing": _of(lambda np, x: np.mean(x[:0]), [1.0]),
    "reflect": _of(lambda np, x: np.pad(x, 1, "reflect"), [1.0, 2.0, 3.0]),
    "cholesky": _of(lambda np, x: np.cholesky(x), [[2.0, 1.0], [1.0, 2.0]]),
    "complex square": _complex(lambda np, x: x * x),
    "complex absolute": _complex(lambda np, x: np.absolute(x)),
    "complex quotient": _complex(lambda np, x: (1 + 2j) / x),
    "complex exp": _complex(lambda np, x: np.exp(x)),
    "complex sqrt": _complex(lambda np, x: np.sqrt(x)),
    "complex log": _complex(lambda np, x: np.log(x)),
    "complex sin": _complex(lambda np, x: np.sin(x / 4.0)),
    "complex tanh": _complex(lambda np, x: np.tanh(x / 4.0)),
    "real": _complex(lambda np, x: np.real(x)),
    "imag": _complex(lambda np, x: np.imag(x)),
    "angle": _complex(lambda np, x: np.angle(x)),
    "conj": _complex(lambda np, x: np.conj(x) * (1 + 2j)),
}

#: Where we do something else on purpose: our answer.
RECOMMENDED: dict[str, Any] = {
    "base 0, exponent 0": [0.0],
    "hypot at 0": [[0.0], [0.0]],
    "norm at 0": [0.0, 0.0],
    "std of a constant": [0.0, 0.0],
    "cumprod, a zero": [1.0, 10.0, 0.0],
}
