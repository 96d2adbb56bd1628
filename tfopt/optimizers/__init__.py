"""The optimizers: TensorFlow's OptimizerV2 classes for NumPy arrays."""

from tfopt.optimizers import schedules
from tfopt.optimizers.adamax import Adamax
from tfopt.optimizers.ftrl import Ftrl
from tfopt.optimizers.optimizer import Optimizer
from tfopt.optimizers.sgd import SGD

__all__ = ["SGD", "Adamax", "Ftrl", "Optimizer", "schedules"]
