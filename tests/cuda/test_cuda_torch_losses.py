"""`minimize` of a loss that torch computes, of variables on the host and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE, HostTorch, Torch

import tfopt
from tfopt.optimizers import SGD, Adam, LossScaleOptimizer

if DEVICE.name == "cupy":
    pytest.skip("the device is CuPy's", allow_module_level=True)
torch = pytest.importorskip("torch")
TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()


def on_host(array: np.ndarray) -> Any:
    return torch.from_numpy(array.copy())


def back(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    return TORCH.back(tensor) if tensor.is_cuda else tensor.numpy()


@pytest.fixture(params=["host", "device"])
def to(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What puts an array where the variables are."""
    if request.param == "host":
        return on_host
    if TORCH.on_host:  # where torch's gradients have torch's own class
        grad = torch.autograd.grad

        def seen(*args: Any, **options: Any) -> list[Any]:
            found = grad(*args, **options)
            return [None if each is None else TORCH.seen(each) for each in found]

        monkeypatch.setattr(torch.autograd, "grad", seen)
    return TORCH.to


X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
Y = np.linspace(1, -1, 5, dtype=np.float32)


def squares(*tensors: Any) -> Any:
    return sum((each * each * 0.5).sum() for each in tensors)


def test_steps_are_those_of_the_gradients(to: Callable[[np.ndarray], Any]) -> None:
    x, y = torch.nn.Parameter(to(X)), to(Y).requires_grad_()
    opt, host, here = Adam(0.1, clipnorm=1.0), Adam(0.1, clipnorm=1.0), [X.copy(), Y.copy()]
    for k in range(3):
        count = opt.minimize(lambda: squares(x, y), iter([x, y]))
        assert count == k + 1
        host.apply_gradients([(each.copy(), each) for each in here])
    for tensor, array in zip((x, y), here, strict=True):
        assert_same_bits(back(tensor), array, "variable")
        assert tensor.requires_grad and tensor.grad is None
    assert len(opt.variables()) == len(host.variables())


def test_one_variable_and_a_function_of_variables(to: Callable[[np.ndarray], Any]) -> None:
    x = to(Y).requires_grad_()
    SGD(0.5).minimize(lambda: squares(x), x)
    SGD(0.5).minimize(squares(x), [x])  # a loss that has been computed
    SGD(0.5).minimize(lambda: squares(x), lambda: [x])
    assert_same_bits(back(x), Y * np.float32(0.125), "variable")


def test_a_variable_of_ours(to: Callable[[np.ndarray], Any]) -> None:
    x = to(Y).requires_grad_()
    if not x.is_cuda:
        with pytest.raises(tfopt.InvalidTypeError, match="pass its detach"):
            tfopt.Variable(x)
        return
    variable = tfopt.Variable(x, name="v")
    SGD(0.5).minimize(lambda: squares(x), [variable])
    assert_same_bits(back(x), Y * np.float32(0.5), "variable")


def test_a_pair_of_a_loss_and_its_gradients(to: Callable[[np.ndarray], Any]) -> None:
    x = to(Y).requires_grad_()

    def loss() -> Any:
        value = squares(x)
        return value, torch.autograd.grad(value, [x])

    SGD(0.5).minimize(loss, [x])
    assert_same_bits(back(x), Y * np.float32(0.5), "variable")


def test_an_upstream_gradient(to: Callable[[np.ndarray], Any]) -> None:
    x = to(Y).requires_grad_()
    SGD(1.0).minimize(lambda: x * 1, [x])  # ones, as of a tape
    assert_same_bits(back(x), Y - np.float32(1), "variable")
    SGD(1.0).minimize(lambda: x * 1, [x], Y)
    assert_same_bits(back(x), Y - np.float32(1) - Y, "variable")


def test_what_the_loss_does_not_depend_on(to: Callable[[np.ndarray], Any]) -> None:
    x, y = to(Y).requires_grad_(), to(Y).requires_grad_()
    with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
        SGD(0.5).minimize(lambda: squares(x), [x, y])
    assert_same_bits(back(x), Y * np.float32(0.5), "x")
    assert_same_bits(back(y), Y, "y")


def test_a_scaled_loss() -> None:
    """The gradients of the scaled loss overflow where they should, and the step is unscaled."""
    x = on_host(Y).requires_grad_()
    opt = LossScaleOptimizer(SGD(0.5), initial_scale=4.0)
    seen: list[float] = []
    x.register_hook(lambda grad: seen.append(float(grad[0])))
    opt.minimize(lambda: squares(x), [x])
    assert seen == [4 * float(Y[0])]
    assert_same_bits(back(x), Y * np.float32(0.5), "variable")


def test_rows_of_a_table() -> None:
    """Sparse gradients of an embedding, on the host."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(6, 2, sparse=True)
    before = back(table.weight).copy()
    opt = SGD(0.5)
    opt.minimize(lambda: table(torch.tensor([1, 4, 1])).sum(), table.parameters())
    expected = before.copy()
    expected[[1, 4]] -= np.float32([[1.0], [0.5]])
    np.testing.assert_allclose(back(table.weight), expected, rtol=1e-6)


def refusals(to: Callable[[np.ndarray], Any]) -> list[tuple[Any, type[Exception], str]]:
    x, constant = to(Y).requires_grad_(), to(Y)
    tape = tfopt.GradientTape()
    return [
        (lambda opt: opt.minimize(lambda: squares(x), [x, constant]), ValueError, "variable 1 req"),
        (lambda opt: opt.minimize(lambda: squares(constant), [x]), ValueError, "the loss requires"),
        (lambda opt: opt.minimize(lambda: squares(x), [x, Y]), TypeError, "variable 1 .*ndarray"),
        (
            lambda opt: opt.minimize(lambda: squares(x), [tfopt.Variable(Y)]),
            TypeError,
            "variable 0 must be one, too",
        ),
        (lambda opt: opt.minimize(lambda: back(x), [x]), ValueError, "must return a pair"),
        (lambda opt: opt.minimize(squares(x), [x], tape=tape), ValueError, "tape does not record"),
    ]


@pytest.mark.parametrize("k", range(6))
def test_refusals(k: int, to: Callable[[np.ndarray], Any]) -> None:
    opt = SGD(0.5, momentum=0.9)
    refused, kind, message = refusals(to)[k]
    with pytest.raises(kind, match=message) as caught:
        refused(opt)
    assert isinstance(caught.value, tfopt.InvalidArgumentError)
    assert opt.iterations == 0 and len(opt.variables()) == 1


def test_a_traced_function_cannot_contain_one() -> None:
    x = on_host(Y).requires_grad_()
    opt = SGD(0.5)
    traced = tfopt.function(lambda: opt.minimize(lambda: squares(x), [x]))
    with pytest.raises(tfopt.InvalidArgumentError, match="traced"):
        traced()
    assert_same_bits(back(x), Y, "variable")
