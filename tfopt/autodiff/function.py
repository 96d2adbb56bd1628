"""Functions whose body runs once for each kind of arguments, and is replayed from then on."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.ops import as_tensor
from tfopt.autodiff.sources import Resized, source_of
from tfopt.autodiff.tensor import constant
from tfopt.autodiff.trace import Program, traced
from tfopt.core import engine
from tfopt.core.engine import Operand, Readable, Tensor, Trace
from tfopt.core.locks import ProcessLock
from tfopt.core.nest import flatten, pack
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices

__all__ = ["Function", "TensorSpec", "function"]


class TensorSpec:
    """The shape and the dtype of tensors.

    Parameters
    ----------
    shape : sequence of int or None
        None is any size.
    dtype : dtype, default float32
    name : str, optional

    Examples
    --------
    >>> from tfopt import TensorSpec
    >>> TensorSpec([None, 3])
    TensorSpec(shape=(None, 3), dtype=float32, name=None)
    """

    def __init__(self, shape: Any, dtype: Any = np.float32, name: str | None = None) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.name = name

    def fits(self, value: Any) -> bool:
        """Return whether a tensor has this dtype and shape."""
        return (
            value.dtype == self.dtype
            and len(value.shape) == len(self.shape)
            and all(n in (None, m) for n, m in zip(self.shape, value.shape, strict=True))
        )

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, name={self.name!r})"


#: So many programs of a function, for other sizes than the first, are kept.
_MOST_SIZES = 100


class _Traces:
    """The programs of a function by the kinds of its arguments."""

    def __init__(self) -> None:
        self.programs: dict[Hashable, Program] = {}
        self.count = 0
        self.sizes = 0
        self.lock = ProcessLock()


class _OfInstances:
    """The traces of a method, by the instance that it is bound to: one object's, not its equals'.

    They live as long as the instance does. One that has no weak references is kept alive.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, _Traces]] = {}

    def __getitem__(self, instance: Any) -> _Traces:
        key = id(instance)
        found = self._found.get(key)
        if found is None:
            try:
                owner: Any = weakref.ref(instance, lambda _: self._found.pop(key, None))
            except TypeError:
                owner = instance
            found = self._found.setdefault(key, (owner, _Traces()))
        return found[1]


