"""Updates that clip their gradients as they read them equal the host's, bit for bit.

The host's are the optimizers' own: :func:`tfopt.optimizers.step.clipping.clipped_calls`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import ELEMENTWISE, WITH_ROWS, arrays_for, assert_same_bits, ordinary_hypers
from common.clip_cases import FLOATS, array_of, tensor
from devices import DEVICE, HostArray
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt.core.workspace import Workspace
from tfopt.cuda.calls import dense_update, rows_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.cuda.library import load
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.dense import run
from tfopt.optimizers.step.clipping import ClippedDense, ClippedRows, clipped_calls
from tfopt.rules import Rule
from tfopt.updates.rule_steps import RuleUpdate

pytestmark = pytest.mark.usefixtures("gradual_underflow")

INF, NAN = float("inf"), float("nan")

each_rule = pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", FLOATS)


class Model:
    """Lists of variables, and tables with some rows' gradients, with their slots."""

    def __init__(self, rule: Rule, duplicates: str = "sum") -> None:
        self.rule = rule
        hypers = {**ordinary_hypers(rule)}
        self.step = RuleUpdate(rule.name, hypers, dict(rule.flags), duplicates).step()
        self.dense: list[list[list[np.ndarray]]] = []  # of each list: an operand's arrays
        self.tables: list[tuple[list[np.ndarray], np.ndarray]] = []

    def add_list(self, gradients: list[np.ndarray], dtype: np.dtype[Any] | None = None) -> None:
        rows = []
        for k, gradient in enumerate(gradients):
            *variables, _ = arrays_for(self.rule, gradient.shape, dtype or gradient.dtype, k)
            rows.append([*variables, gradient])
        self.dense.append([list(column) for column in zip(*rows, strict=True)])

    def add_table(self, gradient: np.ndarray, indices: np.ndarray, n_rows: int) -> None:
        shape = (n_rows, *gradient.shape[1:])
        *variables, _ = arrays_for(self.rule, shape, gradient.dtype, 99)
        self.tables.append(([*variables, gradient], indices))

    def on_host(self, **limits: Any) -> list[np.ndarray]:
        """Take the step with copies on the host; return them."""
        checked: list[ClippedDense | ClippedRows] = []
        written = []
        first = 0
        for columns in self.dense:
            own = [[a.copy() for a in column] for column in columns]
            places = range(first, first := first + len(own[-1]))
            call = self.step.dense(tuple(own[:-1]), own[-1])
            checked.append(ClippedDense(lambda: self.step, tuple(own[:-1]), call, places))
            written += [a for column in own for a in column]
        for place, (arrays, indices) in enumerate(self.tables, first):
            *variables, gradient = (a.copy() for a in arrays)
            rows = tuple(variables), IndexedSlices(gradient, indices)
            checked.append(ClippedRows(self.step, *rows, Workspace(), place, "after"))
            written += [*variables, gradient]
        wanted = (limits.get(key) for key in ("clipvalue", "clipnorm", "global_clipnorm"))
        for call in clipped_calls(checked, *wanted)[0]:
            run(call)
        return written

    def on_device(self, **limits: Any) -> list[np.ndarray]:
        """Take the step with copies on the device; return what they became."""
        step, updates, written = self.step, [], []
        for columns in self.dense:
            own = [[DEVICE.to(a) for a in column] for column in columns]
            updates.append(dense_update(step.kernel, tuple(own), step.hypers, step.flags, 1.0))
            written += [a for column in own for a in column]
        for arrays, indices in self.tables:
            own = [DEVICE.to(a) for a in arrays]
            how = (step.kernel, tuple(own), step.hypers, step.flags)
            updates.append(rows_update(*how, DEVICE.to(indices), step.duplicates, 1.0, True))
            written += own
        run_clipped(updates, **limits)
        return [DEVICE.back(a) for a in written]

    def compare(self, **limits: Any) -> None:
        for one, other in zip(self.on_device(**limits), self.on_host(**limits), strict=True):
            assert_same_bits(np.atleast_1d(one), np.atleast_1d(other), f"{limits}")


def limit() -> st.SearchStrategy[float]:
    return st.one_of(st.floats(0.01, 10), st.sampled_from([0.0, INF]))


@st.composite
def limits(draw: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from(["clipvalue", "clipnorm", "global_clipnorm", "both"]))
    if kind == "both":
        return {"clipvalue": draw(limit()), "global_clipnorm": draw(limit())}
    return {kind: draw(limit())}


def meaning(rule: Rule) -> str:
    return "sum" if rule.absent else "sequential"


@each_rule
@each_dtype
@given(data=st.data())
def test_clipped(rule: Rule, dtype: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 5))
    indices = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), np.int64)
    model = Model(rule, data.draw(st.sampled_from(["sum", meaning(rule)])))
    inner = data.draw(st.sampled_from([(), (2,)]))
    model.add_list([data.draw(tensor(dtype, shape)) for shape in ((2, 3), (5,), (0,))])
    model.add_table(data.draw(tensor(dtype, (n, *inner))), indices, 4)
    model.compare(**data.draw(limits()))


@pytest.mark.parametrize(
    "given_limits",
    [{"clipvalue": 0.7}, {"clipnorm": 1.5}, {"clipvalue": 0.7, "global_clipnorm": 3.0}],
    ids=", ".join,
)
def test_long_lists(given_limits: dict[str, float]) -> None:
    """More gradients than a launch holds, each with its own norm or all with one."""
    random = np.random.default_rng(0)
    model = Model(next(rule for rule in ELEMENTWISE if rule.name == "momentum"))
    sizes = [70_000, 0, 5000, *random.integers(0, 9, 1600), 3]
    model.add_list([array_of(random.standard_normal(n), "bfloat16") for n in sizes])
    model.compare(**given_limits)


