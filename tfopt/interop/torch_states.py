"""Load the state of torch optimizers, without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.interop.building import fresh
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.hyperparameters import is_live

__all__ = ["load_state_dict"]

Group = Mapping[str, Any]


class _Mapping(NamedTuple):
    """How a torch parameter group maps to the settings and slots of our optimizer."""

    settings: Callable[[Group], dict[str, Any]]
    slots: dict[str, str]  # ours: theirs
    factors: Callable[[Group], dict[str, float]] = lambda group: {}  # for our slots


def _sgd(group: Group) -> dict[str, Any]:
    return {"momentum": group["momentum"], "nesterov": group["nesterov"]}


def _betas(group: Group) -> dict[str, Any]:
    return {"beta_1": group["betas"][0], "beta_2": group["betas"][1], "epsilon": group["eps"]}


def _rmsprop(group: Group) -> dict[str, Any]:
    inside = group["momentum"] > 0  # then our rule adds epsilon inside the square root
    return {
        "rho": group["alpha"],
        "momentum": group["momentum"],
        "centered": group["centered"],
        "epsilon": group["eps"] ** 2 if inside else group["eps"],
    }


_MAPPINGS = {
    "SGD": _Mapping(
        _sgd, {"momentum": "momentum_buffer"}, lambda group: {"momentum": -float(group["lr"])}
    ),
    "Adam": _Mapping(
        lambda group: {**_betas(group), "amsgrad": group["amsgrad"]},
        {"m": "exp_avg", "v": "exp_avg_sq", "vhat": "max_exp_avg_sq"},
    ),
    "Adamax": _Mapping(_betas, {"m": "exp_avg", "v": "exp_inf"}),
    "Adagrad": _Mapping(
        lambda group: {"epsilon": group["eps"], "decay": group["lr_decay"]}, {"accumulator": "sum"}
    ),
    "Adadelta": _Mapping(
        lambda group: {"rho": group["rho"], "epsilon": group["eps"]},
        {"accum_grad": "square_avg", "accum_var": "acc_delta"},
    ),
    "RMSprop": _Mapping(
        _rmsprop,
        {"rms": "square_avg", "momentum": "momentum_buffer", "mg": "grad_avg"},
        lambda group: {"momentum": float(group["lr"])},
    ),
}
_MAPPINGS["AdamW"] = _MAPPINGS["Adam"]
_REFUSED = ("dampening", "maximize")


def load_state_dict(
    optimizer: RuleOptimizer, state: Mapping[str, Any], variables: Any, *, step: int | None = None
) -> None:
    """Load a torch optimizer's ``state_dict()`` into an optimizer.

    Parameters
    ----------
    optimizer : Optimizer
        Of the class of the same name; it may be new. Its hyperparameters are set to torch's, except
        a learning rate that is a function.
    state : dict
        As returned by ``state_dict()`` or read by ``torch.load``.
    variables : list of variables, nested or not
        In the order and with the shapes of torch's parameters.
    step : int, optional
        The number of steps taken; needed for SGD, because torch does not count its steps. By
        default it is taken from the state.

    Raises
    ------
    InvalidArgumentError
        If torch's settings have no counterpart, parameters have taken different numbers of steps,
        or the state does not match the variables. Nothing has changed.

    Notes
    -----
    Torch's momentum buffers do not include the learning rate, ours do: they are multiplied by the
    learning rate in the state. Adam and Adamax add `eps` at a different point than torch, so the
    following steps differ slightly.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.interop.torch_states import load_state_dict
    >>> from tfopt.optimizers import SGD
    >>> group = {"lr": 0.5, "momentum": 0.9, "nesterov": False, "params": [0]}
    >>> state = {"state": {0: {"momentum_buffer": np.ones(2)}}, "param_groups": [group]}
    >>> opt, w = SGD(), np.ones(2)
    >>> load_state_dict(opt, state, [w], step=3)
    >>> opt.momentum, opt.get_slot(w, "momentum").numpy()
    (0.9, array([-0.5, -0.5]))
    """
    name = type(optimizer).__name__
    if name not in _MAPPINGS:
        raise InvalidArgumentError(f"torch has no counterpart of {name}")
    group, numbers = one_group(state["param_groups"])
    mapping = _MAPPINGS[name]
    settings = {**mapping.settings(group), **_decay(optimizer, group)}
    if not is_live(optimizer.learning_rate):
        settings["learning_rate"] = float(group["lr"])
    like, names = fresh(optimizer, variables, **settings)
    if len(names) != len(numbers):
        raise InvalidArgumentError(
            f"got {len(names)} variables, but the torch state has {len(numbers)} parameters"
        )
    parts = [state["state"].get(number, {}) for number in numbers]
    like.iterations.assign(step_count(parts) if step is None else step)
    factors = mapping.factors(group)
    for variable, part in zip(names.values(), parts, strict=True):
        for ours, theirs in mapping.slots.items():
            if ours in like.get_slot_names() and part.get(theirs) is not None:
                array = np.asarray(part[theirs]) * factors.get(ours, 1)
                like.get_slot(variable, ours).assign(array)
    optimizer.load_state_dict(like.state_dict(variables), variables)


def one_group(groups: list[Group]) -> tuple[Group, list[Any]]:
    """Return the common settings of all groups and the parameters' numbers."""
    plain = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    if any(other != plain[0] for other in plain[1:]):
        raise InvalidArgumentError("torch's parameter groups have different settings")
    for key in _REFUSED:
        if plain[0].get(key):
            raise InvalidArgumentError(f"{key}={plain[0][key]} has no counterpart in tfopt")
    return plain[0], [number for group in groups for number in group["params"]]


def _decay(optimizer: Any, group: Group) -> dict[str, Any]:
    """Return torch's weight decay as a setting, if our optimizer has the same kind."""
    decay = group.get("weight_decay", 0)
    decoupled = group.get("decoupled_weight_decay", False)
    if not hasattr(optimizer, "weight_decay"):
        if decay:
            raise InvalidArgumentError(f"weight_decay={decay} has no counterpart in tfopt")
        return {}
    if decay and not decoupled:
        raise InvalidArgumentError(
            f"weight_decay={decay}, which torch adds to the gradient, has no counterpart in tfopt"
        )
    return {"weight_decay": decay}


def step_count(parts: Sequence[Mapping[str, Any]]) -> int:
    counts = {int(part["step"]) for part in parts if "step" in part}
    if len(counts) > 1:
        raise InvalidArgumentError(
            f"parameters have taken different numbers of steps: {sorted(counts)}"
        )
    return counts.pop() if counts else 0
