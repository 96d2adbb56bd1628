"""Calls with one thing wrong: each is refused by name, and not a byte of any array changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from common.cases import whole

import tfopt
from campaign.calls import RuleCall, drawn_call, memory, one, settings
from campaign.check import drawn

#: A fault changes the operands or the options in place; False if the call has nothing to spoil.
Fault = Callable[[np.random.Generator, RuleCall, list[Any]], bool]


def _place(random: np.random.Generator, operands: list[Any]) -> int:
    return int(random.integers(len(operands)))


def _longer(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """One operand has a row more than the others."""
    k = _place(random, operands)
    array = operands[k]
    if array.ndim == 0:
        operands[k] = np.zeros((2, 2), array.dtype)
    else:
        operands[k] = np.zeros((array.shape[0] + 1, *array.shape[1:]), array.dtype)
    # a variable of rows may be longer than its ids need, if it has no slots
    return not (k == 0 and "indices" in call.options and len(operands) == 2)


def _deeper(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """One operand has an axis more."""
    k = _place(random, operands)
    operands[k] = operands[k][..., None]
    return True


def _other_type(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """One operand has a type that no rule takes."""
    k = _place(random, operands)
    operands[k] = operands[k].astype(one(random, ("i4", "u1", "?", "O", "S4", "M8[s]")))
    return True


def _mixed_types(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """A slot or the gradient is double where the variable is single, or the reverse."""
    k = 1 + int(random.integers(len(operands) - 1))
    other = {"f4": "f8", "f8": "f4"}.get(np.dtype(call.dtype).str[1:])
    if other is None:
        return False
    operands[k] = operands[k].astype(other)
    return True


def _locked(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """The variable or a slot is read-only."""
    operands[int(random.integers(len(operands) - 1))].flags.writeable = False
    return True


def _outside(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """An index, anywhere among them, is no row."""
    indices = call.options.get("indices")
    if indices is None or not len(indices):
        return False
    rows = operands[0].shape[0]
    call.options["indices"] = spoiled = indices.copy()
    far = np.iinfo(indices.dtype)
    spoiled[int(random.integers(len(indices)))] = one(random, (-1, rows, far.max, far.min))
    return True


def _too_many_ids(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """There is an index more than rows of the gradient."""
    if "indices" not in call.options or not operands[0].shape[0]:
        return False
    call.options["indices"] = np.append(call.options["indices"], np.int32(0))
    return True


def _no_ids(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """The indices are no integers, or no list of them."""
    if "indices" not in call.options:
        return False
    given = call.options["indices"]
    call.options["indices"] = one(random, (given.astype(float), given[:, None], "rows", 1.5))
    return True


def _no_number(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """A hyperparameter is no number."""
    name = one(random, (*call.rule.hypers, "grad_scale", "var_scale"))
    call.options[name] = one(random, ("x", None, 1j, [1.0, 2.0], np.ones(3), {}))
    return True


def _unknown_word(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """An argument has a name, or an option a word, that there is not."""
    if "indices" in call.options and random.integers(2):
        call.options["duplicates"] = one(random, ("add", "", None, 3))
    else:
        call.options["learning_rate_"] = 1.0
    return True


def _overlapping(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """Two of the variable and its slots share memory."""
    if len(operands) < 3 or not operands[0].size:
        return False
    j, k = random.choice(len(operands) - 1, 2, replace=False)
    operands[k] = operands[j] if operands[j].shape == operands[k].shape else operands[j][..., 0]
    return operands[k].size > 0


def _no_array(random: np.random.Generator, call: RuleCall, operands: list[Any]) -> bool:
    """The variable or a slot is nothing that an update could be written into."""
    k = int(random.integers(len(operands) - 1))
    operands[k] = one(random, (None, "w", 1.0, operands[k].tolist() or [], operands[k].shape))
    return True


FAULTS: tuple[Fault, ...] = (
    _longer,
    _deeper,
    _other_type,
    _mixed_types,
    _locked,
    _outside,
    _too_many_ids,
    _no_ids,
    _no_number,
    _unknown_word,
    _overlapping,
    _no_array,
)


def _case(random: np.random.Generator) -> int:
    """A call with one fault: raises an error of tfopt, and changes no byte."""
    call, fault = drawn_call(random), one(random, FAULTS)
    settings(random, (tfopt,))
    operands: list[Any] = call.operands()
    if not fault(random, call, operands):
        return 0
    arrays = [each for each in operands if isinstance(each, np.ndarray)]
    before = memory(arrays)
    try:
        call.carry_out(tfopt, operands)
    except (tfopt.InvalidArgumentError, TypeError):  # Python's own for unknown names
        pass
    else:
        raise AssertionError(f"accepted: {fault.__doc__} {call}")
    for array, old in zip(arrays, before, strict=True):
        assert whole(array).tobytes() == old.tobytes(), f"{fault.__doc__} {call}"
    return 1


CHECK = drawn("refusals", _case)
