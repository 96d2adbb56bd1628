"""A trace as a Python function of arrays: straight lines, generated and compiled once.

Constants are computed once, and dead code is left out. An operation that broadcasts does so itself.
An array is overwritten if nothing reads it again, and dropped after its last use, since a local
variable would keep it.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any

import numpy as np

from tfopt.autodiff.expressions import Call
from tfopt.autodiff.tracing.liveness import Liveness
from tfopt.autodiff.tracing.pruning import Pruned, array_of, is_op_with
from tfopt.autodiff.tracing.sizes import Resized, refuse_resized
from tfopt.autodiff.tracing.sources import executed
from tfopt.core import engine
from tfopt.core.effects import Effect
from tfopt.core.engine import READ, Node, Op, Readable, Tensor
from tfopt.indexed_slices import IndexedSlices

__all__ = ["compiled"]

#: Names of parameters, results, constants and variables.
_GENERATED = re.compile(r"[prtc]\d+(_\d+)?|V|program")


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
        The function's arguments in the trace; some may be values of variables.
    results : sequence of Tensor
    variables : sequence of Variable
        Each call passes its own in their places, as its first argument.
    reads : {"arrays", "tensors", "none"}
        Whether the function reads variables and has effects ("none": it is pure); and whether it
        also returns the variables' values, as tensors, in the order in which it reads them.
    guards : mapping, optional
        Of `guards_of` the trace.
    title : str
        The program's name in tracebacks.

    Raises
    ------
    Resized
        By the function: if a result whose size depends on values has another one than in the trace.
    """
    return _Writer(nodes, params, results, variables, reads, guards or {}).function(title)


