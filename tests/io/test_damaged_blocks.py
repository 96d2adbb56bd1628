"""Slots in blocks of codes that cannot have been saved are refused when a state is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt import checkpoints, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.storage import POSITIVE4, POSITIVE8, SIGNED4, SIGNED8

SHAPE = (70, 64)


def in_block(field: str, value: Any, dtype: Any = SIGNED8) -> Any:
    """Return a function that damages the second block of the slot of a dtype."""

    def damage(weights: list[np.ndarray]) -> list[np.ndarray]:
        weights = [weight.copy() for weight in weights]
        slot = next(weight for weight in weights if weight.dtype == dtype)
        slot[field][1] = value
        return weights

    return damage


def in_units(unit: float) -> Any:
    """Return a function that leaves a single code beside the second block's unit of 0 or NaN."""

    def damage(weights: list[np.ndarray]) -> list[np.ndarray]:
        weights = [weight.copy() for weight in weights]
        block = next(weight for weight in weights if weight.dtype == SIGNED8)[1:2]
        block["unit"], block["codes"] = unit, 0
        block["codes"][0, -1] = 1
        return weights

    return damage


each_way = pytest.mark.parametrize("way", ["weights", "state", "file"])


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (in_block("unit", np.inf), InvalidArgumentError, "block 1 has an infinite unit"),
        (in_block("unit", -1, POSITIVE8), InvalidArgumentError, "block 1 has a negative unit"),
        (in_block("unit", np.nan), InvalidArgumentError, "block 1 has codes in a unit of NaN or 0"),
        (in_block("unit", 0, POSITIVE8), InvalidArgumentError, "codes in a unit of NaN or 0"),
        (in_units(0), InvalidArgumentError, "block 1 has codes in a unit of NaN or 0"),
        (in_units(np.nan), InvalidArgumentError, "block 1 has codes in a unit of NaN or 0"),
        (in_block("codes", -128), InvalidArgumentError, "block 1 has the code -128"),
        (lambda all_: [a[:-1] if a.dtype == SIGNED8 else a for a in all_], ValueError, "shape"),
        (lambda all_: [a["codes"] if a.dtype == SIGNED8 else a for a in all_], ValueError, "shape"),
        (
            lambda all_: [a.view(SIGNED8) if a.dtype == POSITIVE8 else a for a in all_],
            InvalidTypeError,
            "not .*codes",
        ),
    ],
)
@each_way
def test_damaged_blocks_are_refused_when_loaded(
    damage: Any, error: Any, message: str, way: str, tmp_path: Path
) -> None:
    refused("8bit", damage, error, message, way, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (in_block("absmax", (1, np.inf), SIGNED4), "block 1 has an infinite unit"),
        (in_block("max", (-1, 1), POSITIVE4), "block 1 has a negative unit"),
        (in_block("absmax", (1, 0), SIGNED4), "block 1 has codes in a unit of NaN or 0"),
        (in_block("max", (np.nan, 1), POSITIVE4), "block 1 has codes in a unit of NaN or 0"),
        (in_block("codes", 0x81, SIGNED4), "block 1 has a code of negative zero"),
        (in_block("codes", 0x18, SIGNED4), "block 1 has a code of negative zero"),
    ],
)
@each_way
def test_damaged_halves_of_blocks_are_refused_when_loaded(
    damage: Any, message: str, way: str, tmp_path: Path
) -> None:
    refused("4bit", damage, InvalidArgumentError, message, way, tmp_path)


def refused(kind: str, damage: Any, error: Any, message: str, way: str, tmp_path: Path) -> None:
    """Damage the saved slots of Adam; loading them raises, and changes nothing."""
    saved, other = optimizers.Adam(storage=kind), optimizers.Adam(storage=kind)
    w, v = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    saved.apply_gradients([(w.copy(), w)])
    other.apply_gradients([(2 * v, v)])
    damaged = damage(saved.get_weights())
    slots = {"m": damaged[1], "v": damaged[2]}
    state = saved.state_dict({"w": w}) | {"slots": {"w": slots}}
    before = [weight.tobytes() for weight in other.get_weights()]
    with pytest.raises(error, match=message) as caught:
        if way == "weights":
            other.set_weights(damaged)
        elif way == "state":
            other.load_state_dict(state, {"w": v})
        else:
            checkpoints.save(tmp_path / "state.npz", state)
            other.load(tmp_path / "state.npz", {"w": v})
    assert way == "weights" or re.search("^w/[mv]", str(caught.value))
    assert before == [weight.tobytes() for weight in other.get_weights()]


def test_a_slot_of_nan_is_loaded() -> None:
    """As it was saved: not everything that cannot be trained with is damaged."""
    first, second = optimizers.Lion(storage="8bit"), optimizers.Lion(storage="8bit")
    w = np.ones(SHAPE, np.float32)
    first.apply_gradients([(np.full(SHAPE, np.nan, np.float32), w)])
    second.load_state_dict(first.state_dict([w]), [w])
    assert np.isnan(second.get_slot(w, "m").value()["unit"]).all()
