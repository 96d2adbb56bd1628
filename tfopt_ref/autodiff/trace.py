"""What a function does, written down once and done again for other values."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.nest import flatten, map_leaves
from tfopt_ref.autodiff.ops import Op, added, closed, opened
from tfopt_ref.autodiff.tape import backward
from tfopt_ref.autodiff.tensor import (
    Node,
    Slot,
    Tensor,
    made,
    record,
    setting,
)
from tfopt_ref.autodiff.variable import Variable
from tfopt_ref.errors import InvalidArgumentError

__all__ = ["Program", "Resized", "Trace"]

Values = dict[int, Tensor]  # by the keys of the tensors of a trace
Variables = dict[Variable, Variable]  # those of a call, by those of the trace


#: Of these values decide how large the result is.
FOUND = {"argwhere", "bincount", "compress", "extract", "flatnonzero", "nonzero", "unique"}
#: Of these the values of further inputs do.
PLACED = {"delete", "insert", "repeat"}


def sized_by_values(node: Node) -> bool:
    """Say whether values may decide the size of a result: a mask's, or those a function finds."""
    masked = node.type == "getitem" and any(x.dtype == bool for x in node.inputs)
    unknown = isinstance(node.op, Op) and not node.op.rules
    placed = node.type in PLACED and len(node.inputs) > 1
    return masked or unknown or placed or node.type in FOUND


class Resized(Exception):
    """A result has another size than in the trace, since values decide it."""


class Read:
    """The reading of a variable."""

    def __init__(self, variable: Variable, value: Tensor) -> None:
        self.variable, self.value = variable, value
        self.sources: tuple[Tensor, ...] = ()


class Effect:
    """The call of a method that changes variables."""

    def __init__(self, method: Callable[..., Any], args: Any, kwargs: Any) -> None:
        call = opened((list(args), kwargs))
        self.method = method
        self.sources = [leaf.read() for leaf in flatten(call) if isinstance(leaf, Tensor)]
        numbers = itertools.count()
        self.template = map_leaves(
            lambda leaf: Slot(next(numbers)) if isinstance(leaf, Tensor) else leaf, call
        )

    def do(self, values: Values, variables: Variables) -> None:
        """Call the method with the values of a replay."""

        def filled(leaf: Any) -> Any:
            if isinstance(leaf, Slot):
                return values[self.sources[leaf.number].key]
            return variables.get(leaf, leaf) if isinstance(leaf, Variable) else leaf

        args, kwargs = closed(map_leaves(filled, self.template))
        self.method(*args, **kwargs)


