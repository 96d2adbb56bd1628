"""Properties of calls of update rules besides their arithmetic."""

from __future__ import annotations

import inspect
import re
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest
from common import updates
from common.cases import DTYPES, RULES, WITH_ROWS, arrays_for, assert_same_bits, ordinary_hypers

import tfopt
import tfopt_ref
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import step_arguments
from tfopt.rules import OPS, Rule, checks_of
from tfopt_ref.training_op import TrainingOp

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_rule_of_rows = pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)


def update(impl: Any, rule: Rule, *operands: Any, **options: Any) -> None:
    updates.update(impl, rule.name, *operands, **{**ordinary_hypers(rule), **options})


#: What an op takes beside what its formula does.
BESIDE = {"grad_scale": 1.0, "var_scale": 1.0}


@each_rule
def test_ops_have_the_arguments_of_their_formulas(rule: Rule) -> None:
    name = f"apply_{rule.name}"
    parameters = inspect.signature(getattr(tfopt.training_ops, name)).parameters.values()
    formula = getattr(tfopt_ref.training_ops, name)
    operands = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert operands == formula.operands == list(rule.operands)
    named = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert len(operands) + len(named) == len(parameters)
    required = [name for name, default in named.items() if default is inspect.Parameter.empty]
    assert required == formula.hypers == list(rule.hypers)
    beside: dict[str, Any] = dict(BESIDE)
    if rule in WITH_ROWS:
        beside |= {"indices": None, "check_indices": True}
        beside["duplicates"] = "sum" if formula.absent else "sequential"
    defaults = {name: default for name, default in named.items() if name not in required}
    assert defaults == {**formula.flags, **beside}
    assert list(formula.flags) == list(defaults)[: len(formula.flags)]


def test_both_packages_have_every_rule_of_the_table() -> None:
    names = sorted(f"apply_{rule.name}" for rule in RULES)
    assert sorted(tfopt.training_ops.__all__) == names
    formulas = vars(tfopt_ref.training_ops)
    assert sorted(name for name in formulas if name.startswith("apply_")) == names
    assert all(isinstance(formulas[name], TrainingOp) for name in names)


@each_rule
def test_formulas_name_the_equation_and_the_op(rule: Rule) -> None:
    doc = getattr(tfopt_ref.training_ops, f"apply_{rule.name}").__doc__
    assert re.search("``.* <- .*``", doc)
    ops = [f"Apply{OPS[rule.name].name}"] if rule.name in OPS else []
    assert re.findall(r"\((Apply\w+)\)", doc) == ops


@each_rule
def test_docstrings_name_every_argument(rule: Rule) -> None:
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    for name in inspect.signature(function).parameters:
        assert name in function.__doc__
    assert rule.source in " ".join(function.__doc__.split())
    named = f"``ResourceApply{OPS[rule.name].name}``" if rule.name in OPS else None
    assert ("``ResourceApply" in function.__doc__) == (named is not None)
    assert (named or "") in function.__doc__


@each_rule
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_scale_equals_a_scaled_gradient(impl: Any, rule: Rule, dtype: str) -> None:
    *variables, grad = arrays_for(rule, (4, 5), dtype)
    copies = [v.copy() for v in variables]
    update(impl, rule, *variables, grad, grad_scale=0.3)
    update(impl, rule, *copies, grad * grad.dtype.type(0.3))
    for name, a, b in zip(rule.operands, variables, copies, strict=False):
        assert_same_bits(a, b, name)


@pytest.mark.parametrize("rule", [r for r in WITH_ROWS if not r.absent], ids=lambda rule: rule.name)
def test_repeated_indices_are_applied_in_order(impl: Any, rule: Rule) -> None:
    *variables, _ = arrays_for(rule, (5, 3), np.float32)
    rows = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    indices = np.array([2, 0, 2, 2], np.int32)
    one_by_one = [v.copy() for v in variables]
    update(impl, rule, *variables, rows, indices=indices)
    for i in range(4):
        update(impl, rule, *one_by_one, rows[i : i + 1], indices=indices[i : i + 1])
    for name, a, b in zip(rule.operands, variables, one_by_one, strict=False):
        assert_same_bits(a, b, name)


