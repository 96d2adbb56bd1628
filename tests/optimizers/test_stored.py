"""Checkpoints whose arrays are read from the file to where they are to be."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.step_cases import everything
from hypothesis import given
from hypothesis import strategies as st

from tfopt import IndexedSlices, Variable, checkpoints
from tfopt.errors import CheckpointError, InvalidArgumentError
from tfopt.optimizers import SGD, Adam, GradientAccumulation, WeightAverage

each = pytest.mark.parametrize("suffix", ["npz", "safetensors"])
DTYPES = ["?", "i1", "f2", ml_dtypes.bfloat16, ">f4", "f8", ">c8", "c16"]
LAYOUTS = {
    "contiguous": lambda array: array,
    "transposed": lambda array: np.asfortranarray(array),
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
}


@contextmanager
def peak_below(most: int) -> Iterator[None]:
    """Refuse a block that takes more memory for arrays at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@each
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from([(), (0, 3), (5,), (4, 3), (300, 400)]),
    layout=st.sampled_from(sorted(LAYOUTS)),
)
def test_an_array_is_read_into_another(
    tmp_path_factory: Any, suffix: str, dtype: Any, shape: tuple[int, ...], layout: str
) -> None:
    path = tmp_path_factory.mktemp("stored") / f"x.{suffix}"
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    checkpoints.save(path, {"first": np.ones(3), "a": [array], "n": 3})
    with checkpoints.opened(path) as tree:
        stored = tree["a"][0]
        assert isinstance(stored, checkpoints.Stored)
        assert (stored.shape, stored.dtype) == (array.shape, array.dtype.newbyteorder("="))
        assert repr(stored).startswith("<Stored 'a/0' shape=")
        target = np.zeros_like(array)
        if shape:
            target = LAYOUTS[layout](target)
        stored.read_into(target)
        for found in (target, stored.read(), stored.read()):
            np.testing.assert_array_equal(found, array)
        np.testing.assert_array_equal(tree["first"].read(), np.ones(3))
        assert tree["n"] == 3


@each
def test_arrays_that_do_not_fit_are_not_read_into(tmp_path: Path, suffix: str) -> None:
    checkpoints.save(path := tmp_path / f"x.{suffix}", {"a": np.ones(6, np.float32)})
    with checkpoints.opened(path) as tree:
        stored = tree["a"]
        for shape, dtype in ((5, "f4"), (7, "f4"), ((2, 3), "f4"), (6, "i4"), (6, "f8")):
            array = np.zeros(shape, dtype)
            with pytest.raises(InvalidArgumentError, match=r"a (has shape|is float32)"):
                stored.read_into(array)
            assert not array.any()
        array = np.zeros(6, np.float32)
        array.flags.writeable = False
        with pytest.raises(InvalidArgumentError, match="read-only"):
            stored.read_into(array)
    with pytest.raises(CheckpointError, match="closed"):
        stored.read()


@each
def test_a_damaged_file_is_refused_before_the_block(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    checkpoints.save(path, {"w": np.arange(40.0), "v": np.ones(3)})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=path.name), checkpoints.opened(path):
            pytest.fail("it was opened")


@each
def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    checkpoints.save(path, {"w": np.full(1 << 16, 3.0)})
    spoilt = path.read_bytes().replace(np.float64(3).tobytes(), np.float64(5).tobytes(), 1)
    with (
        pytest.raises(CheckpointError, match=rf"{path.name}: w: the file changed after"),
        checkpoints.opened(path) as tree,
    ):
        path.write_bytes(spoilt)
        tree["w"].read()
    checkpoints.save(path, {"w": np.ones(5)})
    with (
        pytest.raises(CheckpointError, match=rf"{path.name}: the file is truncated"),
        checkpoints.opened(path) as tree,
    ):
        path.write_bytes(path.read_bytes()[:9])
        tree["w"].read()