class Function:
    """A function that is traced and replayed; :func:`function` makes it.

    Parameters
    ----------
    f : callable
    input_signature : nested structure of TensorSpec, optional
    traces
        Where the traces are kept.
    """

    def __init__(self, f: Callable[..., Any], input_signature: Any, traces: Any = None) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._specs = input_signature
        self._traces = _Traces() if traces is None else traces
        self._signature = inspect.signature(f)
        kinds = inspect.Parameter
        self._simple = input_signature is None and all(
            p.kind is kinds.POSITIONAL_OR_KEYWORD and p.default is kinds.empty
            for p in self._signature.parameters.values()
        )
        self._n_parameters = len(self._signature.parameters)
        self._of_instances = _OfInstances()
        self._bound: dict[str, Any] = {}

    @property
    def trace_count(self) -> int:
        """How many times the body has been traced."""
        return int(self._traces.count)

    def __get__(self, instance: Any, owner: Any = None) -> Function:
        if instance is None:
            return self
        f = self._f.__get__(instance, owner)
        traces = self._of_instances[instance]
        if not self._bound:
            self._bound = {**vars(Function(f, self._specs)), "_f": None, "__wrapped__": None}
        made = Function.__new__(Function)
        vars(made).update(self._bound, _f=f, _traces=traces, __wrapped__=f)
        return made

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
                t1 = c0(p0)
                t2 = c2(t1, c1)
                return (t2,)
        <BLANKLINE>
        """
        waiting, found = list(self._traces.programs.values()), []
        for program in waiting:
            found.append(source_of(program.raw))
            waiting.extend(program.others.values())
        return "\n".join(found)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if engine.tracing() is not None:
            return self._f(*args, **kwargs)
        if self._simple and not kwargs and len(args) == self._n_parameters:
            key = engine.tensor_kinds(args)
            if key is not None:
                program = self._traces.programs.get(key)
                if program is None:
                    program = self._program(key, args, [as_tensor(x) for x in args])
                try:
                    return program(args, ())
                except Resized as change:
                    leaves = [as_tensor(x) for x in args]
                    return self._other(program, change, lambda: self._trace(args, leaves), args, ())
        program, leaves, trace = self._prepared(args, kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        try:
            return program(tensors, _distinct(leaves))
        except Resized as change:
            return self._other(program, change, trace, tensors, _distinct(leaves))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Function:
        """Trace for arguments, of which specs stand for tensors, and return the function."""
        leaves = [
            np.ones([1 if n is None else n for n in leaf.shape], leaf.dtype)
            if isinstance(leaf, TensorSpec)
            else leaf
            for leaf in flatten((args, kwargs))
        ]
        given, named = pack((args, kwargs), leaves)
        self._prepared(given, named)
        return self

    # ---- kinds of arguments

    def _prepared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Program, list[Any], Callable[[], Program]]:
        """Return the program for arguments, their leaves, and what traces another one."""
        bound = self._signature.bind(*args, **kwargs)
        structure = bound.arguments
        leaves = self._fitting([_converted(leaf) for leaf in flatten(structure)])
        key = self._key(pack(structure, leaves))
        program = self._traces.programs.get(key)
        if program is None:
            program = self._program(key, structure, leaves, bound)
        return program, leaves, lambda: self._trace(structure, leaves, bound)

    def _key(self, arguments: Any) -> Hashable:
        """Return what is the same for arguments that one program serves, defaults filled in."""
        whole = inspect.BoundArguments(self._signature, dict(arguments))
        whole.apply_defaults()
        leaves = flatten(whole.arguments)
        return repr(pack(whole.arguments, [_LEAF] * len(leaves))), _kinds(leaves)

    def _fitting(self, leaves: list[Any]) -> list[Any]:
        if self._specs is None:
            return leaves
        specs = flatten(self._specs)
        if len(specs) != len(leaves):
            raise TypeError(
                f"Binding inputs to tf.function failed: {len(leaves)} inputs for an "
                f"input_signature of {len(specs)}"
            )
        made = []
        for spec, leaf in zip(specs, leaves, strict=True):
            value = leaf if isinstance(leaf, Operand) else constant(leaf, spec.dtype)
            if not spec.fits(value):
                own = TensorSpec(value.shape, value.dtype)
                raise TypeError(
                    f"Binding inputs to tf.function failed: an argument is {own}, and the "
                    f"input_signature asks for {spec}"
                )
            made.append(value)
        return made

    # ---- tracing

    def _program(
        self, key: Hashable, structure: Any, leaves: list[Any], bound: Any = None
    ) -> Program:
        with self._traces.lock.here:
            if key not in self._traces.programs:
                first = not self._traces.programs
                self._traces.programs[key] = self._trace(structure, leaves, bound, first)
            return self._traces.programs[key]

    def _other(
        self,
        program: Program,
        change: Resized,
        trace: Callable[[], Program],
        tensors: Sequence[Any],
        variables: Sequence[Any],
    ) -> Any:
        """Return the result by a program for the sizes that values decide in this call."""
        while True:
            with self._traces.lock.here:
                other = program.others.get(change.kind)
                new = other is None
                if other is None:
                    self._traces.sizes += 1
                    if self._traces.sizes > _MOST_SIZES:
                        self._traces.sizes = 1
                        for root in self._traces.programs.values():
                            root.others.clear()
                    other = program.others[change.kind] = trace()
            try:
                return other(tensors, variables)
            except Resized as again:
                if new:
                    raise InvalidArgumentError(
                        f"{self!r} finds other sizes each time it is carried out, for the same "
                        "arguments: random numbers, say, decide them. Leave it untraced"
                    ) from None
                program, change = other, again

    def _trace(
        self, structure: Any, leaves: list[Any], bound: Any = None, first: bool = False
    ) -> Program:
        placed = [engine.placeholder(x) if isinstance(x, Tensor) else x for x in leaves]
        inputs = [x for x in placed if isinstance(x, Tensor)]
        if bound is None:
            args, kwargs = tuple(placed), {}
        else:
            bound.arguments = dict(pack(structure, placed))
            args, kwargs = bound.args, bound.kwargs
        trace = Trace()
        trace.may_create = first
        self._traces.count += 1

        def body() -> Any:
            result = self._f(*args, **kwargs)
            return pack(result, [self._returned(leaf) for leaf in flatten(result)])

        result = traced(body, inputs, trace)
        if trace.created:  # once more, so that the replays do not make variables
            return self._trace(structure, leaves, bound, False)
        title = getattr(self._f, "__qualname__", type(self._f).__name__)
        return Program(trace.nodes, inputs, result, _distinct(leaves), title)

    def _returned(self, leaf: Any) -> Any:
        numbers = (Operand, int, float, complex, np.ndarray, np.generic, str)
        if leaf is None or isinstance(leaf, IndexedSlices):
            return leaf
        if isinstance(leaf, numbers):
            return as_tensor(leaf)
        raise TypeError(
            "a function that is traced must return tensors, numbers, arrays, variables and None, "
            f"in any nested structure; of {self._f}, found return value of type "
            f"{type(leaf).__name__}"
        )

    def __repr__(self) -> str:
        return f"<Function {getattr(self, '__name__', self._f)!r}, {self.trace_count} traces>"


class _Leaf:
    def __repr__(self) -> str:
        return "*"


_LEAF = _Leaf()


def _converted(leaf: Any) -> Any:
    return constant(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf


def _distinct(leaves: list[Any]) -> list[Any]:
    """Return the variables, each once."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Readable)}.values())


