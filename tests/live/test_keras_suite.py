"""Keras 3's own tests of its optimizers and schedules, run on tfopt's.

Keras 3 is another interface than OptimizerV2's, which tfopt follows; so what is said here is that
the numbers agree, and, for each test that fails, why it should.

Skipped where Keras, which TensorFlow brings, is not installed, unless TFOPT_REQUIRE_TENSORFLOW is
set.
"""

from __future__ import annotations

import os
import re
import unittest
from collections.abc import Iterator
from typing import Any

import pytest

if not os.environ.get("TFOPT_REQUIRE_TENSORFLOW"):
    pytest.importorskip("absl")
from suites import keras_shim

if keras_shim.FOLDER is None:
    pytest.skip("Keras is not installed", allow_module_level=True)

FILES = (
    *("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "lion", "nadam"),
    *("rmsprop", "sgd", "optimizer", "loss_scale_optimizer", "schedules/learning_rate_schedule"),
)

#: Why tests of these names fail, and should.
EXPECTED = {
    r"use_ema|test_ema|ema_momentum|ema_overwrite": "averages are a wrapper, WeightAverage",
    r"test_gradient_accumulation|gradient_accumulation_steps|with_gradient_accumulation": (
        "accumulation is a wrapper, GradientAccumulation"
    ),
    r"loss_scal(ing|e_factor)|inner_loss_scale": "loss scaling is a wrapper, LossScaleOptimizer",
    r"stateless|test_apply_with_no_vars": "Keras 3's interface of functions without state",
    r"overwrite": "Keras 3's variables that their gradients overwrite",
    r"Nadam.*(golden|single_step)": "OptimizerV2's Nadam has another schedule of momentum",
    r"Nadam.*empty_var_list": "a private attribute of Keras' class",
    r"invalid|unsupported_arg|dynamic_arg|test_set_weights": "the same refusal in other words",
    r"test_weight_decay_is_none": "weight_decay=None means none, as for the other optimizers",
    r"Adafactor.*golden": "relative_step=False takes the rate as it is given",
    r"Adafactor.*test_weight_decay": "Adafactor has no weight decay here",
    r"test_clip_args": "OptimizerV2 clips by value and by norm, one after the other",
    r"test_get_method": "nothing is no name of an optimizer",
    r"test_iterations_update": "`value` of a variable is a method, as in OptimizerV2",
    r"LossScale.*(test_serialization|backwards_compat)": "Keras 3's keys of a configuration",
    r"auto_naming": "OptimizerV2's names: SGD, not sgd",
    r"SGD.*single_step|untracks_lr_var": "the learning rate is no weight, as in OptimizerV2",
    r"tf_|_indexed_slices|fit_lr|constraints_are_applied": "needs Keras' models or variables",
}


def _tests() -> Iterator[Any]:
    for file in FILES:
        for name, case in keras_shim.tests_of(f"{file}_test.py").items():
            reasons = [why for pattern, why in EXPECTED.items() if re.search(pattern, name)]
            marks = [pytest.mark.xfail(reason=why) for why in reasons[:1]]
            yield pytest.param(case, id=name, marks=marks)


@pytest.mark.parametrize("case", list(_tests()))
def test_suite(case: unittest.TestCase) -> None:
    result = unittest.TestResult()
    with keras_shim.keras_names():
        case.run(result)
    for _, reason in result.skipped:
        pytest.skip(reason)
    assert not [*result.errors, *result.failures]
