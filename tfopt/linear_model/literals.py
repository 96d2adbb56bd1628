"""The types of the estimators' options that are names."""

from typing import Literal

__all__ = ["BinaryLoss", "ClassifierLoss", "LossName", "RegressorLoss", "Solver"]

#: The losses of one score for each sample.
BinaryLoss = Literal["logistic", "hinge", "smooth_hinge", "squared_hinge"]
ClassifierLoss = BinaryLoss | Literal["multinomial"]
RegressorLoss = Literal[
    "squared",
    "poisson",
    "gamma",
    "tweedie",
    "huber",
    "quantile",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
]
LossName = ClassifierLoss | RegressorLoss
Solver = Literal["auto", "sdca", "newton-cholesky", "newton-cg", "cd", "interior-point"]
