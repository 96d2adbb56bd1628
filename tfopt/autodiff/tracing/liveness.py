"""Liveness: which values of a program share memory, and where each is last used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.autodiff.tracing.pruning import Pruned, is_op_with
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Tensor

__all__ = ["Liveness"]

#: Below so many bytes, dropping an array costs more than it frees.
_LARGE = 4096


class Liveness:
    """When each value is last used: then it may be overwritten or dropped.

    Values are known by their keys. The root of a view is the value whose memory it lies in.

    Parameters
    ----------
    pruned : Pruned
    params : sequence of Tensor

    Attributes
    ----------
    copied : set
        Reads of variables that are used after an effect, which may change the variable.
    """

    def __init__(self, pruned: Pruned, params: Sequence[Tensor]) -> None:
        self._is_symbolic = pruned.is_symbolic
        self._roots: dict[Any, Any] = {}
        self._last: dict[Any, int] = {}
        self._last_of_root: dict[Any, int] = {}
        #: Roots that belong to somebody else, or that are returned: they are not overwritten.
        self._pinned = set(map(engine.key, params))
        nodes = pruned.nodes
        for k, node in enumerate(nodes):
            self._add(node, k)
        for x in pruned.results:
            if pruned.is_symbolic(x):
                self._use(engine.key(x), len(nodes))
                self._pinned.add(self.root(x))
        effects = [k for k, node in enumerate(nodes) if isinstance(node.op, Effect)]
        self.copied = {
            engine.key(node.outs[0])
            for k, node in enumerate(nodes)
            if node.op is READ
            and any(
                k < e <= self._last_of_root.get(engine.key(node.outs[0]), -1) for e in effects
            )
        }  # fmt: skip

    def _add(self, node: Node, place: int) -> None:
        inputs = [x for x in node.ins if self._is_symbolic(x)]
        for x in inputs:
            self._use(engine.key(x), place)
        for out in node.outs:
            key = engine.key(out)
            if is_op_with(node.op, "views") and inputs:
                self._roots[key] = self.root(inputs[0])
            elif is_op_with(node.op, "many"):
                self._pinned.add(key)
                self._pinned.update(map(self.root, inputs))
            if node.op is READ:
                self._pinned.add(key)

    def _use(self, key: Any, place: int) -> None:
        self._last[key] = place
        self._last_of_root[self._roots.get(key, key)] = place

    def root(self, x: Tensor) -> Any:
        """Return the key of the value whose memory a value lies in: often its own."""
        key = engine.key(x)
        return self._roots.get(key, key)

    def overwritable(self, place: int, node: Node) -> int | None:
        """Return which input's array an elementwise operation may write its result to, or None."""
        out = node.outs[0].numpy_like()
        if not node.op.elementwise or node.kw or not out[0] or node.op.infix_only:
            return None
        if len(node.ins) > 1 and node.outs[0].nbytes < _LARGE:
            return None  # a new small array costs less than telling where to write
        for k, x in enumerate(node.ins):
            if not self._is_symbolic(x) or x.numpy_like() != out:
                continue
            key, root = engine.key(x), self.root(x)
            shared = any(
                self._is_symbolic(y) and self.root(y) == root and engine.key(y) is not key
                for y in node.ins
            )
            mine = root is key and root not in self._pinned
            if mine and self._last_of_root[root] == place and not shared:
                return k
        return None

    def ends(self, x: Any, place: int) -> bool:
        """Whether a large value is used for the last time."""
        return (
            self._is_symbolic(x) and self._last[engine.key(x)] == place and x.nbytes >= _LARGE
        )  # fmt: skip
