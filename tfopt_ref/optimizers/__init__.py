"""The optimizers, as formulas."""

from tfopt_ref.optimizers import schedules
from tfopt_ref.optimizers.accumulation import GradientAccumulation
from tfopt_ref.optimizers.adadelta import Adadelta
from tfopt_ref.optimizers.adafactor import Adafactor
from tfopt_ref.optimizers.adagrad import Adagrad
from tfopt_ref.optimizers.adam import Adam
from tfopt_ref.optimizers.adamax import Adamax
from tfopt_ref.optimizers.adamw import AdamW
from tfopt_ref.optimizers.ftrl import Ftrl
from tfopt_ref.optimizers.lion import Lion
from tfopt_ref.optimizers.loss_scale import LossScaleOptimizer
from tfopt_ref.optimizers.nadam import Nadam
from tfopt_ref.optimizers.optimizer import Optimizer
from tfopt_ref.optimizers.parameter_groups import ParameterGroups
from tfopt_ref.optimizers.report import StepReport
from tfopt_ref.optimizers.rmsprop import RMSprop
from tfopt_ref.optimizers.serialization import deserialize, get, serialize
from tfopt_ref.optimizers.sgd import SGD
from tfopt_ref.optimizers.weight_average import WeightAverage

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
