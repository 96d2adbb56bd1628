"""Tracing of a function's body, and the dependencies within a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfopt.core import engine
from tfopt.core.engine import Node, Tensor, Trace
from tfopt.indexed_slices import IndexedSlices

__all__ = ["captured_by", "dependents", "depends", "forget_values", "inputs_of", "traced"]


def traced(
    body: Callable[[], Any],
    inputs: Sequence[Tensor],
    trace: Trace,
    constants: Sequence[Tensor] = (),
) -> Any:
    """Run a body while only a trace records, and return its result.

    Parameters
    ----------
    body : callable
    inputs : sequence of Tensor
        Placeholders of the values of later calls.
    trace : Trace
    constants : sequence of Tensor
        Further inputs, whose values are the same in every call.
    """
    before = engine.recorders(), engine.watchers(), engine.overrides()
    for x in inputs:
        trace.place(x)
    for x in constants:
        trace.assume(x)
    try:
        engine.set_recorders((trace,))
        engine.set_watchers(())
        engine.set_overrides({})
        return body()
    finally:
        engine.set_recorders(before[0])
        engine.set_watchers(before[1])
        engine.set_overrides(before[2])


def inputs_of(node: Node) -> tuple[Any, ...]:
    """Return the inputs of a node; for a custom gradient also its function's results."""
    return (*node.ins, *getattr(node.op, "inner", ()))


def dependents(nodes: Sequence[Node], on: Iterable[Tensor]) -> set[Any]:
    """Return the keys of tensors and of all values that nodes compute from them."""
    keys = {engine.key(x) for x in on}
    for node in nodes:
        if any(depends(x, keys) for x in inputs_of(node)):
            keys.update(map(engine.key, node.outs))
    return keys


def depends(x: Any, keys: set[Any]) -> bool:
    """Whether a value is a tensor, or rows, of one of the keys."""
    if isinstance(x, IndexedSlices):
        return depends(x.values, keys)
    return isinstance(x, Tensor) and engine.key(x) in keys


def captured_by(
    nodes: Sequence[Node], known: Sequence[Tensor], outputs: Sequence[Tensor]
) -> list[Tensor]:
    """Return the differentiable tensors that come from outside, once each."""
    made = {engine.key(x) for x in known}
    captured: dict[Any, Tensor] = {}

    def look_at(x: Any) -> None:
        if isinstance(x, Tensor) and engine.key(x) not in made and engine.is_differentiable(x):
            captured.setdefault(engine.key(x), x)

    for node in nodes:
        for x in node.ins:
            look_at(x)
        made.update(map(engine.key, node.outs))
    for y in outputs:
        look_at(y)
    return list(captured.values())


def forget_values(tensors: Iterable[Tensor], symbolic: set[Any]) -> None:
    """Release values that differ from call to call."""
    for x in tensors:
        if engine.key(x) in symbolic:
            engine.forget(x)
