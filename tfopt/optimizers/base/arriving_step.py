"""A step whose gradients arrive one by one, whose norm is summed on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.clip_ops.scaling import rounded
from tfopt.clip_ops.validation import of_rows, with_values
from tfopt.core.engine import tracing
from tfopt.core.locks import ProcessLock
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.commit import Attributes
from tfopt.optimizers.state.tree import leaves, named_variable
from tfopt.optimizers.state.variables import refuse_gpu
from tfopt.optimizers.step.gradients import as_taken, checked_gradient
from tfopt.optimizers.step.known_norms import KnownNorms, Measured, measured

if TYPE_CHECKING:
    from tfopt.optimizers.base.optimizer_base import OptimizerBase

__all__ = ["ArrivedStep", "ArrivingStep"]

#: Of an entry: its keys and indices, joined by "/" or one by one.
Name: TypeAlias = str | int | tuple[str | int, ...]

_SHOWN = 5  # names in a message


class ArrivedStep(NamedTuple):
    """A report of a step whose gradients arrived.

    Attributes
    ----------
    norm : float
        The norm of all gradients as they arrived: before they are scaled, clipped or accumulated;
        of `IndexedSlices`, that of the values.
    clipped : bool
        Whether a norm exceeded the `clipnorm` or `global_clipnorm` of an optimizer.
    nonfinite : tuple of str
        The names of the gradients with infinite or NaN elements.
    counted : bool
        Whether the optimizer counts it as a step; false if its gradients were only accumulated, or
        a loss scale left it out.
    """

    norm: float
    clipped: bool
    nonfinite: tuple[str, ...]
    counted: bool


class _Arrived(NamedTuple):
    """A gradient, and the sums of its squares."""

    grad: Any
    sums: Measured


class ArrivingStep:
    """A step whose gradients arrive in any order, as `Optimizer.arriving` returns it.

    Each gradient is checked as it arrives, and the squares of its elements are summed in double
    precision while it is in the cache: the step then clips by its norm without a pass over the
    gradients. Its results have the bits of `Optimizer.step` with all of them, in whatever order
    they arrive. `take` takes the step, once, or raises and changes nothing; then the next one can
    arrive. Several threads may add gradients.

    The gradients are kept, not copied, until the step is taken: they must not be changed until
    then, unless they are added with ``copy=True``. They are not part of the optimizer's state.

    Parameters
    ----------
    optimizer : Optimizer
    params : array, Variable, or (nested) dict, list or tuple of them
        In host memory.

    Raises
    ------
    InvalidArgumentError
        If two entries have the same name.
    InvalidTypeError
        If an entry is on a GPU, or is not a variable.

    Notes
    -----
    No variable is updated before all gradients have arrived, even without clipping: a gradient
    that is refused, or that is NaN, would otherwise leave a part of the variables changed. To step
    each one at once, give each its own optimizer.
    """

    def __init__(self, optimizer: OptimizerBase, params: Any) -> None:
        self._optimizer = optimizer
        self._leaves: dict[str, Any] = {}
        for name, leaf in leaves(params):
            if name in self._leaves:
                raise InvalidArgumentError(f"two entries of the structure have the name {name!r}")
            self._leaves[name] = leaf
        self._variables = {name: named_variable(name, v) for name, v in self._leaves.items()}
        refuse_gpu(self._variables.values(), "an arriving step")
        self._arrived: dict[str, _Arrived] = {}
        self._taking = False
        self._lock = ProcessLock()

    def __repr__(self) -> str:
        has, of = len(self._arrived), len(self._leaves)
        return f"<ArrivingStep of {type(self._optimizer).__name__}: {has} of {of} gradients>"

    # ---- gradients

    def add(self, name: Name, grad: Any, *, copy: bool = False) -> None:
        """Add the gradient of an entry.

        Parameters
        ----------
        name : str, int or tuple of them
            The name of the entry, as in `Optimizer.step`: its keys and indices, such as
            ``layers/0/w`` or ``("layers", 0, "w")``.
        grad : array, torch tensor or IndexedSlices
            As in `Optimizer.apply_gradients`: of the variable's shape, and of its dtype or of 16
            bits.
        copy : bool, default False
            Whether to keep a copy, since the memory will be used again.

        Raises
        ------
        InvalidArgumentError
            If there is no entry of this name, its gradient has arrived before, or does not match
            the variable; nothing is changed.
        """
        _refuse_tracing()
        key = "/".join(map(str, name)) if isinstance(name, tuple) else str(name)
        with self._lock.held():
            self._refuse_taking()
            variable = self._variables.get(key)
            if variable is None:
                raise InvalidArgumentError(
                    f"there is no entry {key!r}: the entries are {_listed([*self._leaves])}"
                )
            if key in self._arrived:
                raise InvalidArgumentError(
                    f"the gradient of {key} has arrived before: take the step, or drop it"
                )
            if grad is None:
                raise InvalidTypeError(
                    f'the gradient of {key} is None: leave it out, and take(missing="skip")'
                )
            [taken] = as_taken([grad], [variable])
            checked = checked_gradient(taken, variable)
            if copy:
                checked = _copied(checked)
            self._arrived[key] = _Arrived(checked, measured(_array(checked)))

    def drop(self) -> None:
        """Forget the gradients that have arrived."""
        with self._lock.held():
            self._refuse_taking()
            self._arrived = {}

    # ---- what has arrived

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the entries whose gradients have not arrived."""
        return tuple(name for name in self._leaves if name not in self._arrived)

    @property
    def nonfinite(self) -> tuple[str, ...]:
        """The names of the gradients that have infinite or NaN elements."""
        return tuple(name for name, each in self._in_order() if not each.sums.finite)

    @property
    def norm(self) -> float:
        """The norm of all gradients that have arrived, as `ArrivedStep.norm`."""
        found = [each.sums for _, each in self._in_order()]
        root = norm([each.array for each in found], None, [each.sums for each in found])
        return float(rounded(*root, np.dtype(np.float64)))

    def _in_order(self) -> list[tuple[str, _Arrived]]:
        """Return what has arrived in the order of the entries, which is that of the sum."""
        arrived = self._arrived
        return [(name, arrived[name]) for name in self._leaves if name in arrived]

    # ---- the step

    def take(
        self, *, grad_scale: Any = None, use_norm: Any = None, missing: str = "raise"
    ) -> ArrivedStep:
        """Take the step.

        Parameters
        ----------
        grad_scale, use_norm : float, optional
            As in `Optimizer.apply_gradients`: of a model in shards, `use_norm` is the root of the
            sum of the squares of their `norm`.
        missing : {"raise", "skip"}
            "skip" skips the variables whose gradients have not arrived.

        Returns
        -------
        ArrivedStep

        Raises
        ------
        InvalidArgumentError
            If gradients are missing, if none has arrived, or the step is refused; then nothing is
            changed, and the gradients are kept.
        """
        _refuse_tracing()
        if missing not in ("raise", "skip"):
            raise InvalidArgumentError(f'missing must be "raise" or "skip", not {missing!r}')
        scale, given = self._optimizer._asked(grad_scale, use_norm)
        mine = False
        try:
            with self._lock.held():
                self._refuse_taking()
                self._refuse_missing(missing == "skip")
                mine = self._taking = True
            return self._taken(scale, None if given is None else given.norm)
        finally:
            if mine:
                self._taking = False

    def _taken(self, scale: float, use_norm: float | None) -> ArrivedStep:
        arrived = self._in_order()
        grads: Mapping[str, Any] = dict.fromkeys(self._leaves) | {k: a.grad for k, a in arrived}
        arrays = {id(_array(each.grad)): each.sums for _, each in arrived}
        total, nonfinite = self.norm, self.nonfinite
        # with the step, so that an interrupt after it does not leave them there to be taken again
        forgets = Attributes(self, {"_arrived": {}})
        known = KnownNorms(use_norm, arrays, (forgets,))
        step = self._optimizer._step_tree(self._leaves, grads, scale, known)
        assert step is not None
        return ArrivedStep(total, step.clipped, nonfinite, step.counts)

    def _refuse_missing(self, skips: bool) -> None:
        absent = self.missing
        if not self._arrived:
            raise InvalidArgumentError("no gradient has arrived: add them first")
        if absent and not skips:
            raise InvalidArgumentError(
                f"the gradients of {_listed(absent)} have not arrived: add them, or "
                'take(missing="skip") to skip these variables'
            )

    def _refuse_taking(self) -> None:
        if self._taking:
            raise InvalidArgumentError("the step is being taken: wait for it before the next one")


def _refuse_tracing() -> None:
    if tracing() is not None:
        raise InvalidArgumentError(
            "the gradients of a traced function do not arrive: take the step outside of it, or "
            "pass all gradients to `step`"
        )


def _array(grad: Any) -> np.ndarray:
    array: np.ndarray = grad if type(grad) is np.ndarray else of_rows(grad)  # the test saves 2 us
    return array


def _copied(grad: Any) -> Any:
    copied = with_values(grad, np.array(_array(grad)))
    if isinstance(copied, IndexedSlices):
        return IndexedSlices(copied.values, np.array(copied.indices), copied.dense_shape)
    return copied


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
