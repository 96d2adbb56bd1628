"""Gradients: one pass backwards over the nodes that a tape has recorded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import densified
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.ops import added
from tfopt_ref.autodiff.tensor import STATE, Node, Tensor, as_tensor, differentiable, offered
from tfopt_ref.autodiff.variable import Variable


def backward(nodes: Sequence[Node], seeds: dict[int, Any], wanted: Collection[int]) -> Any:
    """Propagate seeds back; return the gradients by the keys of tensors.

    Only nodes on a path from a wanted tensor to a tensor with a seed are visited.
    """
    reached = set(wanted)
    for node in nodes:
        if any(x.key in reached for x in node.inputs):
            reached.update(y.key for y in node.outputs if differentiable(y))
    grads = dict(seeds)
    for node in reversed(nodes):
        needed = [x.key in reached and differentiable(x) for x in node.inputs]
        upstreams = [grads.get(y.key) for y in node.outputs]
        if not any(needed) or all(g is None for g in upstreams):
            continue
        for y in node.outputs:
            if y.key not in wanted:
                grads.pop(y.key, None)
        with np.errstate(all="ignore"):
            filled = [
                Tensor(np.zeros(y.shape, y.dtype)) if g is None else densified(g)
                for g, y in zip(upstreams, node.outputs, strict=True)
            ]
            found = node.op.gradients(node, filled, needed)
            for x, need, grad in zip(node.inputs, needed, found, strict=True):
                if need and grad is not None:
                    grads[x.key] = added(grads[x.key], grad) if x.key in grads else grad
    return grads


class GradientTape:
    """Records operations on watched tensors, and propagates gradients back through them.

    A persistent tape keeps its records for several gradients; each may be recorded itself.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent, self._watches = persistent, watch_accessed_variables
        self._nodes: list[Node] = []
        self._known: set[int] = set()  # keys of watched tensors and of their results
        self._variables: dict[Variable, list[int]] = {}  # the keys of the values read

    def __enter__(self) -> GradientTape:
        STATE.tapes = (*STATE.tapes, self)
        return self

    def __exit__(self, *exception: object) -> None:
        STATE.tapes = tuple(tape for tape in STATE.tapes if tape is not self)

    # ---- recording

    def take(self, node: Node) -> None:
        """Record a node if one of its inputs is known."""
        cut = getattr(node.op, "cut", False)
        if not cut and any(x.key in self._known and differentiable(x) for x in node.inputs):
            self._nodes.append(node)
            self._known.update(y.key for y in node.outputs if differentiable(y))

    def take_read(self, variable: Variable, value: Tensor) -> None:
        """Record a value of a variable that was read or assigned."""
        if (self._watches and variable.trainable) or variable in self._variables:
            self._variables.setdefault(variable, []).append(value.key)
            self._known.add(value.key)

    def watch(self, tensor: Any) -> None:
        """Record operations on the tensors or variables in a nest from now on."""
        for leaf in flatten(tensor):
            if isinstance(leaf, Variable):
                self._variables.setdefault(leaf, [])
            else:
                self._known.add(leaf.key)

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the watched variables in the order of their creation."""
        return tuple(sorted(self._variables, key=lambda variable: variable.key))

    def stop_recording(self) -> AbstractContextManager[None]:
        """Return a context in which this tape records nothing; other tapes do."""
        return offered(*(tape for tape in STATE.tapes if tape is not self))

    def reset(self) -> None:
        """Forget all records and watched tensors."""
        self._nodes, self._known, self._variables = [], set(), {}

    # ---- gradients

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None,
                 unconnected_gradients: str = "none") -> Any:  # fmt: skip
        """Return the gradients of the sum of targets, in the structure of the sources.

        The gradient of a source on which no target depends is None, or zeros for "zero".
        """
        given = [] if output_gradients is None else flatten(output_gradients)
        seeds: dict[int, Any] = {}
        for i, y in enumerate(map(as_tensor, flatten(target))):
            if differentiable(y):
                seed = _seed(given[i] if i < len(given) else None, y)
                seeds[y.key] = added(seeds[y.key], seed) if y.key in seeds else seed
        flat = flatten(sources)
        grads = zip(self._backward(seeds, flat), flat, strict=True)
        zeros = unconnected_gradients == "zero"
        return pack(sources, [_or_zeros(grad, x, zeros) for grad, x in grads])

    def _backward(self, seeds: dict[int, Any], sources: list[Any]) -> list[Any]:
        """Return the gradients of sources; that of a variable is the sum over its values."""
        if not self._persistent:
            self.__exit__()
        keys = [[x.key, *self._variables.get(x, ())] for x in sources]
        wanted = {key for listed in keys for key in listed if key in self._known}
        grads = backward(list(self._nodes), seeds, wanted)
        sums = []
        for listed in keys:
            total = None
            for key in dict.fromkeys(listed):
                if key in grads:
                    total = grads[key] if total is None else added(total, grads[key])
            sums.append(total)
        return sums

    def jacobian(self, target: Any, sources: Any, unconnected_gradients: str = "none") -> Any:
        """Return the derivatives of each element of a target by each source."""
        zeros, flat = unconnected_gradients == "zero", flatten(sources)
        return pack(sources, self._rows(target, flat, np.eye(target.size), zeros, target.shape))

    def batch_jacobian(self, target: Any, source: Any) -> Any:
        """Return the Jacobian of each row of a target by the same row of the source."""
        seeds = np.tile(np.eye(int(np.prod(target.shape[1:]))), (1, target.shape[0]))
        (rows,) = self._rows(target, [source], seeds, True, target.shape[1:])
        return np.moveaxis(rows, len(target.shape) - 1, 0)

    def _rows(self, target: Any, sources: list[Any], seeds: Any, zeros: bool, shape: Any) -> Any:
        """Return for each source the stacked gradients of all seeds."""
        target, rows = as_tensor(target), []
        for seed in seeds if len(seeds) else np.zeros((1, *target.shape)):
            upstream = Tensor(seed.reshape(target.shape).astype(target.dtype))
            rows.append(self._backward({target.key: upstream}, sources))
        made = []
        for x, column in zip(sources, zip(*rows, strict=True), strict=True):
            known = zeros or any(grad is not None for grad in column)
            dense = [densified(_or_zeros(grad, x, True)) for grad in column][: len(seeds)]
            stacked = np.stack(dense) if dense else Tensor(np.zeros((0, *x.shape), x.dtype))
            made.append(np.reshape(stacked, shape + x.shape) if known else None)
        return made


def _seed(given: Any, y: Any) -> Any:
    given = as_tensor(np.ones(y.shape, y.dtype) if given is None else given)
    if given.dtype != y.dtype:
        given = given.astype(y.dtype)
    return given if given.shape == y.shape else np.broadcast_to(given, y.shape)


def _or_zeros(grad: Any, x: Any, zeros: bool) -> Any:
    return Tensor(np.zeros(x.shape, x.dtype)) if grad is None and zeros else grad
