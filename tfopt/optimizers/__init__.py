"""The optimizers: TensorFlow's OptimizerV2 classes for NumPy arrays."""

from tfopt.optimizers import schedules
from tfopt.optimizers.adadelta import Adadelta
from tfopt.optimizers.adagrad import Adagrad
from tfopt.optimizers.adam import Adam
from tfopt.optimizers.adamax import Adamax
from tfopt.optimizers.ftrl import Ftrl
from tfopt.optimizers.nadam import Nadam
from tfopt.optimizers.optimizer import Optimizer
from tfopt.optimizers.rmsprop import RMSprop
from tfopt.optimizers.serialization import deserialize, get, serialize
from tfopt.optimizers.sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "Ftrl",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "SGD",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]
