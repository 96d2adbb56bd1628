"""The backward pass of a program: which values the forward pass saves, and their use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfopt.autodiff.backward import added, backward
from tfopt.autodiff.tracing.codegen import compiled
from tfopt.autodiff.tracing.trace import dependents, depends, forget_values, inputs_of, traced
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Tensor, Trace
from tfopt.core.tensor_tree import TensorTree

if TYPE_CHECKING:
    from tfopt.autodiff.tracing.program import Program

__all__ = ["Gradients"]


class Gradients:
    """The backward pass of a program, compiled.

    The rules are traced once, after the program's own nodes. Nodes that do not depend on the
    upstream gradients belong to the forward program, all others to the backward program.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    forward : callable
        Of the program's inputs and what it captured; returns its outputs, what is saved, and the
        values of variables it has read.
    backward : callable
        Of what is saved and the upstream gradients; returns the gradients.
    saved : list of Tensor
        Values of the forward program that the backward program needs.
    sources, upstreams : list of Tensor
        The tensors that gradients are computed for, and the upstream gradients.
    grads : TensorTree
        The gradients of the sources.
    nodes : list of Node
        All that was traced.
    missing : str
        The operation that lacks a rule; empty if none does.
    """

    def __init__(self, program: Program) -> None:
        self.sources = [*program.inputs, *program.captured, *program.reads]
        self.upstreams = [engine.wrapped(np.ones(y.shape, y.dtype)) for y in program.outputs]
        nodes = [node for node in program.nodes if not isinstance(node.op, Effect)]
        trace = Trace()
        trace.nodes.extend(nodes)
        self.missing = ""
        try:
            outside = set(map(engine.key, program.constants))
            placed = [x for x in program.inputs if engine.key(x) not in outside]
            placed += [*program.reads, *self.upstreams]
            placed += [y for n in nodes for y in n.outs if engine.key(y) in program.symbolic]
            constants = [*program.captured, *program.constants]
            grads = traced(lambda: self._grads(program, nodes), placed, trace, constants)
        except LookupError as error:  # which matters only if a gradient is asked for
            self.missing, grads = str(error), [None] * len(self.sources)
            del trace.nodes[len(nodes) :]
        self.nodes = trace.nodes
        rules = self.nodes[len(nodes) :]
        # rules may read variables, too, such as those of what is computed again: nothing that has
        # been computed depends on these reads, but what is made of the gradients does
        late_reads = [node.outs[0] for node in rules if node.op is READ]
        self.sources += late_reads
        self.grads = TensorTree([*grads, *(None for _ in late_reads)])
        late = dependents(self.nodes, self.upstreams)
        ahead = [n for n in rules if not late & set(map(engine.key, n.outs))]
        behind = [n for n in self.nodes if late & set(map(engine.key, n.outs))]
        self.saved = _crossing(
            behind, self.grads.tensors, late, [*program.nodes, *ahead], self.sources
        )
        self.forward = compiled(
            [*program.nodes, *ahead], [*program.inputs, *program.captured],
            [*program.outputs, *self.saved], program.variables, "tensors", program.guards,
            f"{program.title}, recorded",
        )  # fmt: skip
        self.backward = compiled(
            behind, [*self.saved, *self.upstreams], self.grads.tensors, (), "none",
            title=f"gradient of {program.title}",
        )  # fmt: skip
        made = [*self.upstreams, *(y for n in rules for y in n.outs)]
        forget_values(made, dependents(self.nodes, [*self.sources, *self.upstreams]))

    def _grads(self, program: Program, nodes: list[Node]) -> list[Any]:
        """Return the gradients of the sources, by the rules."""
        grads: dict[Any, Any] = {}
        for y, g in zip(program.outputs, self.upstreams, strict=True):
            if engine.is_differentiable(y):
                key = engine.key(y)
                grads[key] = added(grads[key], g) if key in grads else g
        backward(nodes, grads, {engine.key(x) for x in self.sources})
        return [grads.get(engine.key(x)) for x in self.sources]

    def reached(self, upstreams: Sequence[Any]) -> list[bool]:
        """Return of each source whether its gradient depends on an upstream that is not None."""
        live = [u for u, g in zip(self.upstreams, upstreams, strict=True) if g is not None]
        keys = dependents(self.nodes, live)
        return [depends(g, keys) for g in self.grads.structure]


def _crossing(
    behind: Sequence[Node], results: Sequence[Tensor], late: set[Any], before: Sequence[Node],
    sources: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    """Return the values that are made before, or given, and needed behind."""
    made = {engine.key(y) for node in before for y in node.outs} | {engine.key(x) for x in sources}
    needed = {engine.key(x) for x in results}
    crossing: dict[Any, Tensor] = {}
    for x in results:
        if engine.key(x) in made and engine.key(x) not in late:
            crossing[engine.key(x)] = x
    for node in reversed(behind):
        if not needed & set(map(engine.key, node.outs)):
            continue
        for x in inputs_of(node):
            if not isinstance(x, Tensor):
                continue
            needed.add(engine.key(x))
            if engine.key(x) in made and engine.key(x) not in late:
                crossing[engine.key(x)] = x
    return list(crossing.values())