@each_rule_of_rows
def test_duplicates_are_summed_or_refused_on_request(impl: Any, rule: Rule) -> None:
    *variables, _ = arrays_for(rule, (5, 3), np.float32)
    rows = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    indices, summed = np.array([2, 0, 2, 2]), np.array([2, 0])
    before, expected = [v.copy() for v in variables], [v.copy() for v in variables]
    wrong = {"error": "duplicates", "mean": 'must be "sequential", "sum"'}
    for meaning, message in wrong.items() if impl is tfopt else ():
        with pytest.raises(tfopt.InvalidArgumentError, match=message):
            update(tfopt, rule, *variables, rows, indices=indices, duplicates=meaning)
        assert all((a == b).all() for a, b in zip(variables, before, strict=True))
    update(impl, rule, *variables, rows, indices=indices, duplicates="sum", grad_scale=0.5)
    sums = np.stack([rows[0] + rows[2] + rows[3], rows[1]])
    update(impl, rule, *expected, sums, indices=summed, duplicates="error", grad_scale=0.5)
    for name, a, b in zip(rule.operands, variables, expected, strict=False):
        assert_same_bits(a, b, name)


def test_rows_past_two_to_the_31(tmp_path: Any) -> None:
    """Lengths and offsets have 64 bits; the file behind the map has holes and takes no room."""
    rows = 2**26 + 10
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(rows, 32))
    ids = np.array([0, rows - 1, 2**26 - 1, 2**26, rows - 1])
    grad = np.ones((5, 32), np.float32)
    tfopt.training_ops.apply_gradient_descent(table, grad, alpha=1.0, indices=ids)
    assert table[[0, 2**26 - 1, 2**26, rows - 1]][:, [0, 31]].tolist() == [[-1, -1]] * 3 + [
        [-2, -2]
    ]
    assert not table[[1, 2**25, rows - 2]].any()
    with pytest.raises(IndexError, match=f"Index {rows} at offset 4"):
        tfopt.training_ops.apply_gradient_descent(
            table, grad, alpha=1.0, indices=np.array([0, 0, 0, 0, rows])
        )
    assert table[0, 0] == -1


@pytest.mark.parametrize("rule", [r for r in WITH_ROWS if not r.absent], ids=lambda rule: rule.name)
def test_rows_that_are_not_named_stay(impl: Any, rule: Rule) -> None:
    *variables, _ = arrays_for(rule, (5, 3), np.float32)
    before = [v.copy() for v in variables]
    update(impl, rule, *variables, np.ones((2, 3), np.float32), indices=np.array([1, 3]))
    for a, b in zip(variables, before, strict=True):
        assert (a[[0, 2, 4]] == b[[0, 2, 4]]).all()
    assert (variables[0][[1, 3]] != before[0][[1, 3]]).all()


@pytest.mark.parametrize("rule", [r for r in RULES if r.absent], ids=lambda rule: rule.name)
def test_rows_that_are_not_named_decay(impl: Any, rule: Rule) -> None:
    """Their slots do in a step for rows; some rules move the variable, too."""
    *variables, _ = arrays_for(rule, (5, 3), np.float32)
    before = [v.copy() for v in variables]
    update(impl, rule, *variables, np.ones((3, 3), np.float32), indices=np.array([3, 1, 3]))
    absent = [0, 2, 4]
    moved = rule.name.startswith("keras_adam")
    assert ((variables[0][absent] != before[0][absent]) == moved).all()
    for name, a, b in zip(rule.slots, variables[1:], before[1:], strict=True):
        if name != "vhat":
            assert (abs(a[absent]) < abs(b[absent])).all()
    assert (variables[0][[1, 3]] != before[0][[1, 3]]).all()


