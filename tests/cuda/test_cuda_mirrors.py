"""Mirrors of variables on a GPU: the rounded variables after each step, as on the host."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE, HostArray
from test_cuda_averages import compared, variables
from test_cuda_bound_steps import drawn, there

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import SGD, Adam, Mirror, ParameterGroups, WeightAverage

pytestmark = pytest.mark.usefixtures("gradual_underflow")

DTYPES = ["bfloat16", "float16"]
INNER: dict[str, Callable[[], Any]] = {
    "Adam": lambda: Adam(0.1),
    "clipped": lambda: Adam(0.1, global_clipnorm=1.0),
    "groups": lambda: ParameterGroups(Adam(0.1), [("b", SGD(0.5))]),
    "averaged": lambda: WeightAverage(SGD(0.1), 0.5, overwrite_frequency=2),
}


def mirrors_are_the_hosts(host: Any, device: Any, here: list[Any], far: list[Any]) -> None:
    for own, var in zip(here, far, strict=True):
        assert_same_bits(DEVICE.back(device.mirror(var)), host.mirror(own), own.name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", INNER)
def test_mirrors_are_the_hosts(which: str, dtype: str) -> None:
    host, device = Mirror(INNER[which](), dtype), Mirror(INNER[which](), dtype)
    here, far = variables("float32")
    before = [device.mirror(var) for var in far]
    mirrors_are_the_hosts(host, device, here, far)
    compared(host, device, here, far)
    mirrors_are_the_hosts(host, device, here, far)
    assert all(device.mirror(var) is known for var, known in zip(far, before, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_around_and_inside_of_other_wrappers(dtype: str) -> None:
    def make() -> Any:
        return WeightAverage(Mirror(Adam(0.1), dtype), 0.9)

    host, device = make(), make()
    here, far = variables("float32")
    compared(host, device, here, far)
    mirrors_are_the_hosts(host, device, here, far)


def test_of_infinite_and_tiny_numbers() -> None:
    values = np.array([np.nan, np.inf, -0.0, 1e-40, 65520, 3.39e38, 1 + 2**-8], np.float32)
    for dtype in DTYPES:
        host, device = Mirror(SGD(1.0), dtype), Mirror(SGD(1.0), dtype)
        here, far = Variable(values.copy()), Variable(there(values))
        zeros = np.zeros_like(values)
        host.apply_gradients([(zeros, here)])
        device.apply_gradients([(there(zeros), far)])
        mirrors_are_the_hosts(host, device, [here], [far])


def test_rows_constraints_and_variables_on_both() -> None:
    table = np.ones((6, 2), np.float32)
    host, device = Mirror(SGD(0.3)), Mirror(SGD(0.3))
    here, far = Variable(table.copy()), Variable(there(table))
    bound = Variable(
        there(np.float32([0.3, 2.7])), constraint=lambda _: there(np.float32([0.25, 1]))
    )
    other = np.ones(3, np.float32)
    for k in range(3):
        values, ids = np.full((2, 2), float(k), np.float32), np.array([3, 1])
        ones = np.ones(2, np.float32), np.ones(3, np.float32)
        host.apply_gradients([(IndexedSlices(values, ids), here)])
        rows = IndexedSlices(there(values), there(ids))
        device.apply_gradients([(rows, far), (there(ones[0]), bound), (ones[1], other)])
    mirrors_are_the_hosts(host, device, [here], [far])
    assert DEVICE.back(device.mirror(bound)).tolist() == [0.25, 1]
    assert device.mirror(other).dtype.name == "bfloat16"
    assert device.mirror(other)[0] == other.astype(device.mirror(other).dtype)[0]


def test_refreshed() -> None:
    device, var = Mirror(SGD(1.0)), Variable(there(np.zeros(3, np.float32)))
    device.mirror(var)
    var.assign(np.ones(3, np.float32))
    device.refresh()
    assert DEVICE.back(device.mirror(var)).astype(np.float32).tolist() == [1, 1, 1]


def test_states() -> None:
    here, far = variables("float32")
    host, first = Mirror(Adam(0.1)), Mirror(Adam(0.1))
    compared(host, first, here, far, 2)
    second = Mirror(Adam(0.1))
    second.load_state_dict(first.state_dict(far), far)
    compared(host, second, here, far, 2)
    mirrors_are_the_hosts(host, second, here, far)
    second.set_weights(second.get_weights())
    compared(host, second, here, far, 2)
    mirrors_are_the_hosts(host, second, here, far)


@pytest.mark.skipif(DEVICE.name != "host", reason="whether they can be copied is their library's")
@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies(how: Any) -> None:
    here, far = variables("float32")
    host, first = Mirror(Adam(0.1)), Mirror(Adam(0.1))
    compared(host, first, here, far, 2)
    second, others = how((first, far))
    compared(host, second, here, others, 2)
    mirrors_are_the_hosts(host, second, here, others)


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
def test_a_launch_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    host, device = Mirror(Adam(0.1)), Mirror(Adam(0.1))
    here, far = variables("float32")
    compared(host, device, here, far, 2)
    state = device.get_weights()
    with monkeypatch.context() as failing:
        failing.setenv("TFOPT_HOST_FAILS", "launch")
        with pytest.raises(LibraryError):
            device.apply_gradients(list(zip(map(there, drawn("float32", 9)), far, strict=True)))
        with pytest.raises(LibraryError):
            device.refresh()
    for ours, theirs in zip(device.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")
    compared(host, device, here, far, 2)


def test_what_is_refused() -> None:
    opt, var = Mirror(SGD(1.0)), there(np.ones(3))
    with pytest.raises(tfopt.InvalidTypeError, match="has no mirror: it is float64, not float32"):
        opt.mirror(var)
    opt.apply_gradients([(there(np.ones(3)), var)])  # which has none
    assert opt.get_slot_names() == []


@pytest.mark.skipif(DEVICE.name != "host", reason="this library has all dtypes")
def test_a_library_without_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    class Space:
        @staticmethod
        def empty(shape: Any, *, dtype: Any, device: Any) -> Any:
            raise TypeError(f"dtype {dtype} is not known")

    var = there(np.ones(3, np.float32))
    opt = Mirror(SGD(1.0))
    with monkeypatch.context() as other:
        other.setattr(HostArray, "__array_namespace__", lambda _: Space)
        with pytest.raises(tfopt.InvalidTypeError, match="has none of bfloat16: dtype bfloat16 is"):
            opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
    assert_same_bits(DEVICE.back(var), np.ones(3, np.float32), "var")
    assert int(opt.iterations) == 0 and opt.get_slot_names() == []
