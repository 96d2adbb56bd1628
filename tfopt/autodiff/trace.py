"""Traces: what a function's body does to arguments that stand for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.backward import added, backward
from tfopt.autodiff.custom_gradient import Custom
from tfopt.autodiff.ops import as_tensor
from tfopt.autodiff.program import compiled, guards_of
from tfopt.autodiff.registry import Overridden
from tfopt.autodiff.sources import Resized, add_place, annotate, refuse_resized
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Tape, Tensor, Trace
from tfopt.core.locks import ProcessLock
from tfopt.core.opened import Opened
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["Program", "traced"]


def traced(
    body: Callable[[], Any], inputs: Sequence[Tensor], trace: Trace, captured: Sequence[Tensor] = ()
) -> Any:
    """Run a body with nothing recording but a trace, and return what it returns."""
    before = engine.recorders(), engine.watchers(), engine.overrides()
    for x in inputs:
        trace.place(x)
    for x in captured:
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


class Program:
    """A trace as a function: of arrays; of tensors, with gradients of any order.

    Parameters
    ----------
    nodes : list of Node
    inputs : sequence of Tensor
    result
        A nested structure of tensors, None and rows.
    variables : sequence of Variable
        Those among the arguments, which each call gives others for.
    title : str
        The function's name.
    lock : ProcessLock, optional
        Held while the values of the trace are in use.
    constants : sequence of Tensor
        Those of the inputs that are tensors from outside.

    Attributes
    ----------
    others : dict
        Programs for the same arguments where values decide sizes: by the first that is another.
    """

    name = "function"

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
        self.opened = Opened(result)
        self.outputs = self.opened.tensors
        self.reads = [node.outs[0] for node in nodes if node.op is READ]
        self.read_variables = [(node.kw or {})["variable"] for node in nodes if node.op is READ]
        self.captured = _captured(nodes, [*self.inputs, *self.reads], self.outputs)
        self.guards = guards_of(nodes, self.inputs)
        self.raw = compiled(
            nodes, self.inputs, self.outputs, self.variables, guards=self.guards, title=title
        )
        self._gradients: Gradients | None = None
        self.symbolic = _depending(nodes, [*self.inputs, *self.reads])
        self.symbolic -= set(map(engine.key, constants))
        _let_go([*self.inputs, *(y for n in nodes for y in n.outs)], self.symbolic)

    def __call__(self, tensors: Sequence[Any], variables: Sequence[Any]) -> Any:
        """Return the result for other inputs.

        Raises
        ------
        Resized
            If a size that values decide is another one than in the trace.
        """
        try:
            recorders = engine.recorders()
            if not recorders or not self._concerns(recorders, tensors):
                arrays = map(engine.raw, tensors)
                made = [engine.wrapped(y) for y in self.raw(variables, *arrays)]
            else:
                made = self._recorded(tensors, variables)
        except Resized:
            raise
        except Exception as error:
            annotate(error)
            raise
        return self.opened.closed(made)

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
        engine.record(Call(self, gradients, saved), ins, tuple(outs))
        return outs

    def gradients(self, variables: Sequence[Any], arrays: Sequence[Any]) -> Gradients:
        """Return the way back, which is traced when it is first asked for, at the values given."""
        if self._gradients is None:
            with self.lock.here:
                if self._gradients is None:
                    self._refill(variables, arrays)
                    try:
                        self._gradients = Gradients(self)
                    finally:
                        _let_go([*self.inputs, *(y for n in self.nodes for y in n.outs)],
                                self.symbolic)  # fmt: skip
        return self._gradients

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


def _values(node: Node, renamed: Any) -> tuple[Any, ...]:
    """Return what a node makes of the values that its inputs have now."""
    op = node.op.op if isinstance(node.op, Overridden) else node.op
    if isinstance(op, Custom):
        return tuple(map(engine.peek, op.inner))
    if op is READ:
        variable = (node.kw or {})["variable"]
        return (np.array(renamed.get(variable, variable)._array),)
    made = op.fn(*map(engine.raw, node.ins), **(node.kw or {}))
    return made if op.many else (made,)


def _let_go(tensors: Sequence[Tensor], symbolic: set[Any]) -> None:
    """Forget values that differ from call to call."""
    for x in tensors:
        if engine.key(x) in symbolic:
            engine.forget(x)


def _captured(
    nodes: Sequence[Node], known: Sequence[Tensor], outputs: Sequence[Tensor]
) -> list[Tensor]:
    """Return the tensors that no node has made, once each, which have gradients."""
    made = {engine.key(x) for x in known}
    found: dict[Any, Tensor] = {}
    for node in nodes:
        for x in node.ins:
            if isinstance(x, Tensor) and engine.key(x) not in made and engine.is_differentiable(x):
                found.setdefault(engine.key(x), x)
        made.update(map(engine.key, node.outs))
    for y in outputs:
        if engine.key(y) not in made and engine.is_differentiable(y):
            found.setdefault(engine.key(y), y)
    return list(found.values())


class Gradients:
    """The way back through a program.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    forward : callable
        Of the program's inputs and what it captured; returns its outputs, what is saved, and the
        values of variables it has read.
    saved : list of Tensor
        What of the way there the way back needs.
    """

    def __init__(self, program: Program) -> None:
        self.sources = [*program.inputs, *program.captured, *program.reads]
        self.outputs = program.outputs
        self.upstreams = [engine.wrapped(np.ones(y.shape, y.dtype)) for y in program.outputs]
        nodes = [n for n in program.nodes if not isinstance(n.op, Effect)]
        trace = Trace()
        trace.nodes.extend(nodes)
        self.missing = ""
        try:
            outside = set(map(engine.key, program.constants))
            placed = [x for x in program.inputs if engine.key(x) not in outside]
            placed += [*program.reads, *self.upstreams]
            placed += [y for n in nodes for y in n.outs if engine.key(y) in program.symbolic]
            captured = [*program.captured, *program.constants]
            grads = traced(lambda: self._found(nodes), placed, trace, captured)
        except LookupError as error:  # which matters only if a gradient is asked for
            self.missing, grads = str(error), [None] * len(self.sources)
            del trace.nodes[len(nodes) :]
        self.opened = Opened(grads)
        back = trace.nodes
        self.late = _depending(back, self.upstreams)
        self.reached = [_depends(g, self.late) for g in grads]
        ahead = [n for n in back[len(nodes) :] if not self.late & set(map(engine.key, n.outs))]
        behind = [n for n in back if self.late & set(map(engine.key, n.outs))]
        self.saved = _crossing(behind, self.opened.tensors, self.late, [*program.nodes, *ahead],
                               self.sources)  # fmt: skip
        self.nodes, self.program = back, program
        self.forward = compiled(
            [*program.nodes, *ahead], [*program.inputs, *program.captured],
            [*program.outputs, *self.saved], program.variables, "tensors", program.guards,
            f"{program.title}, recorded",
        )  # fmt: skip
        self.backward = compiled(
            behind, [*self.saved, *self.upstreams], self.opened.tensors, (), "none",
            title=f"gradient of {program.title}",
        )  # fmt: skip
        self._higher: Program | None = None
        made = [*self.upstreams, *(y for n in back[len(nodes) :] for y in n.outs)]
        _let_go(made, _depending(back, [*self.sources, *self.upstreams]))

    def _found(self, nodes: list[Node]) -> list[Any]:
        seeds: dict[Any, Any] = {}
        for y, g in zip(self.outputs, self.upstreams, strict=True):
            if engine.is_differentiable(y):
                key = engine.key(y)
                seeds[key] = added(seeds[key], g) if key in seeds else g
        backward(nodes, seeds, {engine.key(x) for x in self.sources})
        return [seeds.get(engine.key(x)) for x in self.sources]

    def higher(self) -> Program:
        """Return the program from inputs and upstreams to gradients, which computes all anew."""
        if self._higher is None:
            nodes = [n for n in self.nodes if n.op is not READ]
            inputs = [*self.sources, *self.upstreams]
            title = f"gradient of {self.program.title}"
            self._higher = Program(
                nodes, inputs, self.opened.structure, (), title, self.program.lock,
                [*self.program.captured, *self.program.constants],
            )  # fmt: skip
        return self._higher


def _depending(nodes: Sequence[Node], on: Sequence[Tensor]) -> set[Any]:
    found = {engine.key(x) for x in on}
    for node in nodes:
        if any(_depends(x, found) for x in (*node.ins, *getattr(node.op, "inner", ()))):
            found.update(map(engine.key, node.outs))
    return found


def _depends(x: Any, found: set[Any]) -> bool:
    if isinstance(x, IndexedSlices):
        return _depends(x.values, found)
    return isinstance(x, Tensor) and engine.key(x) in found


def _crossing(
    behind: Sequence[Node], results: Sequence[Tensor], late: set[Any], before: Sequence[Node],
    sources: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    """Return the values that are made before, or given, and needed behind."""
    made = {engine.key(y) for node in before for y in node.outs} | {engine.key(x) for x in sources}
    needed = {engine.key(x) for x in results}
    found: dict[Any, Tensor] = {}
    for x in results:
        if engine.key(x) in made and engine.key(x) not in late:
            found[engine.key(x)] = x
    for node in reversed(behind):
        if not needed & set(map(engine.key, node.outs)):
            continue
        for x in (*node.ins, *getattr(node.op, "inner", ())):
            if not isinstance(x, Tensor):
                continue
            needed.add(engine.key(x))
            if engine.key(x) in made and engine.key(x) not in late:
                found[engine.key(x)] = x
    return list(found.values())


class Call:
    """What a node holds of a program's call.

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
        way = self.gradients
        if way.missing:
            raise LookupError(way.missing)
        given = [
            engine.zeros(y) if g is None else densify(g)
            for g, y in zip(upstreams, node.outs, strict=True)
        ]
        if engine.recorders():
            try:
                grads = way.higher()([*node.ins, *map(as_tensor, given)], ())
            except Resized:
                refuse_resized("an operation")
        else:
            arrays = map(engine.raw, (*self.saved, *given))
            try:
                grads = way.opened.closed(way.backward((), *arrays))
            except Exception as error:
                annotate(error)
                raise
        live = {
            engine.key(u) for u, g in zip(way.upstreams, upstreams, strict=True) if g is not None
        }
        if len(live) == len(upstreams):
            return list(grads)
        reached = _depending(way.nodes, [u for u in way.upstreams if engine.key(u) in live])
        return [
            g if _depends(found, reached) else None
            for g, found in zip(grads, way.opened.structure, strict=True)
        ]
