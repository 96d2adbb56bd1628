"""Steps by the rules of the table, and the calls that carry them out.

An optimizer describes its step as a `RuleUpdate`: a rule with its hyperparameters. With a scale it
becomes a `RuleStep`, which checks calls. `DenseBucket` and `SparseUpdate` hold the variables of a
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.adjustments import set_cautious_decay, set_rounding
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.sparse_checks import shared_rows_call
from tfopt.kernels.update.step_table import Kernel
from tfopt.updates.sparse_update import rows_call

if TYPE_CHECKING:
    from tfopt.variable import Variable

__all__ = ["DenseBucket", "RuleStep", "RuleUpdate", "Rounding", "SparseUpdate", "as_array"]

Rounding = tuple[int, int] | None  # stochastic: the seed, and the number of the step


class RuleStep(NamedTuple):
    """The arguments that all calls of a step have in common."""

    kernel: Kernel
    hypers: tuple[float, ...]
    flags: int
    duplicates: str
    lazy: bool  # whether rows without a gradient stay unchanged, whatever the rule
    grad_scale: float = 1.0
    var_scale: float = 1.0
    decay: float = 0.0
    rounding: Rounding = None
    places: list[int] = []  # of the variables in the step; they select the rounding noise

    @property
    def everywhere(self) -> bool:
        """Whether a sparse step also steps the rows without a gradient."""
        return self.kernel.rule.absent is not None and not self.lazy

    def dense(self, operands: tuple[list[np.ndarray], ...], grads: list[np.ndarray]) -> Call:
        """Check an update of whole variables."""
        kernel, hypers, flags, _, _, grad_scale, var_scale, *_ = self
        call = many_call(kernel, (*operands, grads), hypers, flags, grad_scale, var_scale)
        return self.completed(call)

    def rows(
        self,
        arrays: tuple[np.ndarray, ...],
        slices: IndexedSlices,
        workspace: Workspace,
        duplicates: str | None = None,
    ) -> Call:
        """Check a sparse update, whose gradients are summed in a workspace."""
        if duplicates is None and (shared := self._shared_rows(arrays, slices, workspace)):
            return self.completed(shared)
        call = rows_call(
            self.kernel,
            (*arrays, slices.values),
            slices.indices,
            self.hypers,
            self.flags,
            self.duplicates if duplicates is None else duplicates,
            self.grad_scale,
            workspace,
            self.lazy,
            self.var_scale,
        )
        return self.completed(call)

    def _shared_rows(
        self, arrays: tuple[np.ndarray, ...], slices: IndexedSlices, workspace: Workspace
    ) -> Call | None:
        """Check an update that sums rows which indices share; return None if it cannot."""
        shared = slices._shared_rows()
        if shared is None or slices.dense_shape != arrays[0].shape:  # checked as any other then
            return None
        rows, at, indices = shared
        kernel, hypers, flags, duplicates, lazy, grad_scale, var_scale, *_ = self
        return shared_rows_call(
            kernel, (*arrays, rows), at, indices, hypers, flags, grad_scale, lazy, workspace,
            var_scale, duplicates != "sum",
        )  # fmt: skip

    def completed(self, call: Call) -> Call:
        """Return a call after setting what the arguments of a rule do not contain."""
        return _completed(call, self.decay, self.rounding, self.places)


class RuleUpdate(NamedTuple):
    """The update of a step: a rule of the table with its hyperparameters."""

    rule: str
    hypers: dict[str, float]
    flags: dict[str, bool] = {}
    duplicates: str = "sum"  # the treatment of repeated indices, as in training_ops
    rows: str | None = None  # the rule for sparse gradients, if it is a different one
    keep: float = 1.0  # multiplies variables before the step, except those that do not decay
    decay: float = 0.0  # what of them is subtracted after it, where the step agrees (cautious)
    rounding: Rounding = None

    def step(
        self,
        scale: float = 1.0,
        decays: bool = True,
        lazy: bool = False,
        rule: str | None = None,
        places: list[int] = [],  # noqa: B006
    ) -> RuleStep:
        """Return the step of whole variables or, with a sparse `rule`, of rows.

        The gradient is multiplied by `scale`; weights decay only if `decays` is true. The variables
        have these places in the step.
        """
        if not decays:
            self = self.without_decay()
        kernel = kernels[self.rule if rule is None else rule]
        table = kernel.rule
        hypers = tuple(map(self.hypers.__getitem__, table.hypers))
        flags = 0
        for k, flag in enumerate(table.flags):
            flags |= self.flags[flag] << k
        # rows decay once per step, however often they occur
        duplicates = self.duplicates if self.keep == 1 and not self.decay else "sum"
        return RuleStep(
            kernel, hypers, flags, duplicates, lazy, scale, self.keep, self.decay, self.rounding,
            places,
        )  # fmt: skip

    def completed(self, call: Call, places: list[int]) -> Call:
        """Return a call, which is used again, after setting what is not among its arguments."""
        return _completed(call, self.decay, self.rounding, places)

    def without_decay(self) -> RuleUpdate:
        """Return the update of variables that do not decay, by the factor or by the rule."""
        hypers, flags = self.hypers, self.flags
        if "weight_decay" in hypers:
            hypers = {**hypers, "weight_decay": 0.0}
        if "adapts" in flags:  # these take the plain rate
            flags = {**flags, "adapts": False}
        return self._replace(hypers=hypers, flags=flags, keep=1.0, decay=0.0)

    def row_step(self, sparse: str, scale: float, decays: bool, places: list[int]) -> RuleStep:
        """Return the sparse step; `sparse` is the mode, as in RuleOptimizer."""
        # catching up gives the result of dense steps
        rule = self.rule if sparse == "catch_up" else self.rows or self.rule
        return self.step(scale, decays, sparse != "tensorflow", rule, places)


class DenseBucket(NamedTuple):
    """Variables that one call updates, and the positions of their gradients in a step."""

    operands: tuple[list[Any], ...]  # the variables, the first slots, the second ones, ...
    places: list[int]
    variables: list[Variable]
    dtype: np.dtype[Any] | None  # for gradients that are not arrays; None if all are
    decays: bool  # whether weight decay applies to these variables
    constrained: bool  # whether these variables have a constraint

    @property
    def written(self) -> list[Any]:
        """All arrays that an update changes."""
        return [array for column in self.operands for array in column]

    def step(self, update: RuleUpdate, sparse: str, scale: float) -> RuleStep:
        """Return the step of these variables."""
        return update.step(scale, self.decays, places=self.places)

    def gradients(self, grads: Sequence[Any]) -> list[Any]:
        """Return the gradients of these variables among those of a step."""
        if self.dtype is None:
            return [grads[place] for place in self.places]
        return [as_array(grads[place], self.dtype) for place in self.places]

    def call(self, step: RuleStep, grads: Sequence[Any]) -> Call:
        """Check the call of a step."""
        return step.dense(self.operands, self.gradients(grads))


class SparseUpdate(NamedTuple):
    """A variable with its slots, for a sparse update, and the position of its gradient."""

    arrays: tuple[Any, ...]
    place: int
    variable: Variable
    workspace: Workspace
    decays: bool
    constrained: bool = False  # a constraint needs the whole variable

    @property
    def written(self) -> list[Any]:
        """All arrays that an update changes."""
        return list(self.arrays)

    @property
    def variables(self) -> list[Variable]:
        """The variable, as a list."""
        return [self.variable]

    @property
    def places(self) -> list[int]:
        """The position of the gradient, as a list."""
        return [self.place]

    def step(self, update: RuleUpdate, sparse: str, scale: float) -> RuleStep:
        """Return the step of the rows."""
        return update.row_step(sparse, scale, self.decays, self.places)

    def call(self, step: RuleStep, grads: Sequence[Any]) -> Call:
        """Check the call of a step."""
        return step.rows(self.arrays, grads[self.place], self.workspace)


def _completed(call: Call, decay: float, rounding: Rounding, places: list[int]) -> Call:
    if decay:
        set_cautious_decay(call, decay)
    if rounding is not None:
        set_rounding(call, *rounding, places)
    return call


def as_array(grad: Any, dtype: np.dtype[Any]) -> Any:
    """Return a dense gradient unchanged if it has a dtype; convert lists to the variable's."""
    if hasattr(grad, "dtype"):
        return grad
    try:
        if isinstance(grad, (str, bytes)):  # which NumPy would parse as numbers
            raise TypeError
        return np.asarray(grad, dtype)
    except (TypeError, ValueError, OverflowError):
        raise InvalidTypeError(
            f"a gradient must be an array or IndexedSlices of numbers, not {grad!r:.60}"
        ) from None
