"""Loading states and averages is atomic: at each line of Python they are old or new."""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.interrupted import interrupting
from common.step_cases import every_optimizer, everything, frozen

import tfopt
from tfopt import IndexedSlices, InvalidArgumentError, Variable, checkpoints
from tfopt.errors import CheckpointError, InvalidTypeError
from tfopt.optimizers import Adam, GradientAccumulation, Optimizer
from tfopt.optimizers.state import slot_storage
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.restoration import Restoration
from tfopt.optimizers.state.slots import SlotStore
from tfopt.optimizers.step.deferred_rows import DeferredRows
from tfopt.optimizers.step.deferred_tables import DeferredUpdates
from tfopt.optimizers.wrappers.accumulation import Waiting

STORAGES = (None, *slot_storage.KINDS)
PACKAGE = str(Path(tfopt.__file__).parent)
#: Objects that hold state besides optimizers.
HOLDERS = (Optimizer, SlotStore, ByVariable, Waiting, DeferredUpdates, DeferredRows)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots of these variables are stored in blocks, too."""
    monkeypatch.setattr(slot_storage, "FEWEST", 2)


def makers(storage: str | None) -> dict[str, Callable[[], Any]]:
    """Return factories of all optimizers and wrappers that take a storage."""
    options = {} if storage is None else {"storage": storage}
    found = every_optimizer(**options)
    if storage is None:
        found |= {
            "catching up": lambda: Adam(0.5, sparse="catch_up"),
            "sums of rows that catch up": lambda: GradientAccumulation(
                Adam(0.5, sparse="catch_up"), 2
            ),
        }
    return {which: make for which, make in found.items() if _takes(make)}


def _takes(make: Callable[[], Any]) -> bool:
    try:
        stepped(make, 1)
    except (InvalidArgumentError, TypeError):
        return False
    return True


def stepped(make: Callable[[], Any], steps: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Return an optimizer after some steps, with its variables."""
    optimizer = make()
    variables = {"w": np.ones(300, np.float32), "table": np.ones((6, 2), np.float32)}
    for k in range(steps):
        random = np.random.default_rng(k)
        grads: dict[str, Any] = {
            name: random.standard_normal(w.shape).astype(w.dtype) for name, w in variables.items()
        }
        if getattr(optimizer, "storage", None) is None:
            grads["table"] = IndexedSlices(grads["table"][:2], np.array([k % 6, 5]))
        optimizer.step(variables, grads)
    return optimizer, variables


