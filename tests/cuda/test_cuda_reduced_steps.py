"""Optimizers whose rules sum over rows or variables, on a GPU: what is special about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from common.optimizer_makers import BY_SUMS
from devices import DEVICE
from test_cuda_bound_steps import Checks
from test_cuda_optimizers import compared, each_dtype, there

import tfopt
from tfopt import IndexedSlices, Variable, optimizers
from tfopt.cuda.library import LibraryError

pytestmark = pytest.mark.usefixtures("gradual_underflow")

#: Those that need the dense gradient of some variables.
WHOLE = ("AdamMini", "LAMB", "LARS")
LIMITS: list[dict[str, Any]] = [
    {"clipvalue": 0.5},
    {"clipnorm": 0.5},
    {"global_clipnorm": 1.0},
    {"clipvalue": 1.0, "clipnorm": 0.5},
    {"global_clipnorm": 1.0, "merge": "before"},
]
#: An optimizer, what fails, and whether the gradient is of rows. Only some steps take memory.
FAILING = [
    (name, failure, sparse)
    for name in BY_SUMS
    for failure in ("take", "launch")
    for sparse in (False, True)
    if failure == "launch" or sparse or name in ("LAMB", "LARS")
]
each_optimizer = pytest.mark.parametrize("name", BY_SUMS)
each_whole = pytest.mark.parametrize("name", WHOLE)
only_here = pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")


def made(name: str, **arguments: Any) -> Any:
    return getattr(optimizers, name)(**{"learning_rate": 0.1} | arguments)


def rows(values: Any, indices: list[int], dtype: str = "float32") -> IndexedSlices:
    return IndexedSlices(array_of(np.array(values), dtype), np.array(indices, np.int64))


@each_dtype
@each_optimizer
@pytest.mark.parametrize("limits", LIMITS[:-1], ids=lambda limits: " ".join(limits))
def test_clipped_steps_are_the_hosts(name: str, limits: dict[str, Any], dtype: str) -> None:
    """Of dense gradients and of rows, of which some are made dense."""
    compared(lambda: made(name, **limits), dtype)


@each_optimizer
def test_weights_decay_as_on_the_host(name: str) -> None:
    def make_one() -> Any:
        optimizer = made(name, weight_decay=0.25)
        optimizer.exclude_from_weight_decay(var_names=["v1$", "v4$"])
        return optimizer

    host, device = make_one(), make_one()
    arrays = [np.linspace(-1, 1, n).astype("f4") for n in (3, 300, 4097)]
    arrays += [np.ones((5, 7), "f4"), np.ones((5, 7), "f4")]
    names = [f"v{k}" for k in range(len(arrays))]
    here = [Variable(array.copy(), name=name) for array, name in zip(arrays, names, strict=True)]
    moved = [Variable(there(array), name=name) for array, name in zip(arrays, names, strict=True)]
    for k in range(3):
        grads = [np.full_like(array, k + 0.5) for array in arrays]
        host.apply_gradients(zip(grads, here, strict=True))
        device.apply_gradients(zip(map(there, grads), moved, strict=True))
    for own, other in zip(here, moved, strict=True):
        assert_same_bits(DEVICE.back(other.value()), own.numpy(), own.name)


@each_whole
@each_dtype
@pytest.mark.parametrize("indices", [[], [4], [5, 0, 5, 5], [6, 5, 4, 3, 2, 1, 0, 3]], ids=str)
def test_gradients_of_rows_are_made_dense(name: str, dtype: str, indices: list[int]) -> None:
    random = np.random.default_rng(0)
    for inner in ((), (0,), (1,), (3, 2), (300,)):
        here = array_of(random.standard_normal((7, *inner)), dtype)
        host, device, moved = made(name), made(name), there(here)
        for _ in range(3):
            values = random.standard_normal((len(indices), *inner))
            grad = rows(values, indices, dtype)
            host.apply_gradients([(grad, here)])
            device.apply_gradients([(there(grad), moved)])
        assert_same_bits(DEVICE.back(moved), here, f"{name}, {inner}")
        for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
            assert_same_bits(ours, theirs, f"{name}, {inner}: state")


@each_whole
def test_rows_and_dense_gradients_in_turn(name: str) -> None:
    """Whichever comes first, and with variables on both."""
    given = [np.ones(5, "f4"), rows([2.0, 1.0, -3.0], [3, 0, 3]), np.full(5, -1, "f4")]
    host, device = made(name), made(name)
    here, other, own, moved = (np.linspace(1, 2, 5).astype("f4") for _ in range(4))
    moved = there(moved)
    for grad in (*given, *given[::-1]):
        host.apply_gradients([(grad, here), (np.ones(5, "f4"), other)])
        device.apply_gradients([(there(grad), moved), (np.ones(5, "f4"), own)])
    assert_same_bits(DEVICE.back(moved), here, "on the device")
    assert_same_bits(own, other, "on the host")


def test_a_vector_is_one_row_to_adam_mini() -> None:
    """A vector and a scalar, bound; one element is a row of its own for others."""
    for name in ("AdamMini", "RowwiseAdam"):
        host, device = made(name), made(name)
        arrays = [np.ones(5, "f4"), np.ones(1, "f4"), np.ones((1, 5), "f4"), np.ones((5, 1), "f4")]
        moved = [there(array) for array in arrays]
        for k in range(3):
            grads = [np.arange(k, k + a.size, dtype="f4").reshape(a.shape) for a in arrays]
            host.apply_gradients(zip(grads, arrays, strict=True))
            device.apply_gradients(zip(map(there, grads), moved, strict=True))
        for own, other in zip(arrays, moved, strict=True):
            assert_same_bits(DEVICE.back(other), own, f"{name} {own.shape}")


# ---- refusals and failures


def refused(optimizer: Any, pairs: list[Any], error: type[Exception], match: str) -> None:
    """The step is refused, and nothing has changed."""
    before = [DEVICE.back(var) for _, var in pairs]
    weights, count = optimizer.get_weights(), int(optimizer.iterations)
    with pytest.raises(error, match=match):
        optimizer.apply_gradients(pairs)
    for (_, var), old in zip(pairs, before, strict=True):
        assert_same_bits(DEVICE.back(var), old, "variable")
    for one, old in zip(optimizer.get_weights(), weights, strict=False):
        assert_same_bits(one, old, "state")
    assert int(optimizer.iterations) == count


@each_whole
def test_rows_that_cannot_be_made_dense(name: str) -> None:
    good = np.ones(7, "f4")
    for grad, error, match in [
        (rows([1.0, 2.0], [0, 7]), tfopt.IndexOutOfRangeError, "offset 1"),
        (rows([1.0, 2.0], [-1, 3]), tfopt.IndexOutOfRangeError, "offset 0"),
        (rows([[1.0], [2.0]], [0, 3]), tfopt.InvalidArgumentError, "shape|rank|dim"),
        (rows([1.0, 2.0], [0, 3], "float64"), tfopt.InvalidTypeError, "float32"),
        (IndexedSlices(good[:2], np.array([0.0, 1])), tfopt.InvalidTypeError, "int32 or int64"),
    ]:
        for steps in (0, 2):
            optimizer, variables = made(name), [there(good), there(good)]
            for _ in range(steps):
                optimizer.apply_gradients([(there(good), var) for var in variables])
            pairs = [(there(good), variables[0]), (there(grad), variables[1])]
            refused(optimizer, pairs, error, match)


@each_dtype
@pytest.mark.parametrize("name", [*BY_SUMS, "Adafactor"])
@pytest.mark.parametrize("limits", [{}, {"clipvalue": 0.5}, {"global_clipnorm": 1.0}], ids=str)
def test_scaled_steps_are_the_hosts(name: str, dtype: str, limits: dict[str, float]) -> None:
    """And with infinite gradients, dense ones or rows, there is none."""

    def make_one() -> Any:
        return optimizers.LossScaleOptimizer(made(name, **limits), 8.0, 2)

    compared(make_one, dtype, steps=4)
    optimizer, var = make_one(), there(array_of(np.ones(7), dtype))
    for bad in (np.inf, np.nan):
        for grad in (array_of(np.full(7, bad), dtype), rows([1.0, bad], [0, 3], dtype)):
            optimizer.apply_gradients([(there(grad), var)])
    assert (DEVICE.back(var) == 1).all() and int(optimizer.iterations) == 0


@each_whole
def test_rows_that_are_merged_before_they_are_clipped(name: str) -> None:
    optimizer = made(name, **LIMITS[-1])
    pairs = [(there(rows([1.0], [3])), there(np.ones(7, "f4")))]
    refused(optimizer, pairs, tfopt.InvalidTypeError, "cannot sum rows on a GPU")


@only_here
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize(("name", "failure", "sparse"), FAILING)
def test_a_failing_device(
    name: str, failure: str, steps: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory or launches nothing is written, whether the step is bound or not."""
    optimizer, var = made(name), there(np.ones(7, "f4"))
    grad: Any = rows([1.0, 2.0], [3, 3]) if sparse else np.arange(7, dtype="f4")
    for _ in range(steps):
        optimizer.apply_gradients([(there(grad), var)])
    with monkeypatch.context() as without:
        without.setenv("TFOPT_HOST_FAILS", failure)
        refused(optimizer, [(there(grad), var)], LibraryError, "CUDA: ")
    optimizer.apply_gradients([(there(grad), var)])
    assert int(optimizer.iterations) == steps + 1 and (DEVICE.back(var) != 1).any()


def test_rows_have_no_bound_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked each time, and dense gradients once."""
    checks = Checks(monkeypatch)
    optimizer, var = made("LAMB"), there(np.ones(7, "f4"))
    for _ in range(3):
        optimizer.apply_gradients([(there(np.ones(7, "f4")), var)])
    assert checks.n == 1
    for _ in range(3):
        optimizer.apply_gradients([(there(rows([1.0], [3])), var)])
    assert checks.n == 4
