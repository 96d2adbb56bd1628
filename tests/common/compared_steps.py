"""A number of a step against its specification's: in every bit, or as near as it must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.cases import assert_same_bits

#: Of the largest magnitude: what the rounding of a step done at once and of many steps differs by.
COMPLEX_ROUNDING = {"complex64": 1e-5, "complex128": 1e-12}
CAUGHT_UP = {"float64": 1e-12, "float32": 1e-6}


def compare(name: str, ours: Any, theirs: Any, late: bool) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
    if ours.dtype.kind == "V" and ours.dtype.names:
        unit = ours.dtype.names[0]
        assert_same_bits(ours[unit], theirs[unit], name)
        assert (ours["codes"] == theirs["codes"]).all(), name
    elif ours.dtype.kind in "iu":
        assert ours == theirs, name
    elif ours.dtype.kind == "c":
        near = COMPLEX_ROUNDING[ours.dtype.name] * np.abs(theirs).max(initial=1e-30)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=near, err_msg=name)
    elif late:
        near = CAUGHT_UP.get(ours.dtype.name, 0) * np.abs(theirs).max(initial=1e-30)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=near, err_msg=name)
    else:
        assert_same_bits(ours, theirs, name)
