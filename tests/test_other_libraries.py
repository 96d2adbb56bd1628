"""Optimizers that TensorFlow does not have against what Keras 3 and torch answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.others import CASES, DATA, TOLERANCE, ours

EACH = [(library, case) for library, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("library", "case"), EACH)
def test_weights_after_each_step(impl: Any, library: str, case: str) -> None:
    with np.load(DATA / f"{library}.npz") as kept:
        for k, arrays in enumerate(zip(*ours(impl, library, case), strict=True)):
            expected = kept[f"{case}/{k}"]
            limit = TOLERANCE[library] * np.abs(expected).max()
            np.testing.assert_allclose(np.stack(arrays), expected, rtol=0, atol=limit)
