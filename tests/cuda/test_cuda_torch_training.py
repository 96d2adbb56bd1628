"""Torch's uses of an optimizer, on tfopt's with parameters on a GPU: the host's bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from devices import DEVICE, HostTorch, Torch
from test_cuda_torch_optimizers import CASES, back, drawn, each, on_host, parameters

if DEVICE.name == "cupy":
    pytest.skip("the device is CuPy's", allow_module_level=True)
torch = pytest.importorskip("torch")

from tfopt.errors import InvalidArgumentError  # noqa: E402
from tfopt.interop import torch as ours  # noqa: E402

TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()


def give(listed: list[Any], to: Callable[[np.ndarray], Any], seed: int) -> None:
    for parameter, grad in zip(listed, drawn(seed, "float32"), strict=True):
        parameter.grad = to(grad)


def assert_same(optimizers: list[Any], sides: list[list[Any]]) -> None:
    """Compare parameters on the host and on the device, and their states."""
    for here, far in zip(*sides, strict=True):
        assert_same_bits(back(far), here.detach().numpy(), "parameter")
        host, device = optimizers[0].state[here], optimizers[1].state[far]
        assert host.keys() == device.keys()
        for key, value in host.items():
            found = device[key]
            same = found.numpy() if key == "step" else back(found)
            assert_same_bits(same, value.numpy(), key)


def both(name: str, **options: Any) -> tuple[list[list[Any]], list[Any]]:
    """Return parameters on the host and the same on the device, and an optimizer of each."""
    sides = [parameters("float32", to) for to in (on_host, TORCH.to)]
    return sides, [getattr(ours, name)(side, **options) for side in sides]


def run(optimizers: list[Any], sides: list[list[Any]], seeds: range) -> None:
    for seed in seeds:
        for optimizer, side, to in zip(optimizers, sides, (on_host, TORCH.to), strict=True):
            give(side, to, seed)
            optimizer.step()


# ---- states


@each
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_a_state_of_torchs_goes_there_and_back(
    name: str, options: dict[str, Any], fused: bool
) -> None:
    """Bits of torch's state are kept, and steps go on from it as on the host."""
    theirs = parameters("float32", on_host)
    rival = getattr(torch.optim, name)(theirs, **options)
    for seed in range(3):
        give(theirs, on_host, seed)
        rival.step()
    saved = copy.deepcopy(rival.state_dict())
    if fused and "fused" in saved["param_groups"][0]:
        saved["param_groups"][0]["fused"] = True  # then torch moves the step counts to the device
    sides, optimizers = both(name)
    for optimizer, side, to in zip(optimizers, sides, (on_host, TORCH.to), strict=True):
        with torch.no_grad():
            for parameter, other in zip(side, theirs, strict=True):
                parameter.copy_(to(other.detach().numpy()))
        optimizer.load_state_dict(copy.deepcopy(saved))
    returned = on_the_host(optimizers[1].state_dict(), expects_device=True)
    assert returned["param_groups"] == saved["param_groups"]
    for number, state in saved["state"].items():
        for key, value in state.items():
            if value is not None:
                assert_same_bits(returned["state"][number][key].numpy(), value.numpy(), key)
    run(optimizers, sides, range(3, 6))
    assert_same(optimizers, sides)
    copies = copy.deepcopy(theirs)
    again = getattr(torch.optim, name)(copies)
    returned["param_groups"][0]["fused"] = saved["param_groups"][0]["fused"] = None
    again.load_state_dict(returned)
    for optimizer, side in ((rival, theirs), (again, copies)):
        give(side, on_host, 3)
        optimizer.step()
    for theirs_, ours_ in zip(theirs, copies, strict=True):
        assert torch.equal(theirs_, ours_)