class Watched:
    """All that an optimizer holds: objects, which are compared by identity, and arrays' bytes.

    Attributes
    ----------
    changes : int
        How often it was found changed.
    looks : int
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self.changes, self.looks = optimizer, 0, 0
        self._collect()

    def _collect(self) -> None:
        self._containers: dict[int, Any] = {}
        self._arrays: list[np.ndarray] = []
        self._add(self._optimizer)
        # which keeps all of them, so that no other object gets the `id` of one
        self._kept = [[*_held(container)] for container in self._containers.values()]
        self._last = self._now()

    def _add(self, value: Any) -> None:
        if isinstance(value, (Variable, IndexedSlices)):
            arrays = (
                [value._array] if isinstance(value, Variable) else [value.values, value.indices]
            )
            self._arrays += arrays
        elif isinstance(value, np.ndarray):
            self._arrays.append(value)
        elif isinstance(value, (dict, list, tuple, *HOLDERS)) and id(value) not in self._containers:
            container = vars(value) if isinstance(value, HOLDERS) else value
            self._containers[id(value)] = container
            for each in _held(container):
                self._add(each)

    def _now(self) -> tuple[bytes, list[tuple[int, ...]]]:
        """Return the SHA-256 of all arrays, and what there is."""
        digest = hashlib.sha256(b"".join([array.tobytes() for array in self._arrays])).digest()
        return digest, [tuple(map(id, _held(each))) for each in self._containers.values()]

    def look(self) -> None:
        """Find out whether anything is another."""
        self.looks += 1
        if self._now() != self._last:
            self.changes += 1
            self._collect()


def _held(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def at_each_line(call: Callable[[], Any], look: Callable[[], Any]) -> None:
    """Make a call, and look before each line and at each return of this package's Python code."""

    def trace(frame: Any, kind: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if kind in ("line", "return"):
            look()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def assert_whole(optimizer: Any, call: Callable[[], Any], what: str) -> None:
    """Make a call, which changes the optimizer once, from one line to the next."""
    watched = Watched(optimizer)
    at_each_line(call, watched.look)
    watched.look()
    assert watched.looks > 50
    assert watched.changes == 1, f"{what} changed at {watched.changes} lines"


@pytest.mark.sampled_in_part
@pytest.mark.parametrize("storage", STORAGES)
def test_a_state_is_old_or_new_at_each_line(
    storage: str | None, pytestconfig: pytest.Config
) -> None:
    """What Ctrl-C would leave there; of every fifth optimizer in a sample."""
    found = makers(storage)
    chosen = [*found.items()][STORAGES.index(storage) % 5 :: 5]
    for number, (which, make) in enumerate(chosen if pytestconfig.option.sample else found.items()):
        source, theirs = stepped(make, 3)
        state = copy.deepcopy(source.state_dict(theirs))
        optimizer, variables = stepped(make, steps := number % 3)  # which may be none
        load = partial(optimizer.load_state_dict, state, variables)
        assert_whole(optimizer, load, f"{which}, after {steps} steps")
        assert everything(optimizer, variables)[2] == frozen(state)
    assert len(found) >= (30 if storage is None else 20)


def test_half_a_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(restoration: Restoration) -> None:
        for variable, array in restoration._assigned:
            variable.assign(array)

    monkeypatch.setattr(Restoration, "carry_out", one_by_one)
    source, theirs = stepped(lambda: Adam(0.5), 3)
    optimizer, variables = stepped(lambda: Adam(0.5), 1)
    load = partial(optimizer.load_state_dict, source.state_dict(theirs), variables)
    with pytest.raises(AssertionError, match="loading changed at 5 lines"):
        assert_whole(optimizer, load, "loading")


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_file_is_loaded_at_one_line(suffix: str, tmp_path: Path) -> None:
    found = makers(None)
    for which in ("Adam", "Nadam", "WeightAverage", "sums of rows that catch up"):
        make = found[which]
        source, theirs = stepped(make, 2)
        source.save(tmp_path / f"x.{suffix}", theirs)
        optimizer, variables = stepped(make, 1)
        load = partial(optimizer.load, tmp_path / f"x.{suffix}", variables)
        assert_whole(optimizer, load, which)


def test_weights_are_set_at_one_line() -> None:
    for which, make in makers(None).items():
        optimizer, _ = stepped(make, 1)
        optimizer.flush()
        others = [array + array for array in optimizer.get_weights()]
        assert_whole(optimizer, partial(optimizer.set_weights, others), which)


@pytest.mark.parametrize("storage", STORAGES)
def test_slots_are_converted_at_one_line(storage: str | None) -> None:
    for other in STORAGES:
        if other != storage:
            optimizer, _ = stepped(lambda: Adam(0.1, storage=storage), 1)
            assert_whole(optimizer, partial(optimizer.convert_storage, other), f"to {other}")


@pytest.mark.parametrize("which", ["WeightAverage", "ScheduleFreeSGD", "ScheduleFreeAdamW"])
def test_averages_come_and_go_at_one_line(which: str) -> None:
    optimizer, variables = stepped(makers(None)[which], 3)
    before = everything(optimizer, variables)
    optimizer.assign_averages()
    inside = everything(optimizer, variables)
    optimizer, variables = stepped(makers(None)[which], 3)
    watched, found = Watched(optimizer), []

    def evaluate() -> None:
        with optimizer.averaged():
            found.append(everything(optimizer, variables))

    at_each_line(evaluate, watched.look)
    watched.look()
    assert watched.changes == 2 and found == [inside]
    assert before == everything(optimizer, variables) != inside
    with pytest.raises(ArithmeticError), optimizer.averaged():
        raise ArithmeticError
    assert before == everything(optimizer, variables)
    with (block := optimizer.averaged()), pytest.raises(InvalidArgumentError, match="being used"):
        block.__enter__()
    assert before == everything(optimizer, variables)
    with block:
        assert inside == everything(optimizer, variables)
    assert before == everything(optimizer, variables)
    variables["table"].flags.writeable = False
    for refused in (optimizer.assign_averages, optimizer.averaged().__enter__):
        with pytest.raises(InvalidTypeError, match="writable"):
            refused()
    variables["table"].flags.writeable = True
    assert before == everything(optimizer, variables)
    watched = Watched(optimizer)
    at_each_line(optimizer.assign_averages, watched.look)
    watched.look()
    assert watched.changes == 1


class Restoring(Adam):
    """An optimizer that restores state of its own by functions."""

    mark = 0

    def _state_parts(self, names: Any) -> dict[str, Any]:
        return {**super()._state_parts(names), "mark": self.mark}

    def _restoring(self, parts: Any, names: Any, slots: Any) -> list[Callable[[], None]]:
        mark = parts.pop("mark")
        rest = super()._restoring(parts, names, slots)
        return [*rest, partial(setattr, self, "mark", mark), partial(self._check, mark)]

    def _check(self, mark: int) -> None:
        assert self.mark == mark
        if mark < 0:
            raise ArithmeticError


@interrupting
@pytest.mark.parametrize("around", [lambda opt: opt, lambda opt: GradientAccumulation(opt, 2)])
@pytest.mark.parametrize("steps", [0, 2])
def test_ctrl_c_leaves_the_old_state_or_the_new_one(around: Any, steps: int) -> None:
    """Of an optimizer with functions that restore, too."""

    def make() -> Any:
        return around(Restoring(0.5))

    source, theirs = stepped(make, 3)
    getattr(source, "optimizer", source).mark = 7
    state = copy.deepcopy(source.state_dict(theirs))
    optimizer, variables = stepped(make, steps)
    counted = Watched(optimizer)
    at_each_line(partial(optimizer.load_state_dict, state, variables), counted.look)
    after = everything(optimizer, variables)
    optimizer, variables = stepped(make, steps)
    before, n = everything(optimizer, variables), 0
    assert before != after
    while everything(optimizer, variables) == before:
        n += 1 if n > counted.looks - 60 else 15
        left = n

        def interrupt() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        try:
            at_each_line(partial(optimizer.load_state_dict, state, variables), interrupt)
        except KeyboardInterrupt:
            continue
        assert left <= 0, "the call ended before it was interrupted"
        # Python 3.12 traces how a generator is closed, and what is raised there is lost
        optimizer, variables = stepped(make, steps)
    assert everything(optimizer, variables) == after
    assert counted.looks - 20 < n <= counted.looks  # it was interrupted after its writes


def test_a_function_that_raises_leaves_the_old_state() -> None:
    source, theirs = stepped(lambda: Restoring(0.5), 3)
    source.mark = -1
    for steps in (0, 2):
        optimizer, variables = stepped(lambda: Restoring(0.25), steps)
        watched = Watched(optimizer)
        with pytest.raises(ArithmeticError):
            optimizer.load_state_dict(source.state_dict(theirs), variables)
        watched.look()
        assert not watched.changes


def test_slots_that_are_exchanged() -> None:
    """The new state of one array is the old one of another."""
    optimizer, variables = stepped(lambda: Adam(0.5), 2)
    state = optimizer.state_dict(variables)
    m, v = (optimizer.get_slot(variables["w"], slot).numpy() for slot in "mv")
    before = m.copy(), v.copy()
    state["slots"]["w"] = {"m": v, "v": m}
    optimizer.load_state_dict(state, variables)
    assert (m == before[1]).all() and (v == before[0]).all()


@pytest.mark.parametrize("steps", [0, 1])
def test_a_file_that_changes_while_it_is_read_leaves_the_old_state(
    steps: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.safetensors"
    source, theirs = stepped(lambda: Adam(0.5), 3)
    source.save(path, theirs)
    optimizer, variables = stepped(lambda: Adam(0.25), steps)
    watched = Watched(optimizer)
    with checkpoints.opened(path) as state:
        with open(path, "r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"different")
        with pytest.raises(CheckpointError, match="changed after it was checked"):
            optimizer.load_state_dict(state, variables)
    watched.look()
    assert not watched.changes
