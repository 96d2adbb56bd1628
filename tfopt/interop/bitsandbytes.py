"""Load and save the states of bitsandbytes' 8-bit optimizers, without importing either library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.interop.building import fresh
from tfopt.interop.torch_states import Group, one_group, step_count
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.hyperparameters import is_live
from tfopt.optimizers.state.key_paths import named
from tfopt.optimizers.state.restoration import host_array
from tfopt.optimizers.state.slot_storage import check_blocks, converted
from tfopt.storage import BLOCK, DYNAMIC8, POSITIVE_DYNAMIC8, dynamic_map, shape_in
from tfopt.variable import Variable

__all__ = ["load_state_dict", "states"]

#: Where optimizers put their quantized state when parameters are sharded.
_WRAPPED = "__bnb_optimizer_quant_state__"


class _Mapping(NamedTuple):
    """How a parameter group maps to the settings and slots of our optimizer."""

    settings: Callable[[Group], dict[str, Any]]
    slots: tuple[str, ...]  # ours, of state1 and state2
    factor: Callable[[Group], float] | None = None  # for their numbers, which then change
    decays: bool = False  # the weights, apart from the gradient


def _betas(group: Group) -> dict[str, Any]:
    return {"beta_1": group["betas"][0], "beta_2": group["betas"][1]}


_MAPPINGS = {
    "Adam": _Mapping(lambda group: {**_betas(group), "epsilon": group["eps"]}, ("m", "v")),
    "Lion": _Mapping(_betas, ("m",), decays=True),
    "SGD": _Mapping(
        lambda group: {"momentum": group["betas"][0], "nesterov": False},
        ("momentum",),
        lambda group: -float(group["lr"]),
    ),
    "RMSprop": _Mapping(
        lambda group: {"rho": group["betas"][0], "momentum": 0.0, "epsilon": group["eps"]},
        ("rms",),
        lambda group: 1.0,  # theirs is of either sign
    ),
}
_MAPPINGS["AdamW"] = _MAPPINGS["Adam"]._replace(decays=True)


def load_state_dict(optimizer: RuleOptimizer, state: Mapping[str, Any], variables: Any) -> None:
    """Load the ``state_dict()`` of a bitsandbytes optimizer into an optimizer.

    Parameters
    ----------
    optimizer : Adam, AdamW, Lion, SGD or RMSprop
        It may be new. Its hyperparameters are set to those of the state, except a learning rate
        that is a function. With ``storage="dynamic8bit"`` Adam, AdamW and Lion take the codes as
        they are; with another storage, and in SGD and RMSprop, the numbers are stored anew.
    state : dict
        As returned by ``state_dict()`` of Adam8bit, AdamW8bit, Lion8bit, SGD8bit or RMSprop8bit, or
        of their 32-bit counterparts.
    variables : list of variables, nested or not
        In the order and with the shapes of the parameters.

    Raises
    ------
    InvalidArgumentError
        If a setting has no counterpart, parameters have taken different numbers of steps, or the
        state is damaged or does not match the variables. Nothing has changed.
    """
    mapping = _mapping_of(optimizer)
    group, numbers = one_group(state["param_groups"])
    settings = {**mapping.settings(group), **_decay(optimizer, mapping, group)}
    if not is_live(optimizer.learning_rate):
        settings["learning_rate"] = float(group["lr"])
    like, names = fresh(optimizer, variables, **settings)
    if len(names) != len(numbers):
        raise InvalidArgumentError(
            f"got {len(names)} variables, but the state has {len(numbers)} parameters"
        )
    parts = [_unwrapped(state["state"].get(number, {})) for number in numbers]
    like.iterations.assign(step_count(parts))
    for (name, variable), part in zip(names.items(), parts, strict=True):
        for place, ours in enumerate(mapping.slots, 1):
            if f"state{place}" in part:
                theirs = _loaded(f"{name}/{ours}", part, place, variable.shape)
                if mapping.factor is not None:
                    theirs = converted(theirs, np.dtype(np.float32), variable.shape)
                    theirs = theirs * np.float32(mapping.factor(group))
                slot = like.get_slot(variable, ours)
                same = theirs.dtype == slot.dtype
                slot.assign(theirs if same else converted(theirs, slot.dtype, variable.shape))
    optimizer.load_state_dict(like.state_dict(variables), variables)


def states(optimizer: RuleOptimizer, variables: Any) -> dict[int, dict[str, Any]]:
    """Return the ``"state"`` of a ``state_dict()`` of bitsandbytes' optimizer of the same name.

    Parameters
    ----------
    optimizer : Adam, AdamW or Lion
        With ``storage="dynamic8bit"``.
    variables : list of variables, nested or not
        All that the optimizer has stepped.

    Returns
    -------
    dict
        By position of the variable: the step count, and for each slot ``state1``, the codes in the
        variable's shape, ``qmap1``, what they stand for, and ``absmax1``; of small variables
        ``state1`` alone, in float32. Arrays are NumPy's: bitsandbytes needs them as tensors.

    Raises
    ------
    InvalidArgumentError
        If bitsandbytes has no optimizer with these slots, or a slot is stored otherwise.
    """
    mapping = _mapping_of(optimizer)
    if mapping.factor is not None:
        raise InvalidArgumentError(f"{type(optimizer).__name__}'s slots differ from bitsandbytes'")
    steps = int(optimizer.iterations)
    return {
        number: {"step": steps} | _saved(optimizer, mapping, variable)
        for number, variable in enumerate(named(variables).values())
    }


def _saved(optimizer: RuleOptimizer, mapping: _Mapping, variable: Variable) -> dict[str, Any]:
    saved: dict[str, Any] = {}
    for place, ours in enumerate(mapping.slots, 1):
        array = host_array(optimizer.get_slot(variable, ours))
        if array.dtype == np.float32:
            saved[f"state{place}"] = array.copy()
            continue
        if array.dtype not in (DYNAMIC8, POSITIVE_DYNAMIC8):
            raise InvalidArgumentError(
                f"the slot {ours} of {variable.name} is not stored in bitsandbytes' codes: call "
                'convert_storage("dynamic8bit") first'
            )
        size = math.prod(variable.shape)
        assert array.dtype.names
        codes = array["codes"].reshape(-1)[:size].reshape(variable.shape)
        saved |= {
            f"state{place}": codes.copy(),
            f"qmap{place}": dynamic_map(array.dtype),
            f"absmax{place}": array[array.dtype.names[0]].copy(),
        }
    return saved


def _mapping_of(optimizer: RuleOptimizer) -> _Mapping:
    name = type(optimizer).__name__
    if name not in _MAPPINGS:
        raise InvalidArgumentError(f"bitsandbytes has no counterpart of {name}")
    return _MAPPINGS[name]


def _decay(optimizer: Any, mapping: _Mapping, group: Group) -> dict[str, Any]:
    decay = group.get("weight_decay", 0)
    if mapping.decays:
        return {"weight_decay": decay}
    if decay:
        raise InvalidArgumentError(
            f"weight_decay={decay} has no counterpart in {type(optimizer).__name__}"
        )
    return {}


def _unwrapped(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, **part.get(_WRAPPED, {})}


def _host(array: Any) -> np.ndarray:
    """Return an array, or a tensor of a state on a GPU, as an array on the host."""
    return backend_of(array).to_host(array) if is_device_array(array) else np.asarray(array)


def _loaded(name: str, part: dict[str, Any], place: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a state, as blocks if they are quantized."""
    array = _host(part[f"state{place}"])
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape {shape}, not {array.shape}")
    if f"qmap{place}" not in part:
        return array.astype(np.float32)
    table, absmax = (_host(part[f"{key}{place}"]) for key in ("qmap", "absmax"))
    dtype = DYNAMIC8 if table.size and table[0] < 0 else POSITIVE_DYNAMIC8
    own = dynamic_map(dtype)
    if array.dtype != np.uint8:
        raise InvalidTypeError(f"{name} must have dtype uint8, not {array.dtype}")
    if table.shape != own.shape or not np.allclose(table, own, 1e-6, 0):
        raise InvalidArgumentError(f"{name} is quantized by another table than the dynamic one")
    blocks = np.zeros(shape_in(dtype, shape), dtype)
    if absmax.shape != blocks.shape:
        raise InvalidArgumentError(
            f"{name} must have {blocks.size} absmax, one for each {BLOCK} numbers, "
            f"not {absmax.shape}"
        )
    codes = np.full(blocks.size * BLOCK, own.tolist().index(0), np.uint8)
    codes[: array.size] = array.reshape(-1)
    assert dtype.names
    blocks[dtype.names[0]], blocks["codes"] = absmax, codes.reshape(-1, BLOCK)
    check_blocks(name, blocks)
    return blocks
