"""One call with lists of arrays equals a call for each array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, WITH_ROWS, arrays_for, assert_same_bits, ordinary_hypers

import tfopt
from tfopt.rules import Rule

SHAPES = [(3,), (), (2, 5), (0, 3), (17_000,), (4, 1, 2)]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)

Columns = list[list[np.ndarray]]


def columns_of(rule: Rule, dtype: str = "float32") -> Columns:
    """Return the variables, the first slots, ..., and the gradients."""
    rows = [arrays_for(rule, shape, dtype, seed) for seed, shape in enumerate(SHAPES)]
    return [list(column) for column in zip(*rows, strict=True)]


def copied(columns: Columns) -> Columns:
    return [[a.copy() for a in column] for column in columns]


def call(rule: Rule, operands: Any, **options: Any) -> None:
    getattr(tfopt.training_ops, f"apply_{rule.name}")(*operands, **ordinary_hypers(rule), **options)


def assert_equal(rule: Rule, ours: Columns, theirs: Columns) -> None:
    names = rule.operands[: len(ours)]
    for name, one, other in zip(names, ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert_same_bits(a, b, name)


@each_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
def test_equals_single_calls(rule: Rule, dtype: str, threads: int) -> None:
    together = columns_of(rule, dtype)
    alone = copied(together)
    before = tfopt.threads.get_num_threads()
    tfopt.threads.set_num_threads(threads)
    try:
        call(rule, together, grad_scale=0.5)
    finally:
        tfopt.threads.set_num_threads(before)
    for operands in zip(*alone, strict=True):
        call(rule, operands, grad_scale=0.5)
    assert_equal(rule, together, alone)


@each_rule
def test_arrays_of_any_layout(rule: Rule) -> None:
    columns = columns_of(rule)
    strange = [[np.empty((*a.shape, 2), a.dtype)[..., 0] for a in column] for column in columns]
    for column, made in zip(columns, strange, strict=True):
        for a, b in zip(column, made, strict=True):
            b[...] = a
    call(rule, columns)
    call(rule, [tuple(column) for column in strange])
    assert_equal(rule, columns, strange)


@each_rule
def test_no_variables_are_no_work(rule: Rule) -> None:
    call(rule, [[] for _ in rule.operands])


@each_rule
def test_gradients_that_are_other_variables(rule: Rule) -> None:
    """Every gradient means the values before the update, also one that is used twice."""
    *variables, grads = (
        list(column)
        for column in zip(*(arrays_for(rule, (6,), "float32", s) for s in range(4)), strict=True)
    )
    first = variables[0]
    given = [first[1], first[1], first[2], grads[0]]
    together = [*variables, given]
    alone = copied(together)
    call(rule, together)
    for operands in zip(*alone, strict=True):
        call(rule, operands)
    assert_equal(rule, together[:-1], alone[:-1])


@pytest.mark.parametrize("begin", [0, 16], ids=["before", "behind"])
def test_gradients_that_overlap_a_variable_in_part(begin: int) -> None:
    """Every gradient means the values before the update, wherever it begins."""
    memory = np.arange(200, dtype=np.float32)
    expected = memory.copy()
    expected[8:108] -= memory[begin : begin + 100]
    expected[120:170] -= memory[begin : begin + 50]
    own, others = memory[begin : begin + 100], memory[begin : begin + 50]
    tfopt.training_ops.apply_gradient_descent(
        [memory[8:108], memory[120:170]], [own, others], alpha=1.0
    )
    assert_same_bits(memory, expected, "memory")


def _change(place: int, t: int, change: Callable[[np.ndarray], Any]) -> Callable[[Columns], Any]:
    def spoil(columns: Columns) -> Any:
        spoiled: Any = [list(column) for column in columns]
        spoiled[place][t] = change(columns[place][t])
        return spoiled

    return spoil


def _read_only(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    b.flags.writeable = False
    return b


def _overlapping_itself(a: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(a.copy(), a.shape, (0,) * a.ndim)


def _same_variable_twice(columns: Columns) -> Any:
    spoiled = [list(column) for column in columns]
    spoiled[0][5] = spoiled[0][2][:].reshape(-1)[:8].reshape(4, 1, 2)
    return spoiled


INVALID, TYPE = "InvalidArgumentError", "InvalidTypeError"

REFUSED: dict[str, tuple[Callable[[Columns], Any], str]] = {
    "too few gradients": (lambda c: [*c[:-1], c[-1][:-1]], INVALID),
    "gradients that are one array": (lambda c: [*c[:-1], c[-1][0]], TYPE),
    "variables that are one array": (lambda c: [c[0][0], *c[1:]], TYPE),
    "no arrays": (lambda c: [[1.0, 2.0, 3.0] for _ in c], TYPE),
    "a gradient of another shape": (_change(-1, 2, lambda a: a.T.copy()), INVALID),
    "a gradient of another dtype": (_change(-1, 4, lambda a: a.astype(np.float64)), TYPE),
    "a variable of another dtype": (_change(0, 1, lambda a: a.astype(np.float64)), TYPE),
    "a read-only variable": (
        _change(0, 3, lambda a: _read_only(np.zeros((0, 3), a.dtype))),
        INVALID,
    ),
    "a read-only variable that is the last": (_change(0, 5, _read_only), INVALID),
    "a byte-swapped gradient": (_change(-1, 0, lambda a: a.astype(">f4")), TYPE),
    "None as a gradient": (_change(-1, 0, lambda a: None), TYPE),
    "a variable that overlaps itself": (_change(0, 5, _overlapping_itself), INVALID),
    "variables that overlap": (_same_variable_twice, INVALID),
}


@each_rule
@pytest.mark.parametrize("name", REFUSED)
def test_refused_calls_change_nothing(rule: Rule, name: str) -> None:
    spoil, error = REFUSED[name]
    columns = columns_of(rule)
    before = copied(columns)
    with pytest.raises(getattr(tfopt, error)):
        call(rule, spoil(columns))
    assert_equal(rule, columns, before)


@each_rule
def test_other_arguments_are_refused(rule: Rule) -> None:
    columns = columns_of(rule)
    before = copied(columns)
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    spoiled = {**ordinary_hypers(rule), rule.hypers[0]: np.ones(1)}
    with pytest.raises(tfopt.InvalidArgumentError):
        function(*columns, **spoiled)
    for duplicates in (
        ("sum", "error" if rule.absent else "sequential") if rule in WITH_ROWS else ()
    ):
        with pytest.raises(tfopt.InvalidTypeError):  # indices are for one variable
            call(rule, columns, indices=np.array([0]), duplicates=duplicates)
    with pytest.raises(tfopt.InvalidTypeError):
        call(rule, columns, grad_scale="1")
    assert_equal(rule, columns, before)


def test_variables_of_two_dtypes() -> None:
    rule = RULES[0]
    both = [a + b for a, b in zip(columns_of(rule), columns_of(rule, "float64"), strict=True)]
    before = copied(both)
    with pytest.raises(tfopt.InvalidTypeError, match="variable 6: var must be float32"):
        call(rule, both)
    assert_equal(rule, both, before)


def test_an_error_names_the_variable() -> None:
    columns = columns_of(RULES[0])
    columns[-1][2] = columns[-1][2].T
    with pytest.raises(tfopt.InvalidArgumentError, match=r"variable 2: var and \w+ do not have"):
        call(RULES[0], columns)


@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_neighbours_do_not_overlap(order: str) -> None:
    """Parts of one array, without a byte between them, in any order; one more byte is refused."""
    rule = RULES[0]
    memory = np.arange(5000, dtype=np.float32)
    cuts = np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, 5000), 400, False)), 5000]
    places = np.arange(401)
    if order != "ascending":
        places = (
            places[::-1] if order == "descending" else np.random.default_rng(1).permutation(401)
        )
    parts = [memory[cuts[k] : cuts[k + 1]] for k in places]
    grads = [np.ones_like(part) for part in parts]
    call(rule, [parts, grads])
    expected = np.arange(5000, dtype=np.float32)
    call(rule, [expected, np.ones_like(expected)])
    assert_same_bits(memory, expected, "memory")
    k = int(places[7])
    parts[7] = memory[cuts[k] : cuts[k + 1] + 1] if k < 400 else memory[cuts[k] - 1 :]
    grads[7] = np.ones_like(parts[7])
    with pytest.raises(tfopt.InvalidArgumentError, match="overlap"):
        call(rule, [parts, grads])
    assert_same_bits(memory, expected, "memory")
