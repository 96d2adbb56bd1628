"""Functions whose body runs once for each kind of arguments, and is replayed from then on."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.nest import flatten, map_leaves, pack
from tfopt_ref.autodiff.ops import closed, opened
from tfopt_ref.autodiff.tensor import STATE, Operand, Tensor, as_tensor, constant, setting
from tfopt_ref.autodiff.trace import Program, Resized, Trace
from tfopt_ref.autodiff.variable import Variable

__all__ = ["Function", "TensorSpec", "function"]


class TensorSpec:
    """The shape of a tensor, in which None is any size, and its dtype."""

    def __init__(self, shape: Any, dtype: Any = np.float32, name: str | None = None) -> None:
        self.shape, self.dtype, self.name = tuple(shape), np.dtype(dtype), name

    def fits(self, tensor: Any) -> bool:
        """Say whether a tensor is of this kind."""
        return (
            tensor.dtype == self.dtype
            and len(tensor.shape) == len(self.shape)
            and all(n in (None, m) for n, m in zip(self.shape, tensor.shape, strict=True))
        )

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, name={self.name!r})"


class Traces:
    """The programs of a function, by the kind of its arguments."""

    def __init__(self) -> None:
        self.programs: dict[Hashable, Program] = {}
        self.count = 0


class Function:
    """A function that is traced; what `function` returns."""

    def __init__(self, f: Callable[..., Any], input_signature: Any, traces: Traces) -> None:
        functools.update_wrapper(self, f)
        self._f, self._traces = f, traces
        self._specs = None if input_signature is None else flatten(input_signature)
        self._of_instances: dict[int, tuple[Any, Traces]] = {}

    @property
    def trace_count(self) -> int:
        """How often the body has been traced."""
        return self._traces.count

    def __get__(self, instance: Any, owner: Any = None) -> Function:
        if instance is None:
            return self
        _, traces = self._of_instances.setdefault(id(instance), (self._held(instance), Traces()))
        return Function(self._f.__get__(instance, owner), self._specs, traces)

    def _held(self, instance: Any) -> Any:
        """Return what makes the traces of an instance live as long as it, and no longer."""
        key = id(instance)
        try:
            return weakref.ref(instance, lambda _: self._of_instances.pop(key, None))
        except TypeError:  # it has no weak references: it is kept alive
            return instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if STATE.recorders and STATE.recorders[0].scope is not None:
            return self._f(*args, **kwargs)  # its operations become those of the other trace
        program, leaves = self._prepared(args, kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        given = _distinct(leaves)
        try:
            return program(tensors, dict(zip(program.variables, given, strict=True)))
        except Resized:  # a program is right for the sizes that it was traced with
            program, _ = self._prepared(args, kwargs, again=True)
            return program(tensors, dict(zip(program.variables, given, strict=True)))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Function:
        """Trace the function for arguments, of which specs stand for tensors, and return it."""

        def example(leaf: Any) -> Any:
            return np.ones(leaf.shape, leaf.dtype) if isinstance(leaf, TensorSpec) else leaf

        self._prepared(*map_leaves(example, (args, kwargs)))
        return self

    def _prepared(
        self, args: Any, kwargs: dict[str, Any], again: bool = False
    ) -> tuple[Program, list[Any]]:
        """Return the program for arguments, and the leaves of these."""
        bound = inspect.signature(self._f).bind(*args, **kwargs)
        bound.apply_defaults()
        nest = opened(bound.arguments)
        leaves = self._fitting([_converted(leaf) for leaf in flatten(nest)])
        key = (repr(map_leaves(lambda leaf: None, nest)), _kinds(leaves))
        if again or key not in self._traces.programs:
            traced = self._trace(bound, pack(nest, leaves), not self._traces.programs)
            self._traces.programs[key] = traced
        return self._traces.programs[key], leaves

    def _fitting(self, leaves: list[Any]) -> list[Any]:
        if self._specs is None:
            return leaves
        fitting = []
        for spec, leaf in zip(self._specs, leaves, strict=True):
            tensor = leaf if isinstance(leaf, Operand) else constant(leaf, spec.dtype)
            if not spec.fits(tensor):
                own = TensorSpec(tensor.shape, tensor.dtype)
                raise TypeError(
                    f"Binding inputs to tf.function failed: an argument is {own}, and the "
                    f"input_signature asks for {spec}"
                )
            fitting.append(tensor)
        return fitting

    def _trace(self, bound: inspect.BoundArguments, nest: Any, first: bool) -> Program:
        """Run the body once, on tensors of a trace."""
        scope = object()
        inputs: list[Tensor] = []

        def placed(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                inputs.append(Tensor(leaf.array, scope))
                return inputs[-1]
            return leaf

        bound.arguments = closed(map_leaves(placed, nest))
        trace = Trace(scope, {x.key for x in inputs}, may_create=first)
        self._traces.count += 1
        with setting(recorders=(trace,), watchers=(), overrides={}):
            result = self._f(*bound.args, **bound.kwargs)
            result = closed(map_leaves(self._returned, opened(result)))
        if trace.created:  # do it again: it must not make them each time
            return self._trace(bound, nest, first=False)
        return Program(trace, inputs, result, _distinct(flatten(nest)))

    def _returned(self, leaf: Any) -> Any:
        if isinstance(leaf, (Operand, int, float, complex, str, np.ndarray, np.generic)):
            return as_tensor(leaf)
        if leaf is None:
            return None
        raise TypeError(
            "a function that is traced must return tensors, numbers, arrays, variables and None, "
            f"in any nested structure; of {self._f}, found return value of type "
            f"{type(leaf).__name__}"
        )


def function(func: Callable[..., Any] | None = None, input_signature: Any = None) -> Any:
    """Decorate a function that is to be traced once for each kind of its arguments."""
    if func is None:
        return lambda f: function(f, input_signature)
    return Function(func, input_signature, Traces())


def _converted(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return constant(leaf)
    return leaf.read() if isinstance(leaf, Tensor) else leaf


def _distinct(leaves: list[Any]) -> list[Variable]:
    """Return the variables, each once."""
    return list({leaf.key: leaf for leaf in leaves if isinstance(leaf, Variable)}.values())


def _kinds(leaves: list[Any]) -> Hashable:
    """Return what decides whether other arguments are of the same kind as these."""
    variables = [variable.key for variable in _distinct(leaves)]
    kinds: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            kinds.append(("tensor", leaf.shape, leaf.dtype))
        elif isinstance(leaf, Variable):
            kinds.append((variables.index(leaf.key), leaf.shape, leaf.dtype, leaf.trainable))
        else:
            kinds.append((type(leaf), leaf))
    try:
        hash(tuple(kinds))
    except TypeError:
        raise TypeError(
            f"Could not generate a generic TraceType for {leaves}: an argument that is no tensor, "
            "array or variable must be hashable, for the trace is kept by it"
        ) from None
    return tuple(kinds)
