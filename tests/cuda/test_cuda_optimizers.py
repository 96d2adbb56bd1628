"""The optimizers with variables on a GPU: the host's steps, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from common.optimizer_makers import MAKERS, make
from devices import DEVICE

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.optimizers.schedules import CosineDecay

pytestmark = pytest.mark.usefixtures("gradual_underflow")

ROWS = 6
each_optimizer = pytest.mark.parametrize("which", MAKERS)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])


def there(value: Any) -> Any:
    """Return a copy on the device, of slices those of their arrays."""
    if isinstance(value, IndexedSlices):
        return IndexedSlices(DEVICE.to(value.values), DEVICE.to(value.indices))
    return DEVICE.to(value)


def model(dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    shapes: list[tuple[int, ...]] = [(), (5,), (5_000,), (ROWS, 3), (ROWS,)]
    return [array_of(random.standard_normal(shape), dtype) for shape in shapes]


def gradients(dtype: str, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    grads: list[Any] = [
        array_of(random.standard_normal(var.shape), dtype) for var in model(dtype)[:-2]
    ]
    for shape in ((4, 3), (4,)):
        ids = random.integers(ROWS, size=4, dtype=random.choice(["i4", "i8"]))
        grads.append(IndexedSlices(array_of(random.standard_normal(shape), dtype), ids))
    return grads


def compared(make_one: Any, dtype: str, steps: int = 3) -> None:
    """Take steps here and there; compare variables and states."""
    host, device = make_one(), make_one()
    here = model(dtype)
    variables = [Variable(there(var), name=f"v{k}") for k, var in enumerate(here)]
    for seed in range(steps):
        grads = gradients(dtype, seed)
        host.apply_gradients(zip(grads, here, strict=True))
        count = device.apply_gradients(zip(map(there, grads), variables, strict=True))
        assert int(count) == seed + 1
    for k, (var, own) in enumerate(zip(variables, here, strict=True)):
        assert_same_bits(DEVICE.back(var.value()), own, f"variable {k}")
    for k, (ours, theirs) in enumerate(zip(device.get_weights(), host.get_weights(), strict=True)):
        assert isinstance(ours, np.ndarray)
        assert_same_bits(ours, theirs, f"weight {k}")


@each_dtype
@each_optimizer
def test_steps_are_the_hosts(which: str, dtype: str) -> None:
    compared(lambda: make(which), dtype)


@pytest.mark.parametrize(
    "limits",
    [
        {"clipvalue": 0.5},
        {"clipnorm": 0.5},
        {"global_clipnorm": 1.0},
        {"clipvalue": 1, "clipnorm": 1},
    ],
    ids=lambda limits: " ".join(limits),
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["SGD", "Adamax", "Adagrad"])
def test_clipped_steps_are_the_hosts(name: str, dtype: str, limits: dict[str, float]) -> None:
    compared(lambda: getattr(tfopt.optimizers, name)(0.1, **limits), dtype)


def test_schedules_and_lists_of_variables_of_both_kinds() -> None:
    opt = tfopt.optimizers.Adamax(CosineDecay(0.1, 10), decay=0.1)
    other = tfopt.optimizers.Adamax(CosineDecay(0.1, 10), decay=0.1)
    here, moved = np.ones(4), Variable(there(np.ones(4)))
    own, own_too = np.ones(3), np.ones(3)
    for k in range(3):
        grad, more = np.arange(4.0) - k, np.ones(3)
        opt.apply_gradients([(there(grad), moved), (more, own)])
        other.apply_gradients([(grad, here), (more, own_too)])
    assert_same_bits(DEVICE.back(moved.value()), here, "on the device")
    assert_same_bits(own, own_too, "on the host")


def test_the_state_is_set_and_slots_are_there() -> None:
    opt, var = tfopt.optimizers.Adam(0.1), there(np.ones(3))
    opt.apply_gradients([(there(np.ones(3)), var)])
    weights = opt.get_weights()
    opt.apply_gradients([(there(np.ones(3)), var)])
    opt.set_weights(weights)
    for ours, theirs in zip(opt.get_weights(), weights, strict=True):
        assert_same_bits(ours, theirs, "weights")
    m = opt.get_slot(var, "m")
    assert m.device == "gpu" and m.shape == (3,)
    made = opt.add_slot(var, "more", np.array([1.0, 2, 3]))
    assert DEVICE.back(made.value()).tolist() == [1, 2, 3]


def test_the_whole_state_moves_between_devices() -> None:
    host, device = np.ones(3), tfopt.Variable(there(np.ones(3)))
    opt, other = tfopt.optimizers.Adam(0.1), tfopt.optimizers.Adam()
    opt.apply_gradients([(np.ones(3), host)])
    for start in (1, 2):  # first with new slots, then with those that it has made
        device.assign(np.array(host))
        other.load_state_dict(opt.state_dict([host]), [device])
        assert other.get_slot(device, "m").device == "gpu"
        opt.apply_gradients([(2 * np.ones(3), host)])
        other.apply_gradients([(there(2 * np.ones(3)), device)])
        assert_same_bits(DEVICE.back(device.value()), host, f"step {start}")
    for ours, theirs in zip(other.get_weights(), opt.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "state")


def test_constraints() -> None:
    var = Variable(there(np.array([0.5, 2.0])), constraint=lambda _: there(np.array([7.0, 8.0])))
    tfopt.optimizers.SGD(1.0).apply_gradients([(there(np.ones(2)), var)])
    assert DEVICE.back(var.value()).tolist() == [7, 8]


def test_a_variable_that_comes_twice() -> None:
    here, moved = np.zeros(3), there(np.zeros(3))
    for var, put in ((here, np.array), (moved, there)):
        pairs = [(put(np.ones(3)), var), (put(np.full(3, 2.0)), var)]
        tfopt.optimizers.Adamax(0.1).apply_gradients(pairs)
    assert_same_bits(DEVICE.back(moved), here, "twice")


@pytest.mark.parametrize("wrap", [Variable, lambda array: array], ids=["Variable", "array"])
def test_arrays_that_move_between_steps(wrap: Any) -> None:
    """As a parameter of torch does when its data are replaced: the slots stay its own."""
    moving, here = there(np.ones(3)), np.ones(3)
    var, opt, host = wrap(moving), tfopt.optimizers.Adam(0.1), tfopt.optimizers.Adam(0.1)
    for k in range(4):
        grad = np.array([1.0, 2, k])
        opt.apply_gradients([(there(grad), var)])
        host.apply_gradients([(grad, here)])
        DEVICE.move(moving)
    assert_same_bits(DEVICE.back(moving), here, "moved")
    assert len(opt.get_weights()) == len(host.get_weights())


def test_variables_without_elements() -> None:
    """They all have the address 0, and each has its own slots, as on the host."""
    opt, host = tfopt.optimizers.Adam(), tfopt.optimizers.Adam()
    arrays = [np.ones(0), np.ones(0), np.ones((2, 0))]
    variables = [there(array) for array in arrays]
    for _ in range(2):
        opt.apply_gradients([(there(array), v) for array, v in zip(arrays, variables, strict=True)])
        host.apply_gradients([(np.ones_like(array), array) for array in arrays])
    assert [w.shape for w in opt.get_weights()] == [w.shape for w in host.get_weights()]


# ---- refusals


def refused(opt: Any, pairs: list[Any], error: type[Exception], match: str) -> None:
    before = [var.copy() if isinstance(var, np.ndarray) else DEVICE.back(var) for _, var in pairs]
    with pytest.raises(error, match=match):
        opt.apply_gradients(pairs)
    for (_, var), old in zip(pairs, before, strict=True):
        now = var if isinstance(var, np.ndarray) else DEVICE.back(var)
        assert_same_bits(now, old, "refused")
    assert int(opt.iterations) == 0


def test_one_pair_that_does_not_fit() -> None:
    good = [(np.ones(2), np.ones(2)), (there(np.ones(3)), there(np.ones(3)))]
    rows = (there(IndexedSlices(np.ones((2, 3)), np.array([0, 1]))), there(np.ones((ROWS, 3))))
    bad_index = there(IndexedSlices(np.ones((2, 3)), np.array([0, ROWS])))
    for pair, error, match in [
        ((there(np.ones(4)), there(np.ones(3))), tfopt.InvalidArgumentError, "shape"),
        ((there(np.ones(3, np.float32)), there(np.ones(3))), tfopt.InvalidTypeError, "float64"),
        ((np.ones(3), there(np.ones(3))), tfopt.InvalidTypeError, "on the GPU, like var"),
        ((there(np.ones(3)), np.ones(3)), tfopt.InvalidTypeError, "grad"),
        ((bad_index, there(np.ones((ROWS, 3)))), tfopt.IndexOutOfRangeError, "offset 1"),
    ]:
        refused(tfopt.optimizers.Adamax(), [*good, rows, pair], error, match)  # type: ignore[arg-type]


def test_what_is_for_the_host_alone() -> None:
    slices = there(IndexedSlices(np.ones((2, 3)), np.array([0, 1])))
    table = there(np.ones((ROWS, 3)))
    before = tfopt.optimizers.Adam(clipnorm=1.0, merge="before")
    refused(before, [(slices, table)], tfopt.InvalidArgumentError, "merge must be")
    late = tfopt.optimizers.Adam(sparse="catch_up")
    refused(late, [(slices, table)], tfopt.InvalidTypeError, "catch_up")
    pairs = [(there(np.ones(3)), there(np.ones(3))), (np.ones(3), np.ones(3))]
    both = tfopt.optimizers.Adam(global_clipnorm=1.0)
    refused(both, pairs, tfopt.InvalidArgumentError, "all variables on one device")

    class Mine(tfopt.optimizers.Optimizer):
        pass

    refused(Mine("mine"), pairs[:1], tfopt.InvalidTypeError, "is on a GPU")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("sparse", "catch_up")],
)
def test_what_only_the_host_does_is_refused_when_it_is_set_late(setting: str, value: Any) -> None:
    """And the setting taken back, steps go on."""
    table = Variable(there(np.ones((ROWS, 3), np.float32)), name="v")
    rows = there(IndexedSlices(np.ones((2, 3), np.float32), np.array([0, 1])))
    optimizer = tfopt.optimizers.AdamW(0.5)
    before = getattr(optimizer, setting)
    optimizer.apply_gradients([(rows, table)])
    first = DEVICE.back(table.value())
    setattr(optimizer, setting, value)
    with pytest.raises(tfopt.InvalidTypeError, match="GPU"):
        optimizer.apply_gradients([(rows, table)])
    assert_same_bits(DEVICE.back(table.value()), first, setting)
    setattr(optimizer, setting, before)
    optimizer.apply_gradients([(rows, table)])
    assert int(optimizer.iterations) == 2
