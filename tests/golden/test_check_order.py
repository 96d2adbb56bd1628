"""Of several faults the one that TensorFlow looks for first is reported, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golden.refusals import OPS, Arguments, faults, order, pairs, recognize, spoiled

import tfopt
from tfopt.rules import RULES, Rule, checks_of

GOLDEN = Path(__file__).parents[1] / "golden/data/refusals.json"
TENSORFLOW = {op: names.split(", ") for op, names in json.loads(GOLDEN.read_text()).items()}


def refusal(op: str, arguments: Arguments) -> str:
    """Return the message of a refused call, which has left every array as it was."""
    before = {name: value.copy() for name, value in arguments.items()}
    with pytest.raises(tfopt.errors.InvalidArgumentError) as caught:
        getattr(tfopt.raw_ops, op)(**arguments)
    for name, value in arguments.items():
        np.testing.assert_array_equal(value, before[name])
    return str(caught.value)


@pytest.mark.parametrize("op", OPS)
def test_pairs_of_faults(op: str):
    assert order(op, lambda op, given: refusal(op, given)) == TENSORFLOW[op]


@pytest.mark.parametrize("op", OPS)
def test_one_fault(op: str):
    for name in faults(op):
        assert recognize(op, refusal(op, spoiled(op, name))) == name


@pytest.mark.parametrize("op", OPS)
def test_calls_without_a_fault_succeed(op: str):
    """The faults are the reason of the refusals."""
    getattr(tfopt.raw_ops, op)(**spoiled(op))


def test_there_are_pairs():
    assert sum(len(pairs(op)) for op in OPS) > 900


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_checks_of_the_table(rule: Rule):
    """Each check there once; the kernels look at a rank before they look at dimensions."""
    assert sorted(checks_of(rule).order(rule, dense=True)) == sorted(
        [*rule.slots, *rule.hypers, rule.grad]
    )
    rows = [name for name in checks_of(rule).order(rule, dense=False) if name != "inner"]
    assert sorted(rows) == sorted([*rule.slots, *rule.hypers, "rank", "indices", "columns", "rows"])
    assert rows.index("rank") < rows.index("columns") < rows.index("rows")
    assert rows.index("indices") < rows.index("rows")
