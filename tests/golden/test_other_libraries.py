"""Optimizers that TensorFlow does not have against what Keras 3 and torch answered."""

from __future__ import annotations

import numpy as np
import pytest
from golden.others import CASES, DATA, TOLERANCE, ours

EACH = [(library, case) for library, cases in CASES.items() for case in cases]


@pytest.mark.parametrize("package", ["tfopt", "tfopt_ref"])
@pytest.mark.parametrize(("library", "case"), EACH)
def test_weights_after_each_step(package: str, library: str, case: str) -> None:
    with np.load(DATA / f"{library}.npz") as kept:
        for k, arrays in enumerate(zip(*ours(package, library, case), strict=True)):
            expected = kept[f"{case}/{k}"]
            limit = TOLERANCE[library] * np.abs(expected).max()
            np.testing.assert_allclose(np.stack(arrays), expected, rtol=0, atol=limit)
