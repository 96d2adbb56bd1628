"""Variable: an array with a name and a lock."""

from __future__ import annotations

import copy
import operator
import threading
from typing import Any

import numpy as np
import pytest

import tfopt


def test_an_array_is_wrapped_not_copied() -> None:
    array = np.zeros(3)
    variable = tfopt.Variable(array, name="w")
    assert variable.numpy() is array
    assert variable.assign([1, 2, 3]) is variable
    assert array.tolist() == [1, 2, 3]
    assert variable.assign_add(np.ones(3)).assign_sub([0, 0, 1]) is variable
    assert array.tolist() == [2, 3, 3]
    array[0] = 9
    assert variable[0] == 9
    assert np.shares_memory(np.asarray(variable), array)
    assert not np.shares_memory(np.array(variable), array)
    assert (variable.name, variable.shape, variable.dtype, len(variable)) == ("w", (3,), float, 3)
    assert repr(variable) == "<Variable 'w' shape=(3,) dtype=float64 [9. 3. 3.]>"


def test_other_values_become_arrays() -> None:
    assert tfopt.Variable(3).dtype.kind == "i"
    variable = tfopt.Variable(1.5, dtype=np.float32)
    assert (float(variable), int(variable), variable.shape) == (1.5, 1, ())
    assert variable.assign(2).numpy() == 2
    assert variable.name == "Variable"


def test_views_are_wrapped_too(impl: Any) -> None:
    array = np.zeros((4, 4))
    impl.Variable(array[1::2, ::3]).assign(np.ones((2, 2)))
    assert array.sum() == 4 and array[3, 3] == 1


def test_the_lock_is_the_variables_own_and_reentrant() -> None:
    a, b = tfopt.Variable(1.0), tfopt.Variable(1.0)
    assert a.lock is not b.lock
    with a.lock, a.lock:
        seen = []
        other = threading.Thread(target=lambda: seen.append(a.lock.acquire(blocking=False)))
        other.start()
        other.join()
    assert seen == [False]


def test_refusals_do_not_change_the_array() -> None:
    array = np.zeros((2, 2), np.float32)
    variable = tfopt.Variable(array)
    for method in (variable.assign, variable.assign_add, variable.assign_sub):
        with pytest.raises(tfopt.InvalidArgumentError, match=r"cannot assign shape \[2\]"):
            method(np.ones(2))
        with pytest.raises(tfopt.InvalidTypeError, match="cannot assign complex128"):
            method(np.ones((2, 2), complex))
    assert not array.any()
    array.flags.writeable = False
    with pytest.raises(tfopt.InvalidArgumentError, match="read-only"):
        tfopt.Variable(array)
    with pytest.raises(tfopt.InvalidTypeError, match="float32, not float64"):
        tfopt.Variable(np.zeros(2, np.float32), dtype=np.float64)
    with pytest.raises(tfopt.InvalidTypeError, match="must hold numbers"):
        tfopt.Variable(np.array(["a"]))


class _OnDevice:
    """What a complex array on a GPU says of itself."""

    shape, dtype = (3,), np.dtype(np.complex64)

    def __init__(self, address: int = 256) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (3,), "typestr": "<c8", "version": 3,
        }  # fmt: skip


def test_a_list_of_device_arrays_is_no_value() -> None:
    assert tfopt.Variable(_OnDevice()).device == "gpu"
    with pytest.raises(tfopt.InvalidTypeError, match="a Variable must hold numbers"):
        tfopt.Variable([_OnDevice()])


def test_complex_arrays_on_a_device_are_refused() -> None:
    pairs = [(np.ones(3), _OnDevice(256)), (np.ones(3), _OnDevice(512))]
    with pytest.raises(tfopt.InvalidTypeError, match="arrays of complex64 on a GPU are not"):
        tfopt.optimizers.SGD(0.1).apply_gradients(pairs)


# ---- what Python asks of numbers and sequences


def test_truth_is_that_of_the_value(impl: Any) -> None:
    for value in (0, 1, 0.0, 2.5, np.zeros(1), np.ones(1), np.zeros((1, 1)), False):
        assert bool(impl.Variable(value)) == bool(np.asarray(value))
    with pytest.raises(ValueError, match="more than one element is ambiguous"):
        bool(impl.Variable(np.zeros(2)))


def test_numbers_and_lengths() -> None:
    scalar, vector = tfopt.Variable(np.array(2.5)), tfopt.Variable(np.array([1.0, 2.0]))
    assert (int(scalar), float(scalar), complex(scalar)) == (2, 2.5, 2.5)
    assert complex(tfopt.Variable(1 + 2j)) == 1 + 2j
    assert (len(vector), 2.0 in vector, 3.0 in vector) == (2, True, False)
    assert [float(x) for x in vector] == [1, 2] and [float(x) for x in reversed(vector)] == [2, 1]
    for ask in (len, iter, list):
        with pytest.raises(TypeError):
            ask(scalar)
    for ask in (int, float, complex):
        with pytest.raises(TypeError):
            ask(vector)
    for unknown in (hash, repr, copy.copy):
        unknown(vector)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
def test_operators_in_place_are_refused(name: str) -> None:
    """They would bind the name to a tensor, and leave the variable as it is."""
    array = np.array([3.0, 5.0])
    with pytest.raises(RuntimeError, match=r"is not supported. Use `variable.assign_add\(value\)`"):
        getattr(operator, f"i{name}")(tfopt.Variable(array), 2.0)
    assert array.tolist() == [3, 5]


def test_values_are_refused_in_a_trace() -> None:
    """They would be those of the first call, at each call."""
    v = tfopt.Variable(np.array(2.0))
    asked = [tfopt.Variable.numpy, tfopt.Variable.value, bool, int, float, complex, np.asarray]
    for ask in asked:
        ask(v)
        with pytest.raises((TypeError, NotImplementedError), match=r"being traced|symbolic"):
            tfopt.function(lambda ask=ask: v * ask(v))()
    assert float(tfopt.function(lambda: v * v + len(v.shape))()) == 4


def test_results_from_the_value_have_no_gradient() -> None:
    v = tfopt.Variable(np.array(2.0))
    with tfopt.GradientTape() as tape:
        y = v.value() * 3 + v.numpy() * 4 + v * 5
    assert float(tape.gradient(y, v)) == 5


@pytest.mark.parametrize("name", ["L2Loss", "ClipByValue"])
def test_raw_ops_of_tensors_have_gradients(name: str) -> None:
    x = np.array([0.5, -2.0, 3.0])
    more = {} if name == "L2Loss" else {"clip_value_min": -1.0, "clip_value_max": 1.0}
    expected = x if name == "L2Loss" else [1, 0, 0]
    for source in (tfopt.constant(x), tfopt.Variable(x)):
        with tfopt.GradientTape() as tape:
            tape.watch(source)
            y = getattr(tfopt.raw_ops, name)(t=source, **more)
        assert np.asarray(tape.gradient(y, source)).tolist() == list(expected)
        assert (
            np.asarray(y).tolist() == np.asarray(getattr(tfopt.raw_ops, name)(t=x, **more)).tolist()
        )
