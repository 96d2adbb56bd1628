"""The threads of NumPy's BLAS change no bit of a linear model."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tfopt.linear_model import SDCAClassifier, SDCARegressor

random = np.random.default_rng(0)
LONG, WIDE = random.standard_normal((5000, 60)), random.standard_normal((300, 700))
CASES = {
    "multinomial": (SDCAClassifier("multinomial"), LONG, LONG[:, :12].argmax(axis=1)),
    "many classes": (SDCAClassifier("multinomial", max_iter=3), LONG, np.arange(5000) % 300),
    "one of several": (SDCAClassifier(), LONG, LONG[:, :3].argmax(axis=1)),
    "newton-cg": (SDCARegressor(solver="newton-cg"), WIDE, WIDE[:, 0]),
    "interior-point": (SDCAClassifier("hinge"), LONG, LONG[:, 0] > LONG[:, 1] ** 2),
    "in blocks": (SDCAClassifier("hinge", num_loss_partitions=[2500] * 2), LONG, LONG[:, 0] > 0.1),
    # more features than a matrix is formed for
    "columns": (SDCARegressor(l1=0.01, l2=0.1, solver="cd", max_iter=5), WIDE, WIDE[:, 0]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
def test_they_change_no_bits(case: str) -> None:
    model, X, y = CASES[case]
    found = set()
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            model.fit(X, y)
        found.add((model.coef_.tobytes(), np.asarray(model.intercept_).tobytes()))
    assert len(found) == 1
