"""Bad input is refused with a specific error, and not one byte of any array changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers
from numpy.lib.stride_tricks import as_strided

import tfopt
from tfopt.rules import Rule, checks_of

ROWS, WIDTH, N = 6, 3, 4


class Case:
    """A call that would succeed; a refusal spoils one thing about it."""

    def __init__(self, rule: Rule, sparse: bool) -> None:
        self.rule, self.sparse = rule, sparse
        values = arrays_for(rule, (ROWS, WIDTH), np.float32)
        self.operands: dict[str, Any] = dict(zip(rule.operands, values, strict=True))
        self.options: dict[str, Any] = ordinary_hypers(rule)
        if sparse:
            self.grad = self.grad[:N].copy()
            self.options["indices"] = np.array([5, 0, 5, 2])

    @property
    def grad(self) -> Any:
        return self.operands[self.rule.grad]

    @grad.setter
    def grad(self, value: Any) -> None:
        self.operands[self.rule.grad] = value

    @property
    def slot(self) -> str:
        """The last of the variable and its slots."""
        return self.rule.operands[-2]

    def arrays(self) -> list[np.ndarray]:
        every = [*self.operands.values(), *self.options.values()]
        return [a for a in every if isinstance(a, np.ndarray)]

    def call(self) -> None:
        function = getattr(tfopt.training_ops, f"apply_{self.rule.name}")
        function(*self.operands.values(), **self.options)


def _replace(name: str, change: Callable[[Any], Any]) -> Callable[[Case], None]:
    def spoil(case: Case) -> None:
        key = {"grad": case.rule.grad, "slot": case.slot}.get(name, name)
        case.operands[key] = change(case.operands[key])

    return spoil


def _option(name: str, value: Any) -> Callable[[Case], None]:
    def spoil(case: Case) -> None:
        case.options[case.rule.hypers[0] if name == "first" else name] = value

    return spoil


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _misaligned(array: np.ndarray) -> np.ndarray:
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)
    moved = bytes_[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _overlapping_itself(array: np.ndarray) -> np.ndarray:
    return as_strided(np.zeros(64, array.dtype), array.shape, (4, 4) if array.ndim == 2 else (0,))


def _set_slot(case: Case, array: np.ndarray) -> None:
    """Set the slot to an array, or to a column of it if the slot has one number for each row."""
    case.operands[case.slot] = array[:, 0] if case.slot in case.rule.row_slots else array


def _slot_is_var(case: Case) -> None:
    _set_slot(case, case.operands["var"])


def _slot_begins_in_var(case: Case) -> None:
    both = np.zeros((ROWS + 1, WIDTH), np.float32)
    case.operands["var"] = both[:-1]
    _set_slot(case, both[1:])


def _slot_in_var_interleaved(case: Case) -> None:
    both = np.zeros((ROWS, 2 * WIDTH), np.float32)
    case.operands["var"] = both[:, ::2]
    _set_slot(case, both[:, 2 : 2 + WIDTH])


INVALID, TYPE, INDEX = "InvalidArgumentError", "InvalidTypeError", "IndexOutOfRangeError"

#: name -> (how to spoil a call, the error, its message). For dense and sparse calls.
BOTH = {
    "int variable": (_replace("var", lambda a: a.astype(np.int32)), TYPE, "{floats}, not int32"),
    "list variable": (_replace("var", lambda a: a.tolist()), TYPE, "{listed}"),
    "scalar variable": (
        _replace("var", lambda a: a.flat[0]),
        TYPE,
        "var must be a numpy.ndarray, or share memory with one, not float32",
    ),
    "None variable": (
        _replace("var", lambda a: None),
        TYPE,
        "var must be a numpy.ndarray, or share memory with one, not NoneType",
    ),
    "complex variable": (_replace("var", lambda a: a.astype(np.complex64)), TYPE, "{complex}"),
    "masked variable": (
        _replace("var", np.ma.masked_array),
        TYPE,
        "var must be an array without a mask, not MaskedArray",
    ),
    "variable of another dtype": (
        _replace("var", lambda a: a.astype(np.float64)),
        TYPE,
        "{second} must be float64 as var is, not float32{float64}",
    ),
    "gradient of another dtype": (
        _replace("grad", lambda a: a.astype(np.float64)),
        TYPE,
        "{grad} must be float32 as var is, not float64; astype('float32') converts it",
    ),
    "list gradient": (
        _replace("grad", lambda a: a.tolist()),
        TYPE,
        "{grad} must be a numpy.ndarray, or share memory with one, not list",
    ),
    "read-only variable": (_replace("var", _read_only), INVALID, "var is read-only"),
    "byte-swapped variable": (
        _replace("var", lambda a: a.astype(">f4")),
        TYPE,
        "var has the byte-swapped dtype >f4",
    ),
    "byte-swapped gradient": (
        _replace("grad", lambda a: a.astype(">f4")),
        TYPE,
        "{grad} has the byte-swapped dtype >f4",
    ),
    "misaligned variable": (
        _replace("var", _misaligned),
        INVALID,
        "var is not aligned to its items",
    ),
    "misaligned gradient": (
        _replace("grad", _misaligned),
        INVALID,
        "{grad} is not aligned to its items",
    ),
    "variable overlapping itself": (
        _replace("var", _overlapping_itself),
        INVALID,
        "var overlaps itself: its elements share memory",
    ),
    "hyperparameter of shape [1]": (
        _option("first", np.array([0.1])),
        INVALID,
        "{hyper} is not a scalar: [1]",
    ),
    "list hyperparameter": (_option("first", [0.1]), INVALID, "{hyper} is not a scalar: [1]"),
    "empty hyperparameter": (
        _option("first", np.empty(0)),
        INVALID,
        "{hyper} is not a scalar: [0]",
    ),
    "str hyperparameter": (_option("first", "0.1"), TYPE, "{hyper} must be a real number, not str"),
    "None hyperparameter": (
        _option("first", None),
        TYPE,
        "{hyper} must be a real number, not NoneType",
    ),
    "complex hyperparameter": (
        _option("first", 1j),
        TYPE,
        "{hyper} must be a real number, not complex",
    ),
    "too large hyperparameter": (
        _option("first", 10**400),
        INVALID,
        "{hyper} is too large for a float",
    ),
    "str gradient scale": (
        _option("grad_scale", "1"),
        TYPE,
        "grad_scale must be a real number, not str",
    ),
    "gradient scale of shape [2]": (
        _option("grad_scale", np.ones(2)),
        INVALID,
        "grad_scale is not a scalar: [2]",
    ),
}
#: For rules with slots.
SLOTS = {
    "slot of another shape": (
        _replace("slot", lambda a: a[..., :-1].copy()),
        INVALID,
        "{slot shape}",
    ),
    "slot of another rank": (
        _replace("slot", lambda a: np.array(a[0])),
        INVALID,
        "{slot rank}",
    ),
    "slot of another dtype": (
        _replace("slot", lambda a: a.astype(np.float64)),
        TYPE,
        "{slot} must be float32 as var is, not float64",
    ),
    "read-only slot": (_replace("slot", _read_only), INVALID, "{slot} is read-only"),
    "misaligned slot": (
        _replace("slot", _misaligned),
        INVALID,
        "{slot} is not aligned to its items",
    ),
    "byte-swapped slot": (
        _replace("slot", lambda a: a.astype(">f4")),
        TYPE,
        "{slot} has the byte-swapped dtype >f4",
    ),
    "list slot": (
        _replace("slot", lambda a: a.tolist()),
        TYPE,
        "{slot} must be a numpy.ndarray, or share memory with one, not list",
    ),
    "slot that is the variable": (_slot_is_var, INVALID, "var and {slot} overlap in memory"),
    "slot that begins in the variable": (
        _slot_begins_in_var,
        INVALID,
        "var and {slot} overlap in memory",
    ),
    "slot interleaved with the variable": (
        _slot_in_var_interleaved,
        INVALID,
        "var and {slot} overlap in memory",
    ),
    "slot overlapping itself": (
        _replace("slot", _overlapping_itself),
        INVALID,
        "{slot} overlaps itself: its elements share memory",
    ),
}
DENSE = {
    "gradient of another shape": (
        _replace("grad", lambda a: a[:-1].copy()),
        INVALID,
        "var and {grad} do not have the same shape: [6,3] [5,3]",
    ),
    "gradient to broadcast": (
        _replace("grad", lambda a: a[:1].copy()),
        INVALID,
        "var and {grad} do not have the same shape: [6,3] [1,3]",
    ),
    "gradient of another rank": (
        _replace("grad", lambda a: a[None].copy()),
        INVALID,
        "var and {grad} do not have the same shape: [6,3] [1,6,3]",
    ),
}


def _zero_dimensional(case: Case) -> None:
    for name in case.rule.operands:
        case.operands[name] = np.ones((), np.float32)


def _indices_in_var(case: Case) -> None:
    memory = np.zeros(ROWS * WIDTH, np.int32)
    case.operands["var"] = memory.view(np.float32).reshape(ROWS, WIDTH)
    case.options["indices"] = memory[:N]


def _last_of_many(case: Case) -> None:
    case.options["indices"] = np.r_[np.zeros(100_000, np.int64), ROWS]
    case.grad = np.ones((100_001, WIDTH), np.float32)


SPARSE = {
    "index past the end": (
        _option("indices", np.array([5, 0, 6, 2])),
        INDEX,
        "Index 6 at offset 2 in indices is out of range [0, 6)",
    ),
    "negative index": (
        _option("indices", np.array([5, 0, -1, 2])),
        INDEX,
        "Index -1 at offset 2 in indices is out of range [0, 6)",
    ),
    "smallest index": (
        _option("indices", np.array([0, 0, 0, -(2**63)])),
        INDEX,
        "Index -9223372036854775808 at offset 3 in indices is out of range [0, 6)",
    ),
    "int32 index past the end": (
        _option("indices", np.array([6, 0, 0, 0], np.int32)),
        INDEX,
        "Index 6 at offset 0 in indices is out of range [0, 6)",
    ),
    "last of many indices": (
        _last_of_many,
        INDEX,
        "Index 6 at offset 100000 in indices is out of range [0, 6)",
    ),
    "indices of rank 2": (
        _option("indices", np.zeros((2, 2), np.int64)),
        INVALID,
        "indices must be one-dimensional: [2,2]",
    ),
    "indices of rank 0": (
        _option("indices", np.array(1)),
        INVALID,
        "indices must be one-dimensional: []",
    ),
    "too few indices": (
        _option("indices", np.zeros(3, np.int64)),
        INVALID,
        "{grad} must be the same size as indices in the first dimension: 4 3",
    ),
    "float indices": (
        _option("indices", np.zeros(N)),
        TYPE,
        "indices must be int32 or int64, not float64",
    ),
    "int16 indices": (
        _option("indices", np.zeros(N, np.int16)),
        TYPE,
        "indices must be int32 or int64, not int16",
    ),
    "unsigned indices": (
        _option("indices", np.zeros(N, np.uint64)),
        TYPE,
        "indices must be int32 or int64, not uint64",
    ),
    "bool indices": (
        _option("indices", np.zeros(N, bool)),
        TYPE,
        "indices must be int32 or int64, not bool",
    ),
    "list indices": (
        _option("indices", [0, 1, 2, 3]),
        TYPE,
        "indices must be a numpy.ndarray, or share memory with one, not list",
    ),
    "byte-swapped indices": (
        _option("indices", np.zeros(N, ">i8")),
        TYPE,
        "indices has the byte-swapped dtype >i8",
    ),
    "misaligned indices": (
        _option("indices", _misaligned(np.zeros(N, np.int64))),
        INVALID,
        "indices is not aligned to its items",
    ),
    "gradient rows of another width": (
        _replace("grad", lambda a: a[:, :-1].copy()),
        INVALID,
        "var and {grad} must match in dimension 1: [6,3] [4,2]",
    ),
    "gradient rows of another rank": (
        _replace("grad", lambda a: a[:, 0].copy()),
        INVALID,
        "{grad} must have the same number of dimensions as var: [6,3] [4]",
    ),
    "variable of rank 0": (_zero_dimensional, INVALID, "var must be at least 1 dimensional"),
    "indices in the variable": (_indices_in_var, INVALID, "var and indices overlap in memory"),
}

#: A value outside of each limit, and one at its border.
OUTSIDE = {
    "greater than 0": (0.0, 1e-300),
    "at least 0": (-1e-300, 0.0),
    "at most 0": (1e-300, 0.0),
    "greater than 0, or 0 with the first flag": (-1e-300, 1e-300),
}
LIMITED = [
    pytest.param(
        rule, sparse, hyper, limit, id=f"{rule.name}-{'rows' if sparse else 'dense'}-{hyper}"
    )
    for rule in RULES
    for sparse in (False, True)
    for hyper, limit in checks_of(rule).limits.items()
]


@pytest.mark.parametrize(("rule", "sparse", "hyper", "limit"), LIMITED)
def test_limits_of_hyperparameters(rule: Rule, sparse: bool, hyper: str, limit: str) -> None:
    """Flags only matter where the limit says so."""
    outside, border = OUTSIDE[limit]
    flags = [{}] if "first flag" in limit else [{}, dict.fromkeys(rule.flags, True)]
    for value, chosen in itertools.product((outside, float("nan")), flags):
        case = Case(rule, sparse)
        case.options |= {hyper: value, **chosen}
        before = digest(case)
        if not sparse and checks_of(rule).limited == "rows":
            case.call()
            continue
        expected = limit.replace("the first flag", next(iter(rule.flags), ""))
        with pytest.raises(tfopt.InvalidArgumentError) as raised:
            case.call()
        assert str(raised.value) == f"{hyper} must be {expected}, not {value}"
        assert digest(case) == before
    case = Case(rule, sparse)
    case.options[hyper] = border
    case.call()


@pytest.mark.parametrize(
    "rule", [r for r in RULES if "first flag" in str(checks_of(r).limits)], ids=lambda r: r.name
)
def test_a_learning_rate_of_zero_needs_the_flag(rule: Rule) -> None:
    case = Case(rule, sparse=True)
    case.options["lr"] = 0.0
    with pytest.raises(tfopt.InvalidArgumentError, match="or 0 with multiply_linear_by_lr"):
        case.call()
    case.options["multiply_linear_by_lr"] = True
    case.call()


CASES = [
    pytest.param(
        rule, sparse, spoil, error, message, id=f"{rule.name}-{kind}-{name}".replace(" ", "_")
    )
    for rule in RULES
    for kind, sparse, own in (("dense", False, DENSE), ("sparse", True, SPARSE))
    if rule in WITH_ROWS or not sparse
    for name, (spoil, error, message) in {**BOTH, **own, **(SLOTS if rule.slots else {})}.items()
]


def digest(case: Case) -> list[bytes]:
    return [array.tobytes() for array in case.arrays()]


def names(case: Case) -> dict[str, str]:
    """Return what stands in messages for the arguments of a call."""
    rule, floats = case.rule, "var must be float16, bfloat16, float32"
    second = rule.operands[1]
    known = (
        f"{floats}, float64, complex64 or complex128" if rule.complex else f"{floats} or float64"
    )
    memory = "var must be a numpy.ndarray, or share memory with one, not list"
    # a copy of a slot would be updated in vain
    converts = "; astype('{}') converts it" if second == rule.grad else ""
    first = f"{second} must be complex64 as var is, not float32{converts.format('complex64')}"
    unlike, shapes = f"var and {case.slot} do not have the same shape", ("6,2", "3")
    if case.slot in rule.row_slots:
        unlike, shapes = f"{case.slot} must have a number for each row of var", ("5", "")
    shape, rank = (f"{unlike}: [6,3] [{other}]" for other in shapes)
    return {
        "slot shape": shape,
        "slot rank": rank,
        "grad": rule.grad,
        "hyper": rule.hypers[0],
        "second": second,
        "float64": converts.format("float64"),
        "slot": case.slot,
        "floats": known,
        "complex": first if rule.complex else f"{known}, not complex64",
        # a list is one of many variables, but for rows
        "listed": memory
        if case.sparse
        else f"{second} must be a list of arrays as var is, not ndarray",
    }


@pytest.mark.parametrize(("rule", "sparse", "spoil", "error", "message"), CASES)
def test_refused(rule: Rule, sparse: bool, spoil: Any, error: str, message: str) -> None:
    case = Case(rule, sparse)
    spoil(case)
    before = digest(case)
    with pytest.raises(getattr(tfopt.errors, error)) as raised:
        case.call()
    assert type(raised.value).__name__ == error
    assert str(raised.value) == message.format(**names(case))
    assert digest(case) == before


def test_errors_belong_to_the_families_callers_catch() -> None:
    assert issubclass(tfopt.InvalidArgumentError, ValueError)
    assert issubclass(tfopt.InvalidTypeError, (tfopt.InvalidArgumentError, TypeError))
    assert issubclass(tfopt.InvalidTypeError, TypeError)
    assert issubclass(tfopt.IndexOutOfRangeError, LookupError)
    assert issubclass(tfopt.IndexOutOfRangeError, tfopt.InvalidArgumentError)


def test_messages_name_the_fault() -> None:
    var, grad = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    update = tfopt.training_ops.apply_gradient_descent
    with pytest.raises(ValueError, match=r"^var and delta do not have the same shape: \[2,3\] \[3"):
        update(var, grad.T, alpha=0.1)
    with pytest.raises(ValueError, match=r"^alpha is not a scalar: \[1\]$"):
        update(var, grad, alpha=np.array([0.1]))
    with pytest.raises(IndexError, match=r"^Index 2 at offset 1 in indices is out of range \[0, 2"):
        update(var, grad, alpha=0.1, indices=np.array([0, 2]))
    with pytest.raises(TypeError, match=r"not float64; astype\('float32'\) converts it$"):
        update(var, grad.astype(float), alpha=0.1)


def test_missing_and_unknown_arguments_are_type_errors() -> None:
    var = np.zeros(2)
    with pytest.raises(TypeError):
        tfopt.training_ops.apply_gradient_descent(var, var.copy())
    with pytest.raises(TypeError):
        tfopt.training_ops.apply_gradient_descent(var, var.copy(), alpha=0.1, lr=0.1)
    with pytest.raises(TypeError):
        tfopt.training_ops.apply_gradient_descent(var, var.copy(), 0.1)
