"""Steps of dense variables on a GPU, bound once: no later step checks or describes them again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_void_p
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from common.optimizer_makers import make
from devices import DEVICE, HostArray
from test_cuda_optimizers import each_dtype, each_optimizer

import tfopt
from tfopt import optimizers
from tfopt.cuda import backend, library
from tfopt.optimizers import SGD, Adam, AdamW, Optimizer
from tfopt.optimizers.schedules import CosineDecay

pytestmark = pytest.mark.usefixtures("gradual_underflow")

SHAPES: list[tuple[int, ...]] = [(), (5,), (0,), (70, 3), (4_097,)]
LIMITS: list[dict[str, float]] = [
    {},
    {"clipvalue": 0.5},
    {"clipnorm": 1.0},
    {"clipvalue": 0.5, "global_clipnorm": 2.0},
]


def there(array: np.ndarray) -> Any:
    """Return a copy on the device, on the same stream as all others."""
    return HostArray(array.copy()) if DEVICE.name == "host" else DEVICE.to(array)


def drawn(dtype: str, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [array_of(random.standard_normal(shape), dtype) for shape in SHAPES]


class Checks:
    """Counts how often the updates of a step were checked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n, self._check = 0, backend.checked_updates
        monkeypatch.setattr(backend, "checked_updates", self._counted)

    def _counted(self, *arguments: Any) -> Any:
        self.n += 1
        return self._check(*arguments)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(monkeypatch)


def compared(make_one: Callable[[], Optimizer], dtype: str, steps: int = 4) -> None:
    """Take steps on the host and on the device; compare variables and states."""
    host, device = make_one(), make_one()
    here = drawn(dtype, 0)
    variables = [there(array) for array in here]
    for seed in range(1, steps + 1):
        grads = drawn(dtype, seed)
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), variables, strict=True)))
    for var, own in zip(variables, here, strict=True):
        assert_same_bits(DEVICE.back(var), own, make_one().__class__.__name__)
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, make_one().__class__.__name__)


@each_dtype
@each_optimizer
def test_one_check_for_all_steps(checks: Checks, which: str, dtype: str) -> None:
    compared(lambda: make(which), dtype)
    assert checks.n == 1


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["Adam", "AdamMini", "LAMB", "LARS", "RowwiseAdagrad"])
def test_clipped_steps(checks: Checks, name: str, limits: dict[str, float], dtype: str) -> None:
    compared(lambda: getattr(optimizers, name)(0.1, **limits), dtype)
    assert checks.n == 1


def test_schedules_and_weight_decay(checks: Checks) -> None:
    compared(lambda: AdamW(CosineDecay(0.1, 10), weight_decay=0.1), "float32")
    assert checks.n == 1


def test_bound_anew_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    monkeypatch.setenv("TFOPT_REPEAT", "0")
    compared(lambda: Adam(0.1), "float32")
    assert checks.n == 4


def test_gradients_of_another_dtype(checks: Checks) -> None:
    opt, var = SGD(1.0), there(np.zeros(3, np.float32))
    for dtype in ("float32", "float32", "float16", "float16", "float32"):
        opt.apply_gradients([(there(np.ones(3, dtype)), var)])
    assert_same_bits(DEVICE.back(var), np.full(3, -5, np.float32), "var")
    assert checks.n == 3  # for each change