def _kinds(leaves: list[Any]) -> Hashable:
    """Return what other arguments have in common if these may be replayed for them."""
    places = {id(variable): k for k, variable in enumerate(_distinct(leaves))}
    kinds: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            kinds.append((leaf.shape, leaf.dtype))
        elif isinstance(leaf, Readable):
            kinds.append((places[id(leaf)], leaf.shape, leaf.dtype, leaf.trainable))
        else:
            kinds.append((type(leaf), leaf))
    key = tuple(kinds)
    try:
        hash(key)
    except TypeError:
        raise TypeError(
            f"Could not generate a generic TraceType for {leaves}: an argument that is no tensor, "
            "array or variable must be hashable, for the trace is kept by it. Give a tuple, say, "
            "in the place of a set"
        ) from None
    return key


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    reduce_retracing: bool = False,
) -> Any:
    """Trace a function once for each kind of its arguments, and replay what it did.

    The body runs once for arguments of new shapes and dtypes, new values of Python's own types, or
    another nesting; its side effects happen then. The operations on tensors, the gradients inside,
    the assignments and the steps of optimizers are what each call repeats, in their order, without
    what has no effect on the result. Arrays are arguments like tensors; variables are read at each
    call. Where values decide a size (``x[x > 0]``, ``np.nonzero(x)``), the body runs once for each
    of them, too: shapes inside are always those of the call.

    Parameters
    ----------
    func : callable, optional
        Returns a nested structure of tensors, numbers, variables and None.
    input_signature : list of TensorSpec, optional
        The kinds that arguments must be of.
    reduce_retracing : bool, default False
        Accepted as TensorFlow accepts it; each shape is traced.

    Returns
    -------
    Function
        Its `trace_count` says how many times the body has run. Without func: a decorator.

    Raises
    ------
    TypeError
        By a call: if an argument has no hash, or is not of the signature, or the function returns
        something else; if the body asks for the value of a tensor that stands for others, or,
        after an assignment, for a result whose size values decide.
    ValueError
        By a call that makes a variable, if it is not the first.

    Notes
    -----
    TensorFlow's ``tf.function``, without what makes graphs of Python's ``if`` and ``for``.

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
