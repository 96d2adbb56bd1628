"""Copies of float32 variables in 16 bits equal the rounded variables after any step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tfopt
from tfopt import IndexedSlices, Variable, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers import SGD, GradientAccumulation, Mirror, WeightAverage

DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
INNER: dict[str, Callable[[], Any]] = {
    "Adam": lambda: optimizers.Adam(0.1),
    "lazy": lambda: optimizers.Adam(0.1, sparse="lazy"),
    "clipped": lambda: optimizers.Adagrad(0.1, clipnorm=0.5, weight_decay=0.1),
    "8 bits": lambda: optimizers.Adam(0.1, storage={"v": "bfloat16"}),
    "Adafactor": lambda: optimizers.Adafactor(0.1),
    "summed": lambda: optimizers.GradientAccumulation(optimizers.SGD(0.1), 2),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.1), 4.0),
    "averaged": lambda: optimizers.WeightAverage(optimizers.SGD(0.1), 0.5, 2),
}


def is_rounded(optimizer: Any, variable: Any, dtype: str) -> bool:
    mirror = optimizer.mirror(variable)
    weights = variable.numpy() if isinstance(variable, Variable) else variable
    rounded = weights.astype(DTYPES[dtype])
    return mirror.dtype == rounded.dtype and mirror.tobytes() == rounded.tobytes()


@each_dtype
@pytest.mark.parametrize("inner", INNER)
def test_a_mirror_is_the_rounded_variable_after_every_step(inner: str, dtype: str) -> None:
    """Of dense, strided, sparse and repeated steps; of a constrained variable; watched or not."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((70, 300), (9, 4))]
    arrays += [random.standard_normal((40, 6)).astype(np.float32)[:, ::2], np.float32([0.5, 2])]
    optimizer = Mirror(INNER[inner](), dtype)
    kept = [optimizer.mirror(w) for w in arrays]
    for _ in range(5):
        ids = random.integers(0, 9, 5)
        grads: list[Any] = [random.standard_normal(w.shape).astype(np.float32) for w in arrays]
        grads[1] = IndexedSlices(grads[1][ids], ids)
        grads[2] = IndexedSlices(grads[2][ids], ids)
        optimizer.apply_gradients(list(zip(grads, arrays, strict=True)))
        for w, mirror in zip(arrays, kept, strict=True):
            assert is_rounded(optimizer, w, dtype) and optimizer.mirror(w) is mirror


@each_dtype
@pytest.mark.parametrize("inner", INNER)
def test_large_variables_step_as_without_a_mirror(inner: str, dtype: str) -> None:
    """Those that are not in a cache, by any number of threads, of runs and of other layouts."""
    random = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(400_003,), (7,), (250, 300)]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays[2] = arrays[2].T  # of another order
    copies = [w.copy(order="K") for w in arrays]
    optimizer, plain = Mirror(INNER[inner](), dtype), INNER[inner]()
    for threads in (1, 3):
        tfopt.threads.set_num_threads(threads)
        grads = [random.standard_normal(w.shape).astype(np.float32) for w in arrays]
        optimizer.apply_gradients(list(zip(grads, arrays, strict=True)))
        plain.apply_gradients(list(zip(grads, copies, strict=True)))
        for w, other in zip(arrays, copies, strict=True):
            assert w.tobytes() == other.tobytes()
            assert is_rounded(optimizer, w, dtype)


@each_dtype
def test_it_follows_constraints_functions_and_rows_of_large_tables(dtype: str) -> None:
    bound = Variable(np.float32([0.3, 2.7]), constraint=lambda w: np.clip(w, 0, 1))
    table = np.ones((5000, 33), np.float32)
    optimizer = Mirror(optimizers.Adam(0.1, sparse="lazy"), dtype)
    traced = tfopt.function(lambda g, w: optimizer.apply_gradients([(g, w)]))
    variable = Variable(np.ones(5, np.float32))
    for t in range(3):
        random = np.random.default_rng(t)
        ids = random.integers(0, 5000, 900)
        values = random.standard_normal((900, 33)).astype(np.float32)
        optimizer.apply_gradients([(IndexedSlices(values, ids), table)])
        optimizer.apply_gradients([(-np.ones(2, np.float32), bound)])
        traced(np.ones(5, np.float32), variable)
        assert all(is_rounded(optimizer, w, dtype) for w in (bound, table, variable))


def test_only_the_rows_of_a_sparse_step_are_written() -> None:
    w = np.ones((6, 2), np.float32)
    optimizer = Mirror(optimizers.SGD(0.5))
    mirror = optimizer.mirror(w)
    mirror[...] = 7
    rows = IndexedSlices(np.ones((2, 2), np.float32), np.array([4, 1]))
    optimizer.apply_gradients([(rows, w)])
    assert (mirror[[4, 1]] == 0.5).all() and (mirror[[0, 2, 3, 5]] == 7).all()
    optimizer.refresh()
    assert is_rounded(optimizer, w, "bfloat16")


