"""Functions that are traced once for each signature, and replayed from then on."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from types import FunctionType, MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import numpy as np

from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.tracing.program import Program
from tfopt.autodiff.tracing.signatures import BoundCall, Signature, TensorSpec, without_numbers
from tfopt.autodiff.tracing.sizes import Resized
from tfopt.autodiff.tracing.sources import source_of
from tfopt.autodiff.tracing.trace import traced
from tfopt.core import engine
from tfopt.core.callers import stacklevel
from tfopt.core.engine import Operand, Tensor, Trace
from tfopt.core.locks import ProcessLock
from tfopt.core.nest import flatten, pack
from tfopt.errors import InvalidArgumentError, RetracingWarning
from tfopt.indexed_slices import IndexedSlices

__all__ = ["Function", "TensorSpec", "function"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
#: The largest number of programs that a function keeps for additional sizes.
_MOST_SIZES = 100
#: The largest number of instances without weak references that are kept, with their traces.
_MOST_KEPT = 100
#: So many traces for other Python numbers alone are made before a warning says so.
_MANY_NUMBERS = 5


_new = object.__new__


class _Traces:
    """The programs of a function by the kinds of its arguments."""

    def __init__(self) -> None:
        self.programs: dict[Hashable, Program] = {}
        self.for_numbers: Counter[Hashable] = Counter()
        self.count = 0
        self.sizes = 0
        self.lock = ProcessLock()


class _OfInstances:
    """The traces of a method, by the instances that it is bound to.

    Traces belong to the very instance, equal ones apart, and live as long as it does. Instances
    without weak references, of a class with `__slots__` for example, are kept alive: the latest
    hundred.

    Attributes
    ----------
    entries : dict
        By the instances' ids: what keeps the id from becoming another's, and the traces.
    attributes : dict
        What the bound functions have in common.
    """

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Any, _Traces]] = {}
        self.attributes: dict[str, Any] = {}
        self._kept: dict[int, None] = {}
        self._lock = ProcessLock()

    def new(self, instance: Any) -> _Traces:
        """Return the traces of an instance that has no entry."""
        key = id(instance)
        with self._lock.held():
            try:
                owner: Any = weakref.ref(instance, lambda _: self.entries.pop(key, None))
            except TypeError:
                owner = instance
                self._kept[key] = None
                if len(self._kept) > _MOST_KEPT:
                    oldest = next(iter(self._kept))
                    del self._kept[oldest], self.entries[oldest]
            return self.entries.setdefault(key, (owner, _Traces()))[1]


class Function(Generic[P, R]):
    """A function that is traced and replayed; :func:`tfopt.function` makes it.

    Parameters
    ----------
    f : callable
    input_signature : nested structure of TensorSpec, optional

    Attributes
    ----------
    trace_count : int
        How many times the body has been traced; of a method, for this instance.
    """

    def __init__(self, f: Callable[P, R], input_signature: Any = None) -> None:
        functools.update_wrapper(self, f)
        self._f: Callable[..., R] = f
        self._signature = Signature(f, input_signature)
        self._traces = _Traces()
        self._of_instances = _OfInstances()
        self._warned: list[bool] = []  # which bound methods share

    @property
    def trace_count(self) -> int:
        """How many times the body has been traced."""
        return int(self._traces.count)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: Function[Concatenate[Any, Q], R], instance: object, owner: Any = None
    ) -> Function[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        f = self._f
        method = MethodType(f, instance) if type(f) is FunctionType else f.__get__(instance, owner)
        of_instances = self._of_instances
        # a method is looked up for each call: the attributes that all look-ups share are copied
        attributes = (of_instances.attributes or self._attributes_of_bound(method)).copy()
        attributes["_f"] = attributes["__wrapped__"] = method
        entry = of_instances.entries.get(id(instance))
        attributes["_traces"] = of_instances.new(instance) if entry is None else entry[1]
        bound = _new(Function)
        bound.__dict__ = attributes
        return bound

    def _attributes_of_bound(self, method: Callable[..., Any]) -> dict[str, Any]:
        """Return the attributes of the method bound to any instance, without references to one."""
        bound = Function(method, self._signature.specs)
        self._of_instances.attributes = {**vars(bound), "_f": None, "__wrapped__": None}
        return self._of_instances.attributes

    def source(self) -> str:
        """Return the programs that calls without a tape replay, one after another.

        Examples
        --------
        >>> import numpy as np
        >>> import tfopt
        >>> f = tfopt.function(lambda x: np.exp(x) + 1.0)
        >>> _ = f(np.zeros(2))
        >>> print(f.source())
        def program(V, p0):
            with errstate(all='ignore'):
                t1 = exp(p0)
                t2 = add(t1, c0)
                return (t2,)
        <BLANKLINE>
        """
        waiting, sources = list(self._traces.programs.values()), []
        for program in waiting:
            sources.append(source_of(program.raw))
            waiting.extend(program.others.values())
        return "\n".join(sources)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R
        if engine.tracing() is not None:
            return self._f(*args, **kwargs)
        if len(args) == self._signature.n_simple and not kwargs:
            kind = engine.tensor_kinds(args)
            program = None if kind is None else self._traces.programs.get(kind)
            if program is not None:
                try:
                    result = program(args, ())
                except Resized as change:
                    result = self._resized(program, change, self._signature.bind(args, kwargs))
                return result
        call = self._signature.bind(args, kwargs)
        program = self._program(call)
        try:
            result = program(call.tensors, call.variables)
        except Resized as change:
            result = self._resized(program, change, call)
        return result

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Self:
        """Trace for arguments, where specs stand for tensors, and return the function."""
        leaves = [
            np.ones([1 if n is None else n for n in leaf.shape], leaf.dtype)
            if isinstance(leaf, TensorSpec)
            else leaf
            for leaf in flatten((args, kwargs))
        ]
        filled_args, filled_kwargs = pack((args, kwargs), leaves)
        self._program(self._signature.bind(filled_args, filled_kwargs))
        return self

    # ---- tracing

    def _program(self, call: BoundCall) -> Program:
        """Return the program that serves a call, which is traced if there is none yet."""
        programs = self._traces.programs
        program = programs.get(call.kind)
        if program is None:
            with self._traces.lock.held():
                if call.kind not in programs:
                    programs[call.kind] = self._trace(call, first=not programs)
                    self._look_at_numbers(call)
                program = programs[call.kind]
        return program

    def _look_at_numbers(self, call: BoundCall) -> None:
        """Warn, once for each function, of traces that differ only in Python numbers."""
        numbers = [leaf for leaf in call.leaves if type(leaf) in (int, float, complex)]
        if not numbers or self._warned:
            return
        kind = without_numbers(call.leaves)
        self._traces.for_numbers[kind] += 1
        if self._traces.for_numbers[kind] == _MANY_NUMBERS:
            self._warned.append(True)
            warnings.warn(
                f"{getattr(self, '__name__', self._f)} has been traced {_MANY_NUMBERS} times for "
                f"arguments that differ only in Python numbers, now {numbers}: tracing is slow, "
                "and each trace is kept. Pass a number that changes from call to call as an "
                "array, np.asarray(x), or as a tensor",
                RetracingWarning,
                stacklevel(),
            )

    def _resized(self, program: Program, change: Resized, call: BoundCall) -> Any:
        """Return the result by a program for the sizes that values decide in this call."""
        while True:
            with self._traces.lock.held():
                other = program.others.get(change.kind)
                new = other is None
                if other is None:
                    self._traces.sizes += 1
                    if self._traces.sizes > _MOST_SIZES:
                        self._traces.sizes = 1
                        for root in self._traces.programs.values():
                            root.others.clear()
                    other = program.others[change.kind] = self._trace(call)
            try:
                return other(call.tensors, call.variables)
            except Resized as again:
                if new:
                    raise InvalidArgumentError(
                        f"{self!r} has results of other sizes each time it runs, for the same "
                        "arguments: they may depend on random numbers. Do not trace it"
                    ) from None
                program, change = other, again

    def _trace(self, call: BoundCall, first: bool = False) -> Program:
        placed = [engine.placeholder(x) if isinstance(x, Tensor) else x for x in call.leaves]
        inputs = [x for x in placed if isinstance(x, Tensor)]
        args, kwargs = self._signature.as_given(call, placed)
        trace = Trace()
        trace.may_create = first
        self._traces.count += 1

        def body() -> Any:
            result = self._f(*args, **kwargs)
            return pack(result, [self._returned(leaf) for leaf in flatten(result)])

        result = traced(body, inputs, trace)
        if trace.created:  # once more, so that the replays do not make variables
            return self._trace(call)
        title = getattr(self._f, "__qualname__", type(self._f).__name__)
        return Program(trace.nodes, inputs, result, call.variables, title)

    def _returned(self, leaf: Any) -> Any:
        """Return a leaf of the body's result as a tensor, unless it is None or rows."""
        numbers = (Operand, int, float, complex, np.ndarray, np.generic, str)
        if leaf is None or isinstance(leaf, IndexedSlices):
            return leaf
        if isinstance(leaf, numbers):
            return as_tensor(leaf)
        raise TypeError(
            "a traced function must return tensors, numbers, arrays, variables and None, in any "
            f"nested structure; of {self._f}, found return value of type {type(leaf).__name__}"
        )

    def __repr__(self) -> str:
        return f"<Function {getattr(self, '__name__', self._f)!r}, {self.trace_count} traces>"


