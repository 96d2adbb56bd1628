"""Tapes beside the behaviours: variables' values, memory, threads, nests, rows, checks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import tracemalloc
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tfopt

# ---- tensors


def test_constants_are_copies(impl: ModuleType) -> None:
    array = np.arange(3.0)
    x = impl.constant(array)
    array[0] = 9
    assert x.tolist() == [0, 1, 2]
    assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == ((3,), np.float64, 1, 3, 3)
    assert impl.constant(2, np.float32).dtype == np.float32
    assert impl.constant([[1, 2]]).T.shape == (2, 1)
    assert [float(part) for part in x] == [0, 1, 2]


def test_numbers_arrays_and_lists_beside_tensors(impl: ModuleType) -> None:
    x = impl.constant([1.0, 2.0])
    for made in (np.ones(2) * x, np.float64(1) * x, x * [1.0, 1.0], x + 0, np.array([1, 1]) * x):
        assert isinstance(made, impl.Tensor) and made.tolist() == [1, 2]
    assert isinstance(x == 1.0, impl.Tensor) and (x == 1.0).tolist() == [True, False]
    assert np.asarray(np.eye(2) @ x).tolist() == [1, 2]
    assert np.shape(x) == (2,) and np.ndim(x) == 1
    made = [np.float32(1) * impl.constant(1, np.float32), impl.constant(1, np.float32) * 2.0]
    assert [part.dtype for part in made] == [np.float32] * 2


def test_variables_make_tensors(impl: ModuleType) -> None:
    w = impl.Variable(np.arange(4.0).reshape(2, 2))
    for made in (w + 1, np.exp(w), w[0], w @ w, w.T, np.sum(w), -w, w.reshape(4), w.astype(int)):
        assert isinstance(made, impl.Tensor)
    assert isinstance(w.numpy(), np.ndarray) and w.trainable
    assert not impl.Variable(1.0, trainable=False).trainable


# ---- values of variables


def views(w: Any) -> list[Any]:
    return [w[0], w.T, w.reshape(-1), w[::2, 1], np.expand_dims(w, 0), w * 1, np.ravel(w)]


def test_a_value_read_before_stays(impl: ModuleType) -> None:
    array = np.arange(6.0).reshape(2, 3)
    w = impl.Variable(array)
    writes = [
        lambda: w.assign(array + 1),
        lambda: w.assign_add(np.ones((2, 3))),
        lambda: w.assign_sub(np.ones((2, 3))),
    ]
    if impl is tfopt:
        op = tfopt.training_ops.apply_gradient_descent
        writes += [
            lambda: op(w, np.ones((2, 3)), alpha=1.0),
            lambda: op(w, np.ones((1, 3)), indices=np.array([1]), alpha=1.0),
        ]
    check_that_what_was_read_stays(array, w, writes)


def test_a_value_read_before_a_step_stays() -> None:
    array = np.arange(6.0).reshape(2, 3)
    w = tfopt.Variable(array)
    optimizer = tfopt.optimizers.SGD(1.0)
    writes = [
        lambda: optimizer.apply_gradients([(np.ones((2, 3)), w)]),
        lambda: optimizer.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 3)), [1]), w)]),
    ]
    check_that_what_was_read_stays(array, w, writes)


def check_that_what_was_read_stays(array: np.ndarray, w: Any, writes: list[Any]) -> None:
    for write in writes:
        kept = views(w)
        before = [np.array(part) for part in kept]
        old = array.copy()
        write()
        assert (array != old).any()
        for part, value in zip(kept, before, strict=True):
            assert np.asarray(part).tolist() == value.tolist()
        assert np.asarray(w * 1).tolist() == array.tolist()


def test_gradients_use_the_values_of_their_time(impl: ModuleType) -> None:
    w = impl.Variable([3.0, 4.0])
    with impl.GradientTape() as tape:
        y = np.sum(w.reshape(2, 1) * w)
    w.assign([0.0, 0.0])
    assert np.asarray(tape.gradient(y, w)).tolist() == [14, 14]


def test_a_step_of_rows_copies_no_table() -> None:
    table = tfopt.Variable(np.ones((100_000, 8)))
    optimizer = tfopt.optimizers.SGD(0.1)
    rows = np.array([5, 5, 70_000])

    def step() -> None:
        with tfopt.GradientTape() as tape:
            loss = np.sum(np.take(table, rows, axis=0) ** 2)
        optimizer.minimize(loss, [table], tape=tape)

    step()
    tracemalloc.start()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < table.numpy().nbytes / 20
    assert table.numpy()[0, 0] == 1 and table.numpy()[5, 0] < 1


def test_a_write_copies_nothing_that_nobody_needs() -> None:
    w = tfopt.Variable(np.ones(200_000))
    with tfopt.GradientTape() as tape:
        y = np.sum(w * w)
    tape.gradient(y, w)
    del tape, y
    tracemalloc.start()
    w.assign_add(w.numpy())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < w.numpy().nbytes / 2


# ---- memory and threads


def test_tapes_leave_nothing_behind(impl: ModuleType) -> None:
    """In a process of their own: threads that other tests have left allocate, too."""
    code = f"""
