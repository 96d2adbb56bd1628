"""Pruning of a trace: a program leaves out constants, aliases and dead code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.custom_gradient import Custom
from tfopt.autodiff.registry import Overridden
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Op, Tensor

__all__ = ["Pruned", "array_of", "is_op_with"]


def is_op_with(op: Any, fact: str) -> bool:
    """Whether a node was made by an operation of which a fact holds."""
    return type(op) is Op and bool(getattr(op, fact))


def array_of(x: Any) -> Any:
    """Return the array of a tensor; anything else as it is."""
    return engine.peek(x) if isinstance(x, Tensor) else x


class Pruned:
    """The part of a trace that differs between calls, and that results or effects need.

    Parameters
    ----------
    nodes : sequence of Node
    params : sequence of Tensor
        The values that each call gives.
    results : sequence of Tensor
    reads : {"arrays", "tensors", "none"}
        As for :func:`~tfopt.autodiff.tracing.codegen.compiled`.
    guards : mapping
        The results whose sizes have to be checked.

    Attributes
    ----------
    nodes : list of Node
        Each input is the node that computed it: identities, products with ones, and broadcasts
        that the operation does itself are skipped.
    results : list
        Found in the same way: a result may be a parameter or a constant.
    symbolic : set
        The keys of the values that differ from call to call.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        params: Sequence[Tensor],
        results: Sequence[Tensor],
        reads: str,
        guards: Mapping[Any, int],
    ) -> None:
        self._pure, self._returns_reads, self._guards = reads == "none", reads == "tensors", guards
        self._params = frozenset(map(engine.key, params))
        self._alias: dict[Any, Any] = {}
        self.symbolic = set(self._params)
        kept = self._without_constants(nodes)
        self.results = [self._resolved(x) for x in results]
        self._skip_broadcasts(kept)
        self.results = [self._resolved(x) for x in results]
        self.nodes = self._needed(kept)

    def is_symbolic(self, x: Any) -> bool:
        """Whether a value differs from call to call."""
        return isinstance(x, Tensor) and engine.key(x) in self.symbolic

    def _resolved(self, x: Any) -> Any:
        """Return the value of which a value is an alias."""
        while isinstance(x, Tensor) and engine.key(x) in self._alias:
            x = self._alias[engine.key(x)]
        return x

    def _without_constants(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes whose outputs differ from call to call, and are no aliases."""
        kept = []
        for node in nodes:
            op = node.op.op if isinstance(node.op, Overridden) else node.op
            if isinstance(op, Custom):
                for out, inner in zip(node.outs, op.inner, strict=True):
                    self._alias[engine.key(out)] = self._resolved(inner)
            elif isinstance(op, Effect):
                if not self._pure:
                    kept.append(_changed(node, op, tuple(map(self._resolved, node.ins))))
            elif op is READ:
                if engine.key(node.outs[0]) not in self._params:
                    self.symbolic.add(engine.key(node.outs[0]))
                    kept.append(node)
            else:
                ins = tuple(map(self._resolved, node.ins))
                if not any(map(self.is_symbolic, ins)):
                    continue
                same = self._same(op, ins, node.outs)
                if same is not None:
                    self._alias[engine.key(node.outs[0])] = same
                    continue
                self.symbolic.update(map(engine.key, node.outs))
                kept.append(_changed(node, op, ins))
        return kept

    def _same(self, op: Any, ins: Sequence[Any], outs: Sequence[Tensor]) -> Any:
        """Return the input that an operation returns as it is, or None."""
        if op.identity:
            return ins[0]
        for letter in op.ones:
            k = "ab".index(letter)
            x, other = ins[k], ins[1 - k]
            if self.is_symbolic(x) or not self.is_symbolic(other):
                continue
            same, ones = other.numpy_like() == outs[0].numpy_like(), np.asarray(array_of(x))
            if same and ones.size and ones.dtype.kind in "iuf" and bool((ones == 1).all()):
                return other
        return None

    def _skip_broadcasts(self, nodes: list[Node]) -> None:
        """Pass operands to elementwise operations without broadcasting them first."""
        users: dict[Any, list[Node]] = {}
        for node in nodes:
            for x in node.ins:
                if self.is_symbolic(x):
                    users.setdefault(engine.key(x), []).append(node)
        results = {engine.key(x) for x in self.results if isinstance(x, Tensor)}
        for node in nodes:
            if not is_op_with(node.op, "broadcasts") or engine.key(node.outs[0]) in results:
                continue
            out = node.outs[0]
            if all(self._broadcasts(user, out) for user in users.get(engine.key(out), [])):
                self._alias[engine.key(out)] = self._resolved(node.ins[0])

    def _broadcasts(self, node: Node, value: Tensor) -> bool:
        """Whether an operation would broadcast a value to its own shape, by another operand."""
        if not is_op_with(node.op, "elementwise") or node.outs[0].shape != value.shape:
            return False
        others = [self._resolved(x) for x in node.ins if x is not value]
        return any(np.shape(array_of(x)) == value.shape for x in others)

    def _needed(self, nodes: list[Node]) -> list[Node]:
        """Return the nodes that results, effects or guards depend on."""
        needed = {engine.key(x) for x in self.results if isinstance(x, Tensor)}
        kept = []
        for node in reversed(nodes):
            keys = set(map(engine.key, node.outs))
            always = isinstance(node.op, Effect) or not keys.isdisjoint(self._guards)
            if always or keys & needed or (node.op is READ and self._returns_reads):
                ins = tuple(map(self._resolved, node.ins))
                needed.update(engine.key(x) for x in ins if isinstance(x, Tensor))
                kept.append(_changed(node, node.op, ins))
        return kept[::-1]


def _changed(node: Node, op: Any, ins: tuple[Any, ...]) -> Node:
    """Return a node of another operation, or other inputs."""
    made = Node(op, ins, node.outs, node.kw)
    made.where = node.where
    return made
