"""tfopt's optimizers in torch's place, with parameters on a GPU: the bits of those on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE, HostTorch, Torch

if DEVICE.name == "cupy":
    pytest.skip("the device is CuPy's", allow_module_level=True)
torch = pytest.importorskip("torch")

from tfopt.cuda import backend  # noqa: E402
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError  # noqa: E402
from tfopt.interop import torch as ours  # noqa: E402

TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}],
    "Adam": [{}, {"amsgrad": True}, {"betas": (0.3, 0.9)}, {"maximize": True, "weight_decay": 0.1}],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.1}],
    "Adamax": [{}],
    "Adagrad": [{"lr_decay": 0.1, "initial_accumulator_value": 0.1}],
    "Adadelta": [{}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.9}, {"momentum": 0.9, "centered": True}],
}
CASES = [(name, each) for name, options in OPTIONS.items() for each in options]
each = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
SHAPES = ((3,), (40, 2), (), (0, 3))


def test_every_class_is_tried() -> None:
    classes = {name for name in ours.__all__ if isinstance(getattr(ours, name), type)}
    assert set(OPTIONS) == classes - {"KernelOptimizer"}


def drawn(seed: int, dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(dtype) for shape in SHAPES]


def parameters(dtype: str, to: Any) -> list[Any]:
    return [torch.nn.Parameter(to(array)) for array in drawn(0, dtype)]


def on_host(array: np.ndarray) -> Any:
    return torch.from_numpy(array.copy())


def steps(opt: Any, listed: list[Any], to: Any, dtype: str, n: int = 4) -> None:
    for seed in range(1, n + 1):
        for parameter, grad in zip(listed, drawn(seed, dtype), strict=True):
            parameter.grad = to(grad)
        opt.step()


def back(tensor: Any) -> np.ndarray:
    return np.asarray(TORCH.back(tensor.detach()))


@each
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_are_the_hosts(
    name: str, options: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []
    check = backend.checked_updates
    monkeypatch.setattr(backend, "checked_updates", lambda *a: checks.append(0) or check(*a))
    here, far = parameters(dtype, on_host), parameters(dtype, TORCH.to)
    host, device = getattr(ours, name)(here, **options), getattr(ours, name)(far, **options)
    steps(host, here, on_host, dtype)
    steps(device, far, TORCH.to, dtype)
    for ours_, theirs in zip(far, here, strict=True):
        assert_same_bits(back(ours_), theirs.detach().numpy(), "parameter")
        for key, value in host.state[theirs].items():
            found = device.state[ours_][key]
            same = found if key == "step" else back(found)
            assert_same_bits(np.asarray(same), value.numpy(), key)
    assert len(checks) <= 2  # of the first step: one or two rules


def test_some_parameters_here_and_some_there() -> None:
    mixed = [torch.nn.Parameter(to(np.ones(3))) for to in (on_host, TORCH.to)]
    opt = ours.Adam(mixed, lr=0.1)
    for _ in range(3):
        for parameter, to in zip(mixed, (on_host, TORCH.to), strict=True):
            parameter.grad = to(np.full(3, 0.5))
        opt.step()
    assert_same_bits(back(mixed[1]), mixed[0].detach().numpy(), "parameter")


def test_a_parameter_that_does_not_fit_changes_nothing() -> None:
    here = torch.nn.Parameter(on_host(np.ones(3)))
    memory = TORCH.to(np.ones(6))
    far = torch.nn.Parameter(memory[::2])  # its elements are not adjacent
    opt = ours.Adam([here, far], lr=0.1)
    for parameter, to in ((here, on_host), (far, TORCH.to)):
        parameter.grad = to(np.ones(3))
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="contiguous"):
            opt.step()
    assert_same_bits(here.detach().numpy(), np.ones(3), "on the host")
    assert_same_bits(back(memory), np.ones(6), "on the device")
    assert [float(opt.state[each]["step"]) for each in (here, far)] == [0, 0]
    assert float(opt.state[here]["exp_avg"].abs().max()) == 0


def test_parameters_whose_memory_is_replaced() -> None:
    here, far = torch.nn.Parameter(on_host(np.ones(3))), torch.nn.Parameter(TORCH.to(np.ones(3)))
    for parameter, to in ((here, on_host), (far, TORCH.to)):
        opt = ours.Adam([parameter], lr=0.1)
        for k in range(4):
            if k == 2:
                parameter.data = to(np.full(3, 5.0))
            parameter.grad = to(np.ones(3))
            opt.step()
    assert_same_bits(back(far), here.detach().numpy(), "parameter")


def test_capturable_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="capturable must be False"):
        ours.Adam([torch.nn.Parameter(TORCH.to(np.ones(3)))], capturable=True)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # said once a process
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop", "Adadelta"])
def test_sparse_gradients(name: str) -> None:
    random = np.random.default_rng(0)
    table = random.standard_normal((6, 3))
    here, far = torch.nn.Parameter(on_host(table)), torch.nn.Parameter(TORCH.to(table))
    host, device = getattr(ours, name)([here], lr=0.1), getattr(ours, name)([far], lr=0.1)
    for _ in range(3):
        ids, values = random.integers(6, size=(1, 4)), random.standard_normal((4, 3))
        for parameter, to in ((here, on_host), (far, TORCH.to)):
            parts = to(ids), to(values)
            parameter.grad = torch.sparse_coo_tensor(*parts, (6, 3))
            if TORCH.on_host:  # where a sparse tensor's parts have torch's own class
                parameter.grad._indices, parameter.grad._values = (
                    partial(lambda part: part, part) for part in parts
                )
        host.step()
        device.step()
    assert_same_bits(back(far), here.detach().numpy(), "parameter")


def table_gradient(table: Any, ids: list[int]) -> None:
    parts = TORCH.to(np.array([ids])), TORCH.to(np.ones((len(ids), 3)))
    table.grad = torch.sparse_coo_tensor(*parts, (6, 3), check_invariants=False)
    if TORCH.on_host:
        table.grad._indices, table.grad._values = (
            partial(lambda part: part, part) for part in parts
        )


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("steps", [0, 3])
def test_an_index_out_of_range_changes_nothing(steps: int) -> None:
    """Neither in its own table, nor in others, nor in a whole parameter."""
    tables = [torch.nn.Parameter(TORCH.to(np.ones((6, 3)))) for _ in range(2)]
    whole = torch.nn.Parameter(TORCH.to(np.ones(4)))
    opt = ours.Adam([{"params": [whole, tables[0]]}, {"params": tables[1:]}], lr=0.1)
    held = [whole, *tables]

    def give(last: list[int]) -> None:
        whole.grad = TORCH.to(np.ones(4))
        table_gradient(tables[0], [1, 2])
        table_gradient(tables[1], last)

    for _ in range(steps):
        give([0, 5])
        opt.step()
    before = [back(each).copy() for each in held]
    give([0, 6])
    with pytest.raises(IndexOutOfRangeError, match=r"offset 1 .* \[0, 6\)"):
        opt.step()
    for each, old in zip(held, before, strict=True):
        assert_same_bits(back(each), old, "parameter")
        assert float(opt.state[each]["step"]) == steps
    give([0, 5])
    opt.step()
    assert all((back(each) != old).any() for each, old in zip(held, before, strict=True))