import gc, sys, tracemalloc
import numpy as np
import {impl.__name__} as impl

w = impl.Variable(np.ones(3))
f = impl.custom_gradient(lambda x: (x * w, lambda d, variables: (d, [d])))

def held_after(rounds):
    for _ in range(rounds):
        with impl.GradientTape(), impl.GradientTape() as tape:
            y = np.sum(np.exp(f(w * 2.0)) + w[0] + np.take(w, [0, 1, 1]))
            tape.gradient(y, w)
    return tracemalloc.get_traced_memory()[0]

gc.collect()
gc.disable()
held_after(200)
references, objects = sys.getrefcount(w), len(gc.get_objects())
held_after({2_000 if impl.__name__ == "tfopt" else 200})
assert len(gc.get_objects()) - objects < 50, "objects"
assert sys.getrefcount(w) == references, "references"
tracemalloc.start()
held = held_after(100)  # the interpreter keeps some memory for later
assert held_after(100) - held < 16_000, "memory"
tracemalloc.stop()
assert gc.collect() < 50, "garbage"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_thread_has_its_own_tapes(impl: ModuleType) -> None:
    w, errors = impl.Variable(2.0), []

    def work(number: int) -> None:
        try:
            x = impl.constant(float(number))
            for _ in range(50):
                with impl.GradientTape(persistent=True) as tape:
                    tape.watch(x)
                    y = x * x * w
                assert [float(g) for g in tape.gradient(y, [x, w])] == [4 * number, number**2]
        except BaseException as error:
            errors.append(error)

    with impl.GradientTape() as outer:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors and outer.watched_variables() == ()


# ---- watching


def test_watched_variables_are_in_the_order_of_their_making(impl: ModuleType) -> None:
    variables = [impl.Variable(float(n)) for n in range(8)]
    frozen = impl.Variable(1.0, trainable=False)
    with impl.GradientTape() as tape:
        for n in (5, 2, 7, 0):
            variables[n] * frozen
    assert [float(v) for v in tape.watched_variables()] == [0, 2, 5, 7]
    with impl.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(frozen)
        y = variables[1] * frozen
    assert tape.watched_variables() == (frozen,)
    assert tape.gradient(y, variables[1]) is None
    assert impl.GradientTape().watched_variables() == ()


def test_an_exception_leaves_the_record_usable(impl: ModuleType) -> None:
    x, tape = impl.constant(3.0), impl.GradientTape()
    with pytest.raises(KeyError), tape:
        tape.watch(x)
        y = x * x
        raise KeyError
    z = x * x  # outside
    assert float(tape.gradient([y, z], x)) == 6


def test_tapes_may_end_in_any_order(impl: ModuleType) -> None:
    x, first, second = impl.constant(3.0), impl.GradientTape(), impl.GradientTape()
    first.__enter__()
    second.__enter__()
    first.watch(x)
    second.watch(x)
    y = x * x
    first.__exit__(None, None, None)
    z = y * x
    second.__exit__(None, None, None)
    assert first.gradient(z, x) is None and float(second.gradient(z, x)) == 27


def test_only_nodes_on_the_path_are_visited(impl: ModuleType) -> None:
    calls = []

    @impl.custom_gradient
    def f(x: Any) -> Any:
        return x * 2, lambda d: calls.append(1) or d

    x = impl.constant(1.0)
    with impl.GradientTape() as tape:
        tape.watch(x)
        middle = f(x)
        y = middle * 3
    assert float(tape.gradient(y, middle)) == 3 and not calls


# ---- the registry


def test_overrides_hold_where_the_operation_was_carried_out() -> None:
    name = f"Tenfold-{id(object())}"

    @tfopt.RegisterGradient(name)
    def tenfold(op: Any, d: Any) -> Any:
        return d * 10 * op.inputs[0]

    def squares(x: Any) -> Any:
        with tfopt.gradient_override_map({"square": name}):
            y = np.square(x)
        return y, np.square(x)

    def by(f: Any) -> list[float]:
        x = tfopt.constant(3.0)
        with tfopt.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        return [float(tape.gradient(part, x)) for part in y]

    @tfopt.function
    def inside(x: Any) -> Any:
        with tfopt.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = squares(x)
        return [tape.gradient(part, x) for part in y]

    assert by(squares) == by(tfopt.function(squares)) == [30, 6]
    assert [float(part) for part in inside(tfopt.constant(3.0))] == [30, 6]


