"""Failures particular to a GPU: memory, launches, graph capture, arrays at address 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, assert_same_bits, ordinary_hypers
from devices import DEVICE

import tfopt
from tfopt import IndexedSlices
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import SGD, Adam

F4 = np.float32
only_here = pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")


def there(values: Any, dtype: Any = F4) -> Any:
    return DEVICE.to(np.array(values, dtype))


def rows() -> Any:
    return IndexedSlices(there(np.ones((2, 3))), there([0, 2], np.int64))


# ---- failures

ALLOCATING: dict[str, Callable[[Any], Any]] = {
    "rows": lambda table: tfopt.training_ops.apply_gradient_descent(
        table, rows().values, alpha=0.5, indices=rows().indices
    ),
    "a step of rows": lambda table: SGD(0.5).apply_gradients([(rows(), table)]),
    "a clipped step of rows": lambda table: SGD(0.5, clipnorm=1.0).apply_gradients(
        [(rows(), table)]
    ),
    "a clipped step": lambda table: SGD(0.5, global_clipnorm=1.0).apply_gradients(
        [(there(np.ones((4, 3))), table)]
    ),
    "a scaled update": lambda table: tfopt.training_ops.apply_gradient_descent(
        table, there(np.ones((4, 3))), alpha=0.5, grad_scale=there(0.5)
    ),
    "clip_by_norm": lambda table: tfopt.clip_by_norm(table, 1.0, out=table),
    "clip_by_global_norm": lambda table: tfopt.clip_by_global_norm([table], 1.0, out=[table]),
}


@only_here
@pytest.mark.parametrize("what", ALLOCATING)
def test_no_memory(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, nothing is written, and the same call later does what it should."""
    table = there(np.ones((4, 3)))
    with monkeypatch.context() as without:
        without.setenv("TFOPT_HOST_FAILS", "take")
        with pytest.raises(LibraryError, match=r"CUDA: out of memory \(error 2\)"):
            ALLOCATING[what](table)
    assert_same_bits(DEVICE.back(table), np.ones((4, 3), F4), what)
    ALLOCATING[what](table)
    assert (DEVICE.back(table) != 1).any()


LAUNCHING: dict[str, Callable[[Any], Any]] = ALLOCATING | {
    "an update": lambda table: tfopt.training_ops.apply_gradient_descent(
        table, there(np.ones((4, 3))), alpha=0.5
    ),
    "a step": lambda table: SGD(0.5).apply_gradients([(there(np.ones((4, 3))), table)]),
    "clip_by_value": lambda table: tfopt.clip_by_value(table, 0, 0.5, out=table),
}


