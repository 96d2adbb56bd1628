"""Bad input is refused with a specific error, and not one byte of any array changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import RULES, arrays_for, ordinary_hypers
from numpy.lib.stride_tricks import as_strided

import tfopt
import tfopt_ref
from tfopt.rules import Rule, checks_of

ROWS, WIDTH, N = 6, 3, 4


class Case:
    """A call that would succeed; a refusal spoils one thing about it."""

    def __init__(self, rule: Rule, sparse: bool) -> None:
        self.rule = rule
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

    def call(self, package: Any) -> None:
        function = getattr(package.training_ops, f"apply_{self.rule.name}")
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
    return as_strided(np.zeros(64, array.dtype), array.shape, (4, 4))


def _slot_is_var(case: Case) -> None:
    case.operands[case.slot] = case.operands["var"]


def _slot_begins_in_var(case: Case) -> None:
    both = np.zeros((ROWS + 1, WIDTH), np.float32)
    case.operands["var"], case.operands[case.slot] = both[:-1], both[1:]


def _slot_in_var_interleaved(case: Case) -> None:
    both = np.zeros((ROWS, 2 * WIDTH), np.float32)
    case.operands["var"], case.operands[case.slot] = both[:, ::2], both[:, 2 : 2 + WIDTH]


INVALID, TYPE, INDEX = "InvalidArgumentError", "InvalidTypeError", "IndexOutOfRangeError"

#: name -> (how to spoil a call, the error). For dense and sparse calls.
BOTH = {
    "int variable": (_replace("var", lambda a: a.astype(np.int32)), TYPE),
    "list variable": (_replace("var", lambda a: a.tolist()), TYPE),
    "scalar variable": (_replace("var", lambda a: a.flat[0]), TYPE),
    "None variable": (_replace("var", lambda a: None), TYPE),
    "complex variable": (_replace("var", lambda a: a.astype(np.complex64)), TYPE),
    "masked variable": (_replace("var", np.ma.masked_array), TYPE),
    "variable of another dtype": (_replace("var", lambda a: a.astype(np.float64)), TYPE),
    "gradient of another dtype": (_replace("grad", lambda a: a.astype(np.float64)), TYPE),
    "list gradient": (_replace("grad", lambda a: a.tolist()), TYPE),
    "read-only variable": (_replace("var", _read_only), INVALID),
    "byte-swapped variable": (_replace("var", lambda a: a.astype(">f4")), TYPE),
    "byte-swapped gradient": (_replace("grad", lambda a: a.astype(">f4")), TYPE),
    "misaligned variable": (_replace("var", _misaligned), INVALID),
    "misaligned gradient": (_replace("grad", _misaligned), INVALID),
    "variable overlapping itself": (_replace("var", _overlapping_itself), INVALID),
    "hyperparameter of shape [1]": (_option("first", np.array([0.1])), INVALID),
    "list hyperparameter": (_option("first", [0.1]), INVALID),
    "empty hyperparameter": (_option("first", np.empty(0)), INVALID),
    "str hyperparameter": (_option("first", "0.1"), TYPE),
    "None hyperparameter": (_option("first", None), TYPE),
    "complex hyperparameter": (_option("first", 1j), TYPE),
    "too large hyperparameter": (_option("first", 10**400), INVALID),
    "str gradient scale": (_option("grad_scale", "1"), TYPE),
    "gradient scale of shape [2]": (_option("grad_scale", np.ones(2)), INVALID),
}
#: For rules with slots.
SLOTS = {
    "slot of another shape": (_replace("slot", lambda a: a[:, :-1].copy()), INVALID),
    "slot of another rank": (_replace("slot", lambda a: a[0].copy()), INVALID),
    "slot of another dtype": (_replace("slot", lambda a: a.astype(np.float64)), TYPE),
    "read-only slot": (_replace("slot", _read_only), INVALID),
    "misaligned slot": (_replace("slot", _misaligned), INVALID),
    "byte-swapped slot": (_replace("slot", lambda a: a.astype(">f4")), TYPE),
    "list slot": (_replace("slot", lambda a: a.tolist()), TYPE),
    "slot that is the variable": (_slot_is_var, INVALID),
    "slot that begins in the variable": (_slot_begins_in_var, INVALID),
    "slot interleaved with the variable": (_slot_in_var_interleaved, INVALID),
    "slot overlapping itself": (_replace("slot", _overlapping_itself), INVALID),
}
DENSE = {
    "gradient of another shape": (_replace("grad", lambda a: a[:-1].copy()), INVALID),
    "gradient to broadcast": (_replace("grad", lambda a: a[:1].copy()), INVALID),
    "gradient of another rank": (_replace("grad", lambda a: a[None].copy()), INVALID),
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
    "index past the end": (_option("indices", np.array([5, 0, 6, 2])), INDEX),
    "negative index": (_option("indices", np.array([5, 0, -1, 2])), INDEX),
    "smallest index": (_option("indices", np.array([0, 0, 0, -(2**63)])), INDEX),
    "int32 index past the end": (_option("indices", np.array([6, 0, 0, 0], np.int32)), INDEX),
    "last of many indices": (_last_of_many, INDEX),
    "indices of rank 2": (_option("indices", np.zeros((2, 2), np.int64)), INVALID),
    "indices of rank 0": (_option("indices", np.array(1)), INVALID),
    "too few indices": (_option("indices", np.zeros(3, np.int64)), INVALID),
    "float indices": (_option("indices", np.zeros(N)), TYPE),
    "int16 indices": (_option("indices", np.zeros(N, np.int16)), TYPE),
    "unsigned indices": (_option("indices", np.zeros(N, np.uint64)), TYPE),
    "bool indices": (_option("indices", np.zeros(N, bool)), TYPE),
    "list indices": (_option("indices", [0, 1, 2, 3]), TYPE),
    "byte-swapped indices": (_option("indices", np.zeros(N, ">i8")), TYPE),
    "misaligned indices": (_option("indices", _misaligned(np.zeros(N, np.int64))), INVALID),
    "gradient rows of another width": (_replace("grad", lambda a: a[:, :-1].copy()), INVALID),
    "gradient rows of another rank": (_replace("grad", lambda a: a[:, 0].copy()), INVALID),
    "variable of rank 0": (_zero_dimensional, INVALID),
    "indices in the variable": (_indices_in_var, INVALID),
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
def test_limits_of_hyperparameters(
    impl: Any, rule: Rule, sparse: bool, hyper: str, limit: str
) -> None:
    outside, border = OUTSIDE[limit]
    for value in (outside, float("nan")):
        case = Case(rule, sparse)
        case.options[hyper] = value
        before = digest(case)
        if not sparse and checks_of(rule).limited == "rows":
            case.call(impl)
            continue
        expected = limit.replace("the first flag", next(iter(rule.flags), ""))
        with pytest.raises(impl.InvalidArgumentError) as raised:
            case.call(impl)
        assert str(raised.value) == f"{hyper} must be {expected}, not {value}"
        assert digest(case) == before
    case = Case(rule, sparse)
    case.options[hyper] = border
    case.call(impl)


@pytest.mark.parametrize(
    "rule", [r for r in RULES if "first flag" in str(checks_of(r).limits)], ids=lambda r: r.name
)
def test_a_learning_rate_of_zero_needs_the_flag(impl: Any, rule: Rule) -> None:
    case = Case(rule, sparse=True)
    case.options["lr"] = 0.0
    with pytest.raises(impl.InvalidArgumentError, match="or 0 with multiply_linear_by_lr"):
        case.call(impl)
    case.options["multiply_linear_by_lr"] = True
    case.call(impl)


CASES = [
    pytest.param(rule, sparse, spoil, error, id=f"{rule.name}-{kind}-{name}".replace(" ", "_"))
    for rule in RULES
    for kind, sparse, own in (("dense", False, DENSE), ("sparse", True, SPARSE))
    for name, (spoil, error) in {**BOTH, **own, **(SLOTS if rule.slots else {})}.items()
]


def digest(case: Case) -> list[bytes]:
    return [array.tobytes() for array in case.arrays()]


@pytest.mark.parametrize(("rule", "sparse", "spoil", "error"), CASES)
def test_refused(impl: Any, rule: Rule, sparse: bool, spoil: Any, error: str) -> None:
    case = Case(rule, sparse)
    spoil(case)
    before = digest(case)
    with pytest.raises(getattr(impl.errors, error)) as raised:
        case.call(impl)
    assert type(raised.value).__name__ == error
    assert digest(case) == before


@pytest.mark.parametrize(("rule", "sparse", "spoil", "error"), CASES)
def test_messages_are_the_same(rule: Rule, sparse: bool, spoil: Any, error: str) -> None:
    messages = []
    for package in (tfopt, tfopt_ref):
        case = Case(rule, sparse)
        spoil(case)
        with pytest.raises(package.InvalidArgumentError) as raised:
            case.call(package)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert messages[0]


def test_errors_belong_to_the_families_callers_catch(impl: Any) -> None:
    assert issubclass(impl.InvalidArgumentError, ValueError)
    assert issubclass(impl.InvalidTypeError, (impl.InvalidArgumentError, TypeError))
    assert issubclass(impl.InvalidTypeError, TypeError)
    assert issubclass(impl.IndexOutOfRangeError, LookupError)
    assert issubclass(impl.IndexOutOfRangeError, impl.InvalidArgumentError)


def test_messages_name_what_is_wrong(impl: Any) -> None:
    var, grad = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    update = impl.training_ops.apply_gradient_descent
    with pytest.raises(ValueError, match=r"^var and delta do not have the same shape: \[2,3\] \[3"):
        update(var, grad.T, alpha=0.1)
    with pytest.raises(ValueError, match=r"^alpha is not a scalar: \[1\]$"):
        update(var, grad, alpha=np.array([0.1]))
    with pytest.raises(IndexError, match=r"^Index 2 at offset 1 in indices is out of range \[0, 2"):
        update(var, grad, alpha=0.1, indices=np.array([0, 2]))
    with pytest.raises(TypeError, match=r"^delta must be float32 as var is, not float64$"):
        update(var, grad.astype(float), alpha=0.1)


def test_missing_and_unknown_arguments_are_type_errors(impl: Any) -> None:
    var = np.zeros(2)
    with pytest.raises(TypeError):
        impl.training_ops.apply_gradient_descent(var, var.copy())
    with pytest.raises(TypeError):
        impl.training_ops.apply_gradient_descent(var, var.copy(), alpha=0.1, lr=0.1)
    with pytest.raises(TypeError):
        impl.training_ops.apply_gradient_descent(var, var.copy(), 0.1)
