"""The generated programs: what is left out, written over, dropped, copied; and effects in them."""

from __future__ import annotations

import gc
import linecache
import threading
import traceback
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.autodiff.ops import UFUNCS
from tfopt.core import engine
from tfopt.core.engine import Op, apply


def peak_of(call: Any) -> int:
    """Return the most bytes that a call has allocated at one time."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_constants_are_computed_once_and_dead_code_is_left_out() -> None:
    captured, computed = tfopt.constant(np.ones(3)), []
    dead, once, used = (
        Op(name, lambda x, name=name: computed.append(name) or x + 1) for name in "dou"
    )

    @tfopt.function
    def f(x: Any) -> Any:
        apply(dead, (x,))
        return apply(used, (x,)) * apply(once, (captured,))

    f(np.zeros(3))
    assert {*computed} == {*"dou"}
    computed.clear()
    assert f(np.zeros(3)).tolist() == [2, 2, 2]
    assert computed == ["u"]


def test_a_large_array_is_written_over_after_its_last_use() -> None:
    f = tfopt.function(lambda x: np.exp(-x * 2.0) + 1.0)
    x = np.linspace(0, 1, 100_000)
    np.testing.assert_array_equal(f(x).numpy(), np.exp(-x * 2.0) + 1.0)
    assert peak_of(lambda: f(x)) < 1.5 * x.nbytes


@pytest.mark.parametrize(
    "body",
    [
        lambda x: (x * 2.0, np.exp(x * 2.0)),
        lambda x: np.exp(x) - np.exp(x).reshape(100, 100).T.reshape(-1),
        lambda x: (lambda y: y[::-1] + y)(x * 3.0),
        lambda x: (lambda y: (y + 1.0) * y)(x * 3.0),
        lambda x: (lambda y: (y[:5], y * 2.0))(x * 3.0),
        lambda x: np.broadcast_to((x * 2.0)[:1], (3,)) + np.sum(x * 2.0),
        lambda x: x,
    ],
)
def test_values_read_later_are_not_overwritten(body: Any) -> None:
    x = np.linspace(0, 1, 10_000)
    kept = x.copy()
    made, expected = tfopt.function(body)(x), body(tfopt.constant(x))
    made = made if isinstance(made, tuple) else (made,)
    for y, z in zip(made, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(y.numpy(), z.numpy())
        assert not np.shares_memory(y.numpy(), x)
    np.testing.assert_array_equal(x, kept)


def test_large_arrays_are_dropped() -> None:
    def chain(x: Any) -> Any:
        for _ in range(20):
            x = np.maximum(x, x.reshape(100, 1000).T.reshape(-1))
        return x

    f, x = tfopt.function(chain), np.arange(100_000.0)
    f(x)
    assert peak_of(lambda: f(x)) < 5 * x.nbytes


def test_ones_are_not_multiplied_by_nor_broadcast() -> None:
    @tfopt.function
    def f(x: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(x * x, axis=1) * 3.0
        return tape.gradient(y, x)

    x = np.arange(60_000.0).reshape(200, 300)
    np.testing.assert_array_equal(f(x).numpy(), 6 * x)
    assert peak_of(lambda: f(x)) < 2.5 * x.nbytes  # those of both factors


def test_reads_before_an_assignment_keep_their_value() -> None:
    w = tfopt.Variable(np.full(3, 2.0))

    @tfopt.function
    def f(x: Any) -> Any:
        before, view = w * 1.0, w[::-1]
        w.assign(x)
        after = w * 1.0
        w.assign_add(x)
        return before, view, after, w

    for expected in (2.0, 14.0):
        found = f(np.full(3, 7.0))
        assert [t.tolist()[0] for t in found] == [expected, expected, 7.0, 14.0]
    w.assign(np.zeros(3))
    assert found[3].tolist() == [14.0] * 3


def test_values_saved_by_a_taped_call_survive_assignments() -> None:
    w, x = tfopt.Variable(np.full(3, 2.0)), tfopt.constant(np.full(3, 5.0))
    f = tfopt.function(lambda x: np.sum(w * w * x))
    for _ in range(2):
        w.assign(np.full(3, 2.0))
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        w.assign(np.zeros(3))
        gx, gw = tape.gradient(y, [x, w])
        assert gx.tolist() == [4, 4, 4] and gw.tolist() == [20, 20, 20]


def test_a_variable_as_argument_is_the_callers() -> None:
    @tfopt.function
    def f(v: Any) -> Any:
        v.assign_add(np.ones(2))
        return v * 10.0

    a, b = tfopt.Variable(np.zeros(2)), tfopt.Variable(np.ones(2))
    assert f(a).tolist() == [10, 10] and f(b).tolist() == [20, 20]
    assert (a.numpy().tolist(), b.numpy().tolist(), f.trace_count) == ([1, 1], [2, 2], 1)


def test_a_training_step_in_a_function_is_that_without() -> None:
    random = np.random.default_rng(0)
    x, t = random.normal(size=(8, 3)), random.normal(size=(8, 2))
    weights = []
    for wrap in (lambda f: f, tfopt.function):
        w = tfopt.Variable(np.ones((3, 2)))
        table = tfopt.Variable(np.ones((5, 2)))
        optimizer = tfopt.optimizers.Adam(0.1, global_clipnorm=1.0)

        def step(x: Any, t: Any, w: Any = w, table: Any = table, opt: Any = optimizer) -> Any:
            with tfopt.GradientTape() as tape:
                rows = np.take(table, [0, 3, 0, 1, 2, 2, 1, 0], axis=0)
                loss = np.mean((x @ w + rows - t) ** 2)
            opt.minimize(loss, [w, table], tape=tape)
            return loss

        run = wrap(step)
        losses = [float(run(tfopt.constant(x), tfopt.constant(t))) for _ in range(5)]
        assert int(optimizer.iterations) == 5
        weights.append((losses, w.numpy(), table.numpy()))
    np.testing.assert_allclose(weights[0][0], weights[1][0], rtol=1e-12)
    np.testing.assert_allclose(weights[0][1], weights[1][1], rtol=1e-12)
    np.testing.assert_allclose(weights[0][2], weights[1][2], rtol=1e-12)


def test_an_update_rule_in_a_function_is_carried_out_at_each_call() -> None:
    w = tfopt.Variable(np.ones(2))

    @tfopt.function
    def f(g: Any) -> Any:
        tfopt.training_ops.apply_gradient_descent(w, g, alpha=0.5)
        return w * 1.0

    assert [f(np.ones(2)).tolist() for _ in range(2)] == [[0.5, 0.5], [0.0, 0.0]]
    assert f.trace_count == 1


def test_recomputation_is_part_of_the_way_back() -> None:
    """What is kept until then are the arguments of the two calls, not the values inside."""
    layer = tfopt.recompute_grad(lambda x: np.tanh(np.sin(np.exp(x))))
    f = tfopt.function(lambda x: layer(layer(x)))
    plain = tfopt.function(lambda x: np.tanh(np.sin(np.exp(np.tanh(np.sin(np.exp(x)))))))
    x = tfopt.constant(np.linspace(0, 1, 100_000))
    kept, slopes = [], []
    for function in (f, plain):
        for _ in range(2):  # the first call traces
            gc.collect()
            tracemalloc.start()
            with tfopt.GradientTape() as tape:
                tape.watch(x)
                y = np.sum(function(x))
            bytes_kept = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        kept.append(bytes_kept / x.numpy().nbytes)
        slopes.append(tape.gradient(y, x).numpy())
    assert kept[0] < 2.5 and kept[1] > 6
    np.testing.assert_allclose(*slopes)


def test_a_symbolic_tensor_has_no_value() -> None:
    def body(ask: Any) -> Any:
        return tfopt.function(lambda x: ask(x) or x)

    for ask in (bool, float, int, lambda x: np.allclose(x, x)):
        with pytest.raises(TypeError, match="symbolic"):
            body(ask)(np.float64(1.0))
    with pytest.raises(AttributeError, match="symbolic"):
        body(lambda x: x.numpy())(np.ones(2))
    with pytest.raises(NotImplementedError, match="symbolic"):
        body(np.asarray)(np.ones(2))


def test_a_constant_is_shortened_only_where_another_operand_is_as_large() -> None:
    ones = np.full((2, 3), 0.5)
    f = tfopt.function(lambda x: np.sum(ones * x, axis=1))
    assert f(np.ones((1, 3))).tolist() == [1.5, 1.5]
    g = tfopt.function(lambda x: np.broadcast_to(x, (2, 3)) + np.broadcast_to(x[:, :1], (2, 3)))
    assert g(np.ones((1, 3))).shape == (2, 3)


def test_a_program_holds_no_values_of_its_trace() -> None:
    """Neither before nor after gradients, of both orders, have been traced."""

    def chain(x: Any) -> Any:
        for _ in range(10):
            x = np.tanh(x) * 1.01
        return x

    f, array = tfopt.function(chain), np.ones(100_000)
    x = tfopt.constant(array)
    gc.collect()
    tracemalloc.start()
    try:
        f(x)
        assert tracemalloc.get_traced_memory()[0] < array.nbytes / 2
        with tfopt.GradientTape() as outer:
            outer.watch(x)
            with tfopt.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            grad = inner.gradient(y, x)
        second = outer.gradient(grad, x)
        del y, grad, second, inner, outer
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < array.nbytes / 2
    finally:
        tracemalloc.stop()


def test_gradients_are_traced_at_the_values_of_the_call() -> None:
    """Which rules may look at: those of the first call are gone by then."""
    seen = []

    @tfopt.custom_gradient
    def op(x: Any) -> Any:
        def grad_fn(d: Any) -> Any:
            seen.append(engine.peek(x).copy())
            return d * x

        return x * 1.0, grad_fn

    f = tfopt.function(lambda x: op(x * 2.0))
    f(np.ones(1000))
    x = tfopt.constant(np.full(1000, 5.0))
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert tape.gradient(y, x).tolist() == [20.0] * 1000
    assert seen[0].tolist() == [10.0] * 1000


def test_a_failing_replay_names_the_users_line() -> None:
    def body(x: Any) -> Any:
        moved = x + 1.0
        return np.linalg.inv(moved) @ x  # the line that fails

    f = tfopt.function(body)
    f(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        f(-np.ones((2, 2)))
    text = "".join(traceback.format_exception(caught.value))
    assert "t3 = " in text or "t2 = " in text  # of the program
    assert "the line that fails" in text and Path(__file__).name in "".join(caught.value.__notes__)
    x = tfopt.constant(-np.ones((2, 2)))
    with tfopt.GradientTape() as tape, pytest.raises(np.linalg.LinAlgError) as caught:
        tape.watch(x)
        f(x)
    assert "the line that fails" in "".join(caught.value.__notes__)


def test_a_failing_write_names_the_users_line() -> None:
    variable = tfopt.Variable(np.zeros(2))

    def body(x: Any) -> None:
        tfopt.clip_by_norm(x, 1.0, out=variable, nonfinite="raise")  # the line that fails

    f = tfopt.function(body)
    f(np.ones(2))
    with pytest.raises(tfopt.InvalidArgumentError, match="the norm is inf") as caught:
        f(np.full(2, np.inf))
    assert "the line that fails" in "".join(caught.value.__notes__)


def test_sources_live_as_long_as_their_functions() -> None:
    before = {*linecache.cache}
    f = tfopt.function(lambda x: x * 2.0)
    f(np.ones(2))
    (program,) = {*linecache.cache} - before
    assert "def program(V, p0):" in f.source() == "".join(linecache.getlines(program))
    del f
    gc.collect()
    assert program not in linecache.cache


def test_a_method_that_is_looked_up_is_the_instances() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @tfopt.function
        def times(self, x: Any) -> Any:
            """Multiply."""
            return x * self.factor

    first, second = Scaled(2.0), Scaled(3.0)
    bound = first.times
    assert float(bound(np.ones(()))) == 2
    assert second.times.trace_count == 0
    assert float(second.times(np.full((), 5.0))) == 15 and float(first.times(np.ones(()))) == 2
    assert bound.trace_count == first.times.trace_count == second.times.trace_count == 1
    assert (bound.__name__, bound.__doc__, bound.__wrapped__.__self__) == (
        "times", "Multiply.", first
    )  # fmt: skip


@pytest.mark.parametrize("slots", [(), ("__weakref__",)])
def test_instances_are_not_kept_for_ever(slots: tuple[str, ...]) -> None:
    """Those without weak references until a hundred others have come."""

    class Number:
        __slots__ = ("value", *slots)

        @tfopt.function
        def times(self, x: Any) -> Any:
            return x * self.value

    for k in range(150):
        number = Number()
        number.value = float(k)
        assert float(number.times(2.0)) == float(number.times(2.0)) == 2 * k
        assert number.times.trace_count == 1
        del number
    alive = sum(isinstance(each, Number) for each in gc.get_objects())
    assert alive == (0 if slots else 100)


def test_arguments_that_are_left_out_are_their_defaults() -> None:
    """Arrays, tensors and variables, too, each as if it were given."""
    v = tfopt.Variable(np.full(2, 2.0))
    for default in (np.full(2, 2.0), tfopt.constant(np.full(2, 2.0)), v):
        for order in (1, -1):
            f = tfopt.function(lambda x, y=default: x * y)
            x, calls = np.ones(2), [(2, ()), (5, (np.full(2, 5.0),))]
            calls.append((7, (tfopt.Variable(np.full(2, 7.0)),)))
            for expected, rest in calls[::order]:
                assert f(x, *rest).tolist() == [expected, expected]
    v.assign(np.full(2, 3.0))
    assert f(x).tolist() == [3.0, 3.0]


def test_a_name_is_as_good_as_a_place() -> None:
    f = tfopt.function(lambda x, y: x - y)
    x, y = np.ones(2), np.zeros(2)
    assert f(x, y).tolist() == f(y=y, x=x).tolist() == f(x, y=y).tolist() == [1, 1]
    assert f.trace_count == 1


def test_numbers_that_are_equal_and_not_the_same() -> None:
    f = tfopt.function(lambda x, y: x / y)
    with np.errstate(all="ignore"):
        found = [float(f(np.ones(()), y)) for y in (0.0, -0.0, np.nan, np.nan, 1, 1.0, True)]
    assert found[:2] == [np.inf, -np.inf] and np.isnan(found[2:4]).all() and found[4:] == [1] * 3
    assert f.trace_count == 6


def test_functions_without_a_rule_compute_for_each_thread() -> None:
    """What a call fills in is its own."""
    f = tfopt.function(lambda x: np.nancumsum(np.nan_to_num(x)) * 1.0)
    given = [np.full(2000, float(k)) for k in range(4)]
    f(given[0])
    wrong = []

    def work(array: np.ndarray) -> None:
        expected = np.nancumsum(array)
        for _ in range(50):
            if not np.array_equal(f(array).numpy(), expected):
                wrong.append(array[0])

    threads = [threading.Thread(target=work, args=(array,)) for array in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arrays_of_tensors_are_not_written_to() -> None:
    """By functions that have no rule, and write into their arguments."""
    x, array = tfopt.constant([3.0, np.nan, 1.0]), np.zeros(3)
    matrix = tfopt.constant(np.eye(2))
    for write in (
        lambda: np.fill_diagonal(matrix, 5.0), lambda: np.put(x, 0, 5.0),
        lambda: np.place(x, [True, False, False], 5.0), lambda: np.putmask(array, [True] * 3, x),
        lambda: np.put_along_axis(x, np.array([0]), 5.0, 0), lambda: np.copyto(array, x),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            write()
    assert x.tolist()[::2] == [3, 1] and not array.any() and np.trace(matrix) == 2


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin < 3], ids=lambda u: u.__name__)
def test_every_ufunc_writes_over_its_input(ufunc: np.ufunc) -> None:
    """As NumPy has it today, without a warning."""
    floats = [np.linspace(0.25, 0.75, 1000), np.linspace(0.5, 0.625, 1000)][: ufunc.nin]
    whole = [np.arange(1000), np.arange(1000) % 7][: ufunc.nin]
    for given in (floats, [*floats[:1], *whole[1:]], whole):
        try:
            with np.errstate(all="ignore"):
                ufunc(*given)
            break
        except TypeError:
            continue

    def body(*inputs: Any) -> Any:
        made = [each * 1 + 1 for each in inputs]
        return ufunc(*made)

    with np.errstate(all="ignore"):
        found = tfopt.function(body)(*given)
        np.testing.assert_array_equal(np.asarray(found), ufunc(*(each * 1 + 1 for each in given)))


def test_programs_call_functions_by_their_names() -> None:
    """But for names that mean something else in the program, or nothing to Python."""
    made = {name: Op(name, lambda x, k=k: x + k) for k, name in enumerate(
        ["double", "p0", "t1", "c0", "V", "program", "raw", "array", "lambda", "a b", "kept"]
    )}  # fmt: skip
    twin = Op("double", lambda x: 2 * x)

    def body(x: Any) -> Any:
        masked = np.where(x > 0, x, 0)
        return [masked, apply(twin, (x,)), *(apply(op, (x,)) for op in made.values())]

    f, x = tfopt.function(body), np.array([1.0, -1.0])
    found = [y.tolist() for y in f(x)]
    assert found[:2] == [[1, 0], [2, -2]]
    assert found[2:] == [[1.0 + k, -1.0 + k] for k in range(len(made))]
    assert "greater(p0, " in f.source() and "double(p0)" in f.source()
