"""Linear models with scikit-learn's face, solved by the rules of this package.

`SDCAClassifier` and `SDCARegressor` look for the minimum of a regularized loss and say, by a
duality gap, how far they are from it. `FTRLClassifier` and `FTRLRegressor` learn from a stream.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "tfopt.linear_model needs scikit-learn: pip install 'tfopt[sklearn]', or '.[sklearn]' "
        "in a clone"
    ) from error

from tfopt.linear_model.classifier import SDCAClassifier
from tfopt.linear_model.ftrl import FTRLClassifier, FTRLRegressor
from tfopt.linear_model.regressor import SDCARegressor

__all__ = ["FTRLClassifier", "FTRLRegressor", "SDCAClassifier", "SDCARegressor"]
