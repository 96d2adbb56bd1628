"""Keras' own tests of optimizers, run on tfopt.

Keras' wheel carries its tests. Their text is read from where Keras is installed and executed with
an `__import__` that answers for Keras' modules with what stands here: tfopt's optimizers under
Keras' names, and NumPy in the place of its backend. Keras itself is not imported, and what tfopt
has no name for ends the test with an AttributeError or TypeError: nothing passes unasked.

Some names of Keras 3 are translated while a test runs (`keras_names`): `apply`, `build`,
`variables` and `_clip_gradients`; and gradients are converted to the variable's dtype, as Keras
does and tfopt refuses to.
"""

from __future__ import annotations

import builtins
import importlib.util
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from absl.testing import parameterized

import tfopt
from tfopt import optimizers
from tfopt.optimizers import Optimizer, OptimizerBase, schedules
from tfopt.optimizers.step.clipping import clipped_gradients

#: Where Keras keeps the tests, or None where it is not installed.
_SPEC = importlib.util.find_spec("keras")
FOLDER = Path(_SPEC.origin).parent / "src" / "optimizers" if _SPEC and _SPEC.origin else None


class Variable(tfopt.Variable):
    """Keras' variables are of float32 unless another dtype is asked for."""

    __slots__ = ("overwrite_with_gradient",)

    def __init__(self, initial_value: Any, dtype: str = "float32", **options: Any) -> None:
        super().__init__(np.array(initial_value, dtype), **options)


def _tensor(value: Any, dtype: Any = "float32") -> np.ndarray:
    return np.asarray(value, dtype)


backend = SimpleNamespace(
    Variable=Variable,
    backend=lambda: "numpy",
    convert_to_tensor=_tensor,
    convert_to_numpy=np.asarray,
    is_tensor=lambda value: isinstance(value, np.ndarray),
    numpy=np,
)
ops = SimpleNamespace(
    arange=lambda *args: np.arange(*args, dtype=np.float32),
    array=_tensor,
    cast=lambda x, dtype: np.asarray(x, dtype),
    full=lambda shape, value: np.full(shape, value, np.float32),
    ones=lambda shape: np.ones(shape, np.float32),
    zeros=lambda shape: np.zeros(shape, np.float32),
)


def _converted(pairs: Any) -> list[tuple[Any, Any]]:
    """Return pairs whose gradients have the dtypes of the variables."""
    return [(grad if grad is None else np.asarray(grad, var.dtype), var) for grad, var in pairs]


def _clip_gradients(self: Optimizer, grads: list[Any]) -> tuple[Any, ...]:
    limits = self.clipvalue, self.clipnorm, self.global_clipnorm
    return clipped_gradients(tuple(grads), self.merge, limits, None)[0]


@contextmanager
def keras_names() -> Iterator[None]:
    """Give tfopt's optimizers some of the names that Keras 3's have."""
    step = OptimizerBase.apply_gradients
    names = {
        "apply_gradients": lambda self, pairs, *rest: step(self, _converted(pairs), *rest),
        "apply": lambda self, grads, variables: self.apply_gradients(
            list(zip(grads, variables, strict=True))
        ),
        "build": lambda self, variables: None,
        "variables": property(lambda self: self.weights),
        "_clip_gradients": _clip_gradients,
    }
    with mock.patch.multiple(OptimizerBase, create=True, **names):
        yield


class Case(parameterized.TestCase):
    """What the tests take from Keras' `testing.TestCase`, which builds on its backends."""

    def assertAllClose(
        self, actual: Any, desired: Any, atol: float = 1e-6, rtol: float = 1e-6, **other: Any
    ) -> None:
        np.testing.assert_allclose(np.asarray(actual), np.asarray(desired), rtol, atol)

    def assertLen(self, container: Any, length: int) -> None:
        self.assertEqual(len(container), length)

    def assertAlmostEqual(self, first: Any, second: Any, places: Any = None, **given: Any) -> None:
        np.testing.assert_almost_equal(first, second, given.get("decimal", places or 7))

    def run_class_serialization_test(self, instance: Any) -> None:
        again = type(instance).from_config(instance.get_config())
        self.assertEqual(again.get_config(), instance.get_config())


def _absent(name: str) -> Any:
    """Return what ends a test that calls something of Keras that is no optimizer."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"tfopt has no {name}")

    return call


def _module(path: str) -> Any:
    """Return the stand-in for a module of Keras."""
    public = {name: getattr(optimizers, name) for name in optimizers.__all__}
    return {
        "keras.src.backend": backend,
        "keras.src.ops": ops,
        "keras.src.testing": SimpleNamespace(TestCase=Case),
        "keras.src.optimizers": SimpleNamespace(**public),
        "keras.src.optimizers.schedules": schedules,
    }.get(path, SimpleNamespace(**public))


#: Their marks for tests that ask for a certain backend; such a test is run, and fails.
_PYTEST = SimpleNamespace(
    mark=SimpleNamespace(
        requires_trainable_backend=lambda test: test,
        skipif=lambda *conditions, reason: lambda test: test,
    )
)


def _import(name: str, *context: Any) -> Any:
    if name == "pytest":
        return _PYTEST
    fromlist = context[2] if len(context) > 2 else ()
    if name.split(".")[0] != "keras":
        return builtins.__import__(name, *context)
    parent = SimpleNamespace()
    for member in fromlist or ():
        if name in ("keras.src", "keras.src.optimizers") and member.islower():
            setattr(parent, member, _module(f"{name}.{member}"))
        else:
            setattr(parent, member, getattr(_module(name), member, _absent(member)))
    return parent


def tests_of(file: str) -> dict[str, unittest.TestCase]:
    """Return the tests of one of Keras' files, by class and method."""
    assert FOLDER is not None
    path = FOLDER / file
    names: dict[str, Any] = {
        "__name__": f"keras_tests_{path.stem}",
        "__builtins__": {**vars(builtins), "__import__": _import},
    }
    exec(compile(path.read_text(), str(path), "exec"), names)
    loader = unittest.TestLoader()
    return {
        f"{path.stem}::{case.__name__}::{method}": case(method)
        for case in names.values()
        if isinstance(case, type) and issubclass(case, unittest.TestCase)
        for method in loader.getTestCaseNames(case)
    }
