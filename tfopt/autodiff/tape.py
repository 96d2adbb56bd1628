"""The tape: what is recorded, and the gradients of it."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from tfopt.autodiff.backward import added, backward
from tfopt.autodiff.backward import as_tensor as as_gradient
from tfopt.autodiff.ops import as_tensor
from tfopt.core import engine
from tfopt.core.engine import Readable, Tape, Tensor
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import densify

__all__ = ["GradientTape", "UnconnectedGradients"]


class UnconnectedGradients(enum.Enum):
    """What the gradient is of a source that the target does not depend on.

    NONE is None, ZERO zeros of the source's shape.
    """

    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Records what is done to tensors and variables, and finds gradients of it.

    Operations are recorded while the tape is entered (``with``), in the thread that entered it, if
    one of their inputs is watched or was made from something watched. Trainable variables are
    watched when they are read, tensors when `watch` is told to.

    Parameters
    ----------
    persistent : bool, default False
        Keep the record after a gradient has been computed, until the tape is dropped.
    watch_accessed_variables : bool, default True
        False leaves variables to `watch`, too.

    See Also
    --------
    tfopt.custom_gradient : another gradient than that of what was done.

    Notes
    -----
    TensorFlow's ``tf.GradientTape``.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> w = tfopt.Variable(np.array([1.0, 2.0]))
    >>> with tfopt.GradientTape() as tape:
    ...     loss = np.sum(w * w)
    >>> tape.gradient(loss, w)
    <Tensor shape=(2,) dtype=float64 [2. 4.]>
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._watch_accessed = watch_accessed_variables
        self._record: Tape | None = None
        self._recording = False
        self._watched: tuple[Any, ...] = ()

    # ---- recording

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an already-active "
                "tape."
            )
        if self._record is None:
            self._record = Tape(self._watch_accessed)
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._recording:
            self._stop()

    def _start(self) -> None:
        engine.set_recorders((*engine.recorders(), self._record))
        self._recording = True

    def _stop(self) -> None:
        engine.set_recorders(tuple(r for r in engine.recorders() if r is not self._record))
        self._recording = False

    def watch(self, tensor: Any) -> None:
        """Record what is done to tensors or variables from now on.

        Parameters
        ----------
        tensor : Tensor or Variable, or a nested structure of them

        Raises
        ------
        ValueError
            If something else is in it.
        RuntimeError
            If the tape has not been entered.
        """
        leaves = flatten(tensor)
        for leaf in leaves:
            if not isinstance(leaf, (Tensor, Readable)):
                raise ValueError(
                    f"Passed in object {leaf!r} of type {type(leaf).__name__!r}, not tf.Tensor or "
                    "tf.Variable: make one of it, constant(...) or Variable(...)"
                )
        if self._record is None:
            raise RuntimeError("the tape has not been entered: call watch inside `with tape:`")
        for leaf in leaves:
            if not engine.is_differentiable(leaf):
                warnings.warn(
                    f"The dtype of the watched tensor must be floating (e.g. float32), got "
                    f"{leaf.dtype}",
                    stacklevel=2,
                )
            if self._recording:
                self._record.watch(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables that are watched, in the order in which they were made."""
        watched = self._watched if self._record is None else self._record.variables
        return tuple(sorted(watched, key=lambda variable: variable._serial))

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing inside this ``with``; other tapes do.

        Raises
        ------
        RuntimeError
            If the tape has not been entered.
        ValueError
            If it does not record now.
        """
        if self._record is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        self._check_recording()
        self._stop()
        try:
            yield
        finally:
            self._start()

    def reset(self) -> None:
        """Forget what has been recorded, and what is watched.

        Raises
        ------
        ValueError
            If the tape does not record now.
        """
        self._check_recording()
        self._stop()
        self._record = Tape(self._watch_accessed)
        self._start()

    def _check_recording(self) -> None:
        if not self._recording:
            raise ValueError("Tape is not recording.")

    # ---- gradients

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of a target, or of the sum of several.

        Parameters
        ----------
        target : Tensor or Variable, or a nested structure of them
        sources : Tensor or Variable, or a nested structure of them
        output_gradients : nested structure, optional
            The gradient of each target that is carried back; 1 where it is None.
        unconnected_gradients : UnconnectedGradients or {"none", "zero"}
            What a source gets that the target does not depend on.

        Returns
        -------
        Tensor, IndexedSlices or None, in the structure of the sources
            `IndexedSlices` for what only rows were taken from.

        Raises
        ------
        RuntimeError
            If the tape is not persistent and has been used already.
        TypeError
            If the target is None, or a source is neither Tensor nor Variable.
        ValueError
            If `unconnected_gradients` is something else.
        LookupError
            If the target was made by something that has no gradient.
        """
        record = self._usable("A non-persistent GradientTape can only be used to compute one set "
                              "of gradients (or jacobians)")  # fmt: skip
        _check_target(target)
        zero = _is_zero(unconnected_gradients)
        leaves = _checked_sources(sources)
        targets = flatten(target)
        seeds = flatten(output_gradients) if output_gradients is not None else []
        resume = self._recording and not self._persistent
        if resume:
            self._stop()
        try:
            found = _gradients(record, targets, leaves, seeds)
        finally:
            self._used()
        if not targets:
            return None
        if zero:
            found = [_zeros(s) if g is None else g for g, s in zip(found, leaves, strict=True)]
        return pack(sources, found)

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivatives of each element of a target.

        Parameters
        ----------
        target : Tensor or Variable
        sources : Tensor or Variable, or a nested structure of them
        unconnected_gradients : UnconnectedGradients or {"none", "zero"}
            What a source gets that the target does not depend on; zeros have the shape of the
            target and that of the source.
        parallel_iterations, experimental_use_pfor
            Accepted as TensorFlow accepts them; the elements are gone through one by one.

        Returns
        -------
        Tensor or None, in the structure of the sources
            Of the shape of the target, followed by that of the source.

        Raises
        ------
        RuntimeError, TypeError, ValueError, LookupError
            As `gradient` does.
        """
        record = self._usable("A non-persistent GradientTape can only be used to compute one set "
                              "of gradients (or jacobians)")  # fmt: skip
        _check_target(target)
        if not isinstance(target, (Tensor, Readable)):
            raise TypeError(f"target must be a Tensor, not {type(target).__name__}")
        zero, leaves = _is_zero(unconnected_gradients), _checked_sources(sources)
        if self._recording and not self._persistent:
            self._stop()
        try:
            rows = _rows_of(record, target, leaves)
        finally:
            self._used()
        found: list[Any] = []
        for k, source in enumerate(leaves):
            shape = (*target.shape, *source.shape)
            column = [row[k] for row in rows]
            if any(g is not None for g in column):
                parts = [_zeros(source) if g is None else densify(g) for g in column]
                found.append(np.reshape(np.stack(parts)[: target.size], shape))
            else:
                found.append(engine.wrapped(np.zeros(shape, source.dtype)) if zero else None)
        return pack(sources, found)

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return, of each example, the derivatives of its target by its part of a source.

        Parameters
        ----------
        target, source : Tensor or Variable
            With one first axis, that of the examples, which must not depend on each other.
        unconnected_gradients, parallel_iterations, experimental_use_pfor
            As in `jacobian`; where nothing depends on the source, the result is zeros.

        Returns
        -------
        Tensor
            Of the shape of the target, followed by that of the source without its first axis.

        Raises
        ------
        ValueError
            If the first axes differ, or there is only one axis.
        RuntimeError, TypeError, LookupError
            As `gradient` does.
        """
        record = self._usable("A non-persistent GradientTape can only be used to compute one set "
                              "of gradients (or jacobians)")  # fmt: skip
        (source,) = _checked_sources([source])
        _is_zero(unconnected_gradients)
        if not target.shape or target.shape[:1] != source.shape[:1]:
            raise ValueError(
                f"Need first dimension of target shape ({target.shape}) and source shape "
                f"({source.shape}) to match."
            )
        for shape in (target.shape, source.shape):
            if len(shape) < 2:
                raise ValueError(f"Shape {shape} must have rank at least 2")
        if self._recording and not self._persistent:
            self._stop()
        try:
            flat = int(np.prod(target.shape[1:]))
            parts: list[Any] = []
            for k in range(flat):
                seed = np.zeros((target.shape[0], flat), target.dtype)
                seed[:, k] = 1
                seed = seed.reshape(target.shape)
                (g,) = _gradients(record, [target], [source], [seed])
                parts.append(_zeros(source) if g is None else densify(g))
        finally:
            self._used()
        shape = (target.shape[0], *target.shape[1:], *source.shape[1:])
        if not parts:
            return engine.wrapped(np.zeros(shape, source.dtype))
        return np.reshape(np.stack(parts, axis=1), shape)

    def _used(self) -> None:
        if self._record is not None and not self._persistent:
            self._watched, self._record = tuple(self._record.variables), None

    def _usable(self, message: str) -> Tape:
        if self._record is None:
            raise RuntimeError(message)
        return self._record


