"""A request for one step, passed to an optimizer by a training loop or by a wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Write
from tfopt.optimizers.state.variables import as_variable
from tfopt.optimizers.step.gradients import checked_gradient
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.updates.device_copy import copies_of
from tfopt.variable import Variable

__all__ = ["Capabilities", "NotFinite", "StepRequest", "scaled"]


class NotFinite(Exception):
    """Raised if the gradients of a step must be finite (`StepRequest.finite`) but are not.

    Parameters
    ----------
    instead : PreparedStep
        What the wrappers that passed on the request carry out instead of the step.
    """

    def __init__(self, *instead: Any) -> None:
        super().__init__()
        self.instead = instead


class Capabilities(NamedTuple):
    """The optional features of a `StepRequest` that an optimizer's steps support.

    Attributes
    ----------
    fuses : bool
        A step reads each dense gradient once, so `StepRequest.before` can compute it on the fly.
    fuses_on_device : bool
        The same of variables on a GPU, whose norms are computed after what `before` returns.
    takes_norm : bool
        Steps clip the gradients they are given by their global norm, so it may be given, too.
    follows : bool
        A step carries out the calls of `StepRequest.after`.
    aggregates : bool
        A step first aggregates its gradients with those of other replicas.
    defers : bool
        Steps are deferred for rows without a gradient, so variables may not be up to date.
    """

    fuses: bool = False
    follows: bool = False
    aggregates: bool = False
    defers: bool = False
    fuses_on_device: bool = False
    takes_norm: bool = False


class StepRequest(NamedTuple):
    """The gradients of one step, and how they are to be processed.

    Attributes
    ----------
    grads : tuple
        Arrays or `IndexedSlices`; they are unchecked until `checked` or `map` is called.
    variables : tuple
        Variables or arrays, as passed by the caller.
    scale : float
        Multiplies the gradients; the step of a rule does so while it reads them.
    known : KnownNorms, optional
        What is known of norms of the gradients.
    finite : bool
        Whether to raise `NotFinite` instead of taking the step if an element of the aggregated
        gradients is infinite or NaN.
    aggregates : bool
        Whether to call the `gradient_aggregator`.
    before : callable, optional
        Gets a list of positions and returns the call that computes the dense gradients there; only
        for an optimizer whose capabilities include `fuses`.
    after : callable, optional
        Gets a list of variables and returns the call that follows their update, or None; only for
        an optimizer whose capabilities include `follows`.
    after_rows : callable, optional
        The same for a sparse update: gets the variable and the call that updates it. By default,
        `after` is asked.
    """

    grads: tuple[Any, ...]
    variables: tuple[Any, ...]
    scale: float = 1.0
    known: KnownNorms | None = None
    finite: bool = False
    aggregates: bool = True
    before: Callable[[list[int]], Call] | None = None
    after: Callable[[list[Any]], Call | Write | None] | None = None  # of variables
    after_rows: Callable[[Any, Call], Call | Write | None] | None = None

    @property
    def handles(self) -> list[Variable]:
        """The variables, with arrays wrapped."""
        return list(map(as_variable, self.variables))

    def replace(self, **changes: Any) -> StepRequest:
        """Return the request with some attributes changed.

        Raises
        ------
        InvalidArgumentError
            If gradients are changed whose norm the caller of the step has given.
        """
        if "grads" in changes and "known" not in changes:
            self._refuse_norm()
        return self._replace(**changes)

    def _refuse_norm(self) -> None:
        """Refuse to change gradients whose norm is given."""
        if self.known is not None and self.known.norm is not None:
            raise InvalidArgumentError(
                "use_norm is the norm of the gradients that are given, but a wrapper changes them "
                "before they are clipped"
            )

    @property
    def adds_nothing(self) -> bool:
        """Whether no other calls are asked for before or after the updates."""
        return self.before is None and self.after is None and self.after_rows is None

    def is_like(self, other: StepRequest) -> bool:
        """Whether two requests of the same variables differ only in gradients and scale."""
        return self[4:] == other[4:]

    def without_gradients(self) -> StepRequest:
        """Return the part of a request that does not depend on gradients and their scale."""
        return self._replace(grads=(), scale=1.0, known=None)

    def checked(self) -> StepRequest:
        """Return the request with gradients that are arrays and have been checked.

        Raises
        ------
        InvalidArgumentError
            If a gradient does not match its variable.
        """
        return self._replace(grads=tuple(map(checked_gradient, self.grads, self.handles)))

    def scaled(self) -> StepRequest:
        """Return the request, already checked, with gradients multiplied by `scale`."""
        if self.scale == 1:
            return self
        known = self.known and self.known.times(self.scale)
        return self._replace(grads=scaled(self.grads, self.scale), scale=1.0, known=known)

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> StepRequest:
        """Return the request with a function applied to each gradient.

        Parameters
        ----------
        function : callable
            Gets the array of a checked gradient (the values, for `IndexedSlices`) and returns an
            array of its shape and dtype. It must not modify its argument.

        Raises
        ------
        InvalidArgumentError
            If a gradient does not match its variable, or the caller of the step has given the norm
            of the gradients.
        """
        self._refuse_norm()
        mapped = [
            IndexedSlices(function(grad.values), grad.indices)
            if isinstance(grad, IndexedSlices)
            else function(grad)
            for grad in self.checked().scaled().grads
        ]
        return self._replace(grads=tuple(mapped), scale=1.0, known=None)


def scaled(grads: tuple[Any, ...], scale: float) -> tuple[Any, ...]:
    """Return gradients multiplied by a number, for steps without fused scaling."""
    if scale == 1:
        return grads
    return tuple(
        IndexedSlices(_times(grad.values, scale), grad.indices)
        if isinstance(grad, IndexedSlices)
        else _times(grad, scale)
        for grad in grads
    )


def _times(array: Any, scale: float) -> Any:
    if not isinstance(array, np.ndarray):
        return copies_of([array], "a gradient", scale=scale)[0]
    if array.dtype.itemsize != 2:
        return np.asarray(array * array.dtype.type(scale))
    with np.errstate(over="ignore"):  # the scale itself may be beyond 16 bits
        return np.asarray(array.astype(np.float32) * np.float32(scale)).astype(array.dtype)
