"""Averages of weights on a GPU: the host's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE
from test_cuda_bound_steps import drawn, there
from test_cuda_optimizers import each_dtype

from tfopt import IndexedSlices, Variable
from tfopt.cuda import backend
from tfopt.cuda.library import LibraryError
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers import (
    SGD,
    Adam,
    Optimizer,
    ParameterGroups,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
    WeightAverage,
    Wrapper,
)

pytestmark = pytest.mark.usefixtures("gradual_underflow")


MAKERS: dict[str, Callable[[], Optimizer | Wrapper]] = {
    "Adam": lambda: WeightAverage(Adam(0.1), 0.9),
    "clipped": lambda: WeightAverage(Adam(0.1, global_clipnorm=1.0), 0.5),
    "in groups": lambda: ParameterGroups(WeightAverage(SGD(0.1), 0.9), [("b", SGD(0.5))]),
    "around groups": lambda: WeightAverage(ParameterGroups(Adam(0.1), [("b", SGD(0.5))]), 0.9),
    "overwriting": lambda: WeightAverage(Adam(0.1), 0.9, overwrite_frequency=2),
    "of an average": lambda: WeightAverage(WeightAverage(Adam(0.1), 0.9), 0.5),
}


def compared(host: Any, device: Any, here: list[Variable], far: list[Variable], n: int = 4) -> None:
    for seed in range(1, n + 1):
        grads = drawn(here[0].dtype.name, seed)
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), far, strict=True)))
    for own, var in zip(here, far, strict=True):
        assert_same_bits(DEVICE.back(var.value()), own.numpy(), own.name)
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "state")


def variables(dtype: str, **options: Any) -> tuple[list[Variable], list[Variable]]:
    names = "abcde"
    arrays = drawn(dtype, 0)
    here = [Variable(a.copy(), name=n, **options) for a, n in zip(arrays, names, strict=True)]
    far = [Variable(there(a), name=n, **options) for a, n in zip(arrays, names, strict=True)]
    return here, far


@each_dtype
@pytest.mark.parametrize("which", MAKERS)
def test_averages_are_the_hosts(which: str, dtype: str) -> None:
    compared(MAKERS[which](), MAKERS[which](), *variables(dtype))


def test_averages_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    check = backend.checked_updates
    monkeypatch.setattr(backend, "checked_updates", lambda *a: checks.append(0) or check(*a))
    compared(MAKERS["Adam"](), MAKERS["Adam"](), *variables("float32"))
    assert len(checks) == 2  # that of the step, and that of the averages


@each_dtype
def test_a_state_goes_on(dtype: str) -> None:
    here, far = variables(dtype)
    host, first = MAKERS["Adam"](), MAKERS["Adam"]()
    compared(host, first, here, far, 2)
    second = MAKERS["Adam"]()
    second.load_state_dict(first.state_dict(far), far)
    compared(host, second, here, far, 2)


def test_rows() -> None:
    table = np.ones((5, 2))
    here, far = Variable(table.copy()), Variable(there(table))
    host, device = WeightAverage(SGD(0.5), 0.9), WeightAverage(SGD(0.5), 0.9)
    for k in range(3):
        values, ids = np.full((2, 2), float(k)), np.array([3, 1])
        host.apply_gradients([(IndexedSlices(values, ids), here)])
        device.apply_gradients([(IndexedSlices(there(values), there(ids)), far)])
    assert_same_bits(DEVICE.back(far.value()), here.numpy(), "table")
    average = device.get_slot(far, "average").value()
    assert_same_bits(DEVICE.back(average), host.get_slot(here, "average").numpy(), "average")


# ---- averages instead of weights

AVERAGING: dict[str, Callable[[], Any]] = {
    "WeightAverage": lambda: WeightAverage(Adam(0.1), 0.9),
    "ScheduleFreeSGD": lambda: ScheduleFreeSGD(0.1),
    "ScheduleFreeAdamW": lambda: ScheduleFreeAdamW(0.1, beta_1=0.7),
}


def extreme(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return gradients some of which are not finite."""
    for array in arrays:
        if array.size > 3:
            array.reshape(-1)[1:4] = np.nan, -0.0, np.inf
    return arrays


def after_steps(which: str, dtype: str) -> tuple[Any, Any, list[Variable], list[Variable]]:
    host, device = AVERAGING[which](), AVERAGING[which]()
    here, far = variables(dtype)
    for seed in range(1, 4):
        grads = extreme(drawn(dtype, seed)) if seed == 2 else drawn(dtype, seed)
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), far, strict=True)))
    return host, device, here, far


def same(here: list[Variable], far: list[Variable], when: str) -> None:
    for own, var in zip(here, far, strict=True):
        assert_same_bits(DEVICE.back(var.value()), own.numpy(), f"{own.name} {when}")


@each_dtype
@pytest.mark.parametrize("which", AVERAGING)
def test_averages_for_a_while(which: str, dtype: str) -> None:
    host, device, here, far = after_steps(which, dtype)
    for _ in range(2):
        weights = [DEVICE.back(var.value()) for var in far]
        with host.averaged(), device.averaged():
            same(here, far, "inside")
            inside = [DEVICE.back(var.value()) for var in far]
            assert any((a != w).any() for a, w in zip(inside, weights, strict=True))
        same(here, far, "afterwards")
    with pytest.raises(KeyError), device.averaged():
        raise KeyError
    same(here, far, "after an error")
    compared(host, device, here, far, 2)


@each_dtype
@pytest.mark.parametrize("which", AVERAGING)
def test_averages_at_the_end(which: str, dtype: str) -> None:
    host, device, here, far = after_steps(which, dtype)
    host.assign_averages()
    device.assign_averages()
    same(here, far, "at the end")


def test_variables_on_both() -> None:
    opt, here = WeightAverage(SGD(0.5), 0.5), np.zeros(3)
    far = there(np.zeros(3))
    for _ in range(2):
        opt.apply_gradients([(np.ones(3), here), (there(np.ones(3)), far)])
    with opt.averaged():
        assert here.tolist() == [-0.75] * 3
        assert_same_bits(DEVICE.back(far), here, "inside")
    assert_same_bits(DEVICE.back(far), np.full(3, -1.0), "afterwards")


@pytest.mark.parametrize("which", AVERAGING)
def test_weights_that_have_moved_meanwhile(which: str) -> None:
    _, device, here, far = after_steps(which, "float32")
    with device.averaged():
        for var in far:
            DEVICE.move(var.value())
    same(here, far, "afterwards")


@pytest.mark.skipif(DEVICE.name != "host", reason="only this array can be given other elements")
def test_weights_that_have_been_replaced_meanwhile() -> None:
    _, device, _, far = after_steps("WeightAverage", "float32")
    block = device.averaged()
    block.__enter__()
    far[1].value().array = np.zeros(7, np.float32)
    with pytest.raises(InvalidArgumentError, match="replaced by another one"):
        block.__exit__(None, None, None)


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
@pytest.mark.parametrize("which", AVERAGING)
def test_a_launch_that_fails(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host, device, here, far = after_steps(which, "float16")
    state = device.get_weights()
    with monkeypatch.context() as failing:
        failing.setenv("TFOPT_HOST_FAILS", "launch")
        with pytest.raises(LibraryError), device.averaged():
            raise AssertionError("the block began")
        with pytest.raises(LibraryError):
            device.assign_averages()
        with pytest.raises(LibraryError):
            device.apply_gradients([(there(np.ones(v.shape, np.float16)), v) for v in far])
    same(here, far, "after failures")
    for ours, theirs in zip(device.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")
    compared(host, device, here, far, 2)