def _check_target(target: Any) -> None:
    if target is None:
        raise TypeError(
            "Argument `target` should be a list or nested structure of Tensors, Variables or "
            "CompositeTensors to be differentiated, but received None."
        )


def _is_zero(unconnected: Any) -> bool:
    try:
        return UnconnectedGradients(unconnected) is UnconnectedGradients.ZERO
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected!r}") from None


def _checked_sources(sources: Any) -> list[Any]:
    leaves = flatten(sources)
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, (Tensor, Readable)):
            raise TypeError(f"source {k} must be a Tensor or a Variable, not {type(leaf).__name__}")
    return leaves


def _gradients(record: Tape, targets: list[Any], sources: list[Any], seeds: list[Any]) -> list[Any]:
    """Return the sum of the targets' gradients for each source, as tensors."""
    raw = not engine.recorders()
    grads: dict[Any, Any] = {}
    direct: dict[int, Any] = {}  # of variables that are targets: they stand for themselves
    for k, target in enumerate(targets):
        if target is None or not isinstance(target, (Tensor, Readable)):
            raise TypeError(f"target {k} must be a Tensor or a Variable, not {type(target)}")
        if not engine.is_differentiable(target):
            continue
        seed = _seed(target, seeds[k] if k < len(seeds) else None, raw)
        if isinstance(target, Tensor):
            key = engine.key(target)
            grads[key] = seed if key not in grads else grads[key] + seed
        else:
            direct[id(target)] = seed if id(target) not in direct else direct[id(target)] + seed
    keys = [_keys(record, source) for source in sources]
    wanted = {key for found in keys for key in found if record.knows_key(key)}
    with np.errstate(all="ignore"):
        backward(record.nodes, grads, wanted)
        return [
            as_gradient(_total([direct.get(id(s)), *(grads.get(key) for key in found)]))
            for s, found in zip(sources, keys, strict=True)
        ]


