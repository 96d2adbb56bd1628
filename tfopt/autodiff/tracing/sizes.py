"""Sizes that depend on values: a traced program is valid for those of its trace, or retraces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tfopt.autodiff.registry import Overridden
from tfopt.core import engine
from tfopt.core.engine import READ, Node, Op, Tensor
from tfopt.errors import InvalidArgumentError

__all__ = ["Resized", "guards_of", "refuse_resized"]


class Resized(Exception):
    """The size of a result that depends on values differs from that in the trace.

    Parameters
    ----------
    number : int
        Its number by `guards_of`.
    arrays : tuple of ndarray
        The result.

    Attributes
    ----------
    kind : tuple
        The number, and the shapes and dtypes of the arrays.
    """

    def __init__(self, number: int, arrays: tuple[Any, ...]) -> None:
        super().__init__(number)
        self.kind = number, tuple((x.shape, x.dtype) for x in arrays)


def refuse_resized(label: str) -> NoReturn:
    """Refuse a size that depends on values where only the gradient is computed, not the result."""
    raise InvalidArgumentError(
        f"the result of {label}, in the gradient of a traced function, has another size than when "
        "the gradient was traced, because its size depends on values. Compute the gradient inside "
        "the function, or do not trace the function"
    )


def guards_of(nodes: Sequence[Node], inputs: Sequence[Tensor]) -> dict[Any, int]:
    """Number the operations whose sizes depend on values that differ from call to call.

    The dict's keys are those of the operations' first outputs.
    """
    known = set(map(engine.key, inputs))
    guards: dict[Any, int] = {}
    for node in nodes:
        op = node.op.op if isinstance(node.op, Overridden) else node.op
        if op is READ or any(isinstance(x, Tensor) and engine.key(x) in known for x in node.ins):
            known.update(map(engine.key, node.outs))
            if type(op) is Op and not op.sized and node.outs:
                guards[engine.key(node.outs[0])] = len(guards)
    return guards