def on_the_host(saved: dict[str, Any], expects_device: bool) -> dict[str, Any]:
    """Return a copy of a state dictionary, with tensors on the host."""
    states = {}
    for number, state in saved["state"].items():
        states[number] = dict(state)
        for key, value in state.items():
            if value is not None and value.is_cuda:
                states[number][key] = torch.from_numpy(back(value).copy())
            else:
                assert value is None or key == "step" or not expects_device
    return {"state": states, "param_groups": copy.deepcopy(saved["param_groups"])}


def test_counts_that_are_on_the_device() -> None:
    """A state of torch's fused optimizer has them there; steps count on the host."""
    sides, optimizers = both("Adam", fused=True)
    run(optimizers, sides, range(2))
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    assert all(state["step"].is_cuda for state in optimizers[1].state.values())
    run(optimizers, sides, range(2, 4))
    assert_same(optimizers, sides)
    assert not any(state["step"].is_cuda for state in optimizers[1].state.values())


@pytest.mark.parametrize("setting", ["capturable", "differentiable"])
def test_a_state_with_a_setting_that_is_refused(setting: str) -> None:
    sides, optimizers = both("Adam")
    run(optimizers, sides, range(2))
    saved = optimizers[1].state_dict()
    saved["param_groups"][0][setting] = True
    saved["state"][0]["exp_avg"] = saved["state"][0]["exp_avg"] * 2
    with pytest.raises(InvalidArgumentError, match=f"{setting} must be False.* that is loaded"):
        optimizers[1].load_state_dict(saved)
    run(optimizers, sides, range(2, 4))
    assert_same(optimizers, sides)


# ---- gradient scalers


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("early", [False, True], ids=["in step", "unscale_"])
def test_a_gradient_scaler(name: str, early: bool) -> None:
    """It unscales, skips steps whose gradients are not finite, and its scale shrinks and grows."""
    sides, optimizers = both(name, lr=0.1, **({"fused": True} if name == "Adam" else {}))
    scales: list[list[float]] = [[], []]
    for k, (optimizer, side, to) in enumerate(
        zip(optimizers, sides, (on_host, TORCH.to), strict=True)
    ):
        where = "cpu" if k == 0 or TORCH.on_host else "cuda"
        scaler = torch.amp.GradScaler(where, 64.0, growth_interval=2)
        scaler.scale(torch.zeros((), device=where))  # which makes its scale
        for seed in range(6):
            give(side, to, seed)
            for parameter in side:
                parameter.grad *= scaler.get_scale()
            if seed in (1, 4):
                side[1].grad[3, 1] = float("nan" if seed == 1 else "inf")
            if early:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_value_(side, 0.5, foreach=False)
            scaler.step(optimizer)
            scaler.update()
            scales[k].append(scaler.get_scale())
    assert scales[0] == scales[1] == [64, 32, 32, 64, 32, 32]
    assert_same(optimizers, sides)
    assert [float(optimizers[1].state[each]["step"]) for each in sides[1]] == [4] * 4


# ---- loops


def test_groups_closures_flags_and_schedulers() -> None:
    sides = [parameters("float32", to) for to in (on_host, TORCH.to)]
    losses: list[list[float]] = [[], []]
    optimizers = []
    for k, (side, to) in enumerate(zip(sides, (on_host, TORCH.to), strict=True)):
        groups = [
            {"params": side[:1], "foreach": True},
            {"params": side[1:3], "lr": 0.5, "betas": (0.5, 0.9), "fused": True},
            {"params": side[3:], "foreach": False, "lr": torch.tensor(0.25)},
        ]
        optimizer = ours.AdamW(groups, lr=0.1, weight_decay=0.1)
        optimizers.append(optimizer)
        schedulers = [
            torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda t: 0.9**t] * 3),
            torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
        ]
        calls: list[str] = []
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        for seed in range(6):

            def closure(side: Any = side, to: Any = to, seed: int = seed, k: int = k) -> float:
                assert torch.is_grad_enabled()
                give(side, to, seed)
                return float(seed)

            optimizer.zero_grad(set_to_none=seed % 2 == 0)
            losses[k].append(optimizer.step(closure))
            schedulers[seed // 3].step()
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in side)
        assert calls == ["before", "after"] * 6
    assert losses[0] == losses[1] == [0, 1, 2, 3, 4, 5]
    assert_same(optimizers, sides)


