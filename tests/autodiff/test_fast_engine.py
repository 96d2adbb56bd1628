"""The compiled engine: snapshots, what is kept, leaks, threads."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.core import engine


def copies_made_by(write: Any) -> int:
    """Return the bytes that are allocated by a write and stay."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    write()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept


# ---- snapshots


def test_a_read_shares_the_memory_until_the_variable_is_written() -> None:
    array = np.arange(4.0)
    variable = tfopt.Variable(array)
    tensor = variable._read()
    assert np.shares_memory(engine.peek(tensor), array)
    assert variable._read() is tensor
    variable.assign_add(np.ones(4))
    assert not np.shares_memory(engine.peek(tensor), array)
    assert tensor.tolist() == [0, 1, 2, 3] and array.tolist() == [1, 2, 3, 4]
    assert variable._read() is not tensor


def test_a_write_copies_only_live_snapshots() -> None:
    variable = tfopt.Variable(np.zeros(100_000))
    variable._read()
    assert copies_made_by(lambda: variable.assign_add(np.ones(100_000))) < 1000
    part = variable[:10]
    assert copies_made_by(lambda: variable.assign_add(np.ones(100_000))) < 10_000
    whole = variable._read()
    assert copies_made_by(lambda: variable.assign_add(np.ones(100_000))) > 800_000
    assert (part.numpy() == 1).all() and (whole.numpy() == 2).all()


def test_tensors_for_whose_copies_memory_lacks_get_them_before_the_next_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable = tfopt.Variable(np.arange(4.0), "v")
    room = 0

    def copied(array: np.ndarray) -> np.ndarray:
        nonlocal room
        room -= 1
        if room < 0:
            raise MemoryError
        return array.copy()

    with tfopt.GradientTape():
        tensors = [variable[k:] for k in range(3)]
        monkeypatch.setattr(np, "array", copied)
        for copies in range(3):
            room = copies
            tensors.append(variable[1:])  # after one was refused, from another snapshot
            before = [engine.peek(tensor).tolist() for tensor in tensors]
            with pytest.raises(MemoryError):
                variable.assign_add(np.ones(4))
            assert variable._array.tolist() == [0, 1, 2, 3]
            assert [engine.peek(tensor).tolist() for tensor in tensors] == before
        room = 99
        variable.assign_add(np.ones(4))
    assert variable._array.tolist() == [1, 2, 3, 4]
    assert [engine.peek(tensor).tolist() for tensor in tensors] == before


def test_strided_variables_have_snapshots_too() -> None:
    array = np.arange(16.0).reshape(4, 4)
    variable = tfopt.Variable(array[1::2, ::3])
    tensor = variable * 1.0, variable._read(), variable.T
    variable.assign(np.zeros((2, 2)))
    assert [t.tolist() for t in tensor] == [
        [[4, 7], [12, 15]], [[4, 7], [12, 15]], [[4, 12], [7, 15]],
    ]  # fmt: skip


def test_a_tape_saves_the_value_of_its_time() -> None:
    w = tfopt.Variable(2.0)
    with tfopt.GradientTape() as tape:
        y = w * w
        w.assign(5.0)
        z = y + w * w
    w.assign(100.0)
    assert float(tape.gradient(z, w)) == 14


def test_the_array_of_a_tensor_cannot_be_written() -> None:
    array = np.ones(3)
    tensor = tfopt.constant(array)
    array[0] = 7
    assert tensor.tolist() == [1, 1, 1]
    for given in (tensor.numpy(), np.asarray(tensor), (tensor * 2).numpy()):
        with pytest.raises(ValueError, match="read-only"):
            given[0] = 5
    own = tfopt.Variable(np.ones(2))._read().numpy()
    own[0] = 5  # a copy of the variable's memory


def test_arrays_are_copied_where_a_gradient_needs_them() -> None:
    x, factor = tfopt.constant(np.ones(3)), np.full(3, 2.0)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = x * factor
    factor[:] = 100
    assert tape.gradient(y, x).tolist() == [2, 2, 2]


