"""Variable: an array with a name and a lock."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest


def test_an_array_is_wrapped_not_copied(impl: Any) -> None:
    array = np.zeros(3)
    variable = impl.Variable(array, name="w")
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
    assert repr(variable) == "<Variable 'w' shape=(3,) dtype=float64>"


def test_other_values_become_arrays(impl: Any) -> None:
    assert impl.Variable(3).dtype.kind == "i"
    variable = impl.Variable(1.5, dtype=np.float32)
    assert (float(variable), int(variable), variable.shape) == (1.5, 1, ())
    assert variable.assign(2).numpy() == 2
    assert variable.name == "Variable"


def test_views_are_wrapped_too(impl: Any) -> None:
    array = np.zeros((4, 4))
    impl.Variable(array[1::2, ::3]).assign(np.ones((2, 2)))
    assert array.sum() == 4 and array[3, 3] == 1


def test_the_lock_is_the_variables_own_and_reentrant(impl: Any) -> None:
    a, b = impl.Variable(1.0), impl.Variable(1.0)
    assert a.lock is not b.lock
    with a.lock, a.lock:
        seen = []
        other = threading.Thread(target=lambda: seen.append(a.lock.acquire(blocking=False)))
        other.start()
        other.join()
    assert seen == [False]


def test_refusals_leave_the_array_alone(impl: Any) -> None:
    array = np.zeros((2, 2), np.float32)
    variable = impl.Variable(array)
    for method in (variable.assign, variable.assign_add, variable.assign_sub):
        with pytest.raises(impl.InvalidArgumentError, match=r"cannot assign shape \[2\]"):
            method(np.ones(2))
        with pytest.raises(impl.InvalidTypeError, match="cannot assign complex128"):
            method(np.ones((2, 2), complex))
    assert not array.any()
    array.flags.writeable = False
    with pytest.raises(impl.InvalidArgumentError, match="read-only"):
        impl.Variable(array)
    with pytest.raises(impl.InvalidTypeError, match="float32, not float64"):
        impl.Variable(np.zeros(2, np.float32), dtype=np.float64)
    with pytest.raises(impl.InvalidTypeError, match="holds numbers"):
        impl.Variable(np.array(["a"]))
