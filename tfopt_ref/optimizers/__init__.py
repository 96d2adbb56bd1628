"""The optimizers, as formulas."""

from tfopt_ref.optimizers import schedules
from tfopt_ref.optimizers.adamax import Adamax
from tfopt_ref.optimizers.ftrl import Ftrl
from tfopt_ref.optimizers.optimizer import Optimizer
from tfopt_ref.optimizers.sgd import SGD

__all__ = ["SGD", "Adamax", "Ftrl", "Optimizer", "schedules"]
