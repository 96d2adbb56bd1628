"""The state of Keras optimizers, old and new, in ours: the next ten steps agree.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from golden.with_tensorflow import required_tensorflow

import tfopt.optimizers
from tfopt.errors import InvalidArgumentError
from tfopt.interop import keras as ours

tf = required_tensorflow()

#: Numbers of float32, which Keras rounds others to before it takes their powers.
BETAS = {"beta_1": 0.875, "beta_2": 0.9921875}
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9, "nesterov": True},
    "Adam": BETAS,
    "Adam amsgrad": {"amsgrad": True, **BETAS},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop": {},
    "RMSprop both": {"momentum": 0.9, "centered": True},
    "Nadam": BETAS,
    "Ftrl": {"l1_regularization_strength": 0.01},
}
each = pytest.mark.parametrize("which", OPTIONS)
SHAPES = ((3,), (4, 2))


def values() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape) for shape in SHAPES]


def grads(k: int) -> list[np.ndarray]:
    random = np.random.default_rng(k + 1)
    return [random.choice([-1, 1], size=shape) * random.uniform(0.5, 1, shape) for shape in SHAPES]


def step_both(theirs: Any, their_vars: Any, own: Any, own_vars: Any, steps: range) -> None:
    for k in steps:
        dtype = their_vars[0].numpy().dtype
        given = [grad.astype(dtype) for grad in grads(k)]
        theirs.apply_gradients(zip(map(tf.constant, given), their_vars, strict=True))
        if own is not None:
            own.apply_gradients(zip(given, own_vars, strict=True))


def assert_near(theirs: Any, own: list[np.ndarray], tolerance: float) -> None:
    for a, b in zip(own, theirs, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=tolerance * np.abs(a).max())


@each
@pytest.mark.parametrize("steps", [1, 6])
def test_the_weights_of_optimizer_v2(which: str, steps: int) -> None:
    name, options = which.split(" ")[0], {"learning_rate": 0.1, **OPTIONS[which]}
    from tensorflow.python.keras import optimizer_v2

    module = __import__(
        f"{optimizer_v2.__name__}.{'gradient_descent' if name == 'SGD' else name.lower()}",
        fromlist=[name],
    )
    theirs, variables = getattr(module, name)(**options), [tf.Variable(v) for v in values()]
    step_both(theirs, variables, None, None, range(steps))
    own = getattr(tfopt.optimizers, name)(**options, compat="tensorflow")
    mine = [v.numpy().copy() for v in variables]
    ours.load_weights(own, theirs.get_weights(), mine)
    assert int(own.iterations) == steps
    step_both(theirs, variables, own, mine, range(steps, steps + 10))
    assert_near(variables, mine, 1e-6 if name == "Nadam" else 1e-12)


@each
@pytest.mark.parametrize("steps", [1, 6])
def test_the_variables_of_keras_3(which: str, steps: int) -> None:
    name, options = which.split(" ")[0], {**OPTIONS[which]}
    theirs = getattr(tf.keras.optimizers, name)(learning_rate=0.1, **options)
    variables = [tf.keras.Variable(v, dtype="float32") for v in values()]
    theirs.build(variables)
    step_both(theirs, variables, None, None, range(steps))
    own = getattr(tfopt.optimizers, name)(**options)
    mine = [v.numpy().copy() for v in variables]
    ours.load_variables(own, theirs.variables, mine)
    assert own.learning_rate == np.float32(0.1)
    step_both(theirs, variables, own, mine, range(steps, steps + 10))
    assert_near(variables, mine, 3e-6)


def test_a_schedule_has_no_learning_rate() -> None:
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    theirs = tf.keras.optimizers.Adam(schedule, **BETAS)
    variables = [tf.keras.Variable(v, dtype="float32") for v in values()]
    step_both(theirs, variables, None, None, range(4))
    own = tfopt.optimizers.Adam(tfopt.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5), **BETAS)
    mine = [v.numpy().copy() for v in variables]
    ours.load_variables(own, theirs.variables, mine)
    step_both(theirs, variables, own, mine, range(4, 14))
    assert_near(variables, mine, 3e-6)


def test_mismatched_arguments_are_refused() -> None:
    own, mine = tfopt.optimizers.Adam(), values()
    before = copy.deepcopy(own.state_dict(mine))
    with pytest.raises(InvalidArgumentError, match="weight list of length 2"):
        ours.load_weights(own, [np.array(1), np.ones(3)], mine)
    with pytest.raises(InvalidArgumentError, match="5 variables besides the learning rate"):
        ours.load_variables(own, [np.array(1)], mine)
    slots = [np.ones(2)] * 4
    with pytest.raises(InvalidArgumentError, match="shape"):
        ours.load_variables(own, [np.array(1), *slots], mine)
    np.testing.assert_equal(own.state_dict(mine), before)
