"""Signatures: which calls of a traced function share a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from tfopt.autodiff.tensor import constant
from tfopt.core import engine
from tfopt.core.engine import Operand, Readable, Tensor
from tfopt.core.nest import flatten, pack

__all__ = ["BoundCall", "Signature", "TensorSpec", "without_numbers"]


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


class BoundCall(NamedTuple):
    """The arguments of a call.

    Parameters
    ----------
    structure : tuple
        The arguments that may be positional, a tuple, and a dict of the others.
    given : dict of str to bool, or None
        The names of the parameters that were given, and whether by name; None: all by place.
    leaves : list
        In the order of `flatten`.
    kind : hashable
        Equal for all calls that one program serves.
    """

    structure: Any
    given: dict[str, bool] | None
    leaves: list[Any]
    kind: Hashable

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the leaves."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    @property
    def variables(self) -> list[Any]:
        """The variables among the leaves, each once."""
        return _distinct_variables(self.leaves)


class Signature:
    """The names and the kinds of a function's parameters.

    Parameters
    ----------
    f : callable
    specs : nested structure of TensorSpec, optional
        The shapes and dtypes that arguments must have.

    Attributes
    ----------
    specs
    n_simple : int
        The number of parameters, if all are positional and have no default; otherwise -1.
    """

    def __init__(self, f: Callable[..., Any], specs: Any) -> None:
        self._signature = inspect.signature(f)
        self.specs = specs
        parameters = self._signature.parameters.values()
        simple = specs is None and all(
            p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters
        )
        self.n_simple = len(parameters) if simple else -1
        self._nameless = {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY}
        self._by_place = [
            p.name for p in parameters
            if p.kind is p.POSITIONAL_OR_KEYWORD or p.name in self._nameless
        ]  # fmt: skip
        #: Tensors, arrays and variables are none of them: a trace has their values, or reads them.
        self._defaults = {
            p.name: p.default for p in parameters
            if p.default is not p.empty and specs is None
            and not any(isinstance(x, (Operand, np.ndarray)) for x in flatten(p.default))
        }  # fmt: skip

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
        """Return the signature of a call; arrays among the arguments are tensors.

        Raises
        ------
        TypeError
            If they are none of the function's arguments, do not fit the specs, or have no hash.
        """
        given: dict[str, bool] | None = None
        if kwargs or len(args) != self.n_simple:
            bound = self._signature.bind(*args, **kwargs)
            given = {k: k in kwargs and k not in self._nameless for k in bound.arguments}
            bound.arguments.update({k: v for k, v in self._defaults.items() if k not in given})
            args, kwargs = bound.args, bound.kwargs
        structure = args, kwargs
        if kwargs or any(isinstance(x, (list, tuple, dict)) for x in args):
            leaves = flatten(structure)
            nesting: Hashable = repr(pack(structure, [_LEAF] * len(leaves)))
        else:
            leaves, nesting = list(args), len(args)
        leaves = [constant(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in leaves]
        if self.specs is not None:
            leaves = self._fitting(leaves)
        tensors_alone = engine.tensor_kinds(tuple(leaves)) if nesting == len(leaves) else None
        return BoundCall(structure, given, leaves, tensors_alone or (nesting, _kinds(leaves)))

    def as_given(self, call: BoundCall, leaves: list[Any]) -> Any:
        """Return a call's arguments and keywords, with other leaves, as they were given.

        An argument that the caller left out or named stays left out or named, since a custom
        gradient can tell the difference.
        """
        args, kwargs = pack(call.structure, leaves)
        if call.given is None:
            return args, kwargs
        by_place, named = [], {}
        for name, value in zip(self._by_place, args, strict=False):
            if call.given.get(name) is False:
                by_place.append(value)
            elif name in call.given:
                named[name] = value
        for name, value in kwargs.items():
            if name in call.given or name not in self._defaults or name in self._nameless:
                named[name] = value
        return (*by_place, *args[len(self._by_place) :]), named

    def _fitting(self, leaves: list[Any]) -> list[Any]:
        """Return leaves as the specs ask for them."""
        specs = flatten(self.specs)
        if len(specs) != len(leaves):
            raise TypeError(
                f"Binding inputs to tf.function failed: {len(leaves)} inputs for an "
                f"input_signature of {len(specs)}"
            )
        fitting = []
        for spec, leaf in zip(specs, leaves, strict=True):
            value = leaf if isinstance(leaf, Operand) else constant(leaf, spec.dtype)
            if not spec.fits(value):
                raise TypeError(
                    "Binding inputs to tf.function failed: an argument is "
                    f"{TensorSpec(value.shape, value.dtype)}, and the input_signature asks for "
                    f"{spec}"
                )
            fitting.append(value)
        return fitting


class _Leaf:
    def __repr__(self) -> str:
        return "*"


_LEAF = _Leaf()


def _distinct_variables(leaves: list[Any]) -> list[Any]:
    """Return the variables among leaves, each once."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Readable)}.values())


def without_numbers(leaves: list[Any]) -> Hashable:
    """Return the kinds of leaves; all Python numbers are one kind."""
    return _kinds([type(x) if type(x) in (int, float, complex) else x for x in leaves])


def _kinds(leaves: list[Any]) -> Hashable:
    """Return what other leaves have in common if one program serves them, too."""
    places = {id(variable): k for k, variable in enumerate(_distinct_variables(leaves))}
    kinds: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            kinds.append((leaf.shape, leaf.dtype))
        elif isinstance(leaf, Readable):
            kinds.append((places[id(leaf)], leaf.shape, leaf.dtype, leaf.trainable))
        elif isinstance(leaf, (float, complex)):
            kinds.append((type(leaf), repr(leaf)))  # 0.0 and -0.0 are equal, and NaN equals nothing
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