@overload
def function(
    func: Callable[P, R], input_signature: Any = None, reduce_retracing: bool = False
) -> Function[P, R]: ...
@overload
def function(
    func: None = None, input_signature: Any = None, reduce_retracing: bool = False
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    reduce_retracing: bool = False,
) -> Any:
    """Trace a function once for each signature of its arguments, and replay it in later calls.

    The body runs when arguments have new shapes and dtypes, new values that are not arrays, or
    another nesting. Only then do its side effects happen. Each call repeats the operations on
    tensors, the gradients inside, assignments and steps of optimizers, in their order, without
    those that have no effect on the result. Arrays are arguments like tensors; variables are read
    at each call. If the size of a result depends on values (``x[x > 0]``, ``np.nonzero(x)``), the
    body also runs for each new size, so shapes inside it are always those of the call.

    Parameters
    ----------
    func : callable, optional
        Returns a nested structure of tensors, numbers, variables and None.
    input_signature : list of TensorSpec, optional
        The shapes and dtypes that arguments must have.
    reduce_retracing : bool, default False
        Accepted as in TensorFlow, and ignored: each shape is traced.

    Returns
    -------
    Function
        Its `trace_count` is how often the body has run. Without `func`: a decorator.

    Raises
    ------
    TypeError
        By a call: if an argument is not hashable or does not fit the signature, or the function
        returns something else; if the body asks for the value of a symbolic tensor, or, after an
        assignment, computes a result whose size depends on values.
    ValueError
        By a call other than the first: if it creates a variable.

    Warns
    -----
    RetracingWarning
        By the fifth trace for arguments that differ only in Python numbers, once for a function.

    Notes
    -----
    TensorFlow's ``tf.function``, without AutoGraph: ``if`` and ``for`` run while tracing.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> @tfopt.function
    ... def f(x):
    ...     return np.sum(x * x)
    >>> float(f(np.array([3.0, 4.0]))), float(f(np.array([1.0, 2.0]))), f.trace_count
    (25.0, 5.0, 1)
    """
    if func is None:
        return lambda f: function(f, input_signature, reduce_retracing)
    return Function(func, input_signature)
