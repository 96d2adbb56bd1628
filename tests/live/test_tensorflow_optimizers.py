"""Steps of both packages against TensorFlow's: random configurations, and refused steps.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from golden.optimizers import REPLAYS, Inputs, check_states, conditioning, reasons_of
from golden.samples import ordinary
from golden.with_tensorflow import apply_gradients, optimizer, required_tensorflow

import tfopt
from tfopt.rules import DTYPES

tf = required_tensorflow()

STEPS = 10
CONFIGURATIONS = 5  # of each optimizer and dtype

#: Values of an argument, of which each configuration takes one; each has its default too.
ARGUMENTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "SGD": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "momentum": (0.0, 0.5, 0.9, 1.0),
        "nesterov": (False, True),
    },
    "Adamax": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "beta_1": (0.9, 0.5, 0.0),
        "beta_2": (0.999, 0.9, 0.0, 1.0),
        "epsilon": (1e-7, 0.01, 1.0),
    },
    "Adam": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "beta_1": (0.9, 0.5, 0.0),
        "beta_2": (0.999, 0.9, 0.5),
        "epsilon": (1e-7, 0.01, 1.0),
        "amsgrad": (False, True),
    },
    "Adagrad": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "initial_accumulator_value": (0.1, 0.0, 1.0),
        "epsilon": (1e-7, 0.01),
    },
    "Adadelta": {
        "learning_rate": (0.1, 1.0),
        "decay": (0.0, 0.3),
        "rho": (0.95, 0.5, 0.0),
        "epsilon": (1e-7, 0.01),
    },
    "RMSprop": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "rho": (0.9, 0.5),
        "momentum": (0.0, 0.0, 0.5, 0.9),
        "epsilon": (1e-3, 0.1),
        "centered": (False, True),
    },
    "Nadam": {
        "learning_rate": (0.1, 0.7),
        "beta_1": (0.9, 0.5),
        "beta_2": (0.999, 0.9),
        "epsilon": (1e-7, 0.01),
        "schedule_decay": (0.004, 0.5),
    },
    "Ftrl": {
        "learning_rate": (0.1, 0.7),
        "decay": (0.0, 0.3),
        "learning_rate_power": (-0.5, -0.5, -0.75, -0.3),
        "initial_accumulator_value": (0.1, 1.0),
        "l1_regularization_strength": (0.0, 0.05, 1.0),
        "l2_regularization_strength": (0.0, 0.3),
        "l2_shrinkage_regularization_strength": (0.0, 0.1),
        "beta": (0.0, 0.5),
    },
}
#: Shapes of variables; the gradients of the last ones are sparse.
DENSE = ((), (5,), (3, 4))
SPARSE = ((6,), (4, 1), (5, 3))

each_optimizer = pytest.mark.parametrize("name", ARGUMENTS)


def draw(name: str, dtype: str, number: int) -> tuple[dict[str, Any], Inputs]:
    """Return a configuration, and variables with the gradients of each step."""
    random = np.random.default_rng(zlib.crc32(f"{name} {dtype} {number}".encode()))
    arguments = {
        key: values[random.integers(len(values))] for key, values in ARGUMENTS[name].items()
    }
    inputs: dict[str, dict[str, np.ndarray]] = {}
    for shape in DENSE:
        grads = ordinary(random, (STEPS, *shape), dtype)
        inputs[f"dense {shape}"] = {"first": ordinary(random, shape, dtype), "grads": grads}
    for shape in SPARSE:
        n = int(random.integers(7))
        inputs[f"sparse {shape}"] = {
            "first": ordinary(random, shape, dtype),
            "grads": ordinary(random, (STEPS, n, *shape[1:]), dtype),
            "indices": random.integers(
                shape[0], size=(STEPS, n), dtype=random.choice(["i4", "i8"])
            ),
        }
    return getattr(tfopt.optimizers, name)(**arguments).get_config(), inputs


def replay_with_tensorflow(
    name: str, config: dict[str, Any], inputs: Inputs, dtype: str
) -> Iterator[dict[str, list[np.ndarray]]]:
    """Take the steps; yield each variable and its slots after each."""
    opt = optimizer(name, config, dtype)
    slots = getattr(tfopt.optimizers, name)(**config).get_slot_names()
    variables = {v: tf.Variable(given["first"]) for v, given in inputs.items()}
    for step in range(len(next(iter(inputs.values()))["grads"])):
        pairs: list[Any] = []
        for v, given in inputs.items():
            grad = given["grads"][step]
            slices = (grad, given["indices"][step]) if "indices" in given else grad
            pairs.append((slices, variables[v]))
        apply_gradients(opt, pairs)
        yield {
            v: [state.numpy() for state in (x, *(opt.get_slot(x, slot) for slot in slots))]
            for v, x in variables.items()
        }


@cache
def drawn(name: str, dtype: str, number: int) -> tuple[dict[str, Any], Inputs, list[Any]]:
    """Return a configuration and its inputs with TensorFlow's states after each step."""
    config, inputs = draw(name, dtype, number)
    return config, inputs, list(replay_with_tensorflow(name, config, inputs, dtype))


