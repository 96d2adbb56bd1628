"""Torch's optimizers against ours: their state in ours, and ours in their place.

Skipped where torch is not installed, unless TFOPT_REQUIRE_TORCH is set.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import pickle
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None and not os.environ.get("TFOPT_REQUIRE_TORCH"):
    pytest.skip("torch is not installed (TFOPT_REQUIRE_TORCH=1)", allow_module_level=True)

import torch

import tfopt.optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.interop import torch as ours

OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9},
    "SGD dampening": {"lr": 0.1, "momentum": 0.9, "dampening": 0.4},
    "SGD nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.1},
    "Adam amsgrad": {"lr": 0.1, "amsgrad": True, "betas": (0.8, 0.9)},
    "AdamW": {"lr": 0.1, "weight_decay": 0.0},
    "AdamW amsgrad": {"lr": 0.1, "weight_decay": 0.0, "amsgrad": True},
    "Adamax": {"lr": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1},
    "Adadelta": {"lr": 1.0},
    "RMSprop": {"lr": 0.1},
    "RMSprop centered": {"lr": 0.1, "centered": True},
    "RMSprop momentum": {"lr": 0.1, "momentum": 0.9, "eps": 1e-10},  # which is not ours exactly
    "RMSprop momentum centered": {"lr": 0.1, "momentum": 0.9, "eps": 1e-10, "centered": True},
}
each = pytest.mark.parametrize("which", OPTIONS)
#: Whose state our own optimizers take.
TAKEN = [which for which in OPTIONS if which not in ("SGD dampening", "AdamW amsgrad")]
#: Of the largest magnitude: eps, where it counts at another place, and rounding.
NEAR = {torch.float64: 1e-6, torch.float32: 2e-5}
SHAPES = ((3,), (4, 2), ())


def parameters(dtype: Any = torch.float64) -> list[Any]:
    random = np.random.default_rng(0)
    return [
        torch.nn.Parameter(torch.tensor(random.standard_normal(s), dtype=dtype)) for s in SHAPES
    ]


def give_grads(listed: list[Any], k: int) -> None:
    random = np.random.default_rng(k)
    for parameter in listed:
        grad = random.standard_normal(parameter.shape)
        parameter.grad = torch.tensor(grad, dtype=parameter.dtype)


def take_steps(optimizer: Any, listed: list[Any], steps: range) -> None:
    for k in steps:
        give_grads(listed, k)
        optimizer.step()


def made(library: Any, which: str, listed: list[Any], **more: Any) -> Any:
    return getattr(library, which.split(" ")[0])(listed, **{**OPTIONS[which], **more})


def assert_near(a: Any, b: Any, tolerance: float) -> None:
    x, y = np.asarray(a.detach()), np.asarray(b.detach())
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * max(1.0, np.abs(y).max(initial=0)))


# ---- torch's state in our optimizers


@pytest.mark.parametrize("which", TAKEN)
@pytest.mark.parametrize("steps", [0, 7])
def test_the_next_ten_steps_agree(which: str, steps: int) -> None:
    name = which.split(" ")[0]
    if not hasattr(tfopt.optimizers, name):
        name = "Adam"  # without weight decay AdamW is Adam
    theirs = parameters()
    optimizer = made(torch.optim, which, theirs)
    take_steps(optimizer, theirs, range(steps))
    variables = [p.detach().numpy().copy() for p in theirs]
    own = getattr(tfopt.optimizers, name)()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(own, torch.load(file), variables, step=steps)
    assert int(own.iterations) == steps
    for k in range(steps, steps + 10):
        give_grads(theirs, k)
        pairs = [(p.grad.numpy(), v) for p, v in zip(theirs, variables, strict=True)]
        own.apply_gradients(pairs)
        optimizer.step()
        for parameter, variable in zip(theirs, variables, strict=True):
            assert_near(torch.tensor(variable), parameter, 1e-6)


def test_what_has_no_counterpart() -> None:
    w = parameters()
    variables = [p.detach().numpy() for p in w]

    def refused(message: str, optimizer: Any, own: Any, given: Any = variables) -> None:
        before = copy.deepcopy(own.state_dict([]))
        with pytest.raises(InvalidArgumentError, match=message):
            ours.load_state_dict(own, optimizer.state_dict(), given)
        np.testing.assert_equal(own.state_dict([]), before)

    own = tfopt.optimizers.SGD()
    refused("dampening=0.5", torch.optim.SGD(w, momentum=0.9, dampening=0.5), own)
    refused("weight_decay=0.1", torch.optim.SGD(w, weight_decay=0.1), own)
    refused("maximize", torch.optim.SGD(w, maximize=True), own)
    groups = [{"params": w[:1]}, {"params": w[1:], "lr": 9.0}]
    refused("different settings", torch.optim.SGD(groups), own)
    refused("got 2 variables, but the torch state has 3", torch.optim.SGD(w), own, variables[:2])
    refused("torch has no counterpart of Ftrl", torch.optim.SGD(w), tfopt.optimizers.Ftrl())
    unequal = torch.optim.Adam(w)
    give_grads(w[:1], 0)
    unequal.step()
    give_grads(w, 0)
    unequal.step()
    refused(r"different numbers of steps: \[1, 2\]", unequal, tfopt.optimizers.Adam())
    stepped = torch.optim.Adam(w)
    take_steps(stepped, w, range(1))
    wrong = [np.ones(5), *variables[1:]]
    refused("cannot assign shape", stepped, tfopt.optimizers.Adam(), wrong)


def test_a_schedule_stays() -> None:
    own = tfopt.optimizers.SGD(schedule := lambda step: 0.5 / (1 + step))
    w = parameters()
    ours.load_state_dict(own, torch.optim.SGD(w, lr=7.0).state_dict(), parameters_as_arrays(w))
    assert own.learning_rate is schedule


def parameters_as_arrays(listed: list[Any]) -> list[np.ndarray]:
    return [p.detach().numpy() for p in listed]


# ---- our kernels in torch's place

MORE = [{}, {"weight_decay": 0.1}, {"maximize": True}, {"weight_decay": 0.1, "maximize": True}]


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("more", MORE, ids=str)
@each
def test_the_same_steps(which: str, more: dict[str, Any], dtype: Any) -> None:
    theirs, mine = parameters(dtype), parameters(dtype)
    optimizers = made(torch.optim, which, theirs, **more), made(ours, which, mine, **more)
    for k in range(10):
        for optimizer, listed in zip(optimizers, (theirs, mine), strict=True):
            take_steps(optimizer, listed, range(k, k + 1))
    for a, b in zip(mine, theirs, strict=True):
        assert_near(a, b, NEAR[dtype])


@each
@pytest.mark.parametrize("there", [True, False], ids=["to torch", "from torch"])
def test_states_move_both_ways(which: str, there: bool) -> None:
    first, second = (ours, torch.optim) if there else (torch.optim, ours)
    listed, others = parameters(), parameters()
    optimizer = made(first, which, listed)
    take_steps(optimizer, listed, range(5))
    other = made(second, which, others, lr=7.0)
    with torch.no_grad():
        for a, b in zip(others, listed, strict=True):
            a.copy_(b)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for optimizer_, own in ((optimizer, listed), (other, others)):
        take_steps(optimizer_, own, range(5, 10))
    for a, b in zip(others, listed, strict=True):
        assert_near(a, b, 1e-6)


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
def test_a_run_goes_on_bit_for_bit(how: str) -> None:
    listed = parameters()
    optimizer = ours.Adam(listed, lr=0.1)
    take_steps(optimizer, listed, range(5))
    if how == "state_dict":
        others = copy.deepcopy(listed)
        other = ours.Adam(others)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    elif how == "deepcopy":
        others, other = copy.deepcopy((listed, optimizer))
    else:
        others, other = pickle.loads(pickle.dumps((listed, optimizer)))
    for optimizer_, own in ((optimizer, listed), (other, others)):
        take_steps(optimizer_, own, range(5, 10))
    for a, b in zip(others, listed, strict=True):
        assert torch.equal(a, b)


def test_groups_closures_and_schedulers() -> None:
    models = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    x, y, losses = torch.ones(5, 3), torch.zeros(5, 2), []
    for model, library in zip(models, (torch.optim, ours), strict=True):
        groups = [
            {"params": [model.weight]},
            {"params": [model.bias], "lr": 0.5, "betas": (0.5, 0.9)},
        ]
        optimizer = library.Adam(groups, lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def closure(model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            return loss

        losses.append([])
        for _ in range(8):
            losses[-1].append(float(optimizer.step(closure).detach()))
            scheduler.step()
        optimizer.zero_grad()
        assert model.weight.grad is None
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)  # of float32
    for a, b in zip(models[1].parameters(), models[0].parameters(), strict=True):
        assert_near(a, b, 2e-5)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own, in its Adagrad
@pytest.mark.parametrize("which", ["Adam", "SGD", "Adagrad"])
def test_sparse_gradients(which: str) -> None:
    rival = {"Adam": torch.optim.SparseAdam}.get(which) or getattr(torch.optim, which)
    torch.manual_seed(0)
    tables = [torch.nn.Embedding(9, 3, sparse=True, dtype=torch.float64) for _ in range(2)]
    tables[1].load_state_dict(tables[0].state_dict())
    optimizers = (
        rival(tables[0].parameters(), lr=0.1),
        getattr(ours, which)(tables[1].parameters(), 0.1),
    )
    for k in range(6):
        ids = torch.tensor(np.random.default_rng(k).integers(9, size=5))
        for table, optimizer in zip(tables, optimizers, strict=True):
            optimizer.zero_grad()
            (table(ids) ** 2 + table(ids)).sum().backward()
            optimizer.step()
    assert_near(tables[1].weight, tables[0].weight, 1e-6)


def test_rows_go_up_too() -> None:
    tables = [torch.nn.Parameter(torch.ones(4, 2, dtype=torch.float64)) for _ in range(2)]
    optimizers = (
        torch.optim.SGD(tables[:1], 0.1, maximize=True),
        ours.SGD(tables[1:], 0.1, maximize=True),
    )
    for table, optimizer in zip(tables, optimizers, strict=True):
        table.grad = torch.sparse_coo_tensor(
            torch.tensor([[2, 0]]), torch.ones(2, 2, dtype=torch.float64), (4, 2)
        )
        optimizer.step()
    assert torch.equal(tables[1], tables[0]) and float(tables[1].detach()[2, 0]) > 1


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_a_gradient_scaler_unscales_before_a_step(name: str) -> None:
    w = torch.nn.Parameter(torch.ones(3))
    expected = torch.nn.Parameter(torch.ones(3))
    optimizer = getattr(ours, name)([w], lr=0.5, fused=True)
    plain = getattr(ours, name)([expected], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((w**2).sum()).backward()
    scaler.step(optimizer)
    (expected**2).sum().backward()
    plain.step()
    assert torch.equal(w, expected)


def test_they_are_torchs() -> None:
    w = torch.nn.Parameter(torch.ones(3))
    for name in ("SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "RMSprop"):
        mine, theirs = getattr(ours, name)([w]), getattr(torch.optim, name)([w])
        assert isinstance(mine, type(theirs)) and mine.defaults == theirs.defaults


def test_parameters_that_have_gradients_at_times() -> None:
    theirs, mine = parameters(), parameters()
    optimizers = torch.optim.Adam(theirs, 0.1), ours.Adam(mine, 0.1)
    for k in range(9):
        for optimizer, listed in zip(optimizers, (theirs, mine), strict=True):
            give_grads(listed, k)
            listed[k % 3].grad = None
            optimizer.step()
    for a, b in zip(mine, theirs, strict=True):
        assert_near(a, b, 1e-6)
    steps = [float(optimizers[1].state[parameter]["step"]) for parameter in mine]
    assert steps == [6, 6, 6]


def test_memory_that_is_replaced() -> None:
    theirs, mine = parameters(), parameters()
    optimizers = torch.optim.Adam(theirs, 0.1), ours.Adam(mine, 0.1)
    for k in range(4):
        for optimizer, listed in zip(optimizers, (theirs, mine), strict=True):
            take_steps(optimizer, listed, range(k, k + 1))
            listed[0].data = listed[0].data.clone()
    for a, b in zip(mine, theirs, strict=True):
        assert_near(a, b, 1e-6)


def test_strided_and_half_parameters() -> None:
    pytest.importorskip("ml_dtypes")
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    strided = torch.nn.Parameter(base.clone().t())
    half = torch.nn.Parameter(base.to(torch.bfloat16))
    plain = torch.nn.Parameter(base.clone().t().contiguous())
    for parameter in (strided, half, plain):
        parameter.grad = torch.ones_like(parameter)
    ours.Adam([strided, half, plain], lr=0.5).step()
    assert torch.equal(strided, plain)
    assert_near(half.float(), base - 0.5, 1e-2)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # said once a process
def test_refusals() -> None:
    w = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(InvalidArgumentError, match="capturable must be False"):
        ours.Adam([w], capturable=True)
    with pytest.raises(InvalidArgumentError, match="differentiable must be False"):
        ours.SGD([w], differentiable=True)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        ours.Adagrad([w], lr=-1.0)
    with pytest.raises(InvalidTypeError, match="on the CPU or on a GPU, not on meta"):
        ours.Adam([torch.nn.Parameter(torch.ones(3, device="meta"))])
    optimizer = ours.Adam([w])
    with pytest.raises(InvalidTypeError, match="on the CPU"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, device="meta"))]})
    assert len(optimizer.param_groups) == 1
    table = torch.nn.Parameter(torch.ones(3, 2))
    table.grad = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1), (3, 2))
    w.grad = torch.ones(3)
    both = ours.Adam([w, table])
    with pytest.raises(InvalidArgumentError, match="one sparse dimension, not 2"):
        both.step()
    table.grad = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 2), (3, 2))
    for optimizer, message in (
        (
            ours.Adam([w, table], weight_decay=0.1),
            "weight_decay cannot be added to a sparse gradient",
        ),
        (ours.RMSprop([w, table], momentum=0.1), "momentum does not support sparse gradients"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            optimizer.step()
    assert torch.equal(table, torch.ones(3, 2))
    assert torch.equal(w, torch.ones(3))
    assert ours.Adam([w]).step() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_gradients_that_share_another_memory(dtype: Any) -> None:
    """A conjugate is its tensor's memory with a note, and so is the imaginary part's negative."""
    both = [torch.nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(2)]
    for optimizers, parameter in zip((ours, torch.optim), both, strict=True):
        grad = torch.full((3,), 1 + 2j).conj()
        parameter.grad = grad if dtype.is_complex else grad.imag
        optimizers.SGD([parameter], lr=0.5).step()
    assert torch.equal(*both)


def test_a_state_that_is_replaced_is_the_one_that_counts() -> None:
    for change in (
        lambda state, parameter: state.clear(),
        lambda state, parameter: state[parameter].update(step=torch.tensor(9.0)),
        lambda state, parameter: state[parameter].update(exp_avg=torch.ones(3).double()),
    ):
        both = [torch.nn.Parameter(torch.zeros(3).double()) for _ in range(2)]
        own, theirs = ours.Adam(both[:1], lr=0.5), torch.optim.Adam(both[1:], lr=0.5)
        for _ in range(3):
            for optimizer, parameter in zip((own, theirs), both, strict=True):
                parameter.grad = torch.tensor([1.0, -2.0, 3.0]).double()
                optimizer.step()
                change(optimizer.state, parameter)
        assert torch.allclose(*both, rtol=1e-6, atol=0)
        assert own.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()


def test_autograd_tells_of_values_that_a_step_has_changed() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    loss = (parameter * parameter).sum()
    parameter.grad = torch.ones(3)
    ours.SGD([parameter], lr=0.5).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("more", MORE, ids=str)
@each
def test_complex_parameters(which: str, more: dict[str, Any], dtype: Any) -> None:
    """Whose parts have steps of their own, in torch and here; also after a change of hands."""
    ends: list[list[Any]] = []
    for package in (torch.optim, ours):
        random = torch.Generator().manual_seed(0)

        def drawn(*shape: int, random: Any = random) -> Any:
            return torch.randn(shape, dtype=dtype, generator=random)

        listed = [torch.nn.Parameter(drawn(3, 2)), torch.nn.Parameter(drawn(5, 4).t())]
        optimizer = made(package, which, listed, **more)
        for k in range(6):
            for parameter in listed:
                parameter.grad = drawn(*parameter.shape)
            if k == 3:
                other = made(ours if package is torch.optim else torch.optim, which, listed, **more)
                other.load_state_dict(optimizer.state_dict())
                optimizer = other
            optimizer.step()
        ends.append(listed)
    for a, b in zip(*ends, strict=True):
        parts = torch.view_as_real(a.detach()), torch.view_as_real(b.detach())
        assert_near(*parts, NEAR[parts[0].dtype])


def test_rows_of_complex_parameters() -> None:
    values = torch.tensor([[1 + 2j, 3j], [2 - 1j, 4]], dtype=torch.complex128)
    ends = []
    for dense in (False, True):
        table = torch.nn.Parameter(torch.ones(4, 2, dtype=torch.complex128))
        optimizer = ours.Adagrad([table], lr=0.5)
        for _ in range(2):
            grad = torch.sparse_coo_tensor([[2, 0]], values, (4, 2), check_invariants=True)
            table.grad = grad.to_dense() if dense else grad
            optimizer.step()
        ends.append(table.detach())
    assert torch.equal(*ends) and (ends[0][1] == 1).all() and (ends[0][2] != 1).all()


@pytest.mark.parametrize("which", ["Adam", "Adam amsgrad", "AdamW"])
@pytest.mark.parametrize("betas", [(0.0, 0.0), (0.9, 0.0), (0.0, 0.999), (0.25, 0.25)])
def test_means_that_forget_fast(which: str, betas: tuple[float, float]) -> None:
    """Of a gradient that is tiny after a large one, all digits count."""
    ends = []
    for package in (torch.optim, ours):
        listed = [torch.nn.Parameter(torch.zeros(4))]
        optimizer = made(package, which, listed, betas=betas)
        for grad in ([1.0, 1, 1, 1], [1e-9, 1e-5, 1e-3, 1], [1e-9, 1e-5, 1e-3, -1]):
            listed[0].grad = torch.tensor(grad)
            optimizer.step()
        ends.append(listed[0])
    assert_near(*ends, 2e-5)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3)])
def test_a_parameter_that_is_transposed_between_steps(shape: tuple[int, int]) -> None:
    """In its own memory."""
    ends = []
    for package in (torch.optim, ours):
        random = np.random.default_rng(0)
        listed = [torch.nn.Parameter(torch.tensor(random.standard_normal(shape)))]
        optimizer = package.SGD(listed, lr=0.1)
        for k in range(3):
            if k == 1:
                listed[0].data = listed[0].data.t()
            listed[0].grad = torch.tensor(random.standard_normal(tuple(listed[0].shape)))
            optimizer.step()
        ends.append(listed[0].detach())
    assert ends[0].shape == ends[1].shape == shape[::-1]
    assert_near(*ends, 1e-12)


def test_what_a_hook_puts_into_the_state_is_saved() -> None:
    for package in (torch.optim, ours):
        optimizer = package.Adam([torch.nn.Parameter(torch.zeros(1))])
        optimizer.register_state_dict_pre_hook(lambda own: own.state.__setitem__("run", 7))
        assert optimizer.state_dict()["state"]["run"] == 7
