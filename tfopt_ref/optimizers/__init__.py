"""The optimizers, as formulas."""

from tfopt_ref.optimizers import schedules
from tfopt_ref.optimizers.adadelta import Adadelta
from tfopt_ref.optimizers.adagrad import Adagrad
from tfopt_ref.optimizers.adam import Adam
from tfopt_ref.optimizers.adamax import Adamax
from tfopt_ref.optimizers.ftrl import Ftrl
from tfopt_ref.optimizers.nadam import Nadam
from tfopt_ref.optimizers.optimizer import Optimizer
from tfopt_ref.optimizers.rmsprop import RMSprop
from tfopt_ref.optimizers.serialization import deserialize, get, serialize
from tfopt_ref.optimizers.sgd import SGD

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