@pytest.mark.parametrize("number", range(CONFIGURATIONS))
@pytest.mark.parametrize("dtype", DTYPES)
@each_optimizer
@pytest.mark.parametrize("package", REPLAYS)
def test_random_configuration(package: str, name: str, dtype: str, number: int):
    config, inputs, answers = drawn(name, dtype, number)
    scale: dict[str, Any] = {v: np.abs(given["first"]) for v, given in inputs.items()}
    far = conditioning(config, dtype)
    for step, states in enumerate(REPLAYS[package](name, config, inputs, dtype)):
        for v, ours in states.items():
            scale[v] = np.maximum(scale[v], far * np.abs(answers[step][v]))
            found = reasons_of(name, config, dtype, ours[0].shape, "indices" in inputs[v])
            what = f"{name}({config}) {dtype} {v} after step {step + 1}"
            check_states(ours, answers[step][v], scale[v], found, what)


@pytest.mark.parametrize("package", REPLAYS)
@each_optimizer
def test_compat(package: str, name: str):
    """Python numbers are rounded to float32, whatever the dtype of the variables."""
    plain, inputs = draw(name, "float64", 0)
    config = {**plain, "compat": "tensorflow"}
    answers = list(replay_with_tensorflow(name, config, inputs, "float64"))
    exact = list(REPLAYS[package](name, plain, inputs, "float64"))
    for step, states in enumerate(REPLAYS[package](name, config, inputs, "float64")):
        for v, ours in states.items():
            for own, answer in zip(ours, answers[step][v], strict=True):
                np.testing.assert_allclose(own, answer, rtol=1e-12, atol=1e-13, err_msg=v)
    far = max(np.abs(answers[-1][v][0] - states[0]).max() for v, states in exact[-1].items())
    assert far > 1e-9  # and without it they are not


@pytest.mark.parametrize("package", REPLAYS)
@each_optimizer
def test_nan_gradient(package: str, name: str):
    """Dense and sparse steps treat a NaN differently, and so do the optimizers."""
    grads = np.array([[0.1, np.nan, -0.3, np.inf], [0.1, 0.2, np.nan, 0.4]])
    inputs: Inputs = {
        "dense": {"first": np.ones(4), "grads": grads},
        "sparse": {
            "first": np.ones((4, 1)),
            "grads": grads[..., np.newaxis],
            "indices": np.array([[0, 1, 2, 3]] * 2),
        },
    }
    config = getattr(tfopt.optimizers, name)().get_config()
    answers = replay_with_tensorflow(name, config, inputs, "float64")
    steps = REPLAYS[package](name, config, inputs, "float64")
    for ours, theirs in zip(steps, answers, strict=True):
        for v in inputs:
            for own, answer in zip(ours[v], theirs[v], strict=True):
                np.testing.assert_allclose(own, answer, rtol=1e-12, err_msg=f"{name} {v}")


REFUSED: dict[str, tuple[Any, Any]] = {
    "shape": (np.ones((4, 2)), None),
    "rank": (np.ones(3), None),
    "dtype": (np.ones((4, 3), np.float32), None),
    "row too short": (np.ones((1, 2)), [1]),
    "fewer rows than indices": (np.ones((1, 3)), [1, 2]),
    "index past the end": (np.ones((2, 3)), [0, 4]),
    "negative index": (np.ones((2, 3)), [0, -1]),
    "indices of rank 2": (np.ones((2, 3)), [[0, 1]]),
}
#: TensorFlow's plain descent takes what there is of a row, and leaves the rest, and so does the
#: addition of Adam's; two of its optimizers are made of ops that broadcast.
NOT_REFUSED_BY_TENSORFLOW = {
    ("SGD", "row too short"),
    ("Adam", "row too short"),
    ("RMSprop", "rank"),
    ("Nadam", "rank"),
}


@pytest.mark.parametrize("fault", REFUSED)
@each_optimizer
def test_refused(name: str, fault: str):
    values, indices = REFUSED[fault]
    config = getattr(tfopt.optimizers, name)().get_config()
    grad = values if indices is None else (values, np.array(indices))
    refused = pytest.raises((tf.errors.InvalidArgumentError, TypeError))
    with nullcontext() if (name, fault) in NOT_REFUSED_BY_TENSORFLOW else refused:
        apply_gradients(optimizer(name, config, "float64"), [(grad, tf.Variable(np.ones((4, 3))))])

    opt = getattr(tfopt.optimizers, name)(**config)
    var, other = np.ones((4, 3)), np.ones(2)
    slices = values if indices is None else tfopt.IndexedSlices(values, np.array(indices))
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.apply_gradients([(np.ones(2), other), (slices, var)])
    assert (var == 1).all() and (other == 1).all() and int(opt.iterations) == 0


@each_optimizer
def test_weights_in_tensorflows_order(name: str):
    """Each list can be given to the other's optimizer."""
    config = getattr(tfopt.optimizers, name)(learning_rate=0.5).get_config()
    values = [np.array([1.0, -2.0]), np.ones((3, 2))]
    grads = [np.array([0.5, 0.25]), np.full((3, 2), -0.5)]
    theirs, states = optimizer(name, config, "float64"), [tf.Variable(v) for v in values]
    ours, variables = getattr(tfopt.optimizers, name)(**config), [v.copy() for v in values]
    for _ in range(2):
        apply_gradients(theirs, list(zip(grads, states, strict=True)))
        ours.apply_gradients(zip(grads, variables, strict=True))
    for own, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)
    ours.set_weights(theirs.get_weights())
    theirs.set_weights(ours.get_weights())
    apply_gradients(theirs, list(zip(grads, states, strict=True)))
    ours.apply_gradients(zip(grads, variables, strict=True))
    for own, state in zip(variables, states, strict=True):
        np.testing.assert_allclose(own, state.numpy(), rtol=1e-12)
