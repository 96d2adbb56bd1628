"""What a function did, as a Python function of arrays: straight lines, generated from its trace.

What does not depend on the arguments is computed once; what nothing needs is left out; broadcasts
that an operation does by itself are left to it; arrays are written over where nobody reads them
again, and dropped after their last use, since locals would keep them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.backward import kept
from tfopt.autodiff.custom_gradient import Custom
from tfopt.autodiff.expressions import (
    SPECIAL,
    array_of,
    is_elementwise,
    is_times_one,
    keyword,
    takes_arrays,
    uniform,
)
from tfopt.autodiff.recompute import AFTER
from tfopt.autodiff.registry import Overridden
from tfopt.autodiff.sources import Resized, executed, refuse_resized
from tfopt.autodiff.tensor import STOP
from tfopt.autodiff.vjps import shapes
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Op, Tensor

__all__ = ["compiled", "guards_of"]

#: What gives its first input itself.
_SAME = {STOP, AFTER, shapes.COPY}
_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
#: Below this, dropping an array costs more than it frees.
_LARGE = 4096


def compiled(
    nodes: Sequence[Node],
    params: Sequence[Tensor],
    results: Sequence[Tensor],
    variables: Sequence[Any] = (),
    reads: str = "arrays",
    guards: Mapping[Any, int] | None = None,
    title: str = "function",
) -> Callable[..., tuple[Any, ...]]:
    """Return a function of arrays that does what nodes did.

    Parameters
    ----------
    nodes : sequence of Node
    params : sequence of Tensor
        What stands for the function's arguments. Among them may be values of variables.
    results : sequence of Tensor
    variables : sequence of Variable
        In the place of which each call gives others, as its first argument.
    reads : {"arrays", "tensors", "none"}
        Whether the function reads variables and has effects ("none": it is pure); and whether it
        returns the variables' values, too, as tensors, in the order in which it reads them.
    guards : mapping, optional
        Of `guards_of` the trace.
    title : str
        What the program is called in tracebacks.

    Raises
    ------
    Resized
        By the function: if a result whose size values decide has another one than in the trace.
    """
    return _Compiler(nodes, params, results, variables, reads, guards or {}).function(title)


def guards_of(nodes: Sequence[Node], inputs: Sequence[Tensor]) -> dict[Any, int]:
    """Number the operations on what differs from call to call, whose sizes values decide.

    They are known by the keys of their first outputs.
    """
    known = set(map(engine.key, inputs))
    found: dict[Any, int] = {}
    for node in nodes:
        op = node.op.op if isinstance(node.op, Overridden) else node.op
        if op is READ or any(isinstance(x, Tensor) and engine.key(x) in known for x in node.ins):
            known.update(map(engine.key, node.outs))
            if type(op) is Op and not op.sized and node.outs:
                found[engine.key(node.outs[0])] = len(found)
    return found


class _Compiler:
    def __init__(
        self,
        nodes: Sequence[Node],
        params: Sequence[Tensor],
        results: Sequence[Tensor],
        variables: Sequence[Any],
        reads: str,
        guards: Mapping[Any, int],
    ) -> None:
        self.guards = guards
        self.pure, self.tensors = reads == "none", reads == "tensors"
        self.names = {engine.key(x): f"p{k}" for k, x in enumerate(params)}
        self.n_params = len(params)
        self.params = frozenset(self.names)
        self.symbolic = set(self.names)
        self.pinned = set(self.names)
        self.alias: dict[Any, Any] = {}
        self.variables = list(variables)
        self.scope: dict[str, Any] = {
            "raw": engine.raw, "read": lambda v: v._read(), "array": np.array,
            "errstate": np.errstate, "kept": kept, "add_reduce": np.add.reduce,
            "maximum_reduce": np.maximum.reduce, "minimum_reduce": np.minimum.reduce,
            "resized": Resized, "refuse_resized": refuse_resized,
        }  # fmt: skip
        self.known: dict[int, str] = {}
        self.numbers: dict[Any, np.ndarray] = {}
        self.nodes = self._symbolic_nodes(nodes)
        self.results = [self.resolve(x) for x in results]
        self._leave_broadcasts(self.nodes)
        self.results = [self.resolve(x) for x in results]
        self.nodes = self._needed(self.nodes)
        self.lines: list[str] = []
        self.read_names: list[str] = []

    # ---- which nodes, and which of their inputs

    def resolve(self, x: Any) -> Any:
        """Return what a value is, without what gives it as it is."""
        while isinstance(x, Tensor) and engine.key(x) in self.alias:
            x = self.alias[engine.key(x)]
        return x

    def is_symbolic(self, x: Any) -> bool:
        return isinstance(x, Tensor) and engine.key(x) in self.symbolic

    def _symbolic_nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes whose outputs differ from call to call; all others are constants."""
        found = []
        for node in nodes:
            op = node.op.op if isinstance(node.op, Overridden) else node.op
            if isinstance(op, Custom):
                for out, inner in zip(node.outs, op.inner, strict=True):
                    self.alias[engine.key(out)] = self.resolve(inner)
            elif isinstance(op, Effect):
                if not self.pure:
                    found.append(_changed(node, op, tuple(map(self.resolve, node.ins))))
            elif op is READ:
                if engine.key(node.outs[0]) not in self.names:
                    self.symbolic.add(engine.key(node.outs[0]))
                    found.append(node)
            else:
                ins = tuple(map(self.resolve, node.ins))
                if not any(map(self.is_symbolic, ins)):
                    continue
                if op in _SAME or is_times_one(op, ins, node.outs[0], self.is_symbolic):
                    which = 0 if op in _SAME or self.is_symbolic(ins[0]) else 1
                    self.alias[engine.key(node.outs[0])] = ins[which]
                    continue
                self.symbolic.update(map(engine.key, node.outs))
                found.append(_changed(node, op, ins))
        return found

    def _leave_broadcasts(self, nodes: list[Node]) -> None:
        """Give elementwise operations what they would broadcast themselves."""
        users: dict[Any, list[Node]] = {}
        for node in nodes:
            for x in node.ins:
                if self.is_symbolic(x):
                    users.setdefault(engine.key(x), []).append(node)
        wanted = {engine.key(x) for x in self.results if isinstance(x, Tensor)}
        for node in nodes:
            if node.op is not shapes.BROADCAST or engine.key(node.outs[0]) in wanted:
                continue
            out = node.outs[0]
            if all(self._broadcasts(user, out) for user in users.get(engine.key(out), [])):
                self.alias[engine.key(out)] = self.resolve(node.ins[0])

    def _broadcasts(self, node: Node, value: Tensor) -> bool:
        """Whether an operation would broadcast a value to its own shape, by another operand."""
        if not is_elementwise(node.op) or node.outs[0].shape != value.shape:
            return False
        others = [self.resolve(x) for x in node.ins if x is not value]
        return any(np.shape(array_of(x)) == value.shape for x in others)

    def _needed(self, nodes: list[Node]) -> list[Node]:
        needed = {engine.key(x) for x in self.results if isinstance(x, Tensor)}
        found = []
        for node in reversed(nodes):
            keys = set(map(engine.key, node.outs))
            kept = isinstance(node.op, Effect) or not keys.isdisjoint(self.guards)
            if kept or keys & needed or (node.op is READ and self.tensors):
                ins = tuple(map(self.resolve, node.ins))
                needed.update(engine.key(x) for x in ins if isinstance(x, Tensor))
                found.append(_changed(node, node.op, ins))
        return found[::-1]

    # ---- who shares memory, and until when

    def _lives(self) -> None:
        """Find the root of each value's memory, and the last place where it is used."""
        self.roots: dict[Any, Any] = {}
        self.last: dict[Any, int] = {}
        self.group_last: dict[Any, int] = {}
        effects = [k for k, node in enumerate(self.nodes) if isinstance(node.op, Effect)]
        born: dict[Any, int] = {}
        for k, node in enumerate(self.nodes):
            inputs = [engine.key(x) for x in node.ins if self.is_symbolic(x)]
            for key in inputs:
                self._use(key, k)
            for out in node.outs:
                key = engine.key(out)
                born[key] = k
                if node.op.views and inputs:
                    self.roots[key] = self.root(inputs[0])
                elif type(node.op) is Op and node.op.many:
                    self.pinned.add(key)
                    self.pinned.update(map(self.root, inputs))
                if node.op is READ:
                    self.pinned.add(key)
        for x in self.results:
            if self.is_symbolic(x):
                self._use(engine.key(x), len(self.nodes))
                self.pinned.add(self.root(engine.key(x)))
        self.copied = {
            engine.key(node.outs[0])
            for k, node in enumerate(self.nodes)
            if node.op is READ
            and any(k < e <= self.group_last.get(engine.key(node.outs[0]), -1) for e in effects)
        }

    def root(self, key: Any) -> Any:
        return self.roots.get(key, key)

    def _use(self, key: Any, place: int) -> None:
        self.last[key] = place
        self.group_last[self.root(key)] = place

    # ---- lines

    def function(self, title: str) -> Callable[..., tuple[Any, ...]]:
        self._lives()
        places: list[Any] = []
        for place, node in enumerate(self.nodes):
            self._line(place, node)
            places += [node.where] * (len(self.lines) - len(places))
        returned = [*map(self._result, self.results), *self.read_names]
        self.lines.append(f"return ({', '.join(returned)}{',' if returned else ''})")
        params = ", ".join(["V", *(f"p{k}" for k in range(self.n_params))])
        body = "\n        ".join(self.lines)
        source = f"def program({params}):\n    with errstate(all='ignore'):\n        {body}\n"
        return executed(source, title, self.scope, [None, None, *places])

    def _line(self, place: int, node: Node) -> None:
        args = [self._argument(x, node) for x in node.ins]
        if isinstance(node.op, Effect):
            renamed = ", ".join(
                f"{self._constant(v)}: V[{k}]" for k, v in enumerate(self.variables)
            )
            listed = f"({', '.join(args)}{',' if args else ''})"
            self.lines.append(f"{self._constant(node.op)}({listed}, {{{renamed}}})")
        elif node.op is READ:
            self._read(node)
        else:
            over = self._written_over(place, node)
            name = args[over] if over is not None else f"t{len(self.names)}"
            if not node.op.many:
                self.names[engine.key(node.outs[0])] = name
                self.lines.append(f"{name} = {self._expression(node, args, over)}")
            else:
                outs = [f"{name}_{k}" for k in range(len(node.outs))]
                self.names.update(zip(map(engine.key, node.outs), outs, strict=True))
                expression = self._expression(node, args, None)
                self.lines.append(f"({', '.join(outs)},) = {expression}")
            if not node.op.sized:
                self._guard(node)
        self._drop(place, node)

    def _guard(self, node: Node) -> None:
        """Write the check that results have the sizes of the trace, for which what follows is."""
        names = [self.names[engine.key(out)] for out in node.outs]
        other = " or ".join(
            f"{name}.shape != {out.shape!r} or {name}.dtype != {self._constant(out.dtype)}"
            for name, out in zip(names, node.outs, strict=True)
        )
        number = self.guards.get(engine.key(node.outs[0])) if node.outs else None
        listed = f"({', '.join(names)},)"
        what = (
            f"raise resized({number}, {listed})" if number is not None
            else f"refuse_resized({node.op.label!r})"
        )  # fmt: skip
        self.lines.append(f"if {other}: {what}")

    def _read(self, node: Node) -> None:
        variable, key = (node.kw or {})["variable"], engine.key(node.outs[0])
        place = [k for k, v in enumerate(self.variables) if v is variable]
        which = f"V[{place[0]}]" if place else self._constant(variable)
        name = self.names[key] = f"t{len(self.names)}"
        if self.tensors:
            self.read_names.append(f"r{len(self.read_names)}")
            self.lines.append(f"{self.read_names[-1]} = read({which})")
            which = self.read_names[-1]
        self.lines.append(
            f"{name} = {f'array(raw({which}))' if key in self.copied else f'raw({which})'}"
        )

    def _written_over(self, place: int, node: Node) -> int | None:
        """Return the input whose array may take the result, if there is one."""
        out = node.outs[0].numpy_like()
        if not is_elementwise(node.op) or node.kw or not out[0] or node.op is engine.POWER:
            return None
        if len(node.ins) > 1 and node.outs[0].nbytes < _LARGE:
            return None  # a new small array costs less than telling where to write
        for k, x in enumerate(node.ins):
            if not self.is_symbolic(x) or x.numpy_like() != out:
                continue
            root = self.root(engine.key(x))
            others = [
                y for y in node.ins
                if self.is_symbolic(y) and self.root(engine.key(y)) == root
                and engine.key(y) is not engine.key(x)
            ]  # fmt: skip
            if (
                root is engine.key(x) and root not in self.pinned
                and self.group_last[root] == place and not others
            ):  # fmt: skip
                return k
        return None

    def _drop(self, place: int, node: Node) -> None:
        kept_names = {self.names.get(engine.key(out)) for out in node.outs}
        gone = {
            self.names[engine.key(x)]
            for x in node.ins
            if self.is_symbolic(x) and self.last[engine.key(x)] == place
            and x.nbytes >= _LARGE and not self.names[engine.key(x)].startswith("p")
        } - kept_names  # fmt: skip
        if gone:
            self.lines.append(f"del {', '.join(sorted(gone))}")

    def _result(self, x: Any) -> str:
        name = self._argument(x)
        given = self.is_symbolic(x) and self.root(engine.key(x)) in self.params
        copied = given and not self.pure and not self.tensors  # its owner may write into it
        return f"array({name})" if copied else name

    # ---- expressions

    def _argument(self, x: Any, node: Node | None = None) -> str:
        if self.is_symbolic(x):
            return self.names[engine.key(x)]
        if node is not None and type(x) in (int, float) and takes_arrays(node, x):
            return self._number(x, node.outs[0].dtype)
        if x is None or x is Ellipsis or type(x) is bool:
            return repr(x)
        if type(x) is int or (type(x) is float and x == x and abs(x) != np.inf):
            written = repr(x)
            return f"({written})" if written[0] == "-" else written  # -2 ** t is -(2 ** t)
        value = engine.stable(x) if isinstance(x, Tensor) else x
        if isinstance(value, np.ndarray):
            if node is not None and is_elementwise(node.op):
                others = [other for other in node.ins if other is not x]
                value = uniform(value, node.outs[0].shape, others)
            if value is x:
                value = np.array(x)  # its owner may write into it
        return self._constant(value)

    def _number(self, value: float, dtype: Any) -> str:
        """Return a constant array in the place of a number, which NumPy would make one of."""
        made = self.numbers.setdefault((repr(value), dtype), np.array(value, dtype))
        return self._constant(made)

    def _constant(self, value: Any) -> str:
        if id(value) not in self.known:
            name = self.known[id(value)] = f"c{len(self.known)}"
            self.scope[name] = value
        return self.known[id(value)]

    def _expression(self, node: Node, args: list[str], over: int | None) -> str:
        op, kw = node.op, node.kw or {}
        special = SPECIAL.get(op)
        if special is not None:
            line = special(node, args, kw, self._constant)
            if line is not None:
                return line
        scalar = not node.outs[0].shape
        if over is None and not kw and op.name in _INFIX and (scalar or op is engine.POWER):
            return f"{args[0]} {_INFIX[op.name]} {args[1]}"
        given = list(args)
        if over is not None:  # of two of them NumPy wants the keyword, which takes longer
            by_name = op.fn in (np.maximum, np.minimum)
            given.append(f"out={args[over]}" if by_name else args[over])
        given += [f"{name}={keyword(value, self._constant)}" for name, value in kw.items()]
        return f"{self._constant(op.fn)}({', '.join(given)})"


def _changed(node: Node, op: Any, ins: tuple[Any, ...]) -> Node:
    """Return a node of another operation, or other inputs."""
    made = Node(op, ins, node.outs, node.kw)
    made.where = node.where
    return made
