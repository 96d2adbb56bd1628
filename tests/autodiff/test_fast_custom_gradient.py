"""Custom gradients of callables of all kinds: their parameters, checks, copies."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.autodiff.parameters import Parameters


class Callables:
    """Functions of every kind."""

    def method(self, x: Any, /, y: Any, *rest: Any, z: Any = 1, **others: Any) -> Any: ...

    @staticmethod
    def static(x: Any, *, variables: Any = None) -> Any: ...

    @classmethod
    def of_class(cls, x: Any, variables: Any) -> Any: ...

    def __call__(self, x: Any, *, y: Any) -> Any: ...


def outer(x: Any, y: Any = 2, **others: Any) -> Any: ...


@functools.wraps(outer)
def wrapper(*args: Any, **kwargs: Any) -> Any: ...


class Unhashable(Callables):
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "f",
    [
        Callables().method, Callables.method, Callables.static, Callables.of_class, Callables(),
        outer, wrapper, functools.partial(outer, y=3), lambda *d: d, lambda *, variables: None,
        Unhashable(), np.sum,
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_signature(f: Callable[..., Any]) -> None:
    kinds = inspect.Parameter
    expected = inspect.signature(f).parameters.values()
    for _ in range(2):
        found = Parameters.of(f)
        assert list(found.by_name) == [
            p.name for p in expected if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        ]
        only = {p.name for p in expected if p.kind is kinds.KEYWORD_ONLY}
        assert found.keyword_only == only
        assert found.var_keyword == any(p.kind is kinds.VAR_KEYWORD for p in expected)


def test_gradients_of_a_method_are_checked() -> None:
    w = tfopt.Variable(np.full(2, 3.0))

    class Layer:
        @tfopt.custom_gradient
        def scaled(self, x: Any, factor: Any = 1.0) -> Any:
            def grad_fn(d: Any, variables: Any) -> Any:
                return (d * w, d * 5.0), [d * x]

            return x * w * factor, grad_fn

    layer, x, factor = Layer(), tfopt.constant(np.ones(2)), tfopt.constant(2.0)
    assert layer.scaled(x, factor=factor).tolist() == [6, 6]
    with tfopt.GradientTape() as tape, pytest.raises(ValueError, match="shape"):
        tape.watch([x, factor])
        y = layer.scaled(x, factor=factor)
        tape.gradient(y, [x, factor, w])
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = layer.scaled(x, factor=2.0)
        with pytest.raises(ValueError, match="expected to return 1 gradients"):
            tape.gradient(y, x)


def test_a_call_that_nobody_records_checks_and_copies_all_the_same() -> None:
    array = np.ones(2)
    same = tfopt.custom_gradient(lambda x: (x, lambda d: d))
    y = same(array)
    array[...] = 7.0
    assert y.tolist() == [1, 1]
    x = tfopt.constant([1.0, 2.0])
    z = same(x)
    assert z is not x
    with tfopt.GradientTape() as tape:  # z is not x to a tape, either
        tape.watch(x)
        product = z * x
    assert tape.gradient(product, x).tolist() == [1, 2]
    for wrong in (None, np.array([None]), [1.0, None]):
        with pytest.raises(ValueError, match="unsupported type"):
            tfopt.custom_gradient(lambda x: (1.0, lambda d: d))(wrong)
        with pytest.raises(ValueError, match="unsupported type"):
            tfopt.custom_gradient(lambda x, wrong=wrong: (wrong, lambda d: d))(1.0)
    with pytest.raises(TypeError, match="unsupported callable"):
        tfopt.custom_gradient(lambda x: (x, None))(x)
    v = tfopt.Variable(1.0)
    with pytest.raises(TypeError, match="must accept keyword argument 'variables'"):
        tfopt.custom_gradient(lambda x: (x * v, lambda d: d))(x)


def test_a_class_that_is_handed_over_is_bound() -> None:
    """As `classmethod` does since Python 3.13; a class is no tensor."""

    class Model:
        factor = 2.0

        @tfopt.custom_gradient
        def scaled(cls, x):
            return x * cls.factor, lambda d: d * 40.0

    x = tfopt.Variable(3.0)
    with tfopt.GradientTape() as tape:
        y = Model.scaled(Model, x)
    assert float(y) == 6.0 and float(tape.gradient(y, x)) == 40.0
    assert tfopt.Bind(isinstance, lambda f, args, kwargs: f(*reversed(args)))(int, 3)
