"""scikit-learn's own checks of an estimator: none is expected to fail."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from tfopt.linear_model import FTRLClassifier, FTRLRegressor, SDCAClassifier, SDCARegressor

# Some checks compare the predictions of two fits to 1e-7. A gap bounds l2 times the square of the
# weights' error, so for that it must be near what rounding leaves, or l2 large.
EXACT: dict[str, Any] = {"tol": 1e-14, "max_iter": 20_000}


@parametrize_with_checks(
    [
        SDCAClassifier(l2=100.0, tol=1e-14),
        SDCAClassifier("hinge", l2=10.0, **EXACT),
        SDCAClassifier("smooth_hinge", l2=1000.0, gamma=2.0, tol=1e-13),
        SDCARegressor(**EXACT),
        SDCARegressor("poisson", **EXACT),
        FTRLClassifier(),
        FTRLRegressor(max_iter=50),
        FTRLRegressor("poisson"),
    ]
)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)