REFUSED = {
    "another shape": lambda var: there(np.ones((3, 1), np.float32)),
    "more elements": lambda var: there(np.ones(4, np.float32)),
    "a wider dtype": lambda var: there(np.ones(3)),
    "an array on the host": lambda var: np.ones(3, np.float32),
    "a list": lambda var: [1.0, 1.0, 1.0],
    "integers of as many bits": lambda var: there(np.ones(3, np.int32)),
    "not contiguous": lambda var: DEVICE.part(there(np.ones(6, np.float32)), np.s_[::2]),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_later_step_refuses_as_the_first_does(which: str) -> None:
    errors = []
    for steps in (0, 2):
        opt, var = Adam(0.1), there(np.zeros(3, np.float32))
        for _ in range(steps):
            opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        before, state = DEVICE.back(var), opt.get_weights()
        with pytest.raises((ValueError, TypeError)) as caught:
            opt.apply_gradients([(REFUSED[which](var), var)])
        errors.append((type(caught.value), str(caught.value)))
        assert_same_bits(DEVICE.back(var), before, "var")
        for ours, theirs in zip(opt.get_weights(), state, strict=True):
            assert_same_bits(ours, theirs, "state")
        opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        assert int(opt.iterations) == steps + 1
    assert errors[0] == errors[1]


def test_a_gradient_in_another_variable_is_refused_later_too() -> None:
    memory = there(np.zeros(6, np.float32))
    first, second = DEVICE.part(memory, np.s_[:3]), DEVICE.part(memory, np.s_[3:])
    opt, ones = SGD(0.5), there(np.ones(3, np.float32))
    for _ in range(2):
        opt.apply_gradients([(ones, first), (ones, second)])
    with pytest.raises(tfopt.errors.InvalidArgumentError, match="overlap in memory"):
        opt.apply_gradients([(ones, first), (first, second)])
    assert_same_bits(DEVICE.back(memory), np.full(6, -1, np.float32), "memory")


def test_a_moved_variable_is_bound_anew(checks: Checks) -> None:
    opt, var, ones = SGD(0.5), there(np.zeros(3, np.float32)), there(np.ones(3, np.float32))
    for step in range(4):
        if step == 2:
            old = DEVICE.part(var, np.s_[:])
            DEVICE.move(var)
        opt.apply_gradients([(ones, var)])
    assert_same_bits(DEVICE.back(var), np.full(3, -2, np.float32), "var")
    assert_same_bits(DEVICE.back(old), np.full(3, -1, np.float32), "what was there before")
    assert checks.n == 2


class Passed(Structure):
    """The beginning of what the library is passed; as in device_step.h."""

    _fields_ = (
        ("device", c_int),
        ("stream", c_void_p),
        ("n_others", c_int),
        ("others", POINTER(c_void_p)),
    )


@pytest.mark.skipif(DEVICE.name != "host", reason="arrays of this library have one stream")
def test_streams_that_differ_are_named(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    loaded, passed = library.load(), []

    def noted(address: int) -> int:
        step = Passed.from_address(address)
        passed.append((step.stream, step.others[: step.n_others]))
        return int(loaded.call["step"](address))

    queue = CFUNCTYPE(c_int, c_void_p)(noted)
    capsules = library.capsule_of(queue, b"tfopt.queue_step"), *loaded.capsules[1:]
    monkeypatch.setattr(loaded, "capsules", capsules)
    opt, var = SGD(0.5), HostArray(np.zeros(3, np.float32), 7)
    for stream in (7, 9, None, 7):
        opt.apply_gradients([(HostArray(np.ones(3, np.float32), stream), var)])
    assert_same_bits(DEVICE.back(var), np.full(3, -2, np.float32), "var")
    assert checks.n == 1
    assert passed == [(7, []), (7, [9]), (7, [1]), (7, [])]


def test_variables_on_both(checks: Checks) -> None:
    opt, here = Adam(0.1), np.zeros(3)
    var = there(np.zeros(3))
    for _ in range(3):
        opt.apply_gradients([(np.ones(3), here), (there(np.ones(3)), var)])
    assert_same_bits(DEVICE.back(var), here, "var")
    assert checks.n == 1


def test_two_dtypes_and_names_without_decay(checks: Checks) -> None:
    arrays = [np.ones(3), np.ones(3, np.float32), np.ones(4)]
    names = "a", "b", "bias"
    host, device = AdamW(0.1, weight_decay=0.1), AdamW(0.1, weight_decay=0.1)
    for opt in (host, device):
        opt.exclude_from_weight_decay(var_names=["bias"])
    here = [tfopt.Variable(a.copy(), name=n) for a, n in zip(arrays, names, strict=True)]
    far = [tfopt.Variable(there(a), name=n) for a, n in zip(arrays, names, strict=True)]
    for _ in range(3):
        host.apply_gradients([(np.ones(v.shape, v.dtype), v) for v in here])
        device.apply_gradients([(there(np.ones(v.shape, v.dtype)), v) for v in far])
    for var, own in zip(far, here, strict=True):
        assert_same_bits(DEVICE.back(var.value()), own.numpy(), "var")
    assert checks.n == 1


def test_an_error_of_the_device_leaves_the_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [0, 700, 0]
    queue = CFUNCTYPE(c_int, c_void_p)(lambda step: codes.pop(0))
    loaded = library.load()
    capsules = library.capsule_of(queue, b"tfopt.queue_step"), *loaded.capsules[1:]
    monkeypatch.setattr(loaded, "capsules", capsules)
    opt, here, var = Adam(0.1), np.zeros(3), there(np.zeros(3))
    pairs = [(np.ones(3), here), (there(np.ones(3)), var)]
    opt.apply_gradients(pairs)
    before, state = here.copy(), opt.get_weights()
    with pytest.raises(library.LibraryError, match=r"CUDA: .* \(error 700\)"):
        opt.apply_gradients(pairs)
    assert_same_bits(here, before, "host variable")
    for ours, theirs in zip(opt.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")
    opt.apply_gradients(pairs)
    assert int(opt.iterations) == 2
    assert codes == []


def test_gradients_are_let_go() -> None:
    opt, var = SGD(0.5), there(np.zeros(3, np.float32))
    for _ in range(3):
        grad = there(np.ones(3, np.float32))
        opt.apply_gradients([(grad, var)])
    watched = weakref.ref(grad)
    del grad
    gc.collect()
    assert watched() is None