def _seed(target: Any, given: Any, raw: bool) -> Any:
    if given is None:
        ones = np.ones(target.shape, target.dtype)
        return ones if raw else engine.wrapped(ones)
    made: Any = as_tensor(given)
    if made.dtype != target.dtype:
        made = made.astype(target.dtype)
    if made.shape != target.shape:
        made = np.broadcast_to(made, target.shape)
    return engine.raw(made) if raw else made


def _keys(record: Tape, source: Any) -> list[Any]:
    """Return the keys of a tensor, or of all values a variable had."""
    if isinstance(source, Tensor):
        return [engine.key(source)]
    return record.variables.get(source, [])


def _total(parts: list[Any]) -> Any:
    made = None
    for part in parts:
        if part is not None:
            made = part if made is None else added(made, part)
    return made


def _zeros(source: Any) -> Tensor:
    return engine.wrapped(np.zeros(source.shape, source.dtype))


def _rows_of(record: Tape, target: Any, sources: list[Any]) -> list[list[Any]]:
    """Return the gradients of each element of a target, or of none."""
    n, rows = int(np.prod(target.shape)), []
    for k in range(max(n, 1)):  # of no elements: one that says what depends on what
        seed = np.zeros(n, target.dtype)
        seed[k : k + 1] = 1
        rows.append(_gradients(record, [target], sources, [seed.reshape(target.shape)]))
    return rows
