"""Gradients: one pass backwards over the nodes that a tape has recorded."""

from __future__ import annotations

import contextlib
import enum
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import densified
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.ops import added
from tfopt_ref.autodiff.tensor import (
    STATE,
    Node,
    Operand,
    Tensor,
    as_tensor,
    differentiable,
    setting,
)
from tfopt_ref.autodiff.variable import Variable

__all__ = ["GradientTape", "UnconnectedGradients", "backward"]


def backward(nodes: Sequence[Node], seeds: dict[int, Any], wanted: Collection[int]) -> Any:
    """Return gradients by tensors' keys: those of the seeds, and those they lead to.

    Only nodes on a path from a wanted tensor to one with a seed are visited.
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


class UnconnectedGradients(enum.Enum):
    """What the gradient of a source is that the target does not depend on: None or zeros."""

    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Records operations on what it watches, and takes gradients back through them."""

    scope = None

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent, self._watches = persistent, watch_accessed_variables
        self._nodes: list[Node] | None = None
        self._known: set[int] = set()  # the keys of what is watched, and of what follows from it
        self._variables: dict[Variable, list[int]] = {}  # the keys of the values that were read
        self._recording = self._used = False

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an "
                "already-active tape."
            )
        if self._nodes is None or self._used:
            self._clear()
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._recording:
            self._stop()

    def _clear(self) -> None:
        self._nodes, self._known, self._variables, self._used = [], set(), {}, False

    def _start(self) -> None:
        STATE.recorders = (*STATE.recorders, self)
        self._recording = True

    def _stop(self) -> None:
        STATE.recorders = tuple(r for r in STATE.recorders if r is not self)
        self._recording = False

    # ---- recording

    def take(self, node: Node) -> None:
        """Keep a node if one of its inputs is known."""
        assert self._nodes is not None
        cut = getattr(node.op, "cut", False)
        if not cut and any(self.knows(x) and differentiable(x) for x in node.inputs):
            self._nodes.append(node.op.kept(node))
            self._known.update(y.key for y in node.outputs if differentiable(y))

    def knows(self, tensor: Tensor) -> bool:
        """Say whether a tensor is watched, or follows from what is."""
        return tensor.key in self._known

    def would_watch(self, variable: Variable) -> bool:
        """Say whether a variable is watched when it is read."""
        return (self._watches and variable.trainable) or variable in self._variables

    def take_read(self, variable: Variable, value: Tensor) -> None:
        """Take note of a variable's value that is read or assigned."""
        if self.would_watch(variable):
            self._variables.setdefault(variable, []).append(value.key)
            self._known.add(value.key)

    def take_new(self, variable: Variable) -> None:
        """Do nothing: making a variable is not reading it."""

    def watch(self, tensor: Any) -> None:
        """Record, from now on, what is computed from tensors or variables in a nest."""
        if self._nodes is None:
            raise RuntimeError("a tape can watch only once it has been entered")
        leaves = flatten(tensor)
        for leaf in leaves:
            if not isinstance(leaf, Operand):
                raise ValueError(
                    f"Passed in object {leaf} of type {type(leaf).__name__!r}, not tf.Tensor or "
                    "tf.Variable: make one of it, constant(...) or Variable(...)"
                )
            if not differentiable(leaf):
                warnings.warn(
                    "The dtype of the watched tensor must be floating (e.g. float32), got "
                    f"{leaf.dtype}",
                    stacklevel=2,
                )
        for leaf in leaves if self._recording else ():
            if isinstance(leaf, Variable):
                self._variables.setdefault(leaf, [])
                leaf.read()
            else:
                self._known.add(leaf.key)

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the variables that are watched, in the order in which they were made."""
        return tuple(sorted(self._variables, key=lambda variable: variable.key))

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing in a ``with``; other tapes do."""
        if self._nodes is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        if not self._recording:
            raise ValueError("Tape is not recording.")
        self._stop()
        try:
            yield
        finally:
            self._start()

    def reset(self) -> None:
        """Forget everything recorded, and what is watched."""
        if not self._recording:
            raise ValueError("Tape is not recording.")
        self._clear()

    # ---- gradients

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of the sum of targets, in the structure of the sources."""
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, Variables or "
                "CompositeTensors to be differentiated, but received None."
            )
        unconnected = _unconnected(unconnected_gradients)
        targets, flat = _operands(target, "target"), _operands(sources, "source")
        given = [] if output_gradients is None else flatten(output_gradients)
        self._use("")
        if not targets and flat:
            return None
        seeds: dict[int, Any] = {}
        for i, y in enumerate(targets):
            if differentiable(y):
                seed = _seed(given[i] if i < len(given) else None, y)
                seeds[y.key] = added(seeds[y.key], seed) if y.key in seeds else seed
        found = self._backward(seeds, flat)
        return pack(
            sources, [_or_zeros(g, x, unconnected) for g, x in zip(found, flat, strict=True)]
        )

    def _use(self, what: str) -> None:
        if self._nodes is None or (self._used and not self._persistent):
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                f"(or jacobians){what}"
            )
        if self._recording and not self._persistent:
            self._stop()
        self._used = True

    def _backward(self, seeds: dict[int, Any], sources: list[Any]) -> list[Any]:
        """Return the gradients of sources; a variable's is that of all its values."""
        assert self._nodes is not None
        keys = [[x.key, *self._variables.get(x, ())] for x in sources]
        wanted = {key for listed in keys for key in listed if key in self._known}
        nodes = list(self._nodes)
        grads = backward(nodes, seeds, wanted)
        if not self._persistent:
            self._nodes = []
        sums = []
        for listed in keys:
            total = None
            for key in dict.fromkeys(listed):
                if key in grads:
                    total = grads[key] if total is None else added(total, grads[key])
            sums.append(total)
        return sums

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivatives of each element of a target by each of the sources."""
        if not isinstance(target, Operand):
            raise TypeError(f"the target of a jacobian is one tensor, not {type(target).__name__}")
        unconnected = _unconnected(unconnected_gradients)
        flat = _operands(sources, "source")
        self._use("")
        return pack(sources, self._rows(target, flat, np.eye(target.size), unconnected))

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the jacobian of each row of a target by the same row of the source."""
        _unconnected(unconnected_gradients)
        for x in (target, source):
            if len(x.shape) < 2:
                raise ValueError(f"Shape {x.shape} must have rank at least 2")
        if target.shape[0] != source.shape[0]:
            raise ValueError(
                f"Need first dimension of target shape ({target.shape}) and source shape "
                f"({source.shape}) to match."
            )
        self._use("")
        each = int(np.prod(target.shape[1:]))
        seeds = np.tile(np.eye(each), (1, target.shape[0]))
        (rows,) = self._rows(target, [source], seeds, True, target.shape[1:])
        return np.moveaxis(rows, len(target.shape) - 1, 0)

    def _rows(
        self, target: Any, sources: list[Any], seeds: Any, zeros: bool, shape: Any = None
    ) -> list[Any]:
        """Return for each source its gradients for each of the seeds, stacked."""
        assert self._nodes is not None
        nodes, listed = self._nodes, []
        for seed in seeds if len(seeds) else np.zeros((1, *target.shape)):
            self._nodes = nodes
            upstream = Tensor(seed.reshape(target.shape).astype(target.dtype))
            listed.append(self._backward({target.key: upstream}, sources))
        shape = target.shape if shape is None else shape
        return [_stacked(column, x, shape, zeros) for x, *column in zip(sources, *listed)]  # noqa: B905


