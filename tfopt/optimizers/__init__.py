"""The optimizers: TensorFlow's OptimizerV2 classes for NumPy arrays, and many more."""

from typing import NoReturn

from tfopt.names import no_attribute
from tfopt.optimizers import schedules
from tfopt.optimizers.algorithms.adadelta import Adadelta
from tfopt.optimizers.algorithms.adafactor import Adafactor
from tfopt.optimizers.algorithms.adagrad import Adagrad
from tfopt.optimizers.algorithms.adam import Adam
from tfopt.optimizers.algorithms.adamax import Adamax
from tfopt.optimizers.algorithms.adamw import AdamW
from tfopt.optimizers.algorithms.ademamix import AdEMAMix
from tfopt.optimizers.algorithms.adopt import ADOPT
from tfopt.optimizers.algorithms.ftrl import Ftrl
from tfopt.optimizers.algorithms.lamb import LAMB
from tfopt.optimizers.algorithms.lars import LARS
from tfopt.optimizers.algorithms.lion import Lion
from tfopt.optimizers.algorithms.nadam import Nadam
from tfopt.optimizers.algorithms.radam import RAdam
from tfopt.optimizers.algorithms.rmsprop import RMSprop
from tfopt.optimizers.algorithms.rowwise_adagrad import RowwiseAdagrad
from tfopt.optimizers.algorithms.rowwise_adam import AdamMini, RowwiseAdam
from tfopt.optimizers.algorithms.schedule_free import ScheduleFreeAdamW, ScheduleFreeSGD
from tfopt.optimizers.algorithms.sgd import SGD
from tfopt.optimizers.algorithms.signum import Signum
from tfopt.optimizers.algorithms.yogi import Yogi
from tfopt.optimizers.base.arriving_step import ArrivedStep, ArrivingStep
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.base.optimizer_v2 import Optimizer
from tfopt.optimizers.state.config import deserialize, get, serialize
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.report import StepReport
from tfopt.optimizers.step.request import Capabilities, NotFinite, StepRequest
from tfopt.optimizers.wrappers.accumulation import GradientAccumulation
from tfopt.optimizers.wrappers.loss_scale import LossScaleOptimizer
from tfopt.optimizers.wrappers.mirror import Mirror
from tfopt.optimizers.wrappers.parameter_groups import ParameterGroups
from tfopt.optimizers.wrappers.weight_average import WeightAverage
from tfopt.optimizers.wrappers.wrapper import Wrapper

__all__ = [
    "ADOPT",
    "AdEMAMix",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamMini",
    "AdamW",
    "Adamax",
    "ArrivedStep",
    "ArrivingStep",
    "Capabilities",
    "Ftrl",
    "GradientAccumulation",
    "LAMB",
    "LARS",
    "Lion",
    "LossScaleOptimizer",
    "Mirror",
    "Nadam",
    "NotFinite",
    "Optimizer",
    "OptimizerBase",
    "ParameterGroups",
    "PreparedStep",
    "RAdam",
    "RMSprop",
    "RowwiseAdagrad",
    "RowwiseAdam",
    "SGD",
    "ScheduleFreeAdamW",
    "ScheduleFreeSGD",
    "Signum",
    "StepReport",
    "StepRequest",
    "WeightAverage",
    "Wrapper",
    "Yogi",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]


def __getattr__(name: str) -> NoReturn:
    raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
