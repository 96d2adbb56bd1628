"""A trace as a function of tensors, with gradients of any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.custom_gradient import Custom
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.registry import Overridden
from tfopt.autodiff.tracing.codegen import compiled
from tfopt.autodiff.tracing.gradients import Gradients
from tfopt.autodiff.tracing.sizes import Resized, guards_of, refuse_resized
from tfopt.autodiff.tracing.sources import add_place, annotate
from tfopt.autodiff.tracing.trace import captured_by, dependents, forget_values
from tfopt.core import engine
from tfopt.core.engine import READ, Node, Tape, Tensor
from tfopt.core.locks import ProcessLock
from tfopt.core.tensor_tree import TensorTree
from tfopt.indexed_slices import densify

__all__ = ["Program"]


class Program:
    """A trace as a function.

    Parameters
    ----------
    nodes : list of Node
    inputs : sequence of Tensor
    result
        A nested structure of tensors, None and rows.
    variables : sequence of Variable
        Those among the arguments; each call passes its own.
    title : str
        The function's name.
    lock : ProcessLock, optional
        Held while the values of the trace are in use.
    constants : sequence of Tensor
        The inputs that are tensors from outside the function.

    Attributes
    ----------
    raw : callable
        The same of arrays, as :func:`~tfopt.autodiff.tracing.codegen.compiled` generates it.
    captured : list of Tensor
        Tensors from outside the function that have gradients.
    reads : list of Tensor
        The values of variables.
    others : dict
        Programs for the same arguments where values decide sizes: by the first that is another.
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: Sequence[Tensor],
        result: Any,
        variables: Sequence[Any],
        title: str = "function",
        lock: Any = None,
        constants: Sequence[Tensor] = (),
    ) -> None:
        self.nodes, self.inputs, self.variables = nodes, list(inputs), list(variables)
        self.title, self.lock, self.constants = title, lock or ProcessLock(), constants
        self.others: dict[Any, Program] = {}
        self.result = TensorTree(result)
        self.outputs = self.result.tensors
        self.reads = [node.outs[0] for node in nodes if node.op is READ]
        self.captured = captured_by(nodes, [*self.inputs, *self.reads], self.outputs)
        self.guards = guards_of(nodes, self.inputs)
        self.raw = compiled(
            nodes, self.inputs, self.outputs, self.variables, guards=self.guards, title=title
        )
        self._gradients: Gradients | None = None
        self._way_back: Program | None = None
        self.symbolic = dependents(nodes, [*self.inputs, *self.reads])
        self.symbolic -= set(map(engine.key, constants))
        self._forget_values()

    def __call__(self, tensors: Sequence[Any], variables: Sequence[Any]) -> Any:
        """Return the result for other inputs.

        Raises
        ------
        Resized
            If a size that depends on values is another one than in the trace.
        """
        try:
            recorders = engine.recorders()
            if not recorders or not self._concerns(recorders, tensors):
                made = engine.replayed(self.raw, variables, tensors)
            else:
                made = self._recorded(tensors, variables)
        except Resized:
            raise
        except Exception as error:
            annotate(error)
            raise
        return self.result.filled(made)

    def _concerns(self, recorders: Sequence[Any], tensors: Sequence[Any]) -> bool:
        """Whether a recorder knows an input, or may come to know one."""
        if self.reads:
            return True
        for recorder in recorders:  # loops: for small arrays, generators would take their time
            if not isinstance(recorder, Tape):
                return True
            for x in (*tensors, *self.captured):
                if isinstance(x, Tensor) and recorder.knows(x):
                    return True
        return False

    def _recorded(self, tensors: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the outputs, and record the call."""
        tensors = [as_tensor(x) for x in tensors]  # arrays are copied: their owners may write
        arrays = list(map(engine.raw, tensors))
        gradients = self.gradients(variables, arrays)
        made = gradients.forward(variables, *arrays, *map(engine.raw, self.captured))
        n, m = len(self.outputs), len(gradients.saved)
        outs = [engine.wrapped(y) for y in made[:n]]
        saved = [engine.wrapped(y) for y in made[n : n + m]]
        reads = list(made[n + m :])
        ins = (*tensors, *self.captured, *reads)
        engine.record(Replay(self, gradients, saved), ins, tuple(outs))
        return outs

    # ---- the way back

    def gradients(self, variables: Sequence[Any], arrays: Sequence[Any]) -> Gradients:
        """Return the backward pass; the first call traces it, at these values."""
        if self._gradients is None:
            with self.lock.held():
                if self._gradients is None:
                    self._refill(variables, arrays)
                    try:
                        self._gradients = Gradients(self)
                    finally:
                        self._forget_values()
        return self._gradients

    def way_back(self, gradients: Gradients) -> Program:
        """Return a program from inputs and upstreams to gradients, which saves nothing."""
        if self._way_back is None:
            with self.lock.held():
                if self._way_back is None:
                    nodes = [node for node in gradients.nodes if node.op is not READ]
                    self._way_back = Program(
                        nodes, [*gradients.sources, *gradients.upstreams],
                        gradients.grads.structure, (), f"gradient of {self.title}", self.lock,
                        [*self.captured, *self.constants],
                    )  # fmt: skip
        return self._way_back

    def _refill(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Give the tensors of the trace the values of a call, which rules may look at."""
        for x, array in zip(self.inputs, arrays, strict=True):
            engine.fill(x, array)
        renamed = dict(zip(self.variables, variables, strict=True))
        with np.errstate(all="ignore"):
            for node in self.nodes:
                if node.outs and engine.key(node.outs[0]) in self.symbolic:
                    try:
                        made = _values(node, renamed)
                    except Exception as error:
                        add_place(error, node.where)
                        raise
                    number = self.guards.get(engine.key(node.outs[0]))
                    if number is not None:
                        change = Resized(number, made)
                        if change.kind != Resized(number, tuple(map(engine.peek, node.outs))).kind:
                            raise change
                    for y, value in zip(node.outs, made, strict=True):
                        engine.fill(y, value)

    def _forget_values(self) -> None:
        forget_values([*self.inputs, *(y for n in self.nodes for y in n.outs)], self.symbolic)


def _values(node: Node, renamed: Any) -> tuple[Any, ...]:
    """Recompute a node from the current values of its inputs."""
    op = node.op.op if isinstance(node.op, Overridden) else node.op
    if isinstance(op, Custom):
        return tuple(map(engine.peek, op.inner))
    if op is READ:
        variable = (node.kw or {})["variable"]
        return (np.array(renamed.get(variable, variable)._array),)
    made = op.fn(*map(engine.raw, node.ins), **(node.kw or {}))
    return made if op.many else (made,)


class Replay:
    """The data of a program's call in its node.

    Parameters
    ----------
    program : Program
    gradients : Gradients
    saved : list of Tensor
        Values of this call.
    """

    name = "function"
    __slots__ = ("gradients", "program", "saved")

    def __init__(self, program: Program, gradients: Gradients, saved: list[Tensor]) -> None:
        self.program, self.gradients, self.saved = program, gradients, saved

    def grad(self, node: Node, upstreams: list[Any], need: list[bool]) -> list[Any]:
        """Return the gradients of a node's inputs."""
        if self.gradients.missing:
            raise LookupError(self.gradients.missing)
        filled = [
            engine.zeros(y) if g is None else densify(g)
            for g, y in zip(upstreams, node.outs, strict=True)
        ]
        if engine.recorders():
            program = self.program.way_back(self.gradients)
            try:
                grads = program([*node.ins, *map(as_tensor, filled)], ())
            except Resized:
                refuse_resized("an operation")
        else:
            arrays = map(engine.raw, (*self.saved, *filled))
            try:
                grads = self.gradients.grads.filled(self.gradients.backward((), *arrays))
            except Exception as error:
                annotate(error)
                raise
        if all(g is not None for g in upstreams):
            return list(grads)
        reached = self.gradients.reached(upstreams)
        return [g if r else None for g, r in zip(grads, reached, strict=True)]