@pytest.mark.parametrize("rule", [r for r in RULES if r.absent], ids=lambda rule: rule.name)
def test_a_step_of_all_rows_is_not_repeated_in_order(rule: Rule) -> None:
    *variables, _ = arrays_for(rule, (5, 3), np.float32)
    before = [v.copy() for v in variables]
    rows, indices = np.ones((2, 3), np.float32), np.array([1, 3])
    with pytest.raises(tfopt.InvalidArgumentError, match='duplicates must be "sum" or "error"'):
        update(tfopt, rule, *variables, rows, indices=indices, duplicates="sequential")
    for a, b in zip(variables, before, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("rule", [r for r in RULES if r.absent], ids=lambda rule: rule.name)
@pytest.mark.parametrize("inner", [(), (1,), (7,), (700,)])
def test_a_step_of_all_rows_on_threads(rule: Rule, inner: tuple[int, ...]) -> None:
    """Rows that are named first, last, next to each other, not at all: the same bits on any."""
    random = np.random.default_rng(0)
    *before, _ = arrays_for(rule, (500, *inner), np.float32)
    for ids in ([], [0], [499], [0, 1, 2, 250, 498, 499], random.permutation(500)[:200]):
        indices = np.array(ids, np.int64)
        rows = random.standard_normal((len(indices), *inner)).astype(np.float32)
        results = []
        for threads in (1, 2, 3):
            tfopt.threads.set_num_threads(threads)
            variables = [array.copy() for array in before]
            update(tfopt, rule, *variables, rows, indices=indices)
            results.append(variables)
        for other in results[1:]:
            for name, a, b in zip(rule.operands, results[0], other, strict=False):
                assert_same_bits(a, b, name)


@each_rule_of_rows
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_empty_arrays_are_no_work(impl: Any, rule: Rule, shape: tuple[int, ...]) -> None:
    *variables, grad = (np.ones(rule.shape_of(k, shape), np.float32) for k in rule.operands)
    update(impl, rule, *variables, grad)
    assert all((a == 1).all() for a in variables)
    rows = np.empty((0, *shape[1:]), np.float32)
    refused = 0 in shape[1:] and "inner" in checks_of(rule).rows  # as TensorFlow does
    refused = refused and impl is tfopt
    with pytest.raises(tfopt.InvalidArgumentError) if refused else nullcontext():
        update(impl, rule, *variables, rows, indices=np.empty(0, np.int64))


@each_rule
def test_gradient_may_be_a_slot_or_overlap_the_variable(rule: Rule) -> None:
    """A gradient read from a variable means the values before the update."""
    for source in range(len(rule.whole)):
        *variables, _ = arrays_for(rule, (8, 4), np.float32)
        copies = [v.copy() for v in variables]
        update(tfopt, rule, *variables, variables[source])
        update(tfopt, rule, *copies, copies[source].copy())
        for name, a, b in zip(rule.operands, variables, copies, strict=False):
            assert_same_bits(a, b, name)
    memory = np.random.default_rng(0).random(41).astype(np.float32)
    for flipped in (False, True):  # the gradient begins one element after the variable, or before
        buffer = memory.copy()
        var, grad = (buffer[1:], buffer[:-1]) if flipped else (buffer[:-1], buffer[1:])
        slots = [np.ones(40, np.float32) for _ in rule.slots]
        expected = [var.copy(), *(s.copy() for s in slots)]
        update(tfopt, rule, *expected, grad.copy())
        update(tfopt, rule, var, *slots, grad)
        assert_same_bits(var, expected[0], "var")


def test_sparse_gradient_that_is_the_variable_itself() -> None:
    var = np.arange(6, dtype=np.float64).reshape(3, 2)
    tfopt.training_ops.apply_gradient_descent(var, var, alpha=1.0, indices=np.array([1, 2, 0]))
    assert var.tolist() == [[-4, -4], [2, 2], [2, 2]]


@each_rule
def test_interleaved_variables_are_not_overlapping(rule: Rule) -> None:
    values = arrays_for(rule, (6, 4), np.float32)
    together = np.zeros((6, 4, len(values)), np.float32)
    views = [together[..., k] for k in range(len(values))]
    views = [view if v.ndim == 2 else view[:, 0] for v, view in zip(values, views, strict=True)]
    for v, view in zip(values, views, strict=True):
        view[...] = v
    update(tfopt, rule, *views)
    update(tfopt, rule, *values)
    for name, one, other in zip(rule.operands, views, values, strict=True):
        assert_same_bits(one, other, name)


@each_rule
def test_variables_are_updated_where_they_lie(rule: Rule, tmp_path: Any) -> None:
    """In a file behind a memory map, and behind a Variable."""
    values = arrays_for(rule, (30, 2), np.float64)
    expected = [v.copy() for v in values]
    update(tfopt, rule, *expected)
    mapped = []
    for k, v in enumerate(values[:-1]):
        path = tmp_path / f"{k}.bin"
        v.tofile(path)
        mapped.append(np.memmap(path, v.dtype, "r+", shape=v.shape))
    update(tfopt, rule, *mapped, values[-1])
    for k, name in enumerate(rule.operands[:-1]):
        mapped[k].flush()
        written = np.fromfile(tmp_path / f"{k}.bin").reshape(expected[k].shape)
        assert_same_bits(written, expected[k], name)
    variables = [tfopt.Variable(v) for v in values[:-1]]
    update(tfopt, rule, *variables, values[-1])
    for k, name in enumerate(rule.operands[:-1]):
        assert_same_bits(values[k], expected[k], name)


class Exporter:
    """Shares its memory through DLPack alone, as torch's tensors do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


needs_writable = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0",
    reason="before 2.3 NumPy takes what DLPack shares as read-only",
)


@pytest.mark.parametrize("share", [memoryview, pytest.param(Exporter, marks=needs_writable)])
def test_objects_that_share_their_memory_are_updated_in_place(share: Any) -> None:
    var, accum = np.ones((2, 3)), np.ones((2, 3))
    tfopt.training_ops.apply_momentum(
        share(var), share(accum), share(np.ones((2, 3))), lr=0.5, momentum=1.0
    )
    assert accum.tolist() == [[2] * 3] * 2
    assert var.tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("thing", [[1.0], "text", b"text", None, 3.0, {}, object()])
def test_operands_without_shared_memory_are_refused(thing: Any) -> None:
    with pytest.raises(tfopt.InvalidArgumentError):
        tfopt.training_ops.apply_gradient_descent(thing, np.ones(1), alpha=0.1)


def test_hyperparameters_may_be_any_real_scalar() -> None:
    results = []
    for alpha in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), np.float16(0.5)):
        var = np.ones(3, np.float32)
        tfopt.training_ops.apply_gradient_descent(var, np.ones(3, np.float32), alpha=alpha)
        results.append(var.tolist())
    assert results == [[0.5] * 3] * 5
    var = np.ones(3)
    tfopt.training_ops.apply_gradient_descent(var, np.ones(3), alpha=2)
    assert var.tolist() == [-1] * 3


def test_hyperparameters_are_rounded_to_the_dtype_first(impl: Any) -> None:
    """1 - beta1 is taken in float32, where it is not float32(1 - beta1)."""
    m = np.zeros(1, np.float32)
    one, beta1 = np.float32(1), np.float32(0.9)
    var, v, grad = np.zeros(1, np.float32), np.zeros(1, np.float32), np.ones(1, np.float32)
    hypers = {"beta1_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-7}
    updates.update(impl, "adamax", var, m, v, grad, **hypers)
    assert m[0] == one - beta1 != np.float32(1 - 0.9)


def test_update_slots_false_reads_the_accumulator_only(impl: Any) -> None:
    var, accum = np.ones(3), np.full(3, 4.0)
    updates.update(impl, "adagrad", var, accum, np.ones(3), lr=1.0, update_slots=False)
    assert accum.tolist() == [4] * 3
    assert var.tolist() == [0.5] * 3


def test_nan_rules(impl: Any) -> None:
    """AdaMax's v ignores a NaN in the gradient, sparse rows take it; FTRL's var becomes 0, NaN."""
    hypers = {"beta1_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.5, "epsilon": 1e-7}
    for indices, expected in ((None, 0.5), (np.array([0]), np.nan)):
        var, m, v = np.ones(1), np.ones(1), np.ones(1)
        updates.update(impl, "adamax", var, m, v, np.array([np.nan]), **hypers, indices=indices)
        assert np.isnan([var[0], m[0]]).all()
        np.testing.assert_equal(v[0], expected)
    ftrl = {"lr": 0.1, "l1": 0.0, "l2": 0.0, "lr_power": -0.5}
    for indices, expected in ((None, 0.0), (np.array([0]), np.nan)):
        var, accum, linear = np.ones(1), np.ones(1), np.zeros(1)
        updates.update(
            impl, "ftrl", var, accum, linear, np.array([np.nan]), **ftrl, indices=indices
        )
        np.testing.assert_equal(var[0], expected)
        assert np.isnan([accum[0], linear[0]]).all()


@pytest.mark.parametrize("offset", range(0, 64, 4))
def test_any_alignment_to_the_cache_line(offset: int) -> None:
    rule = next(r for r in RULES if r.name == "adamax")
    values = arrays_for(rule, 100, np.float32)
    expected = [v.copy() for v in values]
    update(tfopt, rule, *expected)
    moved = []
    for v in values:
        memory = np.zeros(v.size + 32, np.float32)
        start = (-memory.ctypes.data % 64 + offset) // 4
        moved.append(memory[start : start + v.size])
        moved[-1][...] = v
    update(tfopt, rule, *moved)
    for name, a, b in zip(rule.operands, moved, expected, strict=True):
        assert_same_bits(a, b, name)


@each_rule_of_rows
def test_distinct_rows_are_used_as_they_are(rule: Rule) -> None:
    """A gradient of -0 is not added to 0, which would make it 0."""
    for dtype in DTYPES:
        *variables, _ = arrays_for(rule, (4, 2), dtype)
        for slot in variables[1:]:
            slot[...] = -0.0
        values = [*variables, np.full((2, 2), -0.0, dtype)]
        found = [[value.copy() for value in values] for _ in range(2)]
        for package, arrays in zip((tfopt, tfopt_ref), found, strict=True):
            update(package, rule, *arrays, indices=np.array([3, 1]), duplicates="error")
        for name, got, want in zip(rule.operands, *found, strict=True):
            assert_same_bits(got, want, f"{rule.name}: {name}")


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    "rule", [r for r in RULES if "vhat" in r.slots], ids=lambda rule: rule.name
)
def test_a_maximum_that_is_kept_is_flushed_too(impl: Any, rule: Rule, flush: bool) -> None:
    """Beside a negative second moment, which only a caller can give."""
    tiny = np.finfo(np.float64).tiny / 4
    impl.set_flush_denormals(flush)
    given = {"vhat": tiny, "v": -1.0, "grad": 0.0}
    arrays = [np.full(40, given.get(name, 0.5)) for name in rule.operands]
    with np.errstate(invalid="ignore"):
        update(impl, rule, *arrays)
    assert set(arrays[rule.operands.index("vhat")]) == {0.0 if flush else tiny}


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.choices], ids=lambda rule: rule.name
)
def test_other_backends_are_told_the_choices(rule: Rule, double: bool) -> None:
    """As bits after those of the flags."""
    for power, l1, flags in product((-0.5, -1.0), (0.0, 0.5), range(1 << len(rule.flags))):
        given = dict.fromkeys(rule.hypers, 0.25) | {"lr_power": power, "l1": l1}
        hypers = tuple(given[name] for name in rule.hypers)
        found, _ = step_arguments(kernels[rule.name], hypers, flags, 1.0, 1.0, double, True)
        chosen = [eval(condition, {}, given) for condition in rule.choices.values()]
        bits = sum(bit << k for k, bit in enumerate(chosen, len(rule.flags)))
        assert found == flags + bits, given