class _Writer:
    def __init__(
        self,
        nodes: Sequence[Node],
        params: Sequence[Tensor],
        results: Sequence[Tensor],
        variables: Sequence[Any],
        reads: str,
        guards: Mapping[Any, int],
    ) -> None:
        self.pruned = Pruned(nodes, params, results, reads, guards)
        self.lives = Liveness(self.pruned, params)
        self.is_symbolic = self.pruned.is_symbolic
        self.guards, self.variables = guards, list(variables)
        self.pure, self.returns_reads = reads == "none", reads == "tensors"
        self.names = {engine.key(x): f"p{k}" for k, x in enumerate(params)}
        self.params = frozenset(self.names)
        self.scope: dict[str, Any] = {
            "raw": engine.raw, "read": lambda v: v._read(), "array": np.array,
            "errstate": np.errstate, "resized": Resized, "refuse_resized": refuse_resized,
        }  # fmt: skip
        self.constants: dict[int, str] = {}
        self.numbers: dict[Any, np.ndarray] = {}
        self.lines: list[str] = []
        self.read_names: list[str] = []

    def function(self, title: str) -> Callable[..., tuple[Any, ...]]:
        params = ", ".join(["V", *(f"p{k}" for k in range(len(self.names)))])
        places: list[Any] = []
        for place, node in enumerate(self.pruned.nodes):
            self._write(place, node)
            places += [node.where] * (len(self.lines) - len(places))
        returned = [*map(self._result, self.pruned.results), *self.read_names]
        self.lines.append(f"return ({', '.join(returned)}{',' if returned else ''})")
        # entering and leaving takes longer than much of what computes nothing
        computes = any(not (n.op is READ or isinstance(n.op, Effect)) for n in self.pruned.nodes)
        opening = [f"def program({params}):"] + ["    with errstate(all='ignore'):"] * computes
        source = textwrap.indent("\n".join(self.lines), "    " * len(opening))
        source = "\n".join([*opening, source, ""])
        return executed(source, title, self.scope, [*(None for _ in opening), *places])

    # ---- statements

    def _write(self, place: int, node: Node) -> None:
        args = [self._argument(x, node) for x in node.ins]
        if isinstance(node.op, Effect):
            self.lines.append(self._effect(node.op, args))
        elif node.op is READ:
            self._write_read(node)
        else:
            over = self.lives.overwritable(place, node)
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
                self._write_guard(node)
        self._write_drop(place, node)

    def _effect(self, effect: Effect, args: list[str]) -> str:
        """Return the call of an effect, with its nested arguments written out if they can be."""
        tensors, (positional, named) = iter(args), effect.arguments.structure
        try:
            listed = [self._structure(each, tensors) for each in positional]
            # tensors come in the order of the sorted names
            by_name = {name: self._structure(named[name], tensors) for name in sorted(named)}
        except TypeError:  # a container of another class
            renamed = ", ".join(
                f"{self._constant(v)}: V[{k}]" for k, v in enumerate(self.variables)
            )
            together = f"({', '.join(args)}{',' if args else ''})"
            return f"{self._constant(effect)}({together}, {{{renamed}}})"
        listed += [f"{name}={by_name[name]}" for name in named]
        return f"{self._constant(effect.method)}({', '.join(listed)})"

    def _structure(self, value: Any, tensors: Iterator[str]) -> str:
        """Return a nested argument of an effect; raise TypeError if it must be made by its class.

        Tensors are taken from an iterator, in the order of `flatten`.
        """
        if isinstance(value, Tensor):
            return next(tensors)
        if isinstance(value, IndexedSlices):
            shape = self._constant(value.dense_shape)
            return f"{self._constant(IndexedSlices)}({next(tensors)}, {next(tensors)}, {shape})"
        if isinstance(value, Readable):
            places = [k for k, variable in enumerate(self.variables) if variable is value]
            return f"V[{places[0]}]" if places else self._constant(value)
        if not isinstance(value, (dict, list, tuple)):
            plain = value is None or type(value) in (bool, int, str)
            return repr(value) if plain else self._constant(value)
        if type(value) is dict:
            by_key = {key: self._structure(value[key], tensors) for key in sorted(value)}
            pairs = [f"{self._structure(key, tensors)}: {by_key[key]}" for key in value]
            return f"{{{', '.join(pairs)}}}"
        parts = [self._structure(part, tensors) for part in value]
        if type(value) is list:
            return f"[{', '.join(parts)}]"
        if type(value) is tuple:
            return f"({', '.join(parts)}{',' if parts else ''})"
        raise TypeError(type(value))

    def _write_guard(self, node: Node) -> None:
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

    def _write_read(self, node: Node) -> None:
        variable, key = (node.kw or {})["variable"], engine.key(node.outs[0])
        places = [k for k, v in enumerate(self.variables) if v is variable]
        which = f"V[{places[0]}]" if places else self._constant(variable)
        name = self.names[key] = f"t{len(self.names)}"
        if self.returns_reads:
            self.read_names.append(f"r{len(self.read_names)}")
            self.lines.append(f"{self.read_names[-1]} = read({which})")
            which = self.read_names[-1]
        copied = key in self.lives.copied
        self.lines.append(f"{name} = {f'array(raw({which}))' if copied else f'raw({which})'}")

    def _write_drop(self, place: int, node: Node) -> None:
        ended = {self.names[engine.key(x)] for x in node.ins if self.lives.ends(x, place)}
        ended -= {self.names.get(engine.key(out)) for out in node.outs}  # overwritten
        dropped = sorted(name for name in ended if not name.startswith("p"))
        if dropped:
            self.lines.append(f"del {', '.join(dropped)}")

    # ---- expressions

    def _expression(self, node: Node, args: list[str], over: int | None) -> str:
        op, call = node.op, Call(node, args, self._constant)
        written = None if op.expression is None else op.expression(call)
        if written is not None:
            return str(written)
        scalar = not node.outs[0].shape
        if over is None and op.infix and not call.kw and (scalar or op.infix_only):
            return f"{args[0]} {op.infix} {args[1]}"
        listed = list(args)
        if over is not None:
            listed.append(f"out={args[over]}" if op.out_by_name else args[over])
        listed += [f"{name}={call.keyword(name)}" for name in call.kw]
        return f"{self._function(op)}({', '.join(listed)})"

    def _function(self, op: Op) -> str:
        """Return the name of an operation's function: the operation's own, if it can be one."""
        writable = op.name.isidentifier() and not iskeyword(op.name)
        return self._constant(
            op.fn, op.name if writable and not _GENERATED.fullmatch(op.name) else None
        )

    def _argument(self, x: Any, node: Node | None = None) -> str:
        if self.is_symbolic(x):
            return self.names[engine.key(x)]
        if node is not None and type(x) in (int, float) and _takes_arrays(node, x):
            return self._number(x, node.outs[0].dtype)
        if x is None or x is Ellipsis or type(x) is bool:
            return repr(x)
        if type(x) is int or (type(x) is float and x == x and abs(x) != np.inf):
            written = repr(x)
            return f"({written})" if written[0] == "-" else written  # -2 ** t is -(2 ** t)
        value = engine.stable(x) if isinstance(x, Tensor) else x
        if node is None or not isinstance(value, np.ndarray):
            return self._constant(value)
        if is_op_with(node.op, "elementwise"):
            others = [other for other in node.ins if other is not x]
            value = _shortened(value, node.outs[0].shape, others)
        return self._constant(value)

    def _result(self, x: Any) -> str:
        name = self._argument(x)
        given = self.is_symbolic(x) and self.lives.root(x) in self.params
        copied = given and not self.pure and not self.returns_reads  # its owner may write into it
        return f"array({name})" if copied else name

    def _number(self, value: float, dtype: Any) -> str:
        """Return a constant array in the place of a number, which NumPy would make one of."""
        made = self.numbers.setdefault((repr(value), dtype), np.array(value, dtype))
        return self._constant(made)

    def _constant(self, value: Any, name: str | None = None) -> str:
        """Return the name that stands for an object: the given one, if it is free."""
        if name is not None and self.scope.setdefault(name, value) is value:
            return name
        if id(value) not in self.constants:
            name = self.constants[id(value)] = f"c{len(self.constants)}"
            self.scope[name] = value
        return self.constants[id(value)]


def _takes_arrays(node: Node, value: float) -> bool:
    """Whether an operation gives the same for an array without dimensions as for a number."""
    if not is_op_with(node.op, "elementwise") or node.op.infix_only or node.kw:
        return False
    out = node.outs[0]
    return (
        bool(out.shape) and out.dtype.char in "fd" and abs(value) < 1e30
        and all(x.dtype == out.dtype for x in node.ins if isinstance(x, Tensor))
        and _computes_in(node.op.fn, out.dtype)
    )  # fmt: skip


@functools.cache
def _computes_in(ufunc: np.ufunc, dtype: Any) -> bool:
    """Whether a ufunc of arrays of a dtype computes in it; ldexp takes integers, too."""
    try:
        return set(ufunc.resolve_dtypes((dtype,) * ufunc.nin + (None,) * ufunc.nout)) == {dtype}
    except TypeError:
        return False


def _shortened(array: np.ndarray, shape: tuple[int, ...], others: Iterable[Any]) -> np.ndarray:
    """Return one element for an array of equal elements, where another operand has the shape."""
    covered = any(np.shape(array_of(x)) == shape for x in others)
    if array.ndim and array.size and covered:
        parts = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.itemsize)
        if bool((parts == parts[0]).all()):  # bit by bit: 0.0 and -0.0 are not the same
            return np.array(array.flat[0])
    return array
