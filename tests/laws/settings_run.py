"""The actions of programs of settings."""

from __future__ import annotations

import copy
import math
import pickle
import re
import tempfile
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.optimizer_arguments import arguments_of, other_value
from common.step_cases import ARGUMENTS, everything, frozen
from common.wrapper_cases import WRAPPERS

from tfopt import IndexedSlices, InvalidArgumentError, optimizers
from tfopt.optimizers.state.hyperparameters import Hyper

__all__ = ["heard"]

SAVED = ("state", "file", "deepcopy", "pickle", "configuration")
#: What a state leaves as it is.
OWN = ("name", "use_locking", "observe")
#: Functions, which neither a state nor a configuration holds.
FUNCTIONS = ("gradient_aggregator", "gradient_transformers")


def _variables() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    made = {name: random.standard_normal((6, 2)) for name in ("rows", "dense", "bits")}
    return {
        **{name: array.astype(np.float32) for name, array in made.items()},
        "bits": made["bits"].astype(ml_dtypes.bfloat16),
    }


def _step(opt: Any, variables: dict[str, Any], seed: int, scale: float = 1.0) -> None:
    random = np.random.default_rng(seed)
    grads: dict[str, Any] = {
        name: (scale * random.integers(-2, 3, array.shape)).astype(array.dtype)
        for name, array in variables.items()
    }
    rows = random.integers(6, size=3)
    grads["rows"] = IndexedSlices(grads["rows"][rows], rows)
    with np.errstate(all="ignore"):
        opt.step(variables, grads)


def _inner(opt: Any) -> Any:
    return _inner(opt.optimizer) if hasattr(type(opt), "_inside") else opt


def _settings(opt: Any) -> dict[str, Any]:
    inner = _inner(opt)
    names = [*arguments_of(type(inner)), "observe"]
    found = {name: getattr(inner, name, None) for name in names}
    if opt is not inner:
        own = [name for name in arguments_of(type(opt)) if name not in ("optimizer", "groups")]
        found |= {f"own {name}": getattr(opt, name) for name in own}
    return found


def _value(cls: type, option: str, value: str, now: Any) -> Any:
    hyper = getattr(cls, option, None)
    bounds = {
        "lowest": getattr(hyper, "low", -math.inf),
        "highest": getattr(hyper, "high", math.inf),
    }
    if value in bounds:
        bound = bounds[value]
        return bound if isinstance(hyper, Hyper) and math.isfinite(bound) else 0.5
    fixed = {"zero": 0, "one": 1, "None": None, "a string": "x", "a class": dict}
    if value in fixed:
        return fixed[value]
    if option == "name":
        return "another"
    if option in ("steps", "dynamic_growth_steps", "overwrite_frequency"):
        return 3
    return "float16" if option == "dtype" else other_value(option, now)


