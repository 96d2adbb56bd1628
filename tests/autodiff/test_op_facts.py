"""Operations have the properties that generated programs rely on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from vjp_cases import CASES, Case

import tfopt
from tfopt import clip_ops, indexed_slices
from tfopt.autodiff import ops, recompute, tensor, vjps
from tfopt.autodiff.expressions import Call
from tfopt.autodiff.tracing.trace import traced
from tfopt.core import engine
from tfopt.core.engine import Node, Op, Tensor, apply
from tfopt.errors import InternalError
from tfopt.updates import other_ops

SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, 5e-324, 1e308, np.inf, -np.inf, np.nan])


def operations() -> list[Op]:
    """Return every operation that the package defines."""
    modules: list[ModuleType] = [getattr(vjps, name) for name in vjps.__all__]
    modules += [clip_ops, indexed_slices, other_ops, recompute, tensor]
    found = {op for module in modules for op in vars(module).values() if isinstance(op, Op)}
    found |= {*ops.UFUNCS.values(), *engine.OPERATORS.values()}
    return sorted(found, key=lambda op: op.name)


def with_fact(fact: str) -> list[Any]:
    return [pytest.param(op, id=op.name) for op in operations() if getattr(op, fact)]


def recorded(case: Case) -> list[Node]:
    """Return what a trace of a case records, which asserts the facts about each operation."""
    trace, inputs = engine.Trace(), [tfopt.constant(x) for x in case.args]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced(lambda: case.function(*inputs), inputs, trace)
    return list(trace.nodes)


#: As gradients have it, beside the cases of the rules.
MASKED = Case("a mask", lambda x: np.where(x > 0, x, 0), (np.array([1.0, -1.0]),))


def nodes_of_all_cases() -> Iterator[Node]:
    for case in [*CASES, MASKED]:
        yield from (node for node in recorded(case) if type(node.op) is Op)


def special(dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return SPECIAL.astype(dtype)


# ---- a definition that does not hold


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Op("reversal", lambda a, b: a[::-1]), r"result of reversal shares .* input 0.*views=True"),
        (Op("second", lambda a, b: b[:2], views=True), "result of second shares .* its input 1"),
        (Op("same", lambda a, b: a.copy(), identity=True), "same is defined with identity=True"),
        (Op("same", lambda a, b: a[:], identity=True), "same is defined with identity=True"),
        (Op("other", lambda a, b: b, identity=True), "other is defined with identity=True"),
        (Op("itself", lambda a, b: a, label="np.itself"), "result of np.itself shares"),
    ],
)
def test_an_operation_that_is_something_else_is_refused(op: Op, message: str) -> None:
    x, y = tfopt.constant(np.arange(3.0)), tfopt.constant(np.arange(4.0))
    apply(op, (x, y))  # nobody relies on it
    with pytest.raises(InternalError, match=message):
        tfopt.function(lambda x, y: apply(op, (x, y)))(x, y)


def test_an_array_that_is_no_tensor_counts_too() -> None:
    array = np.arange(3.0)
    op = Op("second", lambda a, b: b)
    with pytest.raises(InternalError, match="input 1"):
        tfopt.function(lambda x: apply(op, (x, array)))(np.ones(3))


def test_operations_equal_their_definitions() -> None:
    view = Op("reversal", lambda a: a[::-1], views=True)
    copy = Op("copy", lambda a: a.copy(), views=True)  # it may, and need not
    same = Op("same", lambda a: a, identity=True)
    f = tfopt.function(lambda x: [apply(op, (x * 1.0,)) * 2.0 for op in (view, copy, same)])
    assert [y.tolist() for y in f(np.arange(3.0))] == [[4, 2, 0], [0, 2, 4], [0, 2, 4]]


# ---- the package's own


def test_only_declared_results_share_memory() -> None:
    """Nor is it said of an operation whose results never do."""
    seen, sharing = set(), set()
    for node in nodes_of_all_cases():
        seen.add(node.op)
        arrays = [engine.raw(x) for x in (*node.outs[:1], *node.ins[:1])]
        if len(arrays) == 2 and np.may_share_memory(*arrays):
            sharing.add(node.op)
    declared = {op for op in seen if op.views or op.identity}
    assert {op for op in sharing if not op.many} == declared
    assert declared >= {op for op in operations() if op.views}


@pytest.mark.parametrize("op", with_fact("identity"))
def test_identities(op: Op) -> None:
    x = np.arange(3.0)
    assert op.fn(*[x, np.ones(3)][: op.fn.__code__.co_argcount]) is x


@pytest.mark.parametrize("op", with_fact("infix"))
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64"])
def test_operators(op: Op, dtype: str) -> None:
    """Of scalars they give the bits of the function, or of what is called in its place."""
    for x in special(dtype):
        for y in [*special(dtype), 2, 0.5]:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = eval(f"x {op.infix} y")
                expected = op.quick(x, y) if op.infix_only else op.fn(x, y)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)
            assert np.signbit(made.real) == np.signbit(expected.real) or made != made


@pytest.mark.parametrize("op", with_fact("ones"))
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_ones_leave_the_other_operand_as_it_is(op: Op, dtype: str) -> None:
    x = special(dtype)
    for letter in op.ones:
        given = [x, x]
        given["ab".index(letter)] = np.ones(x.shape, dtype)
        made = op.fn(*given)
        if made.dtype == x.dtype:  # else it is not left out
            assert made.tobytes() == x.tobytes()


@pytest.mark.parametrize("op", [op for op in ops.UFUNCS.values() if op.elementwise])
def test_how_out_is_given(op: Op) -> None:
    given = [np.ones(3)] * op.fn.nin
    for dtype in ("float64", "int64", "bool"):
        given = [np.ones(3, dtype)] * op.fn.nin
        try:
            with np.errstate(all="ignore"):
                out = op.fn(*given)
            break
        except TypeError:
            continue
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        op.fn(*given, out)
    assert op.out_by_name == any(w.category is DeprecationWarning for w in caught)


def test_expressions_and_broadcasts() -> None:
    """An expression gives the bits of the function, whenever there is one."""
    seen = set()
    for node in nodes_of_all_cases():
        values = [engine.raw(x) for x in node.ins]
        if node.op.broadcasts:
            like = np.broadcast_to(values[0], node.outs[0].shape)
            np.testing.assert_array_equal(engine.peek(node.outs[0]), like)
        if node.op.expression is None:
            continue
        scope: dict[str, Any] = {f"x{k}": value for k, value in enumerate(values)}

        def constant(value: Any, name: str | None = None, scope: Any = scope) -> str:
            name = name or f"c{len(scope)}"
            scope[name] = value
            return name

        args = [
            f"x{k}" if isinstance(x, (Tensor, np.ndarray)) else repr(x)
            for k, x in enumerate(node.ins)
        ]
        written = node.op.expression(Call(node, args, constant))
        if written is not None:
            seen.add(node.op)
            made, expected = eval(written, scope), engine.raw(node.outs[0])
            assert made.dtype == expected.dtype and made.shape == expected.shape, written
            assert made.tobytes() == expected.tobytes(), written
    assert seen == {op for op in operations() if op.expression is not None}
