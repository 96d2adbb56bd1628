"""The codes of bitsandbytes, and the states of its optimizers, as it has recorded them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from golden.bitsandbytes import (
    CLASSES,
    SAME,
    SHAPES,
    STEPS,
    gradients,
    recorded,
    state_of,
    values,
    variables,
)

import tfopt_ref.storage
from tfopt import optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.interop.bitsandbytes import load_state_dict, states
from tfopt.storage import DYNAMIC8, POSITIVE_DYNAMIC8, dequantize, dynamic_map, quantize

RECORDED = recorded()
OTHERS = {"SGD8bit": "SGD", "RMSprop8bit": "RMSprop"}
each_sign = pytest.mark.parametrize("dtype", [DYNAMIC8, POSITIVE_DYNAMIC8], ids=["signed", "not"])
each_same = pytest.mark.parametrize("theirs", SAME)


@each_sign
def test_codes_stand_for_the_same_numbers(dtype: Any) -> None:
    signed = dtype == DYNAMIC8
    for table in (dynamic_map(dtype), tfopt_ref.storage.dynamic_map(signed)):
        assert table.dtype == np.float32
        assert table.tobytes() == RECORDED[f"{signed}/map"].tobytes()


@each_sign
def test_numbers_have_the_nearest_codes(dtype: Any) -> None:
    """Theirs, but where a number is as near the middle of two as the steps of their search."""
    signed = dtype == DYNAMIC8
    x = values() if signed else values() ** 2
    blocks, table = quantize(x, dtype), dynamic_map(dtype)
    absmax, codes = (blocks[field] for field in dtype.names)
    assert absmax.tobytes() == RECORDED[f"{signed}/absmax"].tobytes()
    ours, theirs = codes.reshape(-1)[: x.size], RECORDED[f"{signed}/codes"]
    relative = x / np.repeat(absmax, 256)[: x.size]
    assert (abs(table[ours] - relative) <= abs(table[:, None] - relative).min(0)).all()
    middles = (table[1:] + table[:-1]) / 2
    decided = abs(middles[:, None] - relative).min(0) > 1 / 65535
    assert decided.sum() > 200 and (ours == theirs)[decided].all()


@each_sign
def test_of_two_equally_near_the_lower_code_is_stored(dtype: Any) -> None:
    table = dynamic_map(dtype)
    middles = (table[1:] + table[:-1]) / np.float32(2)
    blocks = quantize(np.append(middles, np.float32(1)), dtype)
    assert blocks["codes"][0].tolist() == [*range(255), 255]


def test_other_dtypes_have_no_table() -> None:
    with pytest.raises(InvalidTypeError, match="DYNAMIC8 or POSITIVE_DYNAMIC8, not float32"):
        dynamic_map(np.dtype(np.float32))


# ---- states


@each_same
def test_states_are_loaded_and_saved_as_they_are(theirs: str) -> None:
    ws = variables()
    opt = getattr(optimizers, SAME[theirs])(storage="dynamic8bit")
    state = state_of(theirs)
    load_state_dict(opt, state, ws)
    assert int(opt.iterations) == STEPS
    saved = states(opt, ws)
    for number, part in state["state"].items():
        assert saved[number].keys() == part.keys()
        for key, array in part.items():
            assert np.asarray(saved[number][key]).tobytes() == array.tobytes(), key
            assert np.asarray(saved[number][key]).dtype == array.dtype
    wrapped = copy.deepcopy(state)
    for part in wrapped["state"].values():
        quantized = {key: part.pop(key) for key in [*part] if key != "step"}
        part["__bnb_optimizer_quant_state__"] = quantized
    load_state_dict(opt, wrapped, ws)
    assert str(states(opt, ws)) == str(saved)


@pytest.mark.parametrize("storage", ["dynamic8bit", "8bit", None])
@pytest.mark.parametrize("theirs", CLASSES)
def test_training_goes_on(theirs: str, storage: str | None) -> None:
    """The next step is near theirs: epsilon, and numbers stored anew, differ a little."""
    ws = variables()
    ws[0][:4] = before = RECORDED[f"{theirs}/before"]
    opt = getattr(optimizers, (SAME | OTHERS)[theirs])(storage=storage)
    load_state_dict(opt, state_of(theirs), ws)
    opt.apply_gradients(list(zip(gradients(STEPS), ws, strict=True)))
    step, expected = ws[0][:4] - before, RECORDED[f"{theirs}/after"] - before
    near = abs(step - expected) <= 0.1 * abs(expected).max()
    assert near.mean() > (0.98 if storage == "8bit" else 0.995)


@pytest.mark.parametrize("theirs", OTHERS)
def test_states_of_other_slots_are_not_saved(theirs: str) -> None:
    ws = variables()
    opt = getattr(optimizers, OTHERS[theirs])(storage="dynamic8bit")
    load_state_dict(opt, state_of(theirs), ws)
    with pytest.raises(InvalidArgumentError, match="slots differ from bitsandbytes"):
        states(opt, ws)


def test_slots_stored_otherwise_are_not_saved() -> None:
    ws = variables()
    opt = optimizers.Adam(storage="8bit")
    load_state_dict(opt, state_of("Adam8bit"), ws)
    with pytest.raises(InvalidArgumentError, match=r"convert_storage\(\"dynamic8bit\"\) first"):
        states(opt, ws)
    opt.convert_storage("dynamic8bit")
    assert states(opt, ws)[0]["state1"].dtype == np.uint8


def test_numbers_of_a_state_are_those_of_the_table() -> None:
    ws, state = variables(), state_of("Adam8bit")
    opt = optimizers.Adam(storage={"m": "float32", "v": "dynamic8bit"})
    load_state_dict(opt, state, ws)
    part = state["state"][0]
    table = part["qmap1"][part["state1"]].reshape(-1)
    numbers = table * np.repeat(part["absmax1"], 256)[: table.size]
    assert opt.get_slot(ws[0], "m").numpy().reshape(-1).tobytes() == numbers.tobytes()
    v = dequantize(opt.get_slot(ws[0], "v").numpy(), SHAPES[0])
    assert (v == 0).sum() < v.size / 10


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("state1", np.zeros(5, np.uint8), InvalidArgumentError, r"0/m must have shape \(66, 63\)"),
        ("state1", np.zeros(SHAPES[0], np.int8), InvalidTypeError, "0/m must have dtype uint8"),
        ("absmax2", np.ones(3, np.float32), InvalidArgumentError, "0/v must have 17 absmax"),
        ("absmax2", np.full(17, -1.0), InvalidArgumentError, "0/v .* block 0 has a negative unit"),
        ("absmax1", np.full(17, np.inf), InvalidArgumentError, "0/m .* has an infinite unit"),
        ("qmap1", np.linspace(-1, 1, 256), InvalidArgumentError, "0/m is quantized by another"),
    ],
)
def test_damaged_states_are_refused(key: str, value: Any, error: Any, message: str) -> None:
    ws, opt, state = variables(), optimizers.Adam(0.5, storage="dynamic8bit"), state_of("Adam8bit")
    state["state"][0][key] = value
    with pytest.raises(error, match=message):
        load_state_dict(opt, state, ws)
    assert opt.learning_rate == 0.5 and int(opt.iterations) == 0


def test_what_has_no_counterpart_is_refused() -> None:
    ws, state = variables(), state_of("Adam8bit")
    with pytest.raises(InvalidArgumentError, match="no counterpart of Adamax"):
        load_state_dict(optimizers.Adamax(), state, ws)
    with pytest.raises(InvalidArgumentError, match="got 1 variables, but the state has 2"):
        load_state_dict(optimizers.Adam(), state, ws[:1])
    state["param_groups"][0]["weight_decay"] = 0.1
    with pytest.raises(InvalidArgumentError, match=r"weight_decay=0.1 has no counterpart in Adam"):
        load_state_dict(optimizers.Adam(), state, ws)