# ---- rows


def test_rows_as_arrays_and_in_arithmetic() -> None:
    rows = tfopt.IndexedSlices(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 0]), (3, 1))
    assert np.asarray(rows).tolist() == [[4], [0], [2]]
    assert rows.dtype == np.float64 and rows.shape == (3, 1)
    for made, factor in ((-rows, -1), (rows * 2, 2), (2 * rows, 2), (rows / 2, 0.5)):
        assert isinstance(made, tfopt.IndexedSlices)
        assert np.asarray(made).ravel().tolist() == [4 * factor, 0, 2 * factor]
    with pytest.raises(ValueError, match="Tensor conversion requested for IndexedSlices"):
        np.asarray(tfopt.IndexedSlices([[1.0]], [0]))


def test_negative_indices_of_rows(impl: ModuleType) -> None:
    x = impl.constant(np.arange(6.0).reshape(3, 2))
    with impl.GradientTape() as tape:
        tape.watch(x)
        y = np.sum(x[[-1, 0]])
    grad = tape.gradient(y, x)
    assert np.asarray(grad.indices).tolist() == [2, 0] and grad.dense_shape == (3, 2)


# ---- numeric checks


def test_compute_gradient() -> None:
    a = tfopt.autodiff
    x, y = np.array([[1.0, 2.0]]), np.array([3.0, 4.0])
    theoretical, numeric = a.compute_gradient(lambda x, y: np.sum(x * y, 1) * x, [x, y])
    assert [part.shape for part in theoretical] == [(2, 2), (2, 2)]
    assert [part.shape for part in numeric] == [(2, 2), (2, 2)]
    assert a.max_error(theoretical, numeric) < 1e-8
    false = tfopt.custom_gradient(lambda x: (x * x, lambda d: d * 100))
    theoretical, numeric = a.compute_gradient(false, [np.array([1.0, 2.0])])
    assert theoretical[0].tolist() == [[100, 0], [0, 100]]
    np.testing.assert_allclose(numeric[0], [[2, 0], [0, 4]], atol=1e-9)
    kink, flat = a.compute_gradient(np.abs, [np.array([0.0])])
    assert kink[0] == flat[0] == 0
    gathered, _ = a.compute_gradient(lambda x: np.take(x, [1, 1], axis=0), [np.ones((2, 1))])
    assert gathered[0].tolist() == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match="`x` must be a list or tuple"):
        a.compute_gradient(np.exp, np.ones(2))
    with pytest.raises(TypeError):
        a.compute_gradient(np.abs, [np.array([1])])


def test_complex_gradients_by_differences() -> None:
    z = np.array([1 + 2j, -0.5 + 1j])
    for f in (lambda z: z * z, np.absolute, np.exp, lambda z: np.real(z) * z, np.angle, np.conj):
        theoretical, numeric = tfopt.autodiff.compute_gradient(f, [z], delta=1e-5)
        assert tfopt.autodiff.max_error(theoretical, numeric) < 1e-8


def test_check_grads_finds_a_false_gradient() -> None:
    false = tfopt.custom_gradient(lambda x: (x * x, lambda d: d * x * 3))
    with pytest.raises(AssertionError):
        tfopt.autodiff.check_grads(false, [np.ones(2)], order=1)
    second = tfopt.custom_gradient(lambda x: (x**3, lambda d: d * tfopt.stop_gradient(3 * x * x)))
    tfopt.autodiff.check_grads(second, [np.ones(2)], order=1)
    with pytest.raises(AssertionError):
        tfopt.autodiff.check_grads(second, [np.ones(2)], order=2)


def test_sums_of_gradients_have_gradients(impl: ModuleType) -> None:
    """Two contributions of one operation, and then those of another one."""
    a = impl.constant([1.0, 2.0, 3.0])
    with impl.GradientTape() as outer:
        outer.watch(a)
        with impl.GradientTape() as tape:
            tape.watch(a)
            square, double = a * a, a + a
            y = np.sum(double) + np.sum(square * 0.5)
        g = tape.gradient(y, a)
        total = np.sum(g * g)
    assert np.asarray(outer.gradient(total, a)).tolist() == [6, 8, 10]


def test_tensors_are_written_as_numbers_and_copied_as_values() -> None:
    x = tfopt.constant([1.5])
    assert f"{x[0]:.2f}" == "1.50" and repr(x) == "<Tensor shape=(1,) dtype=float64 [1.5]>"
    again = pickle.loads(pickle.dumps(x))
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = x * again
    assert tape.gradient(y, again) is None


def test_watching_integers_warns() -> None:
    with tfopt.GradientTape() as tape, pytest.warns(UserWarning, match="must be floating"):
        tape.watch(tfopt.constant(3))


