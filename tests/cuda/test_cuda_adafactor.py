"""Adafactor on a GPU: the host's bits, whose means are NumPy's, of arrays of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from devices import DEVICE
from test_cuda_optimizers import each_dtype, there
from test_cuda_reduced_steps import refused, rows

import tfopt
from tfopt import Variable
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import Adafactor

pytestmark = pytest.mark.usefixtures("gradual_underflow")

SHAPES: list[tuple[int, ...]] = [
    (), (1,), (0,), (5,), (257,), (70_001,),
    (1, 1), (7, 1), (300, 1), (1, 300), (3, 7), (3, 8), (3, 127), (3, 128), (3, 129), (5, 136),
    (5, 1000), (200, 5), (1025, 3), (2, 66_000), (0, 3), (3, 0),
    (2, 3, 4), (3, 300, 1), (2, 9, 130), (2, 2, 5, 7), (1, 2, 1, 3),
]  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return array_of(np.asarray(random.standard_normal(shape)), dtype)


def compared(dtype: str, shapes: list[tuple[int, ...]] = SHAPES, **arguments: Any) -> None:
    """Take steps here and there; compare variables and states."""
    host, device = Adafactor(0.1, **arguments), Adafactor(0.1, **arguments)
    here = [drawn(shape, dtype, 0) for shape in shapes]
    moved = [there(array) for array in here]
    for seed in range(1, 4):
        grads = [drawn(shape, dtype, seed) for shape in shapes]
        host.apply_gradients(zip(grads, here, strict=True))
        device.apply_gradients(zip(map(there, grads), moved, strict=True))
    for shape, own, other in zip(shapes, here, moved, strict=True):
        assert_same_bits(DEVICE.back(other), own, f"{shape}")
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, f"state {ours.shape}")


@each_dtype
def test_steps_are_the_hosts(dtype: str) -> None:
    compared(dtype)


@pytest.mark.parametrize(
    "arguments",
    [
        {"weight_decay": 0.25}, {"relative_step": False}, {"clip_threshold": 0.01},
        {"epsilon_2": 10.0}, {"beta_2_decay": 0.0}, {"epsilon_1": 1e-3},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_settings(dtype: str, arguments: dict[str, Any]) -> None:
    compared(dtype, [(5,), (300, 7)], **arguments)


@each_dtype
@pytest.mark.parametrize(
    "limits",
    [{"clipvalue": 0.5}, {"clipnorm": 0.5}, {"global_clipnorm": 1.0}],
    ids=lambda limits: " ".join(limits),
)
def test_clipped_steps(dtype: str, limits: dict[str, float]) -> None:
    compared(dtype, [(), (5,), (30, 7)], **limits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -0.0, 1e-30, 1e30, 1e-44])
def test_what_is_not_ordinary(dtype: str, value: float) -> None:
    """In one place of a gradient, or in all."""
    for everywhere in (False, True):
        for shape in ((9,), (5, 9)):
            here = np.ones(shape, dtype)
            host, device, moved = Adafactor(0.1), Adafactor(0.1), there(here)
            for k in range(3):
                grad = np.full(shape, value if everywhere else 1 + k, dtype)
                grad[..., 2] = value
                with np.errstate(all="ignore"):
                    host.apply_gradients([(grad, here)])
                device.apply_gradients([(there(grad), moved)])
            assert_same_bits(DEVICE.back(moved), here, f"{value} {shape}")
            for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
                assert_same_bits(ours, theirs, "state")


@pytest.mark.parametrize("grad_dtype", ["float16", "bfloat16"])
def test_narrow_gradients(grad_dtype: str) -> None:
    for shape in ((5,), (30, 7)):
        here, grad = np.ones(shape, "f4"), drawn(shape, grad_dtype, 1)
        moved = there(here)
        Adafactor(0.1).apply_gradients([(grad, here)])
        Adafactor(0.1).apply_gradients([(there(grad), moved)])
        assert_same_bits(DEVICE.back(moved), here, f"{shape}")


@each_dtype
@pytest.mark.parametrize("indices", [[], [5, 0, 5, 5]], ids=str)
def test_gradients_of_rows_are_made_dense(dtype: str, indices: list[int]) -> None:
    for inner in ((), (3,), (0,), (4, 5)):
        here = drawn((7, *inner), dtype, 0)
        host, device, moved = Adafactor(0.1), Adafactor(0.1), there(here)
        for seed in range(1, 3):
            grad = rows(drawn((len(indices), *inner), "float64", seed), indices, dtype)
            host.apply_gradients([(grad, here)])
            device.apply_gradients([(there(grad), moved)])
        assert_same_bits(DEVICE.back(moved), here, f"{inner}")


# ---- refusals and failures


@pytest.mark.parametrize("steps", [0, 2])
def test_gradients_that_do_not_fit(steps: int) -> None:
    good = np.ones((3, 4), "f4")
    for grad, error, match in [
        (there(np.ones((4, 3), "f4")), tfopt.InvalidArgumentError, "shape"),
        (there(np.ones((3, 4))), tfopt.InvalidTypeError, "float32"),
        (np.ones((3, 4), "f4"), tfopt.InvalidTypeError, "on the GPU, like var"),
        (there(rows(np.ones((2, 4)), [0, 3])), tfopt.IndexOutOfRangeError, "offset 1"),
        (there(rows(np.ones((2, 3)), [0, 1])), tfopt.InvalidArgumentError, "shape|dimension"),
    ]:
        optimizer, variables = Adafactor(), [there(good), there(good)]
        for _ in range(steps):
            optimizer.apply_gradients([(there(good), var) for var in variables])
        pairs = [(there(good), variables[0]), (grad, variables[1])]
        refused(optimizer, pairs, error, match)


def test_what_a_step_on_a_gpu_does_not_do() -> None:
    var = Variable(there(np.ones(3, "f4")), name="v")
    own, optimizer = np.ones(3, "f4"), Adafactor()
    with pytest.raises(tfopt.InvalidTypeError, match="needs all variables on one device"):
        optimizer.apply_gradients([(there(np.ones(3, "f4")), var), (np.ones(3, "f4"), own)])

    class Mine(Adafactor):
        def _resource_apply_dense(self, *_: Any) -> None:
            raise AssertionError

    with pytest.raises(tfopt.InvalidTypeError, match="v is on a GPU, which Mine does not support"):
        Mine().apply_gradients([(there(np.ones(3, "f4")), var)])
    assert (DEVICE.back(var.value()) == 1).all() and (own == 1).all()
    assert int(optimizer.iterations) == 0


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
@pytest.mark.parametrize("failure", ["take", "launch"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_failing_device(failure: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer, var = Adafactor(0.1), there(np.ones(7, "f4"))
    grad: Any = rows([1.0, 2.0], [3, 4]) if sparse else np.arange(7, dtype="f4")
    for steps in range(2):
        with monkeypatch.context() as without:
            without.setenv("TFOPT_HOST_FAILS", failure)
            refused(optimizer, [(there(grad), var)], LibraryError, "CUDA: ")
        optimizer.apply_gradients([(there(grad), var)])
        assert int(optimizer.iterations) == steps + 1


def test_constraints() -> None:
    var = Variable(there(np.ones(2)), constraint=lambda _: there(np.array([7.0, 8.0])))
    Adafactor().apply_gradients([(there(np.ones(2)), var)])
    assert DEVICE.back(var.value()).tolist() == [7, 8]