def _stacked(grads: list[Any], x: Any, shape: tuple[int, ...], zeros: bool) -> Any:
    if all(grad is None for grad in grads):
        return Tensor(np.zeros(shape + x.shape, x.dtype)) if zeros else None
    dense = [densified(_or_zeros(grad, x, True)) for grad in grads]
    stacked = np.stack(dense)[: int(np.prod(shape))]  # of no elements there is one gradient, too
    return np.reshape(stacked, shape + x.shape)


def _unconnected(value: Any) -> bool:
    """Return whether the gradients of unconnected sources are zeros."""
    try:
        return UnconnectedGradients(value) is UnconnectedGradients.ZERO
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {value!r}") from None


def _operands(nest: Any, what: str) -> list[Any]:
    leaves = flatten(nest)
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, Operand):
            raise TypeError(
                f"{what} {place} must be a Tensor or a Variable, not {type(leaf).__name__}"
            )
    return leaves


def _seed(given: Any, y: Any) -> Any:
    if given is None:
        return Tensor(np.ones(y.shape, y.dtype))
    given = as_tensor(given)
    if given.dtype != y.dtype:
        given = given.astype(y.dtype)
    return given if given.shape == y.shape else np.broadcast_to(given, y.shape)


def _or_zeros(grad: Any, x: Any, zeros: bool) -> Any:
    if grad is None and zeros:
        return Tensor(np.zeros(x.shape, x.dtype))
    return grad


@contextlib.contextmanager
def tapes_stopped() -> Iterator[None]:
    """Let no tape record; traces do."""
    traces = tuple(r for r in STATE.recorders if not isinstance(r, GradientTape))
    with setting(recorders=traces):
        yield
