"""Linear models as scikit-learn estimators.

`LinearClassifier` and `LinearRegressor` minimize a regularized loss by stochastic dual coordinate
ascent or Newton's method, and bound the distance from the minimum by the duality gap. `sdca_path`
fits them for many penalties; `LinearClassifierCV` and `LinearRegressorCV` choose a penalty. The
names with SDCA are names of the same classes in earlier versions.
`FTRLClassifier` and `FTRLRegressor` learn online, by FTRL-Proximal; `ftrl_parameters` converts the
hyperparameters of other programs to theirs. `to_json` and `from_json` export and import models.
`fit_blocks` fits samples in blocks that an `Executor` holds, in threads, processes or elsewhere.
`save_model` and `load_model` exchange models with the command line.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("tfopt.linear_model needs scikit-learn: pip install scikit-learn") from error

import sys

from tfopt.linear_model import classifier, regressor
from tfopt.linear_model._blocks.execution import (
    BlockHolder,
    Executor,
    ProcessExecutor,
    RemoteExecutor,
    ThreadExecutor,
)
from tfopt.linear_model.block_fits import fit_blocks
from tfopt.linear_model.classifier import LinearClassifier, SDCAClassifier
from tfopt.linear_model.cross_validation import (
    LinearClassifierCV,
    LinearRegressorCV,
    SDCAClassifierCV,
    SDCARegressorCV,
)
from tfopt.linear_model.ftrl import FTRLClassifier, FTRLRegressor
from tfopt.linear_model.ftrl_dialects import ftrl_parameters
from tfopt.linear_model.model_file import load_model, save_model
from tfopt.linear_model.model_json import from_json, to_json
from tfopt.linear_model.paths import SDCAPath, sdca_path
from tfopt.linear_model.regressor import LinearRegressor, SDCARegressor

#: Earlier names of modules, for old pickles.
sys.modules[f"{__name__}.sdca_classifier"] = classifier
sys.modules[f"{__name__}.sdca_regressor"] = regressor

__all__ = [
    "BlockHolder",
    "Executor",
    "FTRLClassifier",
    "FTRLRegressor",
    "LinearClassifier",
    "LinearClassifierCV",
    "LinearRegressor",
    "LinearRegressorCV",
    "ProcessExecutor",
    "RemoteExecutor",
    "SDCAClassifier",
    "SDCAClassifierCV",
    "SDCAPath",
    "SDCARegressor",
    "SDCARegressorCV",
    "ThreadExecutor",
    "fit_blocks",
    "from_json",
    "ftrl_parameters",
    "load_model",
    "save_model",
    "sdca_path",
    "to_json",
]


def __dir__() -> list[str]:
    return __all__
