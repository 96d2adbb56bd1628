"""Backends, which compute with arrays outside the host's memory."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tfopt
import tfopt.cuda.backend
from tfopt.core import backends
from tfopt.core.backends import backend_of, first_is_device_array, is_device_array


class Tape:
    """An array of a device that the package has never heard of."""

    shape, dtype, __tape_interface__ = (2,), np.dtype(np.float32), True

    def __init__(self) -> None:
        self.host = np.zeros(2, np.float32)


def tape_backend() -> Any:
    """Return a backend that remembers in `calls` what it was asked for."""
    backend: Any = ModuleType("tape_backend")
    backend.calls = calls = []

    def dtype_of(value: Tape) -> Any:
        calls.append("dtype_of")
        return value.dtype

    def write(into: Tape, value: Any) -> None:
        calls.append("write")
        into.host[...] = value

    def apply(kernel: Any, operands: Any, *rest: Any) -> None:
        calls.append(f"apply {kernel.name} to {len(operands)}")

    def global_norm(t_list: Any, out: Any, dtype: Any) -> Any:
        calls.append("global_norm")
        return 3.0

    for function in (dtype_of, write, apply, global_norm):
        setattr(backend, function.__name__, function)
    return backend


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tape]:
    monkeypatch.setattr(backends, "BACKENDS", [("__tape_interface__", "tape_backend")])
    monkeypatch.setitem(sys.modules, "tape_backend", tape_backend())
    yield Tape()
    backends._loaded.cache_clear()


def test_a_backend_handles_arrays_outside_the_host(tape: Tape) -> None:
    variable = tfopt.Variable(tape)
    variable.assign([1.0, 2.0])
    assert tape.host.tolist() == [1, 2]
    tfopt.training_ops.apply_gradient_descent(variable, tape, alpha=0.5)
    assert tfopt.global_norm([None, tape]) == 3
    asked = ["dtype_of", "dtype_of", "write", "apply gradient_descent to 2", "global_norm"]
    assert sys.modules["tape_backend"].calls == asked


def test_there_is_one_object_for_all_arrays_of_a_backend(tape: Tape) -> None:
    first = backend_of(tape)
    assert first is sys.modules["tape_backend"]
    assert first is backend_of(Tape()) is backend_of([tape]) is backend_of(tfopt.Variable(tape))


@pytest.mark.parametrize("value", [np.zeros(2), tfopt.Variable(1.0), 1.0, None, [], [np.zeros(1)]])
def test_arrays_on_no_device(value: Any) -> None:
    assert not first_is_device_array(value)
    with pytest.raises(TypeError, match="no backend supports arrays of type"):
        backend_of(value)


def test_an_array_may_refuse_to_say_where_it_is() -> None:
    """As a torch tensor on a GPU does if it requires a gradient."""

    class Tensor:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    assert is_device_array(Tensor()) and not is_device_array([Tensor()])


def test_cuda_is_loaded_when_its_first_array_comes() -> None:
    code = """
import sys, tfopt.core.backends
class Array: __cuda_array_interface__ = None
tfopt.core.backends.is_device_array(Array())
print("tfopt.cuda" in sys.modules, end=" ")
print(tfopt.core.backends.backend_of(Array()).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "tfopt.cuda.backend"], done.stderr


def test_cuda_answers_all_that_is_asked() -> None:
    """Of a module that is called `backend`, or of what `backend_of` returns."""
    asked: set[str] = set()
    for path in Path(str(tfopt.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                called = node.value.func if isinstance(node.value, ast.Call) else node.value
                if ast.unparse(called) in ("backend", "self._backend", "backend_of"):
                    asked.add(node.attr)
    assert asked == {*tfopt.cuda.backend.__all__}