@each
def test_a_file_that_is_replaced_meanwhile_is_the_one_that_was_opened(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"x.{suffix}"
    checkpoints.save(path, {"w": np.ones(5)})
    with checkpoints.opened(path) as tree:
        checkpoints.save(path, {"w": np.zeros(5)})
        assert tree["w"].read().tolist() == [1] * 5
    assert checkpoints.load(path)["w"].tolist() == [0] * 5


# ---- optimizers


@each
def test_a_state_is_read_once_and_put_in_place(tmp_path: Path, suffix: str) -> None:
    """Directly into new slots; what is there is the old state until all has been read."""
    optimizer, w = Adam(), Variable(np.zeros(1 << 20, np.float32))
    optimizer.apply_gradients([(np.ones_like(w.numpy()), w)])
    slots = [optimizer.get_slot(w, name) for name in ("m", "v")]
    arrays, saved = [slot.numpy() for slot in slots], optimizer.get_weights()
    optimizer.save(tmp_path / f"x.{suffix}", [w])
    optimizer.apply_gradients([(np.ones_like(w.numpy()), w)])
    with peak_below(2 * w.numpy().nbytes + (1 << 20)):
        optimizer.load(tmp_path / f"x.{suffix}", [w])
    assert all(slot.numpy() is array for slot, array in zip(slots, arrays, strict=True))
    for found, expected in zip(optimizer.get_weights(), saved, strict=True):
        np.testing.assert_array_equal(found, expected)
    with peak_below(2 * w.numpy().nbytes + (1 << 20)):
        Adam().load(tmp_path / f"x.{suffix}", [w])


@each
def test_a_run_in_one_file_is_read_without_a_copy(tmp_path: Path, suffix: str) -> None:
    def made() -> GradientAccumulation:
        return GradientAccumulation(WeightAverage(SGD(0.1, momentum=0.5)), 3)

    optimizer, model = made(), {"w": np.ones((1 << 16, 4)), "table": np.ones((9, 2))}
    for k in range(5):
        rows = IndexedSlices(np.full((2, 2), k + 1.0), np.array([k, k + 1]))
        optimizer.step(model, {"w": np.full((1 << 16, 4), k + 1.0), "table": rows})
    checkpoints.save(
        tmp_path / f"x.{suffix}",
        {"model": model, "optimizer": optimizer.state_dict(model), "epoch": 3},
    )
    again = {name: np.zeros_like(array) for name, array in model.items()}
    other = made()
    with (
        peak_below(3 * model["w"].nbytes + (1 << 20)),
        checkpoints.opened(tmp_path / f"x.{suffix}") as run,
    ):
        other.load_state_dict(run["optimizer"], again)
        for name, array in again.items():
            run["model"][name].read_into(array)
    rows = IndexedSlices(np.ones((1, 2)), np.array([8]))
    for opt, some in ((optimizer, model), (other, again)):
        opt.step(some, {"w": np.ones((1 << 16, 4)), "table": rows})
    np.testing.assert_equal(again, model)
    np.testing.assert_equal(other.state_dict(again), optimizer.state_dict(model))


@each
@pytest.mark.parametrize("spoilt", ["shape", "dtype", "part"])
def test_a_state_that_does_not_fit_changes_nothing(
    tmp_path: Path, suffix: str, spoilt: str
) -> None:
    optimizer, w, b = Adam(0.5), np.ones(5), np.ones(3)
    optimizer.apply_gradients([(w, w), (b, b)])
    state = copy.deepcopy(optimizer.state_dict([w, b]))
    if spoilt == "part":
        state["parts"]["more"] = np.ones(2)
    else:  # of the last slot: by then all others fit
        state["slots"]["1"]["v"] = np.ones(4) if spoilt == "shape" else np.ones(3, "f4")
    checkpoints.save(tmp_path / f"x.{suffix}", state)
    optimizer.apply_gradients([(w, w), (b, b)])
    before = copy.deepcopy((optimizer.state_dict([w, b]), w, b))
    with pytest.raises(InvalidArgumentError, match=r"must have|no part named more"):
        optimizer.load(tmp_path / f"x.{suffix}", [w, b])
    np.testing.assert_equal((optimizer.state_dict([w, b]), w, b), before)


@each
def test_a_second_reading_that_fails_leaves_the_old_state(
    tmp_path: Path, monkeypatch: Any, suffix: str
) -> None:
    optimizer, w, b = Adam(0.5), np.ones(5), np.ones(3)
    optimizer.apply_gradients([(w, w), (b, b)])
    optimizer.save(tmp_path / f"x.{suffix}", [w, b])
    saved = optimizer.get_weights()
    optimizer.apply_gradients([(w, w), (b, b)])
    before = everything(optimizer, [w, b])
    read = checkpoints.Stored.read

    def failing(stored: Any) -> np.ndarray:
        if "1/" in repr(stored):
            raise OSError(5, "Input/output error")
        return read(stored)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Stored, "read", failing)
        with pytest.raises(OSError, match="Input/output error"):
            optimizer.load(tmp_path / f"x.{suffix}", [w, b])
    assert everything(optimizer, [w, b]) == before
    optimizer.load(tmp_path / f"x.{suffix}", [w, b])
    for found, expected in zip(optimizer.get_weights(), saved, strict=True):
        np.testing.assert_array_equal(found, expected)
