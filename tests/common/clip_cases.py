"""Arguments for clipping, and the five functions with a common signature."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from common.cases import LAYOUTS, edge_values, lay_out

__all__ = ["ALL_DTYPES", "FLOATS", "INTEGERS", "array_of", "bits", "laid_out", "numbers", "tensor"]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ALL_DTYPES = FLOATS + INTEGERS


def array_of(values: Any, dtype: str) -> np.ndarray:
    """Return values as an array of a dtype; bfloat16 requires ml_dtypes."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16)
    return np.asarray(values, dtype)


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    """Return elements: mostly ordinary ones, so that norms are finite, and all special ones."""
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return st.integers(int(info.min), int(info.max)) | st.sampled_from([0, 1, 7, 100])
    width = {"float64": np.float64}.get(dtype, np.float32 if dtype != "float16" else np.float16)
    odd = st.sampled_from(edge_values(width))
    return st.one_of(st.floats(-4, 4, width=16), st.floats(-4, 4, width=16), odd)


@st.composite
def tensor(draw: Any, dtype: str, shape: Any = None) -> np.ndarray:
    """Return an array; every other one has only ordinary elements, so some norms are finite."""
    if shape is None:
        shape = draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    held = {"bfloat16": "float32"}.get(dtype, dtype)
    ordinary = dtype in FLOATS and draw(st.booleans())
    elements = st.floats(-4, 4, width=16) if ordinary else numbers(dtype)
    with np.errstate(all="ignore"):
        return array_of(draw(arrays(held, shape, elements=elements)), dtype)


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return a copy of the values with a memory layout."""
    if layout == "read-only":
        values = values.copy()
        values.flags.writeable = False
        return values
    return lay_out(values, layout) if layout in LAYOUTS else values.copy()


def bits(array: Any) -> bytes:
    """Return an array's bits, with all NaNs alike."""
    array = np.array(array)
    if array.dtype.kind not in "iu":
        array[np.isnan(array)] = np.nan
    return array.tobytes()