def heard(
    name: str, wrapper: str, option: str, value: str, where: str, when: str, seed: int
) -> None:
    """Set an option of an optimizer, and see that it is refused, or saved."""
    cls = getattr(optimizers, name)

    def made(**given: Any) -> Any:
        inner = cls(**{**ARGUMENTS[name], **given})
        return inner if wrapper == "alone" else WRAPPERS[wrapper].busy(inner)

    opt, variables = made(), _variables()
    if when != "before a step":
        for k in range(2):
            _step(opt, variables, seed + k)
    if when == "after a state was loaded":
        state, opt = copy.deepcopy(opt.state_dict(variables)), made()
        opt.load_state_dict(state, variables)
    own = option.startswith("own ")
    attribute = option.removeprefix("own ")
    holder = opt if own or where == "what is around it" else _inner(opt)
    target = holder if own or attribute == "name" else _inner(opt)  # each has a name of its own
    before = everything(opt, variables), _settings(opt)
    if value == "misspelt":
        with pytest.raises(AttributeError, match="did you mean"):
            setattr(holder, attribute + "s", 1)
        assert (everything(opt, variables), _settings(opt)) == before
        return
    now = getattr(target, attribute)
    new = _value(type(target), attribute, value, now)
    given = {attribute: new}

    def constructed() -> Any:
        if own:
            return type(opt)(_inner(made()), **{**_required(opt), **given})
        return None if attribute == "observe" else cls(**{**ARGUMENTS[name], **given})

    refused: Exception | None = None
    expected = None
    try:
        expected = constructed()
    except Exception as error:
        refused = error
    try:
        setattr(holder, attribute, new)
    except (InvalidArgumentError, AttributeError) as error:
        only_later = re.search(
            "cannot be replaced|has slots already|observe must be|name must be a string, not None"
            "|deferred updates|optimizer of a group",
            str(error),
        )
        absent = attribute == "lr" and new is None  # which the constructor has not been given
        assert only_later or absent or _same(refused, error), (error, refused)
        assert (everything(opt, variables), _settings(opt)) == before
        _step(opt, variables, seed)
        return
    assert refused is None or attribute == "lr", (new, refused)
    if expected is not None and new is not None:
        assert getattr(target, attribute) == getattr(expected, attribute)
    try:
        for k in range(3):
            _step(opt, variables, seed + 5 + k, scale=float(k > 0))
    except InvalidArgumentError:  # which these variables, or what is around it, do not allow
        return
    if wrapper == "alone" or own:
        assert not any(np.isnan(v.astype(np.float64)).any() for v in variables.values())
    for saved in SAVED:
        _goes_on(*copy.deepcopy((opt, variables)), saved, made, attribute, seed)


def _goes_on(
    opt: Any, variables: dict[str, Any], saved: str, made: Any, attribute: str, seed: int
) -> None:
    """Compare a run with one that goes on from what the first is saved in."""
    other, weights = _again(opt, variables, saved, made, attribute)
    mine, theirs = _settings(opt), _settings(other)
    left = () if saved in ("deepcopy", "pickle") else (*OWN, *FUNCTIONS, "lr")
    for key, setting in mine.items():
        if key.removeprefix("own ") not in left:
            assert setting == theirs[key], (saved, key)
    for k in range(2):
        _step(opt, variables, seed + 9 + k)
        _step(other, weights, seed + 9 + k)
    assert frozen(variables) == frozen(weights), saved
    assert frozen(opt.get_weights()) == frozen(other.get_weights()), saved


def _required(opt: Any) -> dict[str, Any]:
    return (
        {"groups": []}
        if type(opt).__name__ == "ParameterGroups"
        else ({"steps": 2} if type(opt).__name__ == "GradientAccumulation" else {})
    )


def _same(expected: Exception | None, error: Exception) -> bool:
    return expected is not None and type(expected) is type(error) and str(expected) == str(error)


def _again(opt: Any, variables: Any, saved: str, made: Any, attribute: str) -> tuple[Any, Any]:
    """Return a copy of an optimizer and of its variables by way of what it is saved in."""
    if saved == "deepcopy":
        return copy.deepcopy((opt, variables))  # type: ignore[no-any-return]
    if attribute in FUNCTIONS:
        given = {attribute: getattr(_inner(opt), attribute)}
    elif saved == "pickle":
        return pickle.loads(pickle.dumps((opt, variables)))  # type: ignore[no-any-return]
    else:
        given = {}
    weights = copy.deepcopy(variables)
    if saved == "configuration":
        other = type(opt).from_config(opt.get_config())
        for key, function in given.items():
            setattr(other, key, function)
    else:
        other = made(**given)
    if saved == "file":
        with tempfile.TemporaryDirectory() as folder:
            opt.save(f"{folder}/state.npz", variables)
            other.load(f"{folder}/state.npz", weights)
    else:
        other.load_state_dict(copy.deepcopy(opt.state_dict(variables)), weights)
    return other, weights
