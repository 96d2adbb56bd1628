"""The arithmetic of the rules: NumPy's, with denormals flushed to zero or not.

The rules are plain expressions. Their operands decide the arithmetic: ordinary arrays have gradual
underflow; :class:`Flushed` arrays flush every operand and every result, as the processor does in
the mode of the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The smallest normal number of each dtype.
_TINY = {number: np.finfo(number).tiny for number in (np.float16, np.float32, np.float64)}
_flush = True


def set_flush_denormals(flush: bool) -> None:
    """Choose between flushing denormal numbers to zero (the default) and gradual underflow."""
    global _flush
    _flush = bool(flush)


def get_flush_denormals() -> bool:
    """Return whether denormals are flushed."""
    return _flush


def operand(values: Any, dtype: Any) -> np.ndarray:
    """Return the values as an operand of a rule, in the chosen arithmetic.

    Flushing is modelled for real numbers. In complex operations it happens within the operation.
    """
    array = np.asarray(values, dtype)
    if _flush and array.dtype.kind == "f":
        return flushed(array).view(Flushed)
    return array


class Flushed(np.ndarray):
    """An array in whose operations denormal operands and results count as zeros of their sign."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [_plain(x) for x in inputs]
        result = np.asarray(getattr(ufunc, method)(*plain, **kwargs))
        if result.dtype.kind != "f":
            return result
        size, tiny = np.abs(result), _TINY[result.dtype.type]
        if not (size <= tiny).any():
            return result.view(Flushed)
        least = size == tiny
        if ufunc in (np.multiply, np.divide) and least.any():
            rounded_up = least & _was_tiny(ufunc, plain, result.dtype)
            result = np.where(rounded_up, 0 * result, result)
        return flushed(result).view(Flushed)


def _plain(x: Any) -> Any:
    """Return an operand as NumPy's class, flushed; operands of this class are flushed already."""
    if isinstance(x, Flushed):
        return x.view(np.ndarray)
    return flushed(x) if isinstance(x, np.ndarray) else x


def flushed(x: np.ndarray) -> np.ndarray:
    """Return x with zeros, of the same sign, in place of denormals; x itself if it has none."""
    small = np.abs(x) < _TINY[x.dtype.type]
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x


def _was_tiny(ufunc: Any, inputs: list[Any], dtype: np.dtype[Any]) -> np.ndarray:
    """Whether a result became the smallest normal number only in the denormals' coarser grid.

    The processor calls a result tiny if it is tiny after rounding to full precision. Products and
    quotients just below the smallest normal number are tiny, although gradual underflow, which has
    fewer bits, rounds them up to it. The same operation, scaled into the normal range, shows it.
    """
    scale = dtype.type(2) ** 64
    with np.errstate(all="ignore"):
        full = ufunc(inputs[0] * scale, inputs[1])
    tiny: np.ndarray = np.abs(full) < _TINY[dtype.type] * scale
    return tiny


def select(condition: Any, where_true: Any, where_false: Any) -> Any:
    """Choose element by element; a chosen value stays unchanged."""
    chosen = np.where(condition, where_true, where_false)
    return chosen.view(Flushed) if _flush else chosen


def computed(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of computations with a dtype: float32 for 16 bits, else the same."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def dtype_named(name: str) -> np.dtype[Any]:
    """Return a dtype by its name; bfloat16 is from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    return np.dtype(name)


def wide(x: Any) -> Any:
    """Return x in double precision."""
    return x.astype(np.float64)


def narrow(x: Any, dtype: Any) -> Any:
    """Return x rounded from double precision to a dtype."""
    info = np.finfo(dtype)
    if _flush and info.bits < 64:  # tiny after rounding to full precision, see above
        x = select(abs(x) < float(info.tiny) * (1 - float(info.eps) / 4), 0 * x, x)
    return x.astype(dtype)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger; a NaN in a stays, a NaN in b is ignored."""
    return select(a < b, b, a)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller; a NaN in a stays, a NaN in b is ignored."""
    return select(b < a, b, a)


def maximum_or_nan(a: Any, b: Any) -> Any:
    """Return the larger, or NaN if either is."""
    return select((a > b) | (a != a), a, b)


def shrink(x: Any, threshold: Any) -> Any:
    """Return x moved toward zero by the threshold, and not past it."""
    return np.sign(x) * maximum(abs(x) - threshold, x.dtype.type(0))


def power(x: Any, exponent: Any) -> Any:
    """Return x to the exponent; for 0.5, by the square root, which is rounded correctly."""
    return np.sqrt(x) if exponent == 0.5 else np.power(x, exponent)
