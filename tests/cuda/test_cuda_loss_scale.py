"""Loss scales of variables on a GPU: the steps that are left out, and the bits of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from devices import DEVICE
from test_cuda_averages import same, variables
from test_cuda_bound_steps import drawn, there
from test_cuda_optimizers import each_dtype

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.cuda import backend
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adam,
    AdamW,
    LossScaleOptimizer,
    Mirror,
    ParameterGroups,
    WeightAverage,
)

pytestmark = pytest.mark.usefixtures("gradual_underflow")


def scaled(optimizer: Any, scale: float = 4.0) -> Any:
    return LossScaleOptimizer(optimizer, scale, dynamic_growth_steps=2)


#: Also scales by which numbers cannot be divided exactly, and those of clipped gradients.
MAKERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: scaled(Adam(0.1)),
    "by thirds": lambda: scaled(AdamW(0.1, weight_decay=0.1), 3.0),
    "clipvalue": lambda: scaled(Adam(0.1, clipvalue=0.3), 3.0),
    "clipnorm": lambda: scaled(Adam(0.1, clipnorm=0.3), 3.0),
    "global_clipnorm": lambda: scaled(Adam(0.1, global_clipnorm=0.3), 3.0),
    "both": lambda: scaled(Adam(0.1, clipvalue=0.2, global_clipnorm=0.3), 3.0),
    "in groups": lambda: ParameterGroups(scaled(SGD(0.1)), [("b", SGD(0.5))]),
    "around groups": lambda: scaled(ParameterGroups(Adam(0.1), [("b", SGD(0.5))])),
    "averaged": lambda: WeightAverage(scaled(Adam(0.1)), 0.9, overwrite_frequency=2),
    "around an average": lambda: scaled(WeightAverage(Adam(0.1), 0.9)),
    "around a mirror": lambda: scaled(Mirror(Adam(0.1), "float16")),
    "twice": lambda: scaled(scaled(Adam(0.1))),
    "LAMB": lambda: scaled(LAMB(0.1)),
    "Adafactor": lambda: scaled(Adafactor(0.1, global_clipnorm=0.3), 3.0),
    "transformed": lambda: scaled(Adam(0.1, gradient_transformers=[lambda pairs: pairs])),
}

#: What is not finite in some steps: the gradient, the element, and the value.
FAULTS = {3: (4, 4096, np.inf), 5: (3, 17, np.nan), 6: (0, 0, -np.inf)}


def gradients(dtype: str, step: int, odd: bool = True) -> list[np.ndarray]:
    grads = drawn(dtype, step)
    if odd and step in FAULTS:
        place, element, value = FAULTS[step]
        grads[place].reshape(-1)[element] = value
    return grads


def compared(host: Any, device: Any, here: list[Any], far: list[Any], steps: Any) -> None:
    for step in steps:
        grads = gradients(here[0].dtype.name, step)
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), far, strict=True)))
        assert int(device.iterations) == int(host.iterations)
    same(here, far, "after steps")
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "state")


@each_dtype
@pytest.mark.parametrize("which", MAKERS)
def test_the_hosts_steps(which: str, dtype: str) -> None:
    host, device = MAKERS[which](), MAKERS[which]()
    compared(host, device, *variables(dtype), range(1, 9))
    if which not in ("in groups", "twice"):
        assert int(host.iterations) == 5


@pytest.mark.parametrize("which", ["Adam", "clipvalue", "global_clipnorm", "averaged"])
def test_bound_anew_each_time(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOPT_REPEAT", "0")
    compared(MAKERS[which](), MAKERS[which](), *variables("float32"), range(1, 9))


def test_steps_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    check = backend.checked_updates
    monkeypatch.setattr(backend, "checked_updates", lambda *a: checks.append(0) or check(*a))
    host, device = scaled(Adam(0.1, clipnorm=0.3)), scaled(Adam(0.1, clipnorm=0.3))
    compared(host, device, *variables("float32"), range(1, 9))
    assert len(checks) == 1


@each_dtype
def test_one_element_decides(dtype: str) -> None:
    for size, place in ((1, 0), (255, 254), (256, 0), (70_000, 65_536), (70_000, 69_999)):
        for value, finite in ((np.inf, False), (-np.inf, False), (np.nan, False), (6e4, True)):
            grad = np.zeros(size)
            grad[place] = value
            opt, var = scaled(SGD(0.5)), there(array_of(np.ones(size), dtype))
            opt.apply_gradients([(there(array_of(grad, dtype)), var)])
            assert int(opt.iterations) == finite
            assert float(opt.dynamic_scale) == (4.0 if finite else 2.0)
            if not finite:
                assert (DEVICE.back(var) == 1).all()


def test_finite_numbers_whose_squares_overflow() -> None:
    opt, var = scaled(SGD(0.5)), there(np.ones(4))
    opt.apply_gradients([(there(np.full(4, 1e300)), var)])
    assert int(opt.iterations) == 1


@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.3}, {"clipvalue": 0.2}], ids=str)
def test_rows(clip: dict[str, float]) -> None:
    table = np.ones((5, 2), np.float32)
    host, device = scaled(Adam(0.1, **clip), 3.0), scaled(Adam(0.1, **clip), 3.0)
    here, far = Variable(table.copy()), Variable(there(table))
    for k in range(5):
        values, ids = np.full((3, 2), k + 0.3, np.float32), np.array([3, 1, 3])
        values[1, 1] = np.nan if k == 2 else 1
        host.apply_gradients([(IndexedSlices(values, ids), here)])
        device.apply_gradients([(IndexedSlices(there(values), there(ids)), far)])
    same([here], [far], "after rows")
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "state")
    assert int(host.iterations) == 4


def test_variables_on_both() -> None:
    for odd in ("host", "device", None):
        opt, here, far = scaled(SGD(0.5)), np.zeros(3), there(np.zeros(3))
        grad, other = np.ones(3), np.ones(3)
        if odd is not None:
            (grad if odd == "host" else other)[1] = np.nan
        for _ in range(2):
            opt.apply_gradients([(grad, here), (there(other), far)])
        assert int(opt.iterations) == (0 if odd else 2)
        assert_same_bits(DEVICE.back(far), here, "both")
        assert (here == (0 if odd else -0.25)).all()


def test_extreme_norms() -> None:
    """Whose factors are too small for one number."""
    for scale in (4.0, 2.0**20):
        host, device = (
            scaled(SGD(1.0, clipnorm=1e-3), scale),
            scaled(SGD(1.0, clipnorm=1e-3), scale),
        )
        here, far = Variable(np.zeros(3)), Variable(there(np.zeros(3)))
        grad = np.array([1e305, 3e304, -7e305])
        host.apply_gradients([(grad, here)])
        device.apply_gradients([(there(grad), far)])
        same([here], [far], "extreme")


def test_states_go_on() -> None:
    here, far = variables("float32")
    host, first = scaled(Adam(0.1)), scaled(Adam(0.1))
    compared(host, first, here, far, range(1, 4))
    second = scaled(Adam(0.1))
    second.load_state_dict(first.state_dict(far), far)
    compared(host, second, here, far, range(4, 9))


def test_what_does_not_fit_is_refused_before_it_is_looked_at() -> None:
    opt, var = scaled(Adam(0.1)), there(np.ones(3, np.float32))
    for steps in (0, 2):
        for _ in range(steps):
            opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        before, state = DEVICE.back(var), opt.get_weights()
        for wrong in (np.full(3, np.nan, np.float32), there(np.full(4, np.nan, np.float32))):
            with pytest.raises((ValueError, TypeError)):
                opt.apply_gradients([(wrong, var)])
        assert_same_bits(DEVICE.back(var), before, "var")
        for ours, theirs in zip(opt.get_weights(), state, strict=True):
            assert_same_bits(ours, theirs, "state")


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
@pytest.mark.parametrize("what", ["launch", "take"])
def test_failures(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, far = variables("float32")
    host, device = scaled(Adam(0.1)), scaled(Adam(0.1))
    compared(host, device, here, far, range(1, 3))
    state = device.get_weights()
    with monkeypatch.context() as failing:
        failing.setenv("TFOPT_HOST_FAILS", what)
        with pytest.raises(LibraryError):
            device.apply_gradients(list(zip(map(there, drawn("float32", 9)), far, strict=True)))
    for ours, theirs in zip(device.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")
    compared(host, device, here, far, range(3, 9))


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to capture")
@pytest.mark.parametrize("rows", [False, True])
def test_it_is_refused_in_a_graph(rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opt, var = scaled(SGD(0.5)), there(np.ones((3, 2)))
    grad: Any = there(np.ones((3, 2)))
    if rows:
        grad = IndexedSlices(there(np.ones((1, 2))), there(np.array([1])))
    with monkeypatch.context() as captured:
        captured.setenv("TFOPT_HOST_FAILS", "capture")
        with pytest.raises(tfopt.InvalidArgumentError, match="while a CUDA graph is captured"):
            opt.apply_gradients([(grad, var)])
    assert (DEVICE.back(var) == 1).all() and int(opt.iterations) == 0
    opt.apply_gradients([(grad, var)])
    assert int(opt.iterations) == 1
