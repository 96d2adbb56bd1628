"""Functions: what is traced, when again, and what a replay does."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tfopt


def test_traces_by_signature() -> None:
    f = tfopt.function(lambda x, flag=True, **kw: x * 2 if flag else x * 3)
    one = tfopt.constant(1.0)
    calls = [
        ((one,), {}, 1), ((tfopt.constant(5.0),), {}, 1), ((1.0,), {}, 2), ((2.0,), {}, 3),
        ((one, False), {}, 4), ((one,), {"flag": False}, 4), ((np.array(3.0),), {}, 4),
        ((np.float64(3.0),), {}, 4), ((tfopt.constant([1.0]),), {}, 5),
        ((tfopt.constant(1.0, np.float32),), {}, 6), ((one, 1), {}, 7), ((one, True), {}, 7),
        ((one,), {"extra": None}, 8),
    ]  # fmt: skip
    for args, kwargs, count in calls:
        f(*args, **kwargs)
        assert f.trace_count == count, (args, kwargs)


def test_structures_are_part_of_a_signature() -> None:
    Pair = namedtuple("Pair", "a b")
    f = tfopt.function(lambda pair: pair[0] * pair[1] if isinstance(pair, (list, tuple)) else 0.0)
    x, y = tfopt.constant(2.0), tfopt.constant(3.0)
    for pair, count in (([x, y], 1), ([y, y], 1), ((x, y), 2), (Pair(x, y), 3), ([x, y, x], 4)):
        assert float(f(pair)) in (6, 9)
        assert f.trace_count == count


def test_whether_a_variable_is_trainable_is_part_of_a_signature() -> None:
    @tfopt.function
    def slope(v: Any) -> Any:
        with tfopt.GradientTape() as tape:
            y = v * v
        return tape.gradient(y, v)

    trained, fixed = tfopt.Variable(3.0), tfopt.Variable(3.0, trainable=False)
    assert float(slope(trained)) == 6
    assert slope(fixed) is None
    assert float(slope(trained)) == 6 and slope.trace_count == 2


def test_results_keep_their_structure() -> None:
    w = tfopt.Variable(4.0)
    f = tfopt.function(lambda x: {"b": [x, None], "a": (w, 3, np.ones(2))})
    result = f(tfopt.constant(2.0))
    assert list(result) == ["b", "a"] and result["b"][1] is None
    assert float(result["b"][0]) == 2 and isinstance(result["a"], tuple)
    assert [np.asarray(part).tolist() for part in result["a"]] == [4, 3, [1, 1]]
    assert all(isinstance(part, tfopt.Tensor) for part in result["a"])


def test_variables_as_arguments() -> None:
    f = tfopt.function(lambda a, b: a * 10 + b)
    a, b = tfopt.Variable(1.0), tfopt.Variable(2.0)
    assert [float(f(a, b)), float(f(b, a)), float(f(a, a))] == [12, 21, 11]
    assert f.trace_count == 2  # the last for a variable that comes twice
    with tfopt.GradientTape() as tape:
        y = f(b, a)
    assert [float(g) for g in tape.gradient(y, [a, b])] == [1, 10]


def test_assignments_are_made_in_their_order_at_each_call() -> None:
    w = tfopt.Variable(1.0)

    @tfopt.function
    def f(x: Any) -> Any:
        before = w * 1
        w.assign_add(x)
        middle = w * 1
        w.assign(w * 10)
        return before, middle, w

    assert [float(part) for part in f(tfopt.constant(2.0))] == [1, 3, 30]
    assert [float(part) for part in f(tfopt.constant(5.0))] == [30, 35, 350]
    assert f.trace_count == 1 and float(w) == 350


def test_gradients_know_values_before_and_after_an_assignment() -> None:
    w = tfopt.Variable(2.0)

    @tfopt.function
    def f(x: Any) -> Any:
        y = w * w * x
        w.assign(5.0)
        return y + w * w

    with tfopt.GradientTape() as tape:
        y = f(tfopt.constant(1.0))
    w.assign(100.0)
    assert float(y) == 29 and float(tape.gradient(y, w)) == 14


def test_side_effects_happen_once() -> None:
    seen = []
    f = tfopt.function(lambda x: seen.append(1) or x * 2)
    assert [float(f(tfopt.constant(v))) for v in (1.0, 2.0, 3.0)] == [2, 4, 6]
    assert len(seen) == 1


def test_traces_of_methods_are_one_objects() -> None:
    """Of equal objects, each has its own; objects without hashes or weak references have some."""

    @dataclasses.dataclass(frozen=True)
    class Equal:
        factor: Any = dataclasses.field(compare=False)

        @tfopt.function
        def scaled(self, x: Any) -> Any:
            return x * self.factor

    @dataclasses.dataclass
    class Unhashable(Equal.__mro__[1]):  # type: ignore[misc]
        factor: float
        scaled = Equal.scaled

    class Slots:
        __slots__ = ("factor",)
        scaled = Equal.scaled

        def __init__(self, factor: float) -> None:
            self.factor = factor

    x = tfopt.constant(1.0)
    for cls in (Equal, Unhashable, Slots):
        one, other = cls(2.0), cls(200.0)
        for _ in range(2):
            assert [float(one.scaled(x)), float(other.scaled(x))] == [2, 200]
            assert one.scaled.trace_count == other.scaled.trace_count == 1


def test_methods_have_their_own_traces() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @tfopt.function
        def __call__(self, x: Any) -> Any:
            return x * self.factor

        @tfopt.function
        def twice(self, x: Any) -> Any:
            return self(self(x))

    two, three = Model(2.0), Model(3.0)
    x = tfopt.constant(1.0)
    for _ in range(2):
        assert [float(m(x)) for m in (two, three)] == [2, 3]
        assert [float(m.twice(x)) for m in (two, three)] == [4, 9]
    assert two.twice.trace_count == three.twice.trace_count == 1
    alive = weakref.ref(two)
    del two
    gc.collect()
    assert alive() is None


def test_decorator_forms() -> None:
    @tfopt.function()
    def f(x: Any) -> Any:
        """Double."""
        return x * 2

    assert f.__name__ == "f" and f.__doc__ == "Double." and float(f(3.0)) == 6


def test_a_closure_over_a_traced_value() -> None:
    """What grad_fn closes over is that of the call, not of the trace."""

    @tfopt.custom_gradient
    def exponential(x: Any) -> Any:
        hidden = np.exp(x) * 3
        return x * 1, lambda d: d * hidden

    f = tfopt.function(exponential)
    for value in (0.0, 1.0, 2.0):
        x = tfopt.constant(value)
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        np.testing.assert_allclose(float(tape.gradient(y, x)), 3 * np.exp(value))


def test_a_boolean_mask_may_select_more_than_when_it_was_traced() -> None:
    @tfopt.function
    def f(x: Any) -> Any:
        return np.sum(x[x > 0] ** 2)

    for values in ([1.0, -1.0, -2.0], [1.0, 2.0, 3.0], [-1.0, -1.0, -1.0]):
        x = tfopt.constant(values)
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert np.asarray(tape.gradient(y, x)).tolist() == [2 * max(v, 0) for v in values]


def test_rows_go_through() -> None:
    table = tfopt.Variable(np.arange(6.0).reshape(3, 2))
    lookup = tfopt.function(lambda i: np.take(table, i, axis=0) * 2)
    for rows in ([0, 2], [1, 1]):
        indices = tfopt.constant(np.array(rows))
        with tfopt.GradientTape() as tape:
            y = lookup(indices)
        grad = tape.gradient(y, table)
        assert isinstance(grad, tfopt.IndexedSlices)
        assert np.asarray(grad.indices).tolist() == rows
        assert np.asarray(grad.values).tolist() == [[2, 2], [2, 2]]
        assert np.asarray(y).tolist() == (2 * np.arange(6.0).reshape(3, 2)[rows]).tolist()
    assert lookup.trace_count == 1


@pytest.mark.parametrize("order", [1, 2, 3])
def test_orders(order: int) -> None:
    def derivative(f: Any) -> Any:
        def df(x: Any) -> Any:
            with tfopt.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        return df

    f: Any = tfopt.function(lambda x: x**4)
    wrapped: Any = f
    for _ in range(order):
        f, wrapped = derivative(f), tfopt.function(derivative(wrapped))
    expected = [32.0, 48.0, 48.0][order - 1]
    assert float(f(tfopt.constant(2.0))) == expected == float(wrapped(tfopt.constant(2.0)))


def test_concrete_functions() -> None:
    f = tfopt.function(lambda x, k=2.0: x * k)
    concrete = f.get_concrete_function(tfopt.TensorSpec((2,), np.float64))
    assert f.trace_count == 1
    assert np.asarray(concrete(tfopt.constant([1.0, 2.0]))).tolist() == [2, 4]
    f(tfopt.constant([3.0, 4.0]))
    assert f.trace_count == 1


def test_gradients_that_were_broadcast_come_back_in_their_shape() -> None:
    def f(a: Any, b: Any) -> Any:
        first = np.mean(b, axis=-1, keepdims=True) * a
        return np.sum(np.mean(b, axis=-1, keepdims=True) * a) + np.sum(first * 0.5)

    a, b = tfopt.constant(1.0), tfopt.constant([1.0, 2.0, 3.0])
    for called in (f, tfopt.function(f)):
        with tfopt.GradientTape() as tape:
            tape.watch([a, b])
            y = called(a, b)
        found = [np.asarray(g).tolist() for g in tape.gradient(y, [a, b])]
        assert found == [3.0, [0.5, 0.5, 0.5]]


def test_constants_that_were_captured_live_on() -> None:
    """After taped calls, and gradients of second order."""
    k, x = tfopt.constant(3.0), tfopt.constant(2.0)
    f = tfopt.function(lambda x: x * x * k)
    with tfopt.GradientTape() as outer:
        outer.watch([x, k])
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        grad = tape.gradient(y, x)
    second = outer.gradient(grad, [x, k])
    assert [float(part) for part in (y, grad, *second)] == [12, 12, 6, 4]
    assert float(k * 2) == 6 and float(k) == 3 and k.numpy() == 3 and "3." in repr(k)
    with tfopt.GradientTape() as tape:
        tape.watch(k)
        y = f(x) + k
    assert float(tape.gradient(y, k)) == 5


@pytest.mark.parametrize("axis", [np.int64(0), (np.int64(0), np.int64(1)), (0, 1), [0], None])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "cumsum"])
def test_axes_that_are_numbers_of_numpys(name: str, axis: Any) -> None:
    if name == "cumsum" and isinstance(axis, (tuple, list)):
        return
    axis = tuple(axis) if isinstance(axis, list) else axis
    function, array = getattr(np, name), np.arange(6.0).reshape(2, 3)
    f = tfopt.function(lambda x: function(x, axis=axis))
    for each in (array, array + 1):
        np.testing.assert_allclose(np.asarray(f(each)), function(each, axis=axis), 1e-14)


@pytest.mark.parametrize("number", [-2.0, -2, -0.0, 0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
def test_numbers_in_expressions(number: float) -> None:
    """Negative ones are raised to a power as a whole, and a zero keeps its sign."""

    def body(x: Any) -> Any:
        return number**x, x * number, x / number, number - x, x + number, x - number * 1.0

    f = tfopt.function(body)
    with np.errstate(all="ignore"):
        for x in (np.array([2.0, 3.0]), np.array(2.0), np.zeros(2)):
            expected = body(tfopt.constant(x))
            for _ in range(2):
                for one, other in zip(f(x), expected, strict=True):
                    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
                    assert (np.signbit(np.asarray(one)) == np.signbit(np.asarray(other))).all()


def test_zeros_of_both_signs() -> None:
    zeros, mixed = np.zeros(3), np.array([0.0, -0.0, 0.0])
    f = tfopt.function(lambda x: (x / mixed, x * 0.0, x * -0.0, x / zeros))
    with np.errstate(all="ignore"):
        found = [np.asarray(part) for part in f(np.ones(3))]
    assert found[0].tolist() == [np.inf, -np.inf, np.inf]
    assert [np.signbit(part).any() for part in found[1:]] == [False, True, False]


def test_a_cut_input_has_no_way_back() -> None:
    @tfopt.custom_gradient
    def op(x: Any) -> Any:
        def grad_fn(_: Any) -> Any:
            raise AssertionError("no gradient was asked for")

        return x * 1.0, grad_fn

    x, f = tfopt.constant(1.0), tfopt.function(op)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = f(tfopt.stop_gradient(x))
    assert float(y) == 1 and tape.gradient(y, x) is None


def test_captured_arrays_keep_the_value_they_had() -> None:
    """Whatever their owner writes into them."""
    array, row = np.full((3, 3), 2.0), np.array([1.0, 2.0, 3.0])
    f = tfopt.function(lambda x: (x * array + row, x @ array))
    x = np.ones((3, 3))
    first = [np.array(part) for part in f(x)]
    array[...], row[...] = 77.0, 77.0
    for one, other in zip(f(x), first, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_products_by_ones_have_the_dtype_of_both() -> None:
    f = tfopt.function(lambda x: (x * np.ones(2), x / np.ones(2), x * np.ones((3, 1))))
    found = [np.asarray(part) for part in f(np.ones(2, np.float32))]
    assert [part.dtype for part in found] == [np.float64] * 3 and found[2].shape == (3, 2)


def test_arrays_given_to_a_recorded_call_may_be_written_afterwards() -> None:
    w = tfopt.Variable(np.full(3, 2.0))
    f = tfopt.function(lambda x: np.sum(w * w * x))
    array = np.full(3, 5.0)
    with tfopt.GradientTape() as tape:
        y = f(array)
    array[...] = 77.0
    assert np.asarray(tape.gradient(y, w)).tolist() == [20, 20, 20]


def test_results_that_are_no_targets_connect_nothing() -> None:
    """Of a function's results only those that a gradient is asked of have one."""
    f = tfopt.function(lambda a, b: (a * 2.0, b * 3.0))
    a, b = tfopt.constant(1.0), tfopt.constant(1.0)
    with tfopt.GradientTape() as tape:
        tape.watch([a, b])
        y, _ = f(a, b)
    found = tape.gradient(y, [a, b])
    assert float(found[0]) == 2 and (tfopt.__name__ == "tfopt_ref" or found[1] is None)
