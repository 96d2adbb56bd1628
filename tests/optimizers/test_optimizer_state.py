"""An optimizer's state as a list of arrays, and its configuration as a dictionary."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits

import tfopt
from tfopt.optimizers.schedules.schedule import SCHEDULES
from tfopt.optimizers.state.config import OPTIMIZERS

MAKERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9},
    "Adam": {},
    "Adam amsgrad": {"amsgrad": True},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop": {},
    "RMSprop both": {"momentum": 0.9, "centered": True},
    "Nadam": {},
    "Ftrl": {},
}
#: TensorFlow's order after the step count: of slots of the first variable and of the second.
ORDER = {
    "SGD": [],
    "SGD momentum": ["0 momentum", "1 momentum"],
    "Adam": ["0 m", "1 m", "0 v", "1 v"],
    "Adam amsgrad": ["0 m", "1 m", "0 v", "1 v", "0 vhat", "1 vhat"],
    "Adamax": ["0 m", "1 m", "0 v", "1 v"],
    "Adagrad": ["0 accumulator", "1 accumulator"],
    "Adadelta": ["0 accum_grad", "1 accum_grad", "0 accum_var", "1 accum_var"],
    "RMSprop": ["0 rms", "1 rms"],
    "RMSprop both": ["0 rms", "1 rms", "0 momentum", "1 momentum", "0 mg", "1 mg"],
    "Nadam": ["cache", "0 m", "1 m", "0 v", "1 v"],
    "Ftrl": ["0 accumulator", "0 linear", "1 accumulator", "1 linear"],
}
each = pytest.mark.parametrize("which", MAKERS)


def make(which: str) -> Any:
    return getattr(tfopt.optimizers, which.split(" ")[0])(**MAKERS[which])


def variables() -> list[np.ndarray]:
    return [np.array([1.0, -2.0, 3.0]), np.ones((2, 2), np.float32)]


def step(optimizer: Any, listed: list[np.ndarray], k: int) -> None:
    random = np.random.default_rng(k)
    grads = [random.standard_normal(v.shape).astype(v.dtype) for v in listed]
    optimizer.apply_gradients(zip(grads, listed, strict=True))


@each
def test_the_order_is_tensorflows(which: str) -> None:
    optimizer, listed = make(which), variables()
    step(optimizer, listed, 0)
    count, *weights = optimizer.weights
    assert count is optimizer.iterations
    expected = []
    for name in ORDER[which]:
        if name == "cache":
            expected.append(optimizer.momentum_cache)
        else:
            number, slot = name.split(" ")
            expected.append(optimizer.get_slot(listed[int(number)], slot))
    assert len(weights) == len(expected)
    assert all(a is b for a, b in zip(weights, expected, strict=True))
    assert all(a is b for a, b in zip(optimizer.variables(), optimizer.weights, strict=True))


def test_variables_that_come_later_are_last() -> None:
    optimizer, (first, second) = tfopt.optimizers.Adam(), variables()
    for listed in ([first], [first, second]):
        step(optimizer, listed, 0)
    slots = [(first, "m"), (first, "v"), (second, "m"), (second, "v")]
    expected = [optimizer.iterations, *(optimizer.get_slot(*slot) for slot in slots)]
    assert all(a is b for a, b in zip(optimizer.weights, expected, strict=True))


@each
def test_a_run_goes_on_from_its_weights(which: str) -> None:
    optimizer, listed = make(which), variables()
    for k in range(3):
        step(optimizer, listed, k)
    saved, copies = optimizer.get_weights(), [v.copy() for v in listed]
    other = make(which)
    step(other, variables_like := [v.copy() for v in listed], 9)  # makes the slots
    for variable, value in zip(variables_like, copies, strict=True):
        variable[...] = value
    other.set_weights(saved)
    assert int(other.iterations) == 3
    for k in range(3, 6):
        step(optimizer, listed, k)
        step(other, variables_like, k)
    for a, b in zip(listed, variables_like, strict=True):
        assert_same_bits(a, b, which)
    for a, b in zip(optimizer.get_weights(), other.get_weights(), strict=True):
        assert_same_bits(a, b, which)


@pytest.mark.parametrize("shape", [(), (3,), (7, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16"])
def test_slots_begin_where_cache_lines_do(shape: tuple[int, ...], dtype: str) -> None:
    variable = tfopt.Variable(np.ones(shape, dtype))
    opt = tfopt.optimizers.SGD(0.1, momentum=0.5)
    opt.apply_gradients([(np.ones(shape, dtype), variable)])
    slot = opt.get_slot(variable, "momentum").numpy()
    assert slot.ctypes.data % 64 == 0 and slot.flags.carray and slot.dtype == variable.dtype


def test_get_weights_copies() -> None:
    optimizer, listed = tfopt.optimizers.Adamax(), variables()
    step(optimizer, listed, 0)
    before = optimizer.get_weights()
    for array in optimizer.get_weights():
        array[...] = 7
    for a, b in zip(optimizer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: w[:-1], "expecting 5 weights"),
        (lambda w: [], "weight list of length 0"),
        (lambda w: [*w[:-1], np.zeros(7)], r"shape \(2, 2\) not compatible .* \(7,\)"),
        (lambda w: [np.zeros(2), *w[1:]], r"shape \(\) not compatible"),
    ],
)
def test_refused_lists_change_nothing(spoil: Any, message: str) -> None:
    optimizer, listed = tfopt.optimizers.Adamax(), variables()
    step(optimizer, listed, 0)
    before = optimizer.get_weights()
    changed = [array + 1 for array in before]
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        optimizer.set_weights(spoil(changed))
    for a, b in zip(optimizer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_are_converted() -> None:
    optimizer, listed = tfopt.optimizers.SGD(momentum=0.5), variables()
    step(optimizer, listed, 0)
    optimizer.set_weights([9.7, [1, 2, 3], np.full((2, 2), 0.1)])
    assert int(optimizer.iterations) == 9
    assert optimizer.get_slot(listed[0], "momentum").numpy().tolist() == [1, 2, 3]
    assert optimizer.get_slot(listed[1], "momentum").numpy()[0, 0] == np.float32(0.1)


@pytest.mark.parametrize("which", ["Adagrad", "Adadelta", "RMSprop", "RMSprop both"])
def test_lists_of_older_classes_have_no_count(which: str) -> None:
    optimizer, listed = make(which), variables()
    step(optimizer, listed, 0)
    optimizer.set_weights([array + 1 for array in optimizer.get_weights()[1:]])
    assert int(optimizer.iterations) == 0


def test_lists_of_older_adams_have_vhat() -> None:
    optimizer, listed = tfopt.optimizers.Adam(), variables()
    step(optimizer, listed, 0)
    weights = optimizer.get_weights()
    optimizer.set_weights([*weights, np.zeros(3), np.zeros((2, 2))])
    for a, b in zip(optimizer.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(a, b)


# ---- configurations


@each
def test_a_configuration_is_json_and_comes_back(which: str) -> None:
    optimizers = tfopt.optimizers
    made = make(which)
    saved = json.loads(json.dumps(optimizers.serialize(made)))
    assert saved["class_name"] == which.split(" ")[0]
    again = optimizers.deserialize(saved)
    assert type(again) is type(made) and again.get_config() == made.get_config()
    assert optimizers.get(saved).get_config() == made.get_config()
    assert optimizers.get(made) is made


def test_names() -> None:
    optimizers = tfopt.optimizers
    for name in ("adadelta", "adagrad", "adam", "adamax", "nadam", "rmsprop", "sgd", "ftrl"):
        for spelled in (name, name.upper()):
            made = optimizers.get(spelled)
            assert type(made).__name__.lower() == name
            assert made.get_config() == type(made)().get_config()
    assert optimizers.deserialize({"class_name": "ADAMAX", "config": {"lr": 0.5}}).lr == 0.5


def test_classes_of_ones_own() -> None:
    class Mine(tfopt.optimizers.SGD):
        pass

    saved = tfopt.optimizers.serialize(Mine(0.5))
    assert type(tfopt.optimizers.deserialize(saved, {"Mine": Mine})) is Mine
    with pytest.raises(tfopt.InvalidArgumentError, match="Unknown optimizer: Mine"):
        tfopt.optimizers.deserialize(saved)


def test_the_classes_with_names_are_the_public_ones() -> None:
    """And no base class of theirs."""
    optimizers, schedules = tfopt.optimizers, tfopt.optimizers.schedules
    kinds = optimizers.Optimizer, schedules.LearningRateSchedule
    for module, known in ((optimizers, OPTIMIZERS), (schedules, SCHEDULES)):
        public = {x for x in map(vars(module).get, module.__all__) if isinstance(x, type)}
        named = {cls for cls in public if issubclass(cls, kinds)}
        assert {*known.values()} == named - {*kinds, optimizers.Wrapper}


@pytest.mark.parametrize("identifier", [3, None, ["sgd"]])
def test_what_is_no_identifier(identifier: Any) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="Could not interpret optimizer"):
        tfopt.optimizers.get(identifier)


def test_what_no_configuration_holds_can_be_printed() -> None:
    own = tfopt.optimizers
    assert re.fullmatch(
        r"SGD\(<function .*>, name='mine'\)", repr(own.SGD(lambda: 0.5, name="mine"))
    )
    groups = own.ParameterGroups(own.SGD(), [([np.ones(2)], {})])
    assert re.fullmatch(
        r"ParameterGroups\(SGD\(0.01\), \[\(\[<Variable .*>\], SGD\(.*\)\)\]\)", repr(groups)
    )
