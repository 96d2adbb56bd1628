"""The types of optimizers' arguments, which editors show and type checkers hold calls to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from tfopt.optimizers.schedules import LearningRateSchedule
from tfopt.variable import Variable

__all__ = [
    "BaseOptions",
    "Compat",
    "LearningRateLike",
    "Merge",
    "MirrorDtype",
    "OptimizerOptions",
    "OptionsButDecay",
    "OptionsButWeightDecay",
    "PairsFunction",
    "Reduction",
    "Sparse",
    "Storage",
    "StorageKind",
]

#: A number, a schedule or other function, or a variable.
LearningRateLike = float | np.floating[Any] | LearningRateSchedule | Callable[..., Any] | Variable
Merge = Literal["after", "before"]
Compat = Literal["tensorflow"] | None
Sparse = Literal["tensorflow", "lazy", "catch_up"]
StorageKind = Literal["float32", "float16", "bfloat16", "dynamic8bit", "8bit", "4bit"]
Reduction = Literal["mean", "sum"]
MirrorDtype = Literal["bfloat16", "float16"]
#: How all slots are stored, or each one by its name.
Storage = StorageKind | Mapping[str, StorageKind] | None
#: Gets the pairs of gradients and variables, and returns pairs.
PairsFunction = Callable[[list[Any]], Iterable[Any]]


class _Common(TypedDict, total=False):
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    merge: Merge
    gradient_aggregator: PairsFunction | None
    gradient_transformers: Sequence[PairsFunction] | None
    use_locking: bool
    compat: Compat
    lr: float | None


class _RateDecay(TypedDict, total=False):
    decay: float


class _WeightDecay(TypedDict, total=False):
    weight_decay: float | None


class _OfRules(_Common, total=False):
    sparse: Sparse
    storage: Storage
    stochastic_rounding: int | None
    cautious_weight_decay: bool


class BaseOptions(_Common, _RateDecay, total=False):
    """The options of `Optimizer`."""


class OptionsButDecay(_OfRules, _WeightDecay, total=False):
    """The options of optimizers whose `decay` differs."""


class OptionsButWeightDecay(_OfRules, _RateDecay, total=False):
    """The options of optimizers whose `weight_decay` differs."""


class OptimizerOptions(OptionsButWeightDecay, _WeightDecay, total=False):
    """All options that are not arguments of one optimizer alone."""
