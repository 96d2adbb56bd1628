"""The tape: it records operations, and computes their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast, overload

import numpy as np

from tfopt.autodiff.differentiate import (
    dense,
    gradients,
    gradients_of_columns,
    gradients_of_elements,
    zeros_like,
)
from tfopt.autodiff.tape_arguments import (
    Gradient,
    Key,
    Source,
    Unconnected,
    UnconnectedGradients,
    check_single_target,
    check_target,
    checked_sources,
    is_zero,
)
from tfopt.core import engine
from tfopt.core.engine import Operand, Readable, Tape, Tensor
from tfopt.core.nest import flatten, pack

__all__ = ["GradientTape", "UnconnectedGradients"]


class GradientTape:
    """Records operations on tensors and variables, and differentiates them.

    While the tape is entered (``with``), it records the operations of the thread that entered it
    that have an input which is watched, or depends on something watched. Trainable variables are
    watched as soon as they are read, tensors when `watch` is called with them.

    Parameters
    ----------
    persistent : bool, default False
        Whether the tape can be used more than once; it then keeps its record until it is deleted.
    watch_accessed_variables : bool, default True
        If False, variables have to be watched with `watch`, too.

    See Also
    --------
    tfopt.custom_gradient : defines the gradient of a function.

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
        self._entered = self._recording = self._used = False
        self._watched: tuple[Any, ...] = ()

    # ---- recording

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an already-active "
                "tape."
            )
        self._start()
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        if self._recording:
            self._stop()

    def _start(self) -> None:
        if self._record is None:  # used up, or not used before
            self._record = Tape(self._watch_accessed)
        engine.set_recorders((*engine.recorders(), self._record))
        self._recording = True

    def _stop(self) -> None:
        engine.set_recorders(tuple(r for r in engine.recorders() if r is not self._record))
        self._recording = False

    def watch(self, tensor: Any) -> None:
        """Record operations on tensors or variables from now on.

        Parameters
        ----------
        tensor : Tensor or Variable, or a nested structure of them

        Raises
        ------
        ValueError
            If there is anything else in it.
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
        """Return the watched variables in the order in which they were created."""
        watched = self._watched if self._record is None else self._record.variables
        return tuple(sorted(watched, key=lambda variable: variable._serial))

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Pause recording inside this ``with``; other tapes go on.

        If the tape is not persistent and gradients are computed inside, it begins a new record.

        Raises
        ------
        RuntimeError
            If the tape has not been entered.
        ValueError
            If it is not recording.
        """
        if self._record is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        self._check_recording()
        self._stop()
        try:
            yield
        finally:
            if self._entered and not self._recording:
                self._start()

    def reset(self) -> None:
        """Forget all records and watched tensors.

        Raises
        ------
        ValueError
            If the tape is not recording.
        """
        self._check_recording()
        self._stop()
        self._record = Tape(self._watch_accessed)
        self._start()

    def _check_recording(self) -> None:
        if not self._recording:
            raise ValueError("Tape is not recording.")

    # ---- gradients

    @overload
    def gradient(
        self,
        target: Any,
        sources: Operand,
        output_gradients: Any = ...,
        unconnected_gradients: Unconnected = ...,
    ) -> Gradient: ...
    @overload
    def gradient(
        self,
        target: Any,
        sources: list[Source],
        output_gradients: Any = ...,
        unconnected_gradients: Unconnected = ...,
    ) -> list[Gradient]: ...
    @overload
    def gradient(
        self,
        target: Any,
        sources: tuple[Source, ...],
        output_gradients: Any = ...,
        unconnected_gradients: Unconnected = ...,
    ) -> tuple[Gradient, ...]: ...
    @overload
    def gradient(
        self,
        target: Any,
        sources: dict[Key, Source],
        output_gradients: Any = ...,
        unconnected_gradients: Unconnected = ...,
    ) -> dict[Key, Gradient]: ...
    @overload
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = ...,
        unconnected_gradients: Unconnected = ...,
    ) -> Any: ...
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Unconnected = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of a target, or of the sum of several targets.

        Parameters
        ----------
        target : Tensor or Variable, or a nested structure of them
        sources : Tensor or Variable, or a nested structure of them
        output_gradients : nested structure, optional
            The upstream gradient of each target; ones where it is None.
        unconnected_gradients : UnconnectedGradients or {"none", "zero"}
            The gradient of a source that the target does not depend on.

        Returns
        -------
        Tensor, IndexedSlices or None, in the structure of the sources
            `IndexedSlices` for a source that was only used by taking rows of it.

        Raises
        ------
        RuntimeError
            If the tape is not persistent and has been used already.
        TypeError
            If the target is None, or a source is neither Tensor nor Variable.
        ValueError
            If `unconnected_gradients` is something else.
        LookupError
            If an operation between the sources and the target has no gradient.
        """
        record = self._usable_record()
        check_target(target)
        zero = is_zero(unconnected_gradients)
        leaves = checked_sources(sources)
        targets = flatten(target)
        seeds = flatten(output_gradients) if output_gradients is not None else []
        with _Use(self):
            grads = gradients(record, targets, leaves, seeds)
        if not targets:
            return None
        if zero:
            grads = [zeros_like(s) if g is None else g for g, s in zip(grads, leaves, strict=True)]
        return pack(sources, grads)

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Unconnected = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivatives of each element of a target.

        Parameters
        ----------
        target : Tensor or Variable
        sources : Tensor or Variable, or a nested structure of them
        unconnected_gradients : UnconnectedGradients or {"none", "zero"}
            The Jacobian of a source that the target does not depend on; zeros have the shape of
            the target followed by that of the source.
        parallel_iterations, experimental_use_pfor
            Accepted as in TensorFlow, and ignored: elements are differentiated one by one.

        Returns
        -------
        Tensor or None, in the structure of the sources
            Of the shape of the target, followed by that of the source.

        Raises
        ------
        RuntimeError, TypeError, ValueError, LookupError
            As `gradient` does.
        """
        record = self._usable_record()
        check_single_target(target)
        zero, leaves = is_zero(unconnected_gradients), checked_sources(sources)
        with _Use(self):
            rows = gradients_of_elements(record, target, leaves)
        jacobians: list[Any] = []
        for k, source in enumerate(leaves):
            shape = (*target.shape, *source.shape)
            grads = [row[k] for row in rows]
            if any(g is not None for g in grads):
                stacked = np.stack(dense(grads, source))[: target.size]
                jacobians.append(np.reshape(stacked, shape))
            else:
                jacobians.append(engine.wrapped(np.zeros(shape, source.dtype)) if zero else None)
        return pack(sources, jacobians)

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Unconnected = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor:
        """Return the Jacobian of each example: of its target with respect to its part of a source.

        Parameters
        ----------
        target, source : Tensor or Variable
            Their first axis is that of the examples, which must not depend on one another.
        unconnected_gradients, parallel_iterations, experimental_use_pfor
            As in `jacobian`; if the target does not depend on the source, the result is zeros.

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
        record = self._usable_record()
        check_single_target(target)
        (source,) = checked_sources([source])
        is_zero(unconnected_gradients)
        if not target.shape or target.shape[:1] != source.shape[:1]:
            raise ValueError(
                f"Need first dimension of target shape ({target.shape}) and source shape "
                f"({source.shape}) to match."
            )
        for shape in (target.shape, source.shape):
            if len(shape) < 2:
                raise ValueError(f"Shape {shape} must have rank at least 2")
        with _Use(self):
            columns = gradients_of_columns(record, target, source)
        shape = (*target.shape, *source.shape[1:])
        if not columns:
            return engine.wrapped(np.zeros(shape, source.dtype))
        return cast(Tensor, np.reshape(np.stack(dense(columns, source), axis=1), shape))

    def _usable_record(self) -> Tape:
        if self._record is None:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                "(or jacobians)" + ("" if self._used else (
                    ", and only after it has been entered, which it has not: compute the target "
                    "inside `with tape:`"
                ))
            )  # fmt: skip
        return self._record


class _Use:
    """A computation of gradients: a tape that is not persistent stops recording, and is used up."""

    __slots__ = ("_tape",)

    def __init__(self, tape: GradientTape) -> None:
        self._tape = tape

    def __enter__(self) -> None:
        if self._tape._recording and not self._tape._persistent:
            self._tape._stop()

    def __exit__(self, *error: object) -> None:
        tape = self._tape
        if tape._record is not None and not tape._persistent:
            tape._watched, tape._record = tuple(tape._record.variables), None
            tape._used = True
