"""Averages of weights on a GPU: the host's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import assert_same_bits
from devices import DEVICE
from test_cuda_bound_steps import drawn, there

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.cuda import backend
from tfopt.errors import InvalidTypeError
from tfopt.optimizers import SGD, Adam, Optimizer, ParameterGroups, WeightAverage, Wrapper


@pytest.fixture(autouse=True)
def _gradual_underflow():
    tfopt.set_flush_denormals(False)


MAKERS: dict[str, Callable[[], Optimizer | Wrapper]] = {
    "Adam": lambda: WeightAverage(Adam(0.1), 0.9),
    "clipped": lambda: WeightAverage(Adam(0.1, global_clipnorm=1.0), 0.5),
    "in groups": lambda: ParameterGroups(WeightAverage(SGD(0.1), 0.9), [("b", SGD(0.5))]),
    "around groups": lambda: WeightAverage(ParameterGroups(Adam(0.1), [("b", SGD(0.5))]), 0.9),
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


@pytest.mark.parametrize("which", MAKERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_averages_are_the_hosts(which: str, dtype: str) -> None:
    compared(MAKERS[which](), MAKERS[which](), *variables(dtype))


def test_averages_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    check = backend.checked_updates
    monkeypatch.setattr(backend, "checked_updates", lambda *a: checks.append(0) or check(*a))
    compared(MAKERS["Adam"](), MAKERS["Adam"](), *variables("float32"))
    assert len(checks) == 2  # that of the step, and that of the averages


def test_a_state_goes_on() -> None:
    here, far = variables("float32")
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


@pytest.mark.parametrize(
    ("dtype", "options", "match"),
    [
        ("float16", {}, "16 bits"),
        ("float32", {"overwrite_frequency": 2}, "overwrite_frequency must be None"),
    ],
)
def test_what_is_refused_changes_nothing(dtype: str, options: dict[str, Any], match: str) -> None:
    var = there(np.ones(3, dtype))
    opt = WeightAverage(SGD(0.5), **options)
    with pytest.raises(InvalidTypeError, match=match):
        opt.apply_gradients([(there(np.ones(3, dtype)), var)])
    assert_same_bits(DEVICE.back(var), np.ones(3, dtype), "var")
    assert int(opt.iterations) == 0
