"""Both packages' optimizers against Keras 3, torch and optax, where they are installed."""

from __future__ import annotations

import numpy as np
import pytest
from golden.others import CASES, TOLERANCE, answers, ours

EACH = [(library, case) for library, cases in CASES.items() for case in cases]


@pytest.mark.parametrize("package", ["tfopt", "tfopt_ref"])
@pytest.mark.parametrize(("library", "case"), EACH)
def test_weights_after_each_step(package: str, library: str, case: str) -> None:
    pytest.importorskip(library)
    for made, expected in zip(ours(package, library, case), answers(library, case), strict=True):
        for array, other in zip(made, expected, strict=True):
            limit = TOLERANCE[library] * np.abs(other).max()
            np.testing.assert_allclose(array, other, rtol=0, atol=limit)
