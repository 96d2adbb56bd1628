"""Slots in 16, 8 and 4 bits, stochastic rounding and cautious decay on a GPU: the host's bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from common.block_codes import same
from common.clip_cases import array_of
from common.optimizer_makers import MAKERS, make
from devices import DEVICE
from test_cuda_bound_steps import Checks
from test_cuda_optimizers import there

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers import SGD, Adam
from tfopt.optimizers.state.slot_storage import FEWEST, IN_BLOCKS
from tfopt.storage import BLOCK

pytestmark = pytest.mark.usefixtures("gradual_underflow")

#: Around the border of a block of codes, of what a block of threads steps, and of a thread's four.
SIZES = [1, 5, FEWEST - 1, FEWEST, FEWEST + 1, FEWEST + 4, FEWEST + BLOCK - 1, 9_000]
STORAGES = ("float32", "float16", "bfloat16", *IN_BLOCKS)
NARROW = ("float32", "float16", "bfloat16")
ROWS = 20
CAUTIOUS = {"weight_decay": 0.25, "cautious_weight_decay": True}
BY_ELEMENTS = [name for name in MAKERS if getattr(make(name), "_by_elements", True)]
each_narrow = pytest.mark.parametrize("dtype", NARROW)
each_storage = pytest.mark.parametrize("storage", STORAGES)
each_optimizer = pytest.mark.parametrize("which", BY_ELEMENTS)


def hostile(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers of many magnitudes, with zeros, an infinity and a NaN if they are enough."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape) * 10.0 ** random.integers(-30, 3, shape)
    values[random.random(shape) < 0.1] = 0
    flat = values.reshape(-1)
    flat[300:600] = 0  # a whole block
    for place, value in ((2_000, np.inf), (2_500, np.nan), (3_000, 1e-45)):
        flat[place : place + 1] = value
    return array_of(values, dtype)


def made(which: str, **settings: Any) -> Any:
    """Return an optimizer with settings among its arguments."""
    return getattr(tfopt.optimizers, which.split("-")[0])(**MAKERS[which], **settings)


def allowed(which: str, storage: str) -> Mapping[str, str]:
    """Return the slots that may be stored so."""
    found = {}
    for slot in made(which).get_slot_names():
        try:
            made(which, storage={slot: storage}).apply_gradients(
                [(np.ones(FEWEST, np.float32), np.ones(FEWEST, np.float32))]
            )
        except InvalidArgumentError:
            continue
        found[slot] = storage
    return found


def compared(
    make: Callable[[], Any],
    here: list[np.ndarray],
    draw: Callable[[int], list[Any]],
    steps: int = 3,
) -> Any:
    """Take steps here and there; compare variables and states, and return both optimizers."""
    host, device = make(), make()
    own = [Variable(var, name=f"v{k}") for k, var in enumerate(here)]
    far = [Variable(there(var), name=f"v{k}") for k, var in enumerate(here)]
    for seed in range(steps):
        grads = draw(seed)
        host.apply_gradients(zip(grads, own, strict=True))
        device.apply_gradients(zip(map(there, grads), far, strict=True))
    for var, now in zip(own, far, strict=True):
        assert same(DEVICE.back(now.value()), var.numpy()), var.name
    weights = zip(device.get_weights(), host.get_weights(), strict=True)
    for k, (ours, theirs) in enumerate(weights):
        assert ours.dtype == theirs.dtype and same(ours, theirs), f"weight {k}"
    return host, device, far


def whole(dtype: str) -> Any:
    """Return variables, and what draws their gradients."""
    return [hostile(dtype, (n,), n) for n in SIZES], lambda seed: [
        hostile(dtype, (n,), seed + n) for n in SIZES
    ]


def rows(dtype: str, width: int) -> Any:
    """Return a table, and what draws gradients of some rows, of which one is hot."""

    def draw(seed: int) -> list[Any]:
        random = np.random.default_rng(seed)
        ids = np.where(random.random(90) < 0.8, 3, random.integers(ROWS - 2, size=90))
        return [IndexedSlices(array_of(random.standard_normal((90, width)), dtype), ids)]

    return [array_of(np.random.default_rng(1).standard_normal((ROWS, width)), dtype)], draw


# ---- storage


@each_storage
@each_narrow
@each_optimizer
def test_slots_are_the_hosts(which: str, dtype: str, storage: str) -> None:
    slots = allowed(which, storage)
    compared(lambda: made(which, storage=slots), *whole(dtype))


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("storage", NARROW)
@each_narrow
@each_optimizer
def test_slots_of_rows_are_the_hosts(which: str, dtype: str, storage: str, width: int) -> None:
    compared(lambda: made(which, storage=storage), *rows(dtype, width))


@each_storage
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_gradients_of_16_bits(narrow: str, storage: str) -> None:
    here, draw = whole("float32")
    compared(lambda: Adam(0.1, storage=storage), here, lambda seed: whole(narrow)[1](seed))
    if storage not in IN_BLOCKS:
        table, draw = rows("float32", 3)[0], rows(narrow, 3)[1]
        compared(lambda: Adam(0.1, storage=storage), table, draw)


@pytest.mark.parametrize(
    "limits",
    [{"clipvalue": 0.5}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0, "clipvalue": 2.0}],
    ids=str,
)
@each_storage
def test_clipped_steps(storage: str, limits: dict[str, float]) -> None:
    def draw(seed: int) -> list[Any]:
        random = np.random.default_rng(seed)
        return [array_of(random.standard_normal(n), "float32") for n in SIZES]

    compared(lambda: Adam(0.1, storage=storage, **limits), draw(7), draw)
    if storage not in IN_BLOCKS:
        compared(lambda: Adam(0.1, storage=storage, **limits), *rows("float32", 3))


def test_arrays_that_are_not_aligned() -> None:
    host, device = Adam(0.1, storage="8bit"), Adam(0.1, storage="8bit")
    here = hostile("float32", (FEWEST + 1,), 0)
    far, grad = DEVICE.part(there(here), np.s_[1:]), hostile("float32", (FEWEST + 1,), 1)
    here = here[1:].copy()
    for _ in range(2):
        host.apply_gradients([(grad[1:], here)])
        device.apply_gradients([(DEVICE.part(there(grad), np.s_[1:]), far)])
    assert same(DEVICE.back(far), here)


def test_more_variables_than_a_launch_has() -> None:
    draw = lambda seed: [hostile("float32", (FEWEST,), seed + k) for k in range(67)]  # noqa: E731
    compared(lambda: Adam(0.1, storage="8bit", clipnorm=1.0), draw(100), draw, 2)


@pytest.mark.parametrize("settings", [{}, {"stochastic_rounding": 1}, CAUTIOUS], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@each_storage
def test_steps_are_bound(
    monkeypatch: pytest.MonkeyPatch, storage: str, dtype: str, settings: dict[str, Any]
) -> None:
    """Of variables with slots in blocks and others: they are checked once for all steps."""
    if storage == "float16" or "bfloat16" not in (dtype, storage):
        settings = {k: v for k, v in settings.items() if k != "stochastic_rounding"}
    checks = Checks(monkeypatch)
    compared(lambda: Adam(0.1, storage=storage, **settings), *whole(dtype), 4)
    assert checks.n == 1


# ---- stochastic rounding


@pytest.mark.parametrize(
    ("which", "dtype", "storage"),
    [(which, "bfloat16", storage) for which in BY_ELEMENTS for storage in ("bfloat16", "8bit")]
    + [(which, "float32", "bfloat16") for which in BY_ELEMENTS if made(which).get_slot_names()],
)
def test_rounding_is_the_hosts(which: str, dtype: str, storage: str) -> None:
    slots = allowed(which, storage)
    settings = {"storage": slots, "stochastic_rounding": 2**63 + 5}
    compared(lambda: made(which, **settings), *whole(dtype))
    if storage == "bfloat16":
        for width in (1, 7):
            compared(lambda: made(which, **settings), *rows(dtype, width))


def test_rounding_begins_and_ends_late() -> None:
    host, device = SGD(0.01), SGD(0.01)
    here = hostile("bfloat16", (1_000,), 0)
    far = there(here)
    for step, seed in enumerate((None, 3, 3, None, 4)):
        grad = hostile("bfloat16", (1_000,), step)
        for opt, pair in ((host, (grad, here)), (device, (there(grad), far))):
            opt.stochastic_rounding = seed
            opt.apply_gradients([pair])
        assert same(DEVICE.back(far), here), step


# ---- cautious decay


def decays(which: str) -> bool:
    try:
        made(which, **({} if "weight_decay" in MAKERS[which] else CAUTIOUS))
    except InvalidArgumentError:
        return False
    return "weight_decay" not in MAKERS[which]


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        ("float64", None),
        *((dtype, kind) for dtype in NARROW for kind in (None, "bfloat16", "8bit")),
    ],
)
@pytest.mark.parametrize("which", [*filter(decays, BY_ELEMENTS), "AdamW"])
def test_decay_is_the_hosts(which: str, dtype: str, storage: str | None) -> None:
    settings = {**MAKERS.get(which, {"learning_rate": 0.1}), **CAUTIOUS}
    slots = None if storage is None else allowed("Adam" if which == "AdamW" else which, storage)

    def make() -> Any:
        opt = getattr(tfopt.optimizers, which.split("-")[0])(**settings, storage=slots)
        opt.exclude_from_weight_decay(var_names=["v7$"])
        return opt

    compared(make, *whole(dtype))
    if storage != "8bit":
        compared(make, *rows(dtype, 7))