@only_here
@pytest.mark.parametrize("what", LAUNCHING)
def test_a_launch_that_fails(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = there(np.ones((4, 3)))
    with monkeypatch.context() as without:
        without.setenv("TFOPT_HOST_FAILS", "launch")
        with pytest.raises(LibraryError, match=r"CUDA: .* \(error 719\)"):
            LAUNCHING[what](table)
    assert_same_bits(DEVICE.back(table), np.ones((4, 3), F4), what)
    LAUNCHING[what](table)
    assert (DEVICE.back(table) != 1).any()


@only_here
def test_a_step_that_fails_can_be_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opt, host = Adam(0.1), Adam(0.1)
    var, here = there(np.ones(3)), np.ones(3, F4)
    for k in range(4):
        grad = np.array([1, 2, k], F4)
        with monkeypatch.context() as without:
            without.setenv("TFOPT_HOST_FAILS", "launch")
            with pytest.raises(LibraryError):
                opt.apply_gradients([(there(grad), var)])
        assert int(opt.iterations) == k
        opt.apply_gradients([(there(grad), var)])
        host.apply_gradients([(grad, here)])
    assert_same_bits(DEVICE.back(var), here, "after failures")


CAPTURED: dict[str, Callable[[Any], Any]] = {
    "checked indices": lambda table: ALLOCATING["rows"](table),
    "a step of rows": lambda table: ALLOCATING["a step of rows"](table),
    "duplicates": lambda table: tfopt.training_ops.apply_gradient_descent(
        table, rows().values, alpha=0.5, indices=rows().indices, check_indices=False,
        duplicates="error",
    ),
    "a policy": lambda table: tfopt.clip_by_norm(table, 1.0, out=table, nonfinite="raise"),
}  # fmt: skip


@only_here
@pytest.mark.parametrize("what", CAPTURED)
def test_what_waits_is_refused_in_a_graph(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOPT_HOST_FAILS", "capture")
    table = there(np.ones((4, 3)))
    with pytest.raises(tfopt.InvalidArgumentError, match="while a CUDA graph is captured"):
        CAPTURED[what](table)
    assert_same_bits(DEVICE.back(table), np.ones((4, 3), F4), what)
    update = {"alpha": 0.5, "indices": rows().indices, "check_indices": False}
    tfopt.training_ops.apply_gradient_descent(table, rows().values, **update)
    assert DEVICE.back(table)[:, 0].tolist() == [0.5, 1, 0.5, 1]


# ---- arrays without elements, which have no address

CLIPPING: dict[str, Callable[[Callable[[np.ndarray], Any]], Any]] = {
    "a number and an array": lambda put: tfopt.clip_by_value(
        put(np.ones((0, 3), F4)), 0.0, put(np.ones((0, 3), F4))
    ),
    "an array and a number": lambda put: tfopt.clip_by_value(
        put(np.ones((0, 3), F4)), put(np.ones((0, 3), F4)), 1.0
    ),
    "two arrays": lambda put: tfopt.clip_by_value(
        put(np.ones((0, 3), F4)), put(np.ones((0, 3), F4)), put(np.ones((0, 3), F4))
    ),
    "two numbers": lambda put: tfopt.clip_by_value(put(np.ones(0, F4)), 0.0, 1.0),
    "norm": lambda put: tfopt.clip_by_norm(put(np.ones(0, F4)), 1.0),
    "norms of none": lambda put: tfopt.clip_by_norm(
        put(np.ones((0, 3), F4)), put(np.ones((0, 1), F4)), [1]
    ),
    "norms of empty slices": lambda put: tfopt.clip_by_norm(
        put(np.ones((2, 0), F4)), put(np.ones((2, 1), F4)), [1]
    ),
    "l2_loss": lambda put: tfopt.raw_ops.L2Loss(t=put(np.ones(0, F4))),
    "global_norm": lambda put: tfopt.global_norm([put(np.ones(0, F4)), put(np.ones((2, 0), F4))]),
    "global_norm with others": lambda put: tfopt.global_norm(
        [put(np.ones(0, F4)), put(np.ones(4, F4)), put(np.ones(0, F4))]
    ),
    "clip_by_global_norm": lambda put: tfopt.clip_by_global_norm(
        [put(np.ones(0, F4)), put(np.ones(4, F4)), None, put(np.ones(0, F4))], 1.0
    ),
    "use_norm": lambda put: tfopt.clip_by_global_norm(
        [put(np.ones(0, F4)), put(np.ones(4, F4))], 1.0, use_norm=put(np.array(4, F4))
    ),
    "of nothing else": lambda put: tfopt.clip_by_global_norm([put(np.ones(0, F4))], 1.0),
}


@pytest.mark.parametrize("what", CLIPPING)
def test_clipping_of_empty_arrays(what: str) -> None:
    here, far = CLIPPING[what](lambda array: array), CLIPPING[what](DEVICE.to)

    def flat(result: Any) -> list[Any]:
        if isinstance(result, (tuple, list)):
            return [each for part in result for each in flat(part)]
        return [] if result is None else [result]

    for ours, theirs in zip(flat(far), flat(here), strict=True):
        theirs = np.asarray(theirs)
        ours = DEVICE.back(ours)
        assert ours.shape == theirs.shape
        assert_same_bits(np.atleast_1d(ours), np.atleast_1d(theirs), what)


EMPTY: dict[str, tuple[tuple[int, ...], list[int] | None]] = {
    "a variable": ((0,), None),
    "a table without rows": ((0, 3), []),
    "a table without columns": ((3, 0), [0, 2]),
    "no indices": ((3, 2), []),
}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("rule", ["gradient_descent", "keras_adam"])
@pytest.mark.parametrize("what", EMPTY)
def test_updates_of_empty_arrays(what: str, rule: str, scaled: bool) -> None:
    row = next(each for each in RULES if each.name == rule)
    shape, ids = EMPTY[what]
    values = [np.ones(shape, F4) for _ in row.operands]
    options: dict[str, Any] = dict(ordinary_hypers(row))
    if ids is not None:
        values[-1] = np.ones((len(ids), *shape[1:]), F4)
        options |= {"indices": np.array(ids, np.int64), "duplicates": "sum"}
    far = [DEVICE.to(value) for value in values]
    moved = options | ({"indices": DEVICE.to(options["indices"])} if ids is not None else {})
    apply = getattr(tfopt.training_ops, f"apply_{rule}")
    apply(*far, **moved, grad_scale=there(0.5) if scaled else 0.5)
    apply(*values, **options, grad_scale=0.5)
    for one, other in zip(far, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, what)
