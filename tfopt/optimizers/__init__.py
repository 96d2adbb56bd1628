"""The optimizers: TensorFlow's OptimizerV2 classes for NumPy arrays, and what is asked for."""

from tfopt.optimizers import schedules
from tfopt.optimizers.accumulation import GradientAccumulation
from tfopt.optimizers.adadelta import Adadelta
from tfopt.optimizers.adafactor import Adafactor
from tfopt.optimizers.adagrad import Adagrad
from tfopt.optimizers.adam import Adam
from tfopt.optimizers.adamax import Adamax
from tfopt.optimizers.adamw import AdamW
from tfopt.optimizers.ftrl import Ftrl
from tfopt.optimizers.lion import Lion
from tfopt.optimizers.loss_scale import LossScaleOptimizer
from tfopt.optimizers.nadam import Nadam
from tfopt.optimizers.optimizer import Optimizer
from tfopt.optimizers.parameter_groups import ParameterGroups
from tfopt.optimizers.report import StepReport
from tfopt.optimizers.rmsprop import RMSprop
from tfopt.optimizers.serialization import deserialize, get, serialize
from tfopt.optimizers.sgd import SGD
from tfopt.optimizers.weight_average import WeightAverage

__all__ = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "GradientAccumulation",
    "Lion",
    "LossScaleOptimizer",
    "Nadam",
    "Optimizer",
    "ParameterGroups",
    "RMSprop",
    "SGD",
    "StepReport",
    "WeightAverage",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]