def test_scalars_of_bfloat16_have_gradients(impl: ModuleType) -> None:
    """NumPy's reductions of bfloat16 are scalars that are no ``np.inexact``."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    v = impl.Variable(np.array([1.0, 2.0], bfloat16))
    for reduce in (np.sum, np.mean, np.max, lambda x: x[0]):
        with impl.GradientTape() as tape:
            y = reduce(v * v)
        assert tape.gradient(y, v).dtype == bfloat16


def test_variables_are_known_after_the_gradient(impl: ModuleType) -> None:
    v, w = impl.Variable(1.0), impl.Variable(2.0)
    with impl.GradientTape() as tape:
        y = v * w * v
    assert tape.watched_variables() == (v, w)
    tape.gradient(y, v)
    assert tape.watched_variables() == (v, w)


@pytest.mark.parametrize("connected", [True, False])
def test_derivatives_of_nothing(impl: ModuleType, connected: bool) -> None:
    """Have their shapes, and are None where nothing depends on the source."""
    for shape in ((0,), (2, 0), (0, 3)):
        x, other = impl.constant(np.zeros(shape)), impl.constant(np.zeros(2))
        with impl.GradientTape(persistent=True) as tape:
            tape.watch([x, other])
            y = x**2
        source = x if connected else other
        found = tape.jacobian(y, source)
        if connected:
            assert found.shape == shape + shape and found.dtype == np.float64
        else:
            assert found is None
        assert tape.jacobian(y, source, "zero").shape == shape + source.shape
        if len(shape) == 2 and connected:
            assert tape.batch_jacobian(y, x).shape == (*shape, shape[1])


def test_operations_without_gradients_are_not_recorded(impl: ModuleType) -> None:
    x = impl.constant(2.0)
    with impl.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = impl.stop_gradient(x) * np.floor(x) * x
        z = np.exp(impl.stop_gradient(x))
    assert float(tape.gradient(y, x)) == 4 and tape.gradient(z, x) is None


def test_errors_of_missing_gradients_suggest_a_cure() -> None:
    x = tfopt.constant([1.0, 2.0])
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = np.vander(x)
    with pytest.raises(LookupError, match=r"vander.*RegisterGradient\('vander'\).*stop_gradient"):
        tape.gradient(y, x)


def test_a_penalty_on_the_gradient_of_rows(impl: ModuleType) -> None:
    """NumPy's functions take rows as what they stand for, with gradients."""
    table = impl.Variable(np.arange(6.0).reshape(3, 2))
    with impl.GradientTape() as outer:
        with impl.GradientTape() as inner:
            y = np.sum(np.take(table, [0, 2, 0], axis=0) ** 2)
        rows = inner.gradient(y, table)
        squares = np.sum(np.square(rows))
        more = np.linalg.norm(rows) ** 2 if impl is tfopt else np.sum(rows * rows)
        penalty = squares + np.sum(rows) + more
    assert isinstance(rows, impl.IndexedSlices)
    x = np.arange(6.0).reshape(3, 2)
    gradient = np.array([[4.0], [0], [2]]) * x
    assert float(penalty) == pytest.approx(2 * np.sum(gradient**2) + gradient.sum(), rel=1e-14)
    found = np.asarray(outer.gradient(penalty, table))
    slope = np.array([[4.0], [0], [2]])
    np.testing.assert_allclose(found, 4 * gradient * slope + slope, 1e-14)


def test_rows_in_expressions() -> None:
    rows = tfopt.IndexedSlices(np.ones((2, 2)), np.array([1, 1]), (3, 2))
    dense = np.asarray(rows)
    for made in (rows * 2.0, np.float64(2) * rows, 2 * rows, -rows):
        assert isinstance(made, tfopt.IndexedSlices)
    full = np.full((3, 2), 3.0)
    for made, expected in (
        (full * rows, full * dense), (full + rows, full + dense), (np.exp(rows), np.exp(dense)),
        (np.multiply(rows, 2), 2 * dense), (np.concatenate([rows, full]), np.vstack([dense, full])),
        (np.mean(rows, axis=1), dense.mean(1)), (np.add.reduce(rows), dense.sum(0)),
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(made), expected)
    with pytest.raises(ValueError, match="without dense_shape"):
        np.exp(tfopt.IndexedSlices(np.ones((2, 2)), np.array([1, 1])))


def test_output_gradients_get_the_dtype_of_their_target(impl: ModuleType) -> None:
    x = impl.constant(np.ones(2, np.float32))
    with impl.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * np.float32(2)
    for source in (y, x):
        assert tape.gradient(y, source, np.array([0.1, 3.0])).dtype == np.float32
    assert float(tape.gradient(y, y, np.array([0.1, 3.0]))[0]) == np.float32(0.1)
