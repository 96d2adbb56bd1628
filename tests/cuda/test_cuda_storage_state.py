"""Slots in fewer bits on a GPU: their state, what encodes them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.block_codes import BLOCKS, same
from common.optimizer_makers import MAKERS
from devices import DEVICE
from golden.bitsandbytes import SAME, SHAPES, state_of, variables
from test_cuda_optimizers import there
from test_cuda_storage import (
    BY_ELEMENTS,
    STORAGES,
    compared,
    each_storage,
    hostile,
    made,
    whole,
)

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.interop.bitsandbytes import load_state_dict, states
from tfopt.optimizers import Adagrad, Adam
from tfopt.storage import BLOCK, POSITIVE8, SIGNED8, quantize
from tfopt.training_ops import apply_momentum
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate

pytestmark = pytest.mark.usefixtures("gradual_underflow")


# ---- the state


@each_storage
def test_the_state_is_read_and_written(storage: str) -> None:
    here, draw = whole("float32")
    host, device, far = compared(lambda: Adam(0.1, storage=storage), here, draw)
    weights = device.get_weights()
    grads = draw(9)
    device.apply_gradients(zip(map(there, grads), far, strict=True))
    device.set_weights(weights)
    for ours, theirs in zip(device.get_weights(), weights, strict=True):
        assert same(ours, theirs)
    second, third = Adam(), Adam()
    second.load_state_dict(device.state_dict(far), far)
    third.load_state_dict(device.state_dict(far), here)  # to the host
    fourth = Adam()
    fourth.load_state_dict(host.state_dict(here), far)  # and from there
    for other in (second, third, fourth):
        assert other.storage == storage
        for ours, theirs in zip(other.get_weights(), weights, strict=True):
            assert same(ours, theirs)
    slot = second.get_slot(far[-1], "m")
    assert slot.device == "gpu" and slot.dtype == host.get_slot(here[-1], "m").dtype


@each_storage
def test_storage_is_converted(storage: str) -> None:
    here, draw = whole("float32")
    for first in STORAGES:
        host, device, far = compared(lambda: Adam(0.1, storage=first), [*here], draw, 1)  # noqa: B023
        host.convert_storage(storage)
        device.convert_storage(storage)
        for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
            assert ours.dtype == theirs.dtype and same(ours, theirs), first
        grads = draw(5)
        own = [DEVICE.back(var.value()) for var in far]
        moved = dict(zip(map(id, here), own, strict=True))
        for var in here:
            var[...] = moved[id(var)]
        host.apply_gradients(zip(grads, here, strict=True))
        device.apply_gradients(zip(map(there, grads), far, strict=True))
        for var, now in zip(here, far, strict=True):
            assert same(DEVICE.back(now.value()), var), first


@pytest.mark.parametrize("theirs", SAME)
def test_states_of_bitsandbytes(theirs: str) -> None:
    """From it to a GPU, from a GPU to it, and back, without a code that differs."""
    state, far = state_of(theirs), [there(np.ones(shape, np.float32)) for shape in SHAPES]
    own = {
        number: {k: v if k == "step" else there(np.asarray(v)) for k, v in part.items()}
        for number, part in state["state"].items()
    }
    for given in (state["state"], own):  # tensors on a GPU among them
        opt = getattr(tfopt.optimizers, SAME[theirs])(storage="dynamic8bit")
        load_state_dict(opt, {**state, "state": given}, far)
        for number, part in states(opt, far).items():
            for key, array in part.items():
                want = np.asarray(state["state"][number][key])
                if array is not part["step"]:
                    assert array.tobytes() == want.tobytes(), key
    host, here = getattr(tfopt.optimizers, SAME[theirs])(storage="dynamic8bit"), variables()
    load_state_dict(host, state, here)
    for _ in range(2):
        grads = [hostile("float32", shape, 3) for shape in SHAPES]
        host.apply_gradients(zip(grads, here, strict=True))
        opt.apply_gradients(zip(map(there, grads), far, strict=True))
    for var, now in zip(here, far, strict=True):
        assert same(DEVICE.back(now), var)


# ---- single steps


@pytest.mark.parametrize("dtype", BLOCKS, ids=lambda dtype: str(BLOCKS.index(dtype)))
def test_every_number_is_encoded_as_on_the_host(dtype: np.dtype[Any]) -> None:
    """All codes come up, and numbers at any distance from the largest of a block."""
    positive = dtype in BLOCKS[1::2]
    random = np.random.default_rng(0)
    shape = (300, BLOCK)
    values = 2.0 ** random.uniform(-30, 0, shape) * random.choice([-1, 1], shape)
    values[: shape[0] // 2] = random.uniform(-1, 1, (shape[0] // 2, BLOCK))
    values *= 2.0 ** random.uniform(-20, 20, (shape[0], 1))
    values = values.astype(np.float32).reshape(-1)
    rule = "keras_rms_prop" if positive else "keras_momentum"
    hypers = {"lr": 0.0, "rho": 0.0, "epsilon": 1.0} if positive else {"lr": -1.0, "momentum": 0.0}
    var, grad = np.zeros_like(values), values
    slot = quantize(np.zeros_like(values), dtype)
    far = [there(var), backend_of(there(var)).filled_like(there(var), slot)]
    step = RuleUpdate(rule, hypers, {"use_nesterov": False} if not positive else {}).step()
    step.dense(([var], [slot]), [grad])  # only checks it
    part = DenseBucket(([far[0]], [far[1]]), [0], [Variable(far[0])], None, True, False)
    backend = backend_of(far[0])
    backend.run_clipped(backend.checked_updates([part], [step], (there(grad),)))
    wanted = quantize(grad * grad if positive else grad, dtype)
    assert same(backend.to_host(far[1]), wanted)
    if dtype["codes"].shape[0] == BLOCK:
        assert len(np.unique(wanted["codes"])) >= 254


# ---- refusals


def refused(opt: Any, var: np.ndarray, grad: Any, error: type[Exception], match: str) -> None:
    far = Variable(there(var), name="v")
    with pytest.raises(error, match=match):
        opt.apply_gradients([(there(grad), far)])
    assert same(DEVICE.back(far.value()), var)
    assert int(opt.iterations) == 0 and len(opt.get_weights()) == 1


def test_what_is_refused_changes_nothing() -> None:
    table = np.ones((100, 70), np.float32)
    slices = IndexedSlices(np.ones((2, 70), np.float32), np.array([1, 3]))
    refused(Adam(storage="8bit"), table, slices, InvalidTypeError, "dense gradients")
    wide = table.astype(np.float64)
    refused(Adam(storage="8bit"), wide, wide, InvalidTypeError, "not float64")
    bad = {"storage": {"m": "8bit", "v": "nothing"}}
    with pytest.raises(InvalidArgumentError, match="must be one of"):
        Adam(**bad)
    refused(Adam(stochastic_rounding=1), table, table, InvalidTypeError, "would change nothing")
    half = table.astype(np.float16)
    refused(Adam(stochastic_rounding=1), half, half, InvalidTypeError, "is for bfloat16")
    refused(Adagrad(storage="8bit"), table, table, InvalidArgumentError, "8 bits")


@pytest.mark.parametrize("storage", STORAGES[1:])
@pytest.mark.parametrize("which", [name for name in MAKERS if name not in BY_ELEMENTS])
def test_rules_that_sum_need_slots_of_the_variables_dtype(which: str, storage: str) -> None:
    table = np.ones((100, 70), np.float32)
    slices = IndexedSlices(np.ones((2, 70), np.float32), np.array([1, 3]))
    for grad in (table, slices):
        try:  # some slots cannot be stored so anywhere
            made(which, storage=storage).apply_gradients([(grad, table.copy())])
        except (InvalidArgumentError, InvalidTypeError):
            continue
        message = "must be float32 as var is"
        refused(made(which, storage=storage), table, grad, InvalidTypeError, message)


def test_codes_that_a_rule_does_not_have_are_refused() -> None:
    var = there(np.ones(BLOCK, np.float32))
    slot = backend_of(var).filled_like(var, quantize(np.ones(BLOCK), POSITIVE8))
    with pytest.raises(InvalidTypeError, match="momentum has no steps on a GPU with accum stored"):
        apply_momentum(var, slot, var, lr=1.0, momentum=0.0)
    short = backend_of(var).filled_like(var, quantize(np.ones(BLOCK + 1), SIGNED8))
    with pytest.raises(InvalidArgumentError, match=r"accum must have the shape \[1\], a block"):
        apply_momentum(var, short, var, lr=1.0, momentum=0.0)
    assert (DEVICE.back(var) == 1).all()
