"""Torch's own table of optimizer configurations, run on torch's optimizers and on ours.

Torch installs the table that its generic tests of optimizers draw from: for each class every
option it is to be tried with, and arguments it has to refuse. Here each configuration takes steps
beside torch's class: with a learning rate that a schedule moves, with some gradients missing, with
parameter groups, from a state that torch's class has saved, and after copying and pickling.

Skipped where torch, or expecttest, which its table imports, is not installed, unless
TFOPT_REQUIRE_TORCH is set.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

if not os.environ.get("TFOPT_REQUIRE_TORCH"):
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")

import torch
from torch.testing._internal.common_optimizers import optim_db

from tfopt.interop import torch as ours

#: Options that name one of torch's own loops or compilers; ours is the only one there is here.
LOOPS = ("foreach", "fused", "capturable", "differentiable")
INFOS = {
    info.optim_cls.__name__: info for info in optim_db if hasattr(ours, info.optim_cls.__name__)
}
SHAPES = ((3, 2), (4,), ())
STEPS = 6


def _configurations() -> Iterator[Any]:
    for name, info in INFOS.items():
        for given in info.optim_inputs_func(device="cpu"):
            options = {key: value for key, value in given.kwargs.items() if key not in LOOPS}
            if any(option in given.kwargs for option in LOOPS) and not options:
                continue
            yield pytest.param(name, options, id=f"{name}-{given.desc.replace(' ', '_')}")


each = pytest.mark.parametrize(("name", "options"), list(_configurations()))


def parameters() -> list[Any]:
    made = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=made, dtype=torch.float64))
        for shape in SHAPES
    ]


def copied(options: dict[str, Any]) -> dict[str, Any]:
    """Return options whose tensors, such as a learning rate, are no other optimizer's."""
    return copy.deepcopy(options)


def take_steps(optimizer: Any, listed: list[Any], steps: range, scheduler: Any = None) -> None:
    for step in steps:
        made = torch.Generator().manual_seed(step + 1)
        for at, parameter in enumerate(listed):
            grad = torch.randn(parameter.shape, generator=made, dtype=parameter.dtype)
            parameter.grad = None if (step + at) % 4 == 3 else grad
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def assert_near(theirs: list[Any], own: list[Any]) -> None:
    for a, b in zip(own, theirs, strict=True):
        torch.testing.assert_close(a.data, b.data, rtol=1e-6, atol=1e-7)


def pair(name: str, options: dict[str, Any]) -> tuple[Any, list[Any], Any, list[Any]]:
    their_parameters, own_parameters = parameters(), parameters()
    theirs = INFOS[name].optim_cls(their_parameters, **copied(options))
    own = getattr(ours, name)(own_parameters, **copied(options))
    return theirs, their_parameters, own, own_parameters


@each
def test_steps(name: str, options: dict[str, Any]) -> None:
    theirs, their_parameters, own, own_parameters = pair(name, options)
    take_steps(theirs, their_parameters, range(STEPS))
    take_steps(own, own_parameters, range(STEPS))
    assert_near(their_parameters, own_parameters)


@each
def test_steps_of_a_schedule(name: str, options: dict[str, Any]) -> None:
    theirs, their_parameters, own, own_parameters = pair(name, options)
    for optimizer, listed in ((theirs, their_parameters), (own, own_parameters)):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        take_steps(optimizer, listed, range(STEPS), scheduler)
    assert_near(their_parameters, own_parameters)


@each
def test_groups(name: str, options: dict[str, Any]) -> None:
    their_parameters, own_parameters = parameters(), parameters()
    made = []
    for cls, listed in (
        (INFOS[name].optim_cls, their_parameters),
        (getattr(ours, name), own_parameters),
    ):
        groups = [{"params": listed[:1]}, {"params": listed[1:], "lr": 0.03}]
        made.append(cls(groups, **copied(options)))
    for optimizer, listed in zip(made, (their_parameters, own_parameters), strict=True):
        take_steps(optimizer, listed, range(STEPS))
    assert_near(their_parameters, own_parameters)


@each
def test_a_state_of_torch_goes_on_here_and_back(name: str, options: dict[str, Any]) -> None:
    theirs, their_parameters, own, own_parameters = pair(name, options)
    take_steps(theirs, their_parameters, range(STEPS))
    own.load_state_dict(copy.deepcopy(theirs.state_dict()))  # whose tensors torch shares
    for a, b in zip(own_parameters, their_parameters, strict=True):
        a.data.copy_(b.data)
    take_steps(theirs, their_parameters, range(STEPS, 2 * STEPS))
    take_steps(own, own_parameters, range(STEPS, 2 * STEPS))
    assert_near(their_parameters, own_parameters)
    theirs.load_state_dict(copy.deepcopy(own.state_dict()))
    take_steps(theirs, their_parameters, range(2 * STEPS, 3 * STEPS))
    take_steps(own, own_parameters, range(2 * STEPS, 3 * STEPS))
    assert_near(their_parameters, own_parameters)


@each
def test_copies(name: str, options: dict[str, Any]) -> None:
    _, _, own, own_parameters = pair(name, options)
    take_steps(own, own_parameters, range(STEPS))
    again = copy.deepcopy(own)
    loaded = pickle.loads(pickle.dumps(own))
    take_steps(own, own_parameters, range(STEPS, 2 * STEPS))
    for other in (again, loaded):
        listed = [p for group in other.param_groups for p in group["params"]]
        take_steps(other, listed, range(STEPS, 2 * STEPS))
        assert all(map(torch.equal, listed, own_parameters))


@pytest.mark.parametrize("name", INFOS)
def test_refusals(name: str) -> None:
    """What torch refuses in a constructor is refused here, in the same words."""
    tried = 0
    for error in INFOS[name].optim_error_inputs_func(device="cpu", dtype=torch.float64):
        if error.error_on.name != "CONSTRUCTION_ERROR":
            continue
        given = error.optimizer_error_input
        options = dict(given.kwargs)
        if any(option in options for option in LOOPS):
            continue
        with pytest.raises(error.error_type) as theirs:
            INFOS[name].optim_cls(given.params, **options)
        with pytest.raises(error.error_type) as refused:
            getattr(ours, name)(given.params, **options)
        assert str(refused.value) == str(theirs.value)
        tried += 1
    assert tried > 0