@each_rule
def test_mixed_dtypes(rule: Rule) -> None:
    """One norm of gradients of several dtypes, those that are narrower than a variable too."""
    random = np.random.default_rng(0)
    model = Model(rule)
    grads = {dtype: array_of(random.standard_normal(6), dtype) for dtype in FLOATS}
    for gradient in grads.values():
        model.add_list([gradient])
    for dtype in ("float16", "bfloat16"):
        model.add_list([grads[dtype]], np.dtype(np.float32))
    model.add_table(random.standard_normal((3, 2)), np.array([1, 0, 1]), 4)
    for given_limits in ({"global_clipnorm": 1.0}, {"clipnorm": 0.5}, {"clipvalue": 1 / 3}):
        model.compare(**given_limits)
    model.compare(clipvalue=0.3, global_clipnorm=0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e38, 1e200, 1e-200, 1e-30])
def test_norms_out_of_range(dtype: str, scale: float) -> None:
    """Squares over- and underflow, factors are too small for one multiplication."""
    if dtype == "float32" and not 1e-38 < scale < 1e39:
        return
    model = Model(ELEMENTWISE[0])
    model.add_list([array_of(np.array([3.0, -2.0]) * scale, dtype), array_of([scale], dtype)])
    model.add_list([array_of([1.0, 2.0], "float16")])
    for bound in (1e-30, 1.0, 1e-290, 2.0 * scale):
        model.compare(clipnorm=bound)
        model.compare(global_clipnorm=bound)


@each_dtype
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_norms_that_are_not_finite(dtype: str, bad: float) -> None:
    for given_limits in ({"global_clipnorm": 1.0}, {"clipnorm": 1.0}, {"clipvalue": 2.0}):
        model = Model(ELEMENTWISE[0])
        model.add_list([array_of([1, bad, 3], dtype), array_of([4, 5], dtype)])
        model.compare(**given_limits)


def test_nothing_waits_for_a_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(load().call, "bad_norm")
    model = Model(ELEMENTWISE[0])
    model.add_list([np.ones(3, np.float32)])
    model.compare(global_clipnorm=1.0)


def test_no_updates() -> None:
    run_clipped([], global_clipnorm=1.0)


# ---- the scale of a call's gradient, on the device


@each_rule
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("how", ["dense", "many", "sequential", "sum"])
def test_grad_scale(rule: Rule, dtype: str, how: str) -> None:
    number = array_of(1, dtype).dtype
    values = arrays_for(rule, (6, 2), number)
    options: dict[str, Any] = {**ordinary_hypers(rule)}
    options_there = dict(options)
    if how in ("sequential", "sum"):
        ids = np.array([3, 1, 3, 0, 1, 3])
        duplicates = "sum" if rule.absent else how
        options |= {"indices": ids, "duplicates": duplicates}
        options_there |= {"indices": DEVICE.to(ids), "duplicates": duplicates}
    apply = getattr(tfopt.training_ops, f"apply_{rule.name}")
    far: list[Any] = [DEVICE.to(a) for a in values]
    scale = DEVICE.to(np.array(1 / 3, "float64" if dtype == "float64" else "float32"))
    arguments = [[a] for a in far] if how == "many" else far
    apply(*arguments, **options_there, grad_scale=scale)
    apply(*values, **options, grad_scale=float(DEVICE.back(scale)))
    for one, other in zip(far, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, rule.name)


@pytest.mark.parametrize("scale", [np.ones(1, np.float32), np.array(1)])
def test_refused_scales(scale: np.ndarray) -> None:
    var, grad = (DEVICE.to(np.ones(3, np.float32)) for _ in range(2))
    with pytest.raises(tfopt.errors.InvalidArgumentError, match="grad_scale"):
        tfopt.training_ops.apply_gradient_descent(var, grad, alpha=1.0, grad_scale=DEVICE.to(scale))
    np.testing.assert_array_equal(DEVICE.back(var), 1)


@pytest.mark.skipif(DEVICE.name != "host", reason="GPU libraries choose the stream")
def test_streams_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a step the variable's stream for the others, after it they for it; errors too."""
    waits: list[tuple[int, int]] = []
    monkeypatch.setitem(load().call, "follow", lambda device, *pair: waits.append(pair) or 0)
    rule = next(rule for rule in ELEMENTWISE if rule.name == "momentum")
    step = RuleUpdate(rule.name, ordinary_hypers(rule), dict(rule.flags)).step()

    def update(indices: list[int]) -> Any:
        arrays = [HostArray(np.ones((2, 2), np.float32), stream) for stream in (11, 12, 13)]
        ids = HostArray(np.array(indices), 14)
        return rows_update(
            step.kernel, tuple(arrays), step.hypers, step.flags, ids, "sum", 1.0, True
        )

    def pairs_of(call: Any) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        waits.clear()
        call()
        assert len(waits) == 6
        return set(waits[:3]), set(waits[3:])

    expected = {(11, k) for k in (12, 13, 14)}, {(k, 11) for k in (12, 13, 14)}
    assert pairs_of(lambda: run_clipped([update([0, 1])], global_clipnorm=1.0)) == expected

    def refused() -> None:
        with pytest.raises(tfopt.errors.IndexOutOfRangeError):
            run_clipped([update([0, 2])], global_clipnorm=1.0)

    assert pairs_of(refused) == expected