def test_training_goes_on_from_where_it_was_saved(tmp_path: Path) -> None:
    w, path = np.ones(5, np.float32), tmp_path / "state.npz"
    first = Mirror(optimizers.Adam(0.1), "float16")
    first.step({"w": w}, {"w": w.copy()})
    first.save(path, {"w": w})
    other, v = Mirror(optimizers.Adam(0.1), "float16"), w.copy()
    other.load(path, {"w": v})
    again, u = copy.deepcopy((first, w))
    for optimizer, array in ((first, w), (other, v), (again, u)):
        optimizer.step({"w": array}, {"w": np.ones(5, np.float32)})
        assert is_rounded(optimizer, array, "float16")
    assert w.tobytes() == v.tobytes() == u.tobytes()
    config = first.get_config()
    assert Mirror.from_config(config).dtype == "float16"


def test_variables_of_other_dtypes_have_none() -> None:
    w, v = np.ones(3), np.ones(3, np.float32)
    optimizer = Mirror(optimizers.SGD(0.5))
    optimizer.apply_gradients([(w.copy(), w), (v.copy(), v)])
    assert is_rounded(optimizer, v, "bfloat16")
    with pytest.raises(InvalidTypeError, match="has no mirror: it is float64, not float32"):
        optimizer.mirror(w)


def test_what_cannot_be_mirrored_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match='dtype must be "bfloat16" or "float16", not'):
        Mirror(optimizers.SGD(0.5), "float32")
    with pytest.raises(InvalidArgumentError, match="cannot be mirrored"):
        Mirror(optimizers.Adam(0.5, sparse="catch_up"))
    optimizer = Mirror(optimizers.SGD(0.5))
    with pytest.raises(InvalidArgumentError, match="cannot be replaced"):
        optimizer.dtype = "float16"
    w = np.ones(3, np.float32)
    mirror = optimizer.mirror(w)
    with pytest.raises(InvalidArgumentError):
        optimizer.apply_gradients([(np.ones(4, np.float32), w)])
    assert (w == 1).all() and (mirror == 1).all()


ALTERED: dict[str, Callable[[np.ndarray], object]] = {
    "shape": lambda half: setattr(half, "shape", (2, 3)),
    "dtype": lambda half: setattr(half, "dtype", np.uint16),
    "read-only": lambda half: setattr(half.flags, "writeable", False),
}


@pytest.mark.parametrize("altered", ALTERED)
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_a_mirror_that_is_altered_between_steps_is_checked_again(
    altered: str, stepped: bool
) -> None:
    w, optimizer = np.ones(6, np.float32), Mirror(SGD(0.5))
    half = optimizer.mirror(w)
    for _ in range(2 if stepped else 0):
        optimizer.step(w, np.zeros(6, np.float32))
    ALTERED[altered](half)
    with pytest.raises(InvalidArgumentError):
        optimizer.step(w, np.ones(6, np.float32))
    assert (w == 1).all()
    assert (half.view(DTYPES["bfloat16"]) == 1).all()


def test_weights_are_not_overwritten_after_they_were_mirrored() -> None:
    for inner in (Mirror(SGD(0.5)), GradientAccumulation(Mirror(SGD(0.5)), steps=2)):
        with pytest.raises(InvalidArgumentError, match="put Mirror around WeightAverage"):
            WeightAverage(inner, overwrite_frequency=2)
        late = WeightAverage(inner)
        with pytest.raises(InvalidArgumentError, match="put Mirror around WeightAverage"):
            late.overwrite_frequency = 1
        assert late.overwrite_frequency is None
    for around in (Mirror, WeightAverage):
        inner = optimizers.Adam(0.5)
        late = around(inner)
        with pytest.raises(InvalidArgumentError, match="deferred updates"):
            late.sparse = "catch_up"
        assert inner.sparse == "tensorflow"
        inner.sparse, w = "catch_up", np.ones(3, np.float32)
        with pytest.raises(InvalidArgumentError, match="deferred updates"):
            late.apply_gradients([(np.ones(3, np.float32), w)])
        assert (w == 1).all() and int(late.iterations) == 0
    w = np.full(3, 1, np.float32)
    opt = Mirror(WeightAverage(SGD(0.5), momentum=0.5, overwrite_frequency=2))
    for _ in range(2):
        opt.apply_gradients([(np.ones(3, np.float32), w)])
    np.testing.assert_array_equal(opt.mirror(w).astype(np.float32), w)