class Trace:
    """Records everything, while a function's body runs."""

    def __init__(self, scope: object, known: Iterable[int] = (), may_create: bool = True) -> None:
        self.scope = scope
        self.steps: list[Any] = []
        self.captured: Values = {}  # tensors from outside
        self.created = self.changed = False
        self._may_create = may_create
        self._known = set(known)
        self._values: dict[Variable, Tensor] = {}

    def take(self, node: Node) -> None:
        """Write a node down."""
        if self.changed and sized_by_values(node) and any(x.scope for x in node.inputs):
            raise TypeError(
                f"{node.type} after an assignment, in a function that is traced: the shape of its "
                "result may depend on values that the assignment changes. Do it before the "
                "assignment, or in a function of its own"
            )
        node.template = map_leaves(  # arrays are copied: their owners may write into them
            lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, node.template
        )
        self.capture([*node.inputs, *node.sources])
        self._known.update(y.key for y in node.outputs)
        self.steps.append(node)

    def capture(self, tensors: Iterable[Tensor]) -> None:
        """Take note of tensors that nothing in the trace has made."""
        for tensor in tensors:
            if tensor.key not in self._known:
                self._known.add(tensor.key)
                self.captured[tensor.key] = tensor

    def reading(self, variable: Variable) -> Tensor:
        """Return a variable's value, a new one after each effect."""
        if variable not in self._values:
            value = self._values[variable] = Tensor(variable._array, self.scope)
            self._known.add(value.key)
            self.steps.append(Read(variable, value))
        return self._values[variable]

    def knows(self, tensor: Tensor) -> bool:
        """Say nothing: what has a gradient, the tapes know."""
        return False

    def would_watch(self, variable: Variable) -> bool:
        """Say nothing, likewise."""
        return False

    def take_read(self, variable: Variable, value: Tensor) -> None:
        """Do nothing: `reading` has written it down."""

    def take_new(self, variable: Variable) -> None:
        """Take note that a variable is made, which the first call of a function may do."""
        if not self._may_create:
            raise ValueError(
                "a function that is traced may make variables in its first call alone: make them "
                "once, and keep them, or make them outside (tf.function only supports singleton "
                "tf.Variables created on the first call)"
            )
        self.created = True

    def take_effect(self, method: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Write an effect down, without having it."""
        effect = Effect(method, args, kwargs)
        self.capture(effect.sources)
        self.steps.append(effect)
        self.changed = True
        self._values.clear()
        for leaf in flatten((list(args), kwargs)):
            if isinstance(leaf, Variable):
                leaf.read()  # whoever watches it watches what it becomes


class Program:
    """The steps of a trace, with tensors as its inputs and a nest of tensors as its result."""

    name = "function"

    def __init__(
        self, trace: Trace, inputs: list[Tensor], result: Any, variables: list[Variable]
    ) -> None:
        self.inputs, self.result, self.variables = inputs, result, variables
        self.outputs = [leaf for leaf in flatten(opened(result)) if isinstance(leaf, Tensor)]
        trace.capture(self.outputs)
        self.scope, self.captured, self.traced = trace.scope, trace.captured, trace.steps
        self.steps = _needed(trace.steps, self.outputs)
        self.reads = [step.value for step in self.steps if isinstance(step, Read)]

    def __call__(self, tensors: list[Tensor], variables: Variables) -> Any:
        """Return the result for other inputs and variables, and let the recorders know."""
        values = {x.key: tensor for x, tensor in zip(self.inputs, tensors, strict=True)}
        values.update(self.captured)
        self.carry_out(values, variables)
        inputs = [values[x.key] for x in (*self.inputs, *self.captured.values(), *self.reads)]
        found = [values[y.key] for y in self.outputs]
        outputs = [made(tensor.array, [tensor]) for tensor in found]
        template: Any = ([Slot(i) for i in range(len(inputs))], {})
        record(Node(Call(self, variables), template, inputs, outputs, outputs))
        left = iter(outputs)
        return closed(
            map_leaves(
                lambda leaf: next(left) if isinstance(leaf, Tensor) else leaf, opened(self.result)
            )
        )

    def carry_out(self, values: Values, variables: Variables | None) -> None:
        """Take the steps: without variables, only those that compute values from values."""
        with np.errstate(all="ignore"):
            for step in self.steps:
                if isinstance(step, Node):
                    _compute(step, values)
                elif variables is not None and isinstance(step, Read):
                    values[step.value.key] = variables.get(step.variable, step.variable).read()
                elif variables is not None:
                    step.do(values, variables)

    @functools.cached_property
    def gradient(self) -> Program:
        """The program from the inputs, what was captured and read, and upstreams to gradients."""
        inputs = [*self.inputs, *self.captured.values(), *self.reads]
        nodes = [step for step in self.traced if isinstance(step, Node)]
        upstreams = [Tensor(np.ones(y.shape, y.dtype), self.scope) for y in self.outputs]
        computed = [y for node in nodes for y in node.outputs]
        trace = Trace(self.scope, {x.key for x in (*inputs, *upstreams, *computed)})
        trace.steps += nodes
        seeds: dict[int, Any] = {}
        with setting(recorders=(trace,), watchers=(), overrides={}):
            for y, g in zip(self.outputs, upstreams, strict=True):
                seeds[y.key] = added(seeds[y.key], g) if y.key in seeds else g
            grads = backward(nodes, seeds, {x.key for x in inputs})
        result = [grads.get(x.key) for x in inputs]
        return Program(trace, [*inputs, *upstreams], result, self.variables)


def _compute(node: Node, values: Values) -> None:
    sources = [values[x.key] for x in node.sources]
    args, kwargs = node.call([tensor.array for tensor in sources])
    for y, array in zip(node.outputs, flatten(node.op.function(*args, **kwargs)), strict=True):
        if array.shape != y.shape or array.dtype != y.dtype:
            raise Resized(node.type)
        values[y.key] = made(np.asarray(array), sources)


def _needed(steps: list[Any], outputs: list[Tensor]) -> list[Any]:
    """Return the steps that an effect or an output needs, all readings, and what finds a size."""
    needed = {y.key for y in outputs}
    kept = []
    for step in reversed(steps):
        used = not isinstance(step, Node) or any(y.key in needed for y in step.outputs)
        if used or sized_by_values(step):
            kept.append(step)
            needed.update(x.key for x in step.sources)
    return kept[::-1]


class Call:
    """The operation of a program's call."""

    name = "function"

    def __init__(self, program: Program, variables: Variables) -> None:
        self.program, self.variables = program, variables

    def function(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for what the call had as its inputs."""
        program = self.program
        inputs = [*program.inputs, *program.captured.values(), *program.reads]
        values = {x.key: Tensor(array) for x, array in zip(inputs, arrays, strict=True)}
        program.carry_out(values, None)
        return [values[y.key].array for y in program.outputs]

    def kept(self, node: Node) -> Node:
        """Return the node with its inputs."""
        return node.keeping(set(range(len(node.inputs))), False)

    def overridden(self, name: str) -> Call:
        """Return itself: its gradients are those of its operations."""
        return self

    def gradients(self, node: Node, upstreams: list[Any], needed: list[bool]) -> list[Any]:
        """Return the gradients of the program's inputs."""
        try:
            grads: list[Any] = self.program.gradient([*node.inputs, *upstreams], self.variables)
        except Resized as error:
            raise InvalidArgumentError(
                f"the result of {error}, in the gradient of a function that is traced, has another "
                "size than when the gradient was traced, since its values decide it. Take the "
                "gradient inside of the function, or leave the function untraced"
            ) from None
        return grads
