"""Arguments that change between the checks of a call and its execution do no harm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stub_calls
from campaign import failing, failing_allocations
from common import updates
from common.cases import RULES, WITH_ROWS, arrays_for, assert_same_bits, lay_out, ordinary_hypers

import tfopt
import tfopt_ref
from tfopt import IndexOutOfRangeError, InvalidArgumentError
from tfopt.core.workspace import Workspace
from tfopt.kernels import kernels
from tfopt.kernels.update import dense
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.rules import Rule

BY_NAME = {rule.name: rule for rule in RULES}
PACKAGE = Path(tfopt.__file__).parent
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_rule_of_rows = pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)


def test_a_call_without_memory_is_not_half_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each allocation of clipping, of reading text and of a step fails in turn."""
    library = failing.build(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    calls = [name for name in failing_allocations.MAKERS if name.split()[0] not in BY_NAME]
    assert len(calls) == 3 <= failing_allocations._child(library, calls)


class Number:
    """A number that does something when it is read."""

    def __init__(self, value: float, action: Any) -> None:
        self.value, self.action = value, action

    def __float__(self) -> float:
        self.action()
        return self.value


def _numbers(rule: Rule) -> dict[str, float]:
    return {**ordinary_hypers(rule), "grad_scale": 0.5, "var_scale": 0.5}


@every_rule
@pytest.mark.parametrize("form", ["dense", "rows", "list"])
def test_a_number_that_shrinks_an_array(rule: Rule, form: str) -> None:
    """Numbers are read first, so what they do to arrays is seen by the checks."""
    if form == "rows" and rule not in WITH_ROWS:
        return  # which takes no indices
    update = getattr(tfopt.training_ops, f"apply_{rule.name}")
    for name, value in _numbers(rule).items():
        for place in range(len(rule.operands)):
            arrays = arrays_for(rule, (6, 2), "f8")

            def shrink(victim: np.ndarray = arrays[place]) -> None:
                victim.resize((1, 2), refcheck=False)

            numbers = {**_numbers(rule), name: Number(value, shrink)}
            given: Any = [[array] for array in arrays] if form == "list" else arrays
            rows = {"indices": np.arange(6)} if form == "rows" else {}
            if form == "rows" and rule.absent:
                rows["duplicates"] = "sum"
            others = [array for array in arrays if array is not arrays[place]]
            before = [array.copy() for array in others]
            with pytest.raises(InvalidArgumentError):
                update(*given, **numbers, **rows)
            for a, b in zip(others, before, strict=True):
                np.testing.assert_array_equal(a, b)


@every_rule
@pytest.mark.parametrize("form", ["dense", "list"])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed"])
def test_the_gradient_is_read_before_the_step_writes(rule: Rule, form: str, layout: str) -> None:
    """Also where it is the variable, and that is multiplied first; as in the twin."""
    for k in range(len(rule.whole)):
        values = arrays_for(rule, (6, 4), "f4")
        arrays = [lay_out(value, layout) for value in values[:-1]]
        given: Any = [*arrays, arrays[k]]
        apart = [value.copy() for value in (*values[:-1], values[k])]
        expected = [value.copy() for value in apart]
        numbers = _numbers(rule)
        if form == "list":
            given = [[array] for array in given]
        getattr(tfopt.training_ops, f"apply_{rule.name}")(*given, **numbers)
        getattr(tfopt.training_ops, f"apply_{rule.name}")(*apart, **numbers)
        updates.update(tfopt_ref, rule.name, *expected, **numbers)
        for name, a, b in zip(rule.operands[:-1], arrays, apart, strict=False):
            assert_same_bits(a, b, f"{name}, the gradient is operand {k}")
        assert_same_bits(apart[0], expected[0], "the twin's variable") if k == 0 else None


@each_rule_of_rows
@pytest.mark.parametrize(
    ("n", "width", "index_type", "threads"),
    [(6000, 1, np.int32, 2), (4200, 3, np.int64, 1), (9, 9000, np.int32, 2)],
    ids=["single", "narrow", "wide"],
)
def test_indices_that_change_after_the_check(
    rule: Rule, n: int, width: int, index_type: type, threads: int
) -> None:
    tfopt.threads.set_num_threads(threads)
    for summed in (False, True):
        for bad in (-1, n, np.iinfo(index_type).max):
            *variables, _ = arrays_for(rule, (n, width), "f4")
            grad = np.ones((n, width), np.float32)
            ids, workspace = np.arange(n, dtype=index_type), Workspace()
            call = sparse_call(
                kernels[rule.name],
                (*variables, grad),
                ids,
                tuple(ordinary_hypers(rule)[name] for name in rule.hypers),
                0,
                1.0,
                lazy=summed,
                workspace=workspace if summed else None,
            )
            if summed and not call.sums:  # the call reads the indices of sums made before it
                ids = np.frombuffer(workspace._kept["distinct"][0].data, index_type, n)
            ids[n // 2] = bad
            with pytest.raises(IndexOutOfRangeError, match="indices were changed"):
                dense.run(call)
            ids[n // 2] = 0 if rule.absent and not summed else n // 2
            if not rule.absent or summed:
                dense.run(call)  # what was wrong once is forgotten


def test_more_distinct_indices_than_were_counted() -> None:
    """Another thread may change them between the count and the sums, too."""
    v, g, ids = np.zeros((5000, 8)), np.ones((5000, 8)), np.zeros(5000, np.int64)
    call = sparse_call(
        kernels["gradient_descent"], (v, g), ids, (0.1,), 0, 1.0, lazy=True, workspace=Workspace()
    )
    assert call.sums
    dense.run(call)
    assert v[0, 0] == pytest.approx(-500.0)
    ids[:] = np.arange(5000)
    dense.run(call)
    assert v[1:].max() == -0.1


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )


FAILING = """
import sys
import numpy as np
import tfopt
try:
    from _testcapi import remove_mem_hooks, set_nomemory
except ImportError:
    sys.exit(77)
ops = tfopt.training_ops
many = [[np.ones(5) for _ in range(6)] for _ in range(3)]
odd = [[np.ones((3, 4)).T for _ in range(9)] for _ in range(3)]
table, row_gradients, ids = np.ones((8, 3)), np.ones((4, 3)), np.array([1, 5, 1, 7])
calls = {
    "list": lambda: ops.apply_keras_momentum(*many, lr=.1, momentum=.9),
    "strided list": lambda: ops.apply_keras_momentum(*odd, lr=.1, momentum=.9),
    "overlapping list": lambda: ops.apply_gradient_descent(many[0], many[0][::-1], alpha=.1),
    "scaled": lambda: ops.apply_gradient_descent(many[0], many[0], alpha=.1, var_scale=.5),
    "rows": lambda: ops.apply_gradient_descent(table, row_gradients, alpha=.1, indices=ids),
    "summed": lambda: ops.apply_gradient_descent(
        table, row_gradients, alpha=.1, indices=ids, duplicates="sum"),
    "clip": lambda: tfopt.clip_by_global_norm(many[0], 1.0),
}
for name, call in calls.items():
    call()
    arrays = [*sum(many, []), *sum(odd, []), table]
    failures = 0
    for n in range(300):
        before = [a.copy() for a in arrays]
        counts = [sys.getrefcount(a) for a in arrays]
        failed = None
        set_nomemory(n, n + 1)
        try:
            call()
        except MemoryError:
            failed = True
        finally:
            remove_mem_hooks()
        if failed:
            failures += 1
            after = [sys.getrefcount(a) for a in arrays]
            assert all(a >= b for a, b in zip(after, counts, strict=True)), (name, n)
            for a, b in zip(arrays, before, strict=True):
                assert (a == b).all(), (name, n)
        elif n > 60:
            break
    assert failures > 3, (name, failures)
print("done")
"""


@pytest.mark.skipif(
    sys.version_info[:2] in ((3, 12), (3, 13)),
    reason="these Pythons crash if memory lacks for the frame of a generator",
)
def test_memory_that_runs_out_changes_nothing() -> None:
    done = _python(FAILING)
    if done.returncode == 77:
        pytest.skip("this Python has no _testcapi")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_no_list_comprehensions_in_compiled_code() -> None:
    """Where an append fails, Cython 3.3's give an element back twice, a caller's array, too."""
    tokens = re.compile(r'"""[\s\S]*?"""|#.*|"[^"\n]*"|[\[\](){}]|\bfor\b')
    for path in sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxi")]):
        opened = []
        for token in tokens.findall(path.read_text()):
            if token in "[({":
                opened.append(token)
            elif token in "])}":
                opened.pop()
            elif token == "for":
                assert opened[-1:] != ["["], path.name


def test_no_wrong_argument_ends_the_process() -> None:
    """Of all that the stubs of the kernels declare, in a process of its own."""
    script = Path(__file__).with_name("stub_calls.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2000:])
    assert done.stdout.count("as it should be") == len(stub_calls.declared())
