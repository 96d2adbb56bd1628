"""Copies of variables in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.imports import bfloat16
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.clip import Rounding, round_call
from tfopt.kernels.update.commit import RowsOf, Write, carry_out
from tfopt.kernels.update.dense import run
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.options import MirrorDtype
from tfopt.optimizers.settings import Setting, choice
from tfopt.optimizers.state.restoration import host_array
from tfopt.optimizers.state.variables import as_variable, memory_of
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step, StepAround
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.updates.device_copy import DeviceCopy
from tfopt.variable import Variable

__all__ = ["Mirror"]


class Mirror(Wrapper):
    """Keeps a copy in 16 bits of each float32 variable that another optimizer updates.

    For models that compute in bfloat16 or float16, while small steps add up in float32.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps; must not have ``sparse="catch_up"``, with which updates are deferred.
    dtype : {"bfloat16", "float16"}
    name : str, default "Mirror"

    Raises
    ------
    InvalidArgumentError
        If an argument is invalid.

    Notes
    -----
    Slot: ``mirror``, the variable rounded to the nearest. It is written while the step's results
    are in the cache, so the only additional memory traffic is to write it; with a constraint, after
    it. A sparse step writes only its rows, if the variable is contiguous. Variables of other dtypes
    have no mirror. On a GPU the mirror is an array of the variable's library, which must have its
    dtype; a launch of its own, which follows the step's, writes all of it.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, Mirror
    >>> w = np.ones(3, np.float32)
    >>> opt = Mirror(SGD(2.0**-12))
    >>> half = opt.mirror(w)  # what the model computes with, updated in place
    >>> for _ in range(16):
    ...     _ = opt.apply_gradients([(np.ones_like(w), w)])
    >>> half.dtype.name, float(half[0]), float(w[0])
    ('bfloat16', 0.99609375, 0.99609375)
    """

    dtype = Setting[MirrorDtype](choice(*get_args(MirrorDtype)), once=True)

    def __init__(
        self, optimizer: OptimizerBase, dtype: MirrorDtype = "bfloat16", name: str = "Mirror"
    ) -> None:
        super().__init__(optimizer, name)
        self.dtype = dtype

    def _check_settings(self) -> None:
        if self.optimizer.capabilities.defers:
            raise InvalidArgumentError(
                'weights with deferred updates (sparse="catch_up") cannot be mirrored'
            )

    def _bind(self, request: StepRequest) -> Step:
        self._check_settings()  # those of the optimizer inside can be set there
        for handle in request.handles:
            if _has_mirror(handle):
                self._mirror(handle)
        return _MirroredStep(self, request)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner optimizer, except following: that is used for the mirror."""
        return self.optimizer.capabilities._replace(follows=False)

    def mirror(self, var: Any) -> Any:
        """Return the mirror of a variable; it is made if there is none yet.

        Parameters
        ----------
        var : Variable or array
            Of float32.

        Returns
        -------
        array
            On the variable's device; always the same array, which steps update.

        Raises
        ------
        InvalidTypeError
            If it is of another dtype, or on a GPU in an array whose library lacks the mirror's.
        """
        variable = as_variable(var)
        if not _has_mirror(variable):
            raise InvalidTypeError(
                f"{variable.name} has no mirror: it is {variable.dtype}, not float32"
            )
        return self._mirror(variable).value()

    @writes()
    def refresh(self) -> None:
        """Refresh all mirrors, after code other than a step has changed the variables."""
        copying = _Copying(self)
        carry_out([copying([variable]) for variable in self._store.owners])

    def _mirror(self, variable: Variable) -> Variable:
        def first(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
            copy = np.empty(shape, dtype)
            run(round_call([copy], [host_array(variable)]))
            return copy

        return self.add_slot(variable, "mirror", first)

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        if self.dtype == "float16":
            return np.dtype(np.float16)
        return bfloat16()

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"mirror": variable.shape}


class _Copying:
    """Makes the function that copies variables to their mirrors, as `StepRequest.after`."""

    def __init__(self, wrapper: Mirror) -> None:
        self._wrapper = wrapper
        #: What copies lists of variables that have been copied before, and their mirrors.
        self._known: dict[tuple[int, ...], tuple[list[Variable], list[Variable], Any]] = {}

    def __call__(self, variables: list[Variable]) -> Any:
        """Return what copies variables of one dtype and device, None if they have no mirrors."""
        if not _has_mirror(variables[0]):
            return None
        key = tuple(map(id, variables))  # the list may be a new one in each step
        if key not in self._known:
            mirrors = [self._wrapper._mirror(variable) for variable in variables]
            self._known[key] = variables, mirrors, _copy(mirrors, variables[0])
        _, mirrors, copy = self._known[key]
        return copy([mirror._array for mirror in mirrors], [each._array for each in variables])

    def rows(self, variable: Variable, update: Call) -> Write | Call | None:
        """Return what copies the rows that a call updates."""
        call = self([variable])
        in_order = variable.numpy().flags.c_contiguous
        return RowsOf(call, update) if call is not None and in_order else call


def _copy(mirrors: list[Variable], first: Variable) -> Callable[[list[Any], list[Any]], Any]:
    """Return what makes the call or the launch that copies arrays to those of mirrors."""
    if first.device == "cpu":
        return Rounding().call_of
    on_device = DeviceCopy([mirror._array for mirror in mirrors], first.name)
    return lambda _, weights: on_device.launch(weights)


class _MirroredStep(StepAround):
    """A step and the writes of the mirrors."""

    def __init__(self, wrapper: Mirror, request: StepRequest) -> None:
        self._copying, handles = _Copying(wrapper), request.handles
        # constraints are applied after the calls that follow updates
        follows = wrapper.optimizer.capabilities.follows
        fused = follows and all(handle.constraint is None for handle in handles)
        asked = request.replace(after=self._copying, after_rows=self._copying.rows)
        super().__init__(wrapper.optimizer.bind(asked if fused else request))
        stepped = {memory_of(handle) for handle in handles} if fused else set()
        owners = wrapper._store.owners
        # which a wrapper inside, or around this one, may have changed
        others = [each for each in owners if memory_of(each) not in stepped]
        hosted = [each for each in others if each.device == "cpu"]
        self._others = [[each] for each in others if each.device != "cpu"]
        if hosted:
            self._others.append(hosted)  # by one call

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        step = self._inner.prepare(grads, scale, known)
        if step.counts:
            step.writes += map(self._copying, self._others)
        return step


def _has_mirror(variable: Variable) -> bool:
    return bool(variable.dtype == np.float32)
