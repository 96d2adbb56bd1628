"""Bad calls with arrays on a GPU are refused as others are, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers
from devices import DEVICE, HostArray
from golden.refusals import OPS, Arguments, order

import tfopt
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.rules import Rule

GOLDEN = Path(__file__).parents[1] / "golden/data/refusals.json"
TENSORFLOW = {op: names.split(", ") for op, names in json.loads(GOLDEN.read_text()).items()}
ROWS, WIDTH, N = 6, 3, 4

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_with_rows = pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)


def refusal(op: str, arguments: Arguments) -> str:
    """Return the message of a refused call, which has left every array as it was."""
    there = {
        name: value if name in OPS[op].hypers else DEVICE.to(value)
        for name, value in arguments.items()
    }
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(tfopt.raw_ops, op)(**there)
    for name, value in there.items():
        if name not in OPS[op].hypers:
            np.testing.assert_array_equal(DEVICE.back(value), arguments[name])
    message = str(caught.value)
    # of an index on the device only its place is told
    return message.replace("The index at", "Index at")


@pytest.mark.parametrize("op", OPS)
def test_the_order_of_checks_is_tensorflows(op: str) -> None:
    assert order(op, refusal) == TENSORFLOW[op]


def _replace(place: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def spoil(arrays: list[Any]) -> None:
        arrays[place] = change(arrays[place])

    return spoil


def _part(key: Any) -> Callable[[Any], Any]:
    return lambda array: DEVICE.part(array, key)


def _slot_is_var(arrays: list[Any]) -> None:
    arrays[-2] = arrays[0]


def _grad_begins_in_var(arrays: list[Any]) -> None:
    both = DEVICE.to(np.zeros((ROWS + 1, WIDTH), np.float32))
    arrays[0], arrays[-1] = DEVICE.part(both, slice(0, -1)), DEVICE.part(both, slice(1, None))


def _there(array: np.ndarray) -> Callable[[Any], Any]:
    return lambda _: DEVICE.to(array)


REFUSED: dict[str, tuple[Callable[[list[Any]], None], type[Exception]]] = {
    "gradient in the host's memory": (_replace(-1, DEVICE.back), InvalidTypeError),
    "gradient that is a list": (_replace(-1, lambda a: [1.0]), InvalidTypeError),
    "gradient that is None": (_replace(-1, lambda a: None), InvalidTypeError),
    "gradient of another dtype": (
        _replace(-1, _there(np.zeros((ROWS, WIDTH)))),
        InvalidTypeError,
    ),
    "integer variable": (_replace(0, _there(np.zeros((ROWS, WIDTH), np.int32))), InvalidTypeError),
    "gradient that is not contiguous": (
        lambda arrays: arrays.__setitem__(
            -1, DEVICE.part(DEVICE.to(np.ones((ROWS, 2 * WIDTH), np.float32)), np.s_[:, ::2])
        ),
        InvalidArgumentError,
    ),
    "gradient of another shape": (_replace(-1, _part(np.s_[:-1])), InvalidArgumentError),
    "gradient that begins in the variable": (_grad_begins_in_var, InvalidArgumentError),
}


def call(rule: Rule, arrays: list[Any], **options: Any) -> None:
    getattr(tfopt.training_ops, f"apply_{rule.name}")(*arrays, **ordinary_hypers(rule), **options)


@each_rule
@pytest.mark.parametrize("name", REFUSED)
def test_refused_calls_change_nothing(rule: Rule, name: str) -> None:
    spoil, error = REFUSED[name]
    values = arrays_for(rule, (ROWS, WIDTH), "float32")
    there = [DEVICE.to(value) for value in values]
    spoiled = list(there)
    spoil(spoiled)
    with pytest.raises(error):
        call(rule, spoiled)
    for array, value in zip(there, values, strict=True):
        np.testing.assert_array_equal(DEVICE.back(array), value)


@each_rule
def test_variables_that_overlap(rule: Rule) -> None:
    if not rule.slots:
        return
    shape = (ROWS,) if rule.row_slots else (ROWS, WIDTH)
    values = arrays_for(rule, shape, "float32")
    there = [DEVICE.to(value) for value in values]
    spoiled = list(there)
    _slot_is_var(spoiled)
    with pytest.raises(InvalidArgumentError, match="overlap"):
        call(rule, spoiled)
    for array, value in zip(there, values, strict=True):
        np.testing.assert_array_equal(DEVICE.back(array), value)


@each_rule
def test_arrays_on_a_gpu_beside_a_variable_that_is_not(rule: Rule) -> None:
    values = arrays_for(rule, (ROWS, WIDTH), "float32")
    before = [value.copy() for value in values]
    for place in range(1, len(values)):
        mixed: list[Any] = list(values)
        mixed[place] = DEVICE.to(values[place])
        with pytest.raises(InvalidTypeError, match=f"{rule.operands[place]} is on a GPU"):
            call(rule, mixed)
    for value, old in zip(values, before, strict=True):
        np.testing.assert_array_equal(value, old)


INDICES: dict[str, tuple[Any, type[Exception]]] = {
    "float indices": (np.zeros(N), InvalidTypeError),
    "int16 indices": (np.zeros(N, np.int16), InvalidTypeError),
    "too few indices": (np.zeros(N - 1, np.int64), InvalidArgumentError),
    "indices of rank 2": (np.zeros((2, 2), np.int64), InvalidArgumentError),
    "an index past the end": (np.array([0, 1, ROWS, 2]), tfopt.errors.IndexOutOfRangeError),
    "a negative index": (np.array([0, 1, 2, -1], np.int32), tfopt.errors.IndexOutOfRangeError),
}


@each_with_rows
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("duplicates", ["sequential", "sum", "error"])
def test_refused_indices(rule: Rule, name: str, duplicates: str) -> None:
    indices, error = INDICES[name]
    if rule.absent and duplicates == "sequential":
        error = InvalidArgumentError
    values = arrays_for(rule, (ROWS, WIDTH), "float32")
    values[-1] = values[-1][:N]
    there = [DEVICE.to(value) for value in values]
    with pytest.raises(error):
        call(rule, there, indices=DEVICE.to(indices), duplicates=duplicates)
    with pytest.raises(InvalidArgumentError, match=r'indices must be an array on the GPU|"sum"'):
        call(rule, there, indices=np.zeros(N, np.int64), duplicates=duplicates)
    for array, value in zip(there, values, strict=True):
        np.testing.assert_array_equal(DEVICE.back(array), value)


def test_other_arguments() -> None:
    var, grad = (DEVICE.to(np.ones(3, np.float32)) for _ in range(2))
    apply = tfopt.training_ops.apply_gradient_descent
    for options in (
        {"alpha": "0.1"},
        {"alpha": np.ones(1)},
        {"alpha": 0.1, "grad_scale": "1"},
        {"alpha": 0.1, "indices": DEVICE.to(np.zeros(3, np.int64)), "duplicates": "mean"},
    ):
        with pytest.raises(InvalidArgumentError):
            apply(var, grad, **options)
    np.testing.assert_array_equal(DEVICE.back(var), 1)


def test_lists() -> None:
    rule = next(rule for rule in RULES if rule.name == "momentum")
    rows = [arrays_for(rule, (4,), "float32", k) for k in range(3)]
    there = [[DEVICE.to(a) for a in column] for column in zip(*rows, strict=True)]

    def spoiled(place: int, t: int, value: Any) -> list[Any]:
        columns: list[Any] = [list(column) for column in there]
        columns[place][t] = value
        return columns

    for columns in (
        [*there[:-1], there[-1][:2]],
        [*there[:-1], there[-1][0]],
        spoiled(2, 1, rows[1][2]),  # of the host
        spoiled(2, 1, DEVICE.to(np.ones(4))),
        spoiled(1, 2, there[1][0]),  # a slot of another variable
        spoiled(0, 2, there[2][0]),  # another variable's gradient
        spoiled(0, 2, DEVICE.part(there[0][2], np.s_[::2])),
    ):
        with pytest.raises(InvalidArgumentError):
            call(rule, columns)
    for column, values in zip(there, zip(*rows, strict=True), strict=True):
        for array, value in zip(column, values, strict=True):
            np.testing.assert_array_equal(DEVICE.back(array), value)


@pytest.mark.skipif(DEVICE.name != "host", reason="GPU libraries have no read-only arrays")
def test_read_only_arrays() -> None:
    values = np.ones(3, np.float32)
    values.flags.writeable = False
    with pytest.raises(InvalidArgumentError, match="var is read-only"):
        tfopt.training_ops.apply_gradient_descent(
            HostArray(values), DEVICE.to(np.ones(3, np.float32)), alpha=0.1
        )
    np.testing.assert_array_equal(values, 1)
    var = DEVICE.to(np.ones(3, np.float32))
    tfopt.training_ops.apply_gradient_descent(var, HostArray(values), alpha=0.5)
    np.testing.assert_array_equal(DEVICE.back(var), 0.5)