def test_flags_that_torch_refuses() -> None:
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        ours.Adam(parameters("float32", TORCH.to), foreach=True, fused=True)


def test_gradients_that_are_zeroed_in_place() -> None:
    sides, optimizers = both("Adam", lr=0.1)
    for seed in range(3):
        run(optimizers, sides, range(seed, seed + 1))
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=False)
            optimizer.step()
    assert_same(optimizers, sides)


# ---- memory


def laid_out(array: np.ndarray, to: Callable[[np.ndarray], Any], order: list[int]) -> Any:
    """Return a tensor whose axes are in another order in memory."""
    back_again = [order.index(axis) for axis in range(len(order))]
    return to(np.ascontiguousarray(array.transpose(order))).permute(back_again)


@each
def test_parameters_with_channels_last(name: str, options: dict[str, Any]) -> None:
    """They take steps where they are, whatever the layout of gradients and of a loaded state."""
    random = np.random.default_rng(0)
    first = random.standard_normal((2, 3, 4, 5)).astype(np.float32)
    sides, optimizers = [], []
    for to in (on_host, TORCH.to):
        sides.append([torch.nn.Parameter(laid_out(first, to, [0, 2, 3, 1]))])
        optimizers.append(getattr(ours, name)(sides[-1], **options))
    strides = sides[1][0].stride()
    assert not sides[1][0].is_contiguous()
    orders = ([0, 2, 3, 1], [0, 1, 2, 3], [3, 2, 1, 0])
    for k, order in enumerate([*orders, orders[0]]):
        grad = random.standard_normal((2, 3, 4, 5)).astype(np.float32)
        for optimizer, side, to in zip(optimizers, sides, (on_host, TORCH.to), strict=True):
            side[0].grad = laid_out(grad, to, order)
            optimizer.step()
            if k == 1:
                saved = copy.deepcopy(optimizers[0].state_dict())
                for state in saved["state"].values():
                    for key in state.keys() - {"step"}:
                        state[key] = state[key].contiguous()
                optimizer.load_state_dict(saved)
    assert_same(optimizers, sides)
    assert sides[1][0].stride() == strides


def test_gradients_that_are_not_contiguous() -> None:
    sides, optimizers = both("Adam", lr=0.1)
    for seed in range(3):
        for optimizer, side, to in zip(optimizers, sides, (on_host, TORCH.to), strict=True):
            give(side, to, seed)
            side[0].grad = to(np.arange(6, dtype=np.float32))[::2]
            side[1].grad = to(np.ones((), np.float32)).expand(40, 2)
            optimizer.step()
    assert_same(optimizers, sides)


# ---- CUDA graphs


@pytest.mark.parametrize(
    ("name", "options"), [*CASES, ("Adagrad", {}), ("SGD", {"momentum": 0.9, "dampening": 0.5})]
)
def test_a_captured_step_must_not_depend_on_its_count(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides, optimizers = both(name, **options)
    run(optimizers, sides, range(2))
    give(sides[1], TORCH.to, 2)
    before = [back(each).copy() for each in sides[1]]
    constant = name in ("SGD", "Adadelta", "RMSprop") or (name == "Adagrad" and not options)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        if constant:
            optimizers[1].step()
        else:
            with pytest.raises(InvalidArgumentError, match=f"capture a step of {name}: .* count"):
                optimizers[1].step()
            for parameter, old in zip(sides[1], before, strict=True):
                assert_same_bits(back(parameter), old, "parameter")
    give(sides[0], on_host, 2)
    optimizers[0].step()
    if not constant:
        optimizers[1].step()
    assert_same(optimizers, sides)
