"""Slots in files of a folder, or in arrays of a function: bits, memory, refusals."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.optimizer_makers import MAKERS, make
from common.wrapper_cases import WRAPPERS

from tfopt import IndexedSlices, Variable, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError

N = 5000  # rows: enough for slots in blocks of codes


def variables() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "table": random.normal(size=(N, 2)).astype(np.float32),
        "bias": random.normal(size=3).astype(np.float32),
    }


def step(opt: Any, params: dict[str, np.ndarray], seed: int, dense: bool = False) -> None:
    random = np.random.default_rng(seed)
    table: Any = random.normal(size=(N if dense else 7, 2)).astype(np.float32)
    if not dense:
        table = IndexedSlices(table, random.integers(N, size=7), (N, 2))
    opt.step(params, {"table": table, "bias": random.normal(size=3).astype(np.float32)})


def arrays(opt: Any, params: dict[str, np.ndarray]) -> list[np.ndarray]:
    inner = [each for one in opt._tree() for each in one.weights]
    return [*params.values(), *(np.asarray(each.numpy()) for each in inner)]


def assert_same(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    for a, b in zip(arrays(*one), arrays(*other), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def are_mapped(opt: Any) -> bool:
    """Whether all slots of host variables that have elements lie in files."""
    slots = [
        slot for each in opt._tree() for _, named in each._store.slots for slot in named.values()
    ]
    return all(isinstance(slot.numpy(), np.memmap) for slot in slots) and bool(slots)


@pytest.mark.parametrize("which", MAKERS)
def test_steps_give_the_same_bits(which: str, tmp_path: Path) -> None:
    """Of slots that are made in files, and of those that move there and back between steps."""
    plain, mapped = (make(which), variables()), (make(which), variables())
    mapped[0].allocate_slots(tmp_path)
    for k in range(4):
        for opt, params in (plain, mapped):
            step(opt, params, k)
        assert_same(plain, mapped)
        assert are_mapped(mapped[0]) == (k != 1) or not mapped[0].get_slot_names()
        mapped[0].allocate_slots(None if k == 0 else tmp_path)
    mapped[0].allocate_slots(None)
    assert_same(plain, mapped)
    assert not list(tmp_path.iterdir()), "files have no names"


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_slots_of_wrappers_move_with_those_inside(wrapper: str, tmp_path: Path) -> None:
    pairs = []
    for _ in range(2):
        pairs.append((WRAPPERS[wrapper].busy(optimizers.Adam(0.1)), variables()))
    pairs[0][0].allocate_slots(tmp_path)
    for k in range(4):
        for opt, params in pairs:
            step(opt, params, k)
        assert_same(*pairs)
    assert are_mapped(pairs[0][0])


MODES = [*product(("tensorflow", "lazy"), ("float32", "bfloat16", "8bit", "4bit"))]


@pytest.mark.parametrize(("sparse", "storage"), [*MODES, ("catch_up", None)])
def test_storage_saving_and_copies(sparse: str, storage: str | None, tmp_path: Path) -> None:
    plain, mapped = (
        (optimizers.Adam(0.1, sparse=sparse, storage=storage), variables()) for _ in range(2)
    )
    mapped[0].allocate_slots(tmp_path / "slots")
    for k in range(3):
        for opt, params in (plain, mapped):
            step(opt, params, k, dense=storage in ("8bit", "4bit"))
    last = storage and "float32"
    for opt, _ in (plain, mapped):
        opt.convert_storage(last)
    assert_same(plain, mapped)
    assert are_mapped(mapped[0])
    mapped[0].save(tmp_path / "state.npz", mapped[1])
    loaded = optimizers.Adam(0.1, sparse=sparse, storage=last), copy.deepcopy(mapped[1])
    loaded[0].allocate_slots(tmp_path / "slots")
    loaded[0].load(tmp_path / "state.npz", loaded[1])
    assert are_mapped(loaded[0])
    again = loaded[0].get_slot(loaded[1]["table"], "m").numpy()
    loaded[0].load(tmp_path / "state.npz", loaded[1])
    assert loaded[0].get_slot(loaded[1]["table"], "m").numpy() is again, "slots are kept"
    others = [loaded, copy.deepcopy(mapped), pickle.loads(pickle.dumps(mapped))]
    for pair in (plain, mapped, *others):
        step(*pair, 9)
        assert_same(plain, pair)


def test_a_function_allocates(tmp_path: Path) -> None:
    """Its arrays are used as they are; what they hold before does not matter."""
    made: dict[tuple[str, str], np.ndarray] = {}

    def allocate(variable: str, slot: str, shape: Any, dtype: Any) -> np.ndarray:
        made[variable, slot] = np.memmap(tmp_path / f"{variable}-{slot}", dtype, "w+", shape=shape)
        made[variable, slot][...] = 7
        return made[variable, slot]

    w, plain = Variable(np.ones((4, 3), np.float32), name="w"), np.ones((4, 3), np.float32)
    opt, other = optimizers.Adam(0.1), optimizers.Adam(0.1)
    opt.allocate_slots(allocate)
    for _ in range(2):
        opt.step(w, np.ones((4, 3), np.float32))
        other.step(plain, np.ones((4, 3), np.float32))
    assert (w.numpy() == plain).all() and {name for name, _ in made} == {"w"}
    assert opt.get_slot(w, "m").numpy() is made["w", "m"]
    assert (
        np.fromfile(tmp_path / "w-m", np.float32) == other.get_slot(plain, "m").numpy().flat
    ).all()


WRONG = {
    "a list": (lambda shape, dtype: [0], InvalidTypeError, "must be a numpy.ndarray, not list"),
    "float64": (lambda shape, dtype: np.zeros(shape), InvalidTypeError, "must have dtype float32"),
    "flat": (lambda shape, dtype: np.zeros(12, dtype), InvalidArgumentError, "must have shape"),
    "in Fortran's order": (
        lambda shape, dtype: np.zeros(shape, dtype, "F"),
        InvalidArgumentError,
        "C-contiguous",
    ),
    "read-only": (
        lambda shape, dtype: np.broadcast_to(np.zeros((), dtype), shape),
        InvalidArgumentError,
        "writable",
    ),
    "out of disk": (lambda shape, dtype: 1 / 0, ZeroDivisionError, "zero"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("second", [False, True])
def test_what_a_function_returns_is_checked_before_anything_changes(
    case: str, second: bool
) -> None:
    """Also if only its second array is wrong: neither a step nor a move leaves half of them."""
    wrong, error, message = WRONG[case]
    calls: list[str] = []

    def allocate(variable: str, slot: str, shape: Any, dtype: Any) -> Any:
        calls.append(slot)
        right = second and len(calls) % 2 == 1
        return np.zeros(shape, dtype) if right else wrong(shape, dtype)

    w, grad = np.ones((4, 3), np.float32), np.ones((4, 3), np.float32)
    fresh, stepped = optimizers.Adam(0.1), optimizers.Adam(0.1)
    stepped.step(w, grad)
    before = w.copy(), [slot.numpy() for slot in stepped.weights]
    with pytest.raises(error, match=message):
        stepped.allocate_slots(allocate)
    after = [slot.numpy() for slot in stepped.weights]
    assert all(a is b for a, b in zip(before[1], after, strict=True))
    stepped.add_slot(w, "another")  # still in memory
    calls.clear()
    fresh.allocate_slots(allocate)
    with pytest.raises(error, match=message):
        fresh.step(w, grad)
    assert (w == before[0]).all() and fresh.iterations == 0 and len(fresh.weights) == 1
    fresh.allocate_slots(None)
    fresh.step(w, grad)
    assert fresh.iterations == 1


def test_other_places_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="in a folder or by a function, not by a int"):
        optimizers.Adam().allocate_slots(3)


def test_a_variable_without_elements_has_slots(tmp_path: Path) -> None:
    opt, w = optimizers.Adam(0.1), np.zeros((0, 3), np.float32)
    opt.allocate_slots(tmp_path)
    opt.step(w, w.copy())
    assert opt.get_slot(w, "m").shape == (0, 3)


PROGRAM = """
import sys
import numpy as np
from tfopt import IndexedSlices
from tfopt.optimizers import Adam

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

folder, n = sys.argv[1], 200_000
table = np.memmap(folder + "/table", np.float32, "w+", shape=(n, 64))
random = np.random.default_rng(0)

def steps(opt):
    for _ in range(3):
        values = random.standard_normal((1000, 64)).astype(np.float32)
        opt.step(table, IndexedSlices(values, random.integers(n, size=1000)))

def made():
    opt = Adam(0.01, sparse="catch_up", clipnorm=1.0)
    opt.allocate_slots(folder)
    return opt

before = anonymous()
opt = made()
steps(opt)
opt.save(folder + "/state.npz", table)
other = made()
other.load(folder + "/state.npz", table)
steps(other)
other.flush()
print(anonymous() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A table of 49 MB with two slots is stepped, caught up, clipped, saved and loaded."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    grown = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 25