# ---- what is kept


def test_a_gather_keeps_no_table() -> None:
    table = tfopt.Variable(np.zeros((100_000, 8)))
    with tfopt.GradientTape() as tape:
        rows = np.take(table, [3, 5, 3], axis=0)
        loss = np.sum(rows * rows + table[[7, 7]][0])
        assert copies_made_by(lambda: table.assign_add(np.ones(table.shape))) < 10_000
    grad = tape.gradient(loss, table)
    assert isinstance(grad, tfopt.IndexedSlices)
    assert sorted(grad.indices.tolist()) == [3, 3, 5, 7, 7]


@pytest.mark.parametrize(
    ("function", "derivative", "arrays"),
    [
        (lambda x: x + 1.0, np.ones_like, 0),
        (lambda x: np.sin(x) * 2.0, lambda x: 2 * np.cos(x), 0),  # the argument, which lives anyway
        (np.exp, np.exp, 1),  # the result
        (lambda x: np.sqrt(x) + np.exp(x), lambda x: 0.5 / np.sqrt(x) + np.exp(x), 2),
        (lambda x: np.exp(np.sin(x)), lambda x: np.cos(x) * np.exp(np.sin(x)), 1),
    ],
)
def test_only_values_that_rules_read_are_kept(function: Any, derivative: Any, arrays: int) -> None:
    """Of arrays that are not small."""
    array, made = np.linspace(0.1, 0.9, 100_000), []
    x = tfopt.constant(array)

    def record() -> None:
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(function(x))
        made.append((tape, y))

    record()
    assert abs(copies_made_by(record) - arrays * array.nbytes) < array.nbytes / 10
    for tape, y in made:
        np.testing.assert_allclose(tape.gradient(y, x), derivative(array))


def test_sums_are_made_only_in_the_engines_arrays() -> None:
    x = tfopt.constant(np.ones(3))
    seen: list[Any] = []

    @tfopt.custom_gradient
    def same(x: Any) -> Any:
        def grad_fn(d: Any) -> Any:
            seen.append((d, d.tolist()))
            return d

        return x, grad_fn

    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = same(x) + same(x) + same(x) + x * 4.0
    assert tape.gradient(y, x).tolist() == [7, 7, 7]
    assert all(d.tolist() == known for d, known in seen)


# ---- leaks


def test_reading_leaves_nothing_at_a_variable() -> None:
    w = tfopt.Variable(np.ones(3))
    for _ in range(1000):
        w[1:] * w.T[:2]
    lease = engine.peek(w._read()).base
    assert sys.getsizeof(lease) < 1000 and copies_made_by(lambda: w.assign(np.zeros(3))) < 5000


# ---- threads


def test_a_tape_does_not_see_other_threads() -> None:
    x = tfopt.constant(3.0)
    made: list[Any] = []
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        thread = threading.Thread(target=lambda: made.append(x * x))
        thread.start()
        thread.join()
    assert tape.gradient(made[0], x) is None


def test_a_function_is_traced_once_by_all_threads() -> None:
    barrier, results = threading.Barrier(6), []
    f = tfopt.function(lambda x: np.sum(x * x) * 2.0)

    def work(number: int) -> None:
        barrier.wait()
        results.extend(float(f(np.full(2, number - k))) - 4 * (number - k) ** 2 for k in range(50))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0.0] * 300 and f.trace_count == 1


# ---- operators


def test_conversions_that_lose_gradients_are_refused() -> None:
    x, array = tfopt.constant(np.ones(3)), np.ones(3)
    with pytest.raises(TypeError, match="out"):
        array += x
    with pytest.raises(TypeError, match="out"):
        np.add(array, 1.0, out=x)
    with pytest.raises(TypeError):
        x[0] = 1
    assert array.tolist() == [1, 1, 1]
