"""Tensors of torch as variables and gradients: how an optimizer reads and reports them."""

from __future__ import annotations

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE, HostTorch, Torch

import tfopt

pytestmark = pytest.mark.usefixtures("gradual_underflow")

if DEVICE.name == "cupy":
    pytest.skip("the device is CuPy's", allow_module_level=True)
pytest.importorskip("torch")
TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_state_is_set_and_steps_go_on(dtype: str) -> None:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    here = np.linspace(-1, 1, 50).astype(dtype)
    variable, other = TORCH.to(here), TORCH.to(here)
    host, first, second = (tfopt.optimizers.Adam(0.1, clipnorm=1.0) for _ in range(3))
    grad = np.linspace(-2, 1, 50).astype(dtype)
    host.apply_gradients([(grad, here)])
    first.apply_gradients([(TORCH.to(grad), variable)])
    second.apply_gradients([(TORCH.to(-grad), other)])  # makes the slots
    second.set_weights(first.get_weights())
    other.copy_(variable)
    for _ in range(2):
        host.apply_gradients([(grad, here)])
        second.apply_gradients([(TORCH.to(grad), other)])
    assert_same_bits(TORCH.back(other), here, "after set_weights")


def test_parameters_that_require_gradients() -> None:
    parameter = TORCH.to(np.ones(3)).requires_grad_()
    here = np.ones(3)
    opt, host = tfopt.optimizers.SGD(0.1, momentum=0.9), tfopt.optimizers.SGD(0.1, momentum=0.9)
    for k in range(3):
        opt.apply_gradients([(TORCH.to(np.full(3, float(k))), parameter)])
        host.apply_gradients([(np.full(3, float(k)), here)])
    assert_same_bits(TORCH.back(parameter.detach()), here, "parameter")


def test_dtypes_are_named_as_numpys() -> None:
    variable = tfopt.Variable(TORCH.to(np.ones(3, np.float32)), name="v")
    assert variable.dtype == np.float32 and "dtype=float32" in repr(variable)
    mirror = tfopt.optimizers.Mirror(tfopt.optimizers.Adam()).mirror
    for refuse in (
        lambda: variable.assign(np.ones(3, complex)),
        lambda: tfopt.optimizers.Adam().apply_gradients([(TORCH.to(np.ones(3)), variable)]),
        lambda: mirror(TORCH.to(np.ones(3))),
    ):
        with pytest.raises(tfopt.InvalidArgumentError) as caught:
            refuse()
        assert "torch." not in str(caught.value)


def test_a_dtype_that_numpy_does_not_have() -> None:
    import torch

    tensor = TORCH.to(np.ones(3, np.float32)).to(torch.float8_e5m2)
    with pytest.raises(tfopt.InvalidTypeError, match="float8_e5m2"):
        tfopt.optimizers.SGD(0.1).apply_gradients([(tensor, tensor)])


@pytest.mark.parametrize("interface", [RuntimeError, KeyError, None], ids=str)
def test_an_older_torch(interface: type[Exception] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps work where torch has no exchange functions, and the interface cannot be asked for."""
    kind = type(TORCH.to(np.ones(1)))
    monkeypatch.setattr(kind, "__dlpack_c_exchange_api__", None, raising=False)
    if interface is not None:

        def refused(_: object) -> None:
            raise interface

        monkeypatch.setattr(kind, "__cuda_array_interface__", property(refused))
    parameter, here = TORCH.to(np.ones(3)).requires_grad_(), np.ones(3)
    opt, host = tfopt.optimizers.Adam(0.1, clipnorm=1.0), tfopt.optimizers.Adam(0.1, clipnorm=1.0)
    for k in range(3):
        opt.apply_gradients([(TORCH.to(np.full(3, float(k))), parameter)])
        host.apply_gradients([(np.full(3, float(k)), here)])
    assert_same_bits(TORCH.back(parameter.detach()), here, "parameter")
