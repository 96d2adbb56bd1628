"""Arrays over the memory that DLPack capsules describe; NumPy's own capsules are taken."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any

import numpy as np
import pytest

from tfopt.errors import InvalidTypeError
from tfopt.kernels.arrays.coerce import arrays_of

ADDRESS = ctypes.pythonapi.PyCapsule_GetPointer
ADDRESS.argtypes, ADDRESS.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

LAYOUTS = {
    "run": lambda a: a,
    "swapped": lambda a: a.T,
    "gaps": lambda a: a[:, ::2],
    "backwards": lambda a: a[::-1],
    "one number": lambda a: a[0, 0, ...],
    "no rows": lambda a: a[:0],
    "repeated": lambda a: np.lib.stride_tricks.as_strided(a, (3, 2), (0, a.itemsize)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_they_are_the_same_memory(dtype: str, layout: str) -> None:
    base = np.arange(24).reshape(4, 6).astype(dtype)
    source = LAYOUTS[layout](base)
    array, again = arrays_of([source.__dlpack__(), source.__dlpack__()])
    assert array.dtype == source.dtype and array.shape == source.shape
    np.testing.assert_array_equal(array, source)
    if source.size:
        assert array.strides == source.strides and np.shares_memory(array, source)
        assert array.flags.aligned and not array.flags.writeable
        assert array.flags.c_contiguous == source.flags.c_contiguous
        base[...] = 7
    np.testing.assert_array_equal(again, source)


def test_memory_lives_as_long_as_its_array() -> None:
    source = np.ones(1000)
    before = sys.getrefcount(source)
    arrays = arrays_of([source.__dlpack__() for _ in range(3)])
    assert sys.getrefcount(source) == before + 3
    del arrays
    assert sys.getrefcount(source) == before
    lonely = arrays_of([np.full(1000, 3.0).__dlpack__()])[0]
    assert (lonely == 3).all()


@pytest.mark.parametrize("dtype", ["i4", "u1", "?"])
def test_other_numbers_are_refused(dtype: str) -> None:
    with pytest.raises(InvalidTypeError, match="no array of type"):
        arrays_of([np.ones(3, dtype).__dlpack__()])


#: What of a type's code, bits and lanes there are arrays of.
TYPES = {(2, 16, 1): "f2", (2, 32, 1): "f4", (2, 64, 1): "f8", (5, 64, 1): "c8", (5, 128, 1): "c16"}
FIELDS = struct.Struct("=BBH")


@pytest.mark.parametrize("code", range(8))
@pytest.mark.parametrize("bits", [1, 8, 16, 32, 64, 128, 255])
def test_only_these_types_are_taken(code: int, bits: int) -> None:
    """Whatever else is written in the place of a capsule's type, where NumPy's is."""
    for lanes in (0, 1, 2):
        capsule = np.zeros(3, "c16").__dlpack__()
        fields = (ctypes.c_char * FIELDS.size).from_address(ADDRESS(capsule, b"dltensor") + 20)
        assert FIELDS.unpack(fields.raw) == (5, 128, 1)
        fields.raw = FIELDS.pack(code, bits, lanes)
        if (code, bits, lanes) in TYPES:
            assert arrays_of([capsule])[0].dtype == TYPES[code, bits, lanes]
        else:
            with pytest.raises(InvalidTypeError, match=f"type {code} of {bits} bits, {lanes} at"):
                arrays_of([capsule])


def test_other_objects_than_capsules_are_refused() -> None:
    other: Any = np.ones(3)
    with pytest.raises(ValueError, match="PyCapsule"):
        arrays_of([other])
