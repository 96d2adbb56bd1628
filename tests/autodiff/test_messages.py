"""Frequent mistakes of users: helpful messages, and nothing changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.errors import InvalidTypeError, RetracingWarning

X = np.array([1.0, 2.0])


def warned(f: Callable[[], Any]) -> list[Any]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f()
    return [each for each in seen if each.category is RetracingWarning]


# ---- traces for numbers


@pytest.mark.parametrize(
    "numbers", [range(20), np.linspace(0, 1, 20).tolist(), [1j, 2j, 3j, 4j, 5j]]
)
def test_traces_for_python_numbers_are_reported_once(numbers: Any) -> None:
    f = tfopt.function(lambda x, k: x * k)
    seen = [warned(lambda k=k: f(X, k)) for k in numbers]  # type: ignore[misc]
    assert [len(each) for each in seen] == [int(number == 4) for number in range(len(seen))]
    (report,) = seen[4]
    assert "traced 5 times" in str(report.message) and report.filename == __file__
    assert warned(lambda: [f(np.ones(3), k) for k in numbers]) == []


def test_other_traces_are_not_reported() -> None:
    """Of shapes, of names, of arrays of any values, and of the same numbers."""
    f = tfopt.function(lambda x, k, name="": x * k)
    calls = [
        *(lambda n=n: f(np.ones(n), 1.0) for n in range(9)),
        *(lambda n=n: f(X, 2, str(n)) for n in range(9)),
        *(lambda n=n: f(X, np.asarray(n)) for n in range(9)),
        *(lambda n=n: f(X, n % 4) for n in range(40)),
        *(lambda n=n: f(X, n > 3) for n in range(9)),
    ]
    assert warned(lambda: [call() for call in calls]) == []


def test_methods_report_once_for_all_instances() -> None:
    class Model:
        @tfopt.function
        def times(self, x: Any, k: int) -> Any:
            return x * k

    assert len(warned(lambda: [Model().times(X, k) for k in range(30)])) == 0
    models = Model(), Model()
    assert len(warned(lambda: [model.times(X, k) for model in models for k in range(9)])) == 1


# ---- masks


MASKED = np.ma.masked_array(X, [False, True])


@pytest.mark.parametrize("f", [
    lambda t: tfopt.function(lambda x: x * 2.0)(MASKED), lambda t: t * MASKED,
    lambda t: np.add(MASKED.data, t) + MASKED, lambda t: np.stack([t, MASKED]),
    lambda t: tfopt.constant(MASKED), lambda t: tfopt.Tensor(MASKED),
    lambda t: tfopt.function(lambda x: x * MASKED)(X), lambda t: np.dot(MASKED, t),
    lambda t: tfopt.custom_gradient(lambda x: (x, lambda g: g))(MASKED),
    lambda t: np.where(MASKED, t, 1.0),
])  # fmt: skip
def test_masked_arrays_are_refused(f: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"has no mask: pass the numbers, array\.filled"):
        f(tfopt.constant(X))


# ---- what arrays can do


def test_elements_cannot_be_assigned() -> None:
    for x in (tfopt.Variable(X.copy()), tfopt.constant(X)):
        with pytest.raises(
            TypeError, match=r"does not support item assignment: t.*(assign|np.where)"
        ):
            x[0] = 5.0  # type: ignore[index]
        assert np.asarray(x).tolist() == X.tolist()


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i8", "?"])
def test_tensors_behave_as_arrays(dtype: str) -> None:
    array = np.array([[0, 1], [1, 3]], dtype)
    for x in (tfopt.constant(array), tfopt.Variable(array)):
        assert x.itemsize == array.itemsize
        assert [value in x for value in (0, 1, 2, 3.0, np.nan)] == [
            value in array for value in (0, 1, 2, 3.0, np.nan)
        ]
        assert x[1].searchsorted(array[0]).tolist() == array[1].searchsorted(array[0]).tolist()
    assert tfopt.constant(array).tobytes() == array.tobytes()
    assert tfopt.constant(array).tobytes("F") == array.tobytes("F")


def test_a_traced_function_cannot_read_values() -> None:
    with pytest.raises(TypeError, match="symbolic"):
        tfopt.function(lambda x: 1.0 if 2.0 in x else 0.0)(X)
