"""What a step does: a rule of the table with its hyperparameters, and the calls made of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfopt.core.sparse_update import rows_call
from tfopt.core.workspace import Workspace
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call, Kernel
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.groups import many_call
from tfopt.kernels.row_calls import set_summing, sparse_call
from tfopt.optimizers.execution.clipping import Checked

__all__ = ["Step", "Steps", "Update", "step_of"]


class Update(NamedTuple):
    """What one step does: a rule of the table with its hyperparameters."""

    rule: str
    hypers: dict[str, float]
    flags: dict[str, bool] = {}
    duplicates: str = "sum"  # what repeated indices mean, as in training_ops
    rows: str | None = None  # the rule for sparse gradients, where it is another one
    keep: float = 1.0  # what variables are multiplied by first, but those that do not decay


class Step(NamedTuple):
    """What is the same for all calls of a step."""

    kernel: Kernel
    hypers: tuple[float, ...]
    flags: int
    duplicates: str
    lazy: bool  # whether rows without a gradient stay as they are, whatever the rule
    grad_scale: float = 1.0
    var_scale: float = 1.0

    @property
    def scales(self) -> tuple[float, float]:
        """What the gradient and the variable are multiplied by."""
        return self.grad_scale, self.var_scale

    @property
    def everywhere(self) -> bool:
        """Whether a step of some rows is one of all others, too."""
        return self.kernel.rule.absent is not None and not self.lazy

    def dense(self, operands: tuple[list[np.ndarray], ...], grads: list[np.ndarray]) -> Call:
        """Check an update of whole variables."""
        return many_call(self.kernel, (*operands, grads), self.hypers, self.flags, *self.scales)

    def rows(
        self,
        arrays: tuple[np.ndarray, ...],
        slices: IndexedSlices,
        workspace: Workspace,
        duplicates: str | None = None,
    ) -> Call:
        """Check an update of rows, whose gradients are summed in a workspace."""
        rows = (*arrays, slices.values), slices.indices
        how = self.duplicates if duplicates is None else duplicates
        given = *rows, self.hypers, self.flags, how, self.grad_scale, workspace, self.lazy
        return rows_call(self.kernel, *given, self.var_scale)

    def clipped_rows(
        self,
        arrays: tuple[np.ndarray, ...],
        slices: IndexedSlices,
        workspace: Workspace,
        place: int,
        merge: str,
    ) -> Checked:
        """Check an update of rows whose gradient is to be clipped, before it is summed or after."""
        # a rule that steps all rows sums in any case
        unsummed = "sum" if self.everywhere else "sequential"
        call = self.rows(arrays, slices, workspace, unsummed)
        if merge == "before":
            slices = slices.sum_duplicates()
            call = self.rows(arrays, slices, workspace, unsummed)

        def remake(gradients: list[np.ndarray]) -> Call:
            return self.rows(arrays, IndexedSlices(gradients[0], slices.indices), workspace)

        def summed(bound: float | None, scale: float) -> Call:
            call = self._distinct(arrays, slices, workspace)
            if call.sums:
                set_summing(call, math.inf if bound is None else bound, scale)
                return call
            merged = slices._summed(bound, scale, workspace, ascending=self.everywhere)
            return self._distinct(arrays, merged, None)

        sums = self.duplicates == "sum" and merge == "after"
        gradients = [slices.values] if self.everywhere else gradients_of(call)
        return Checked(call, gradients, [place], remake, summed if sums else None)

    def _distinct(
        self, arrays: tuple[np.ndarray, ...], slices: IndexedSlices, workspace: Workspace | None
    ) -> Call:
        rows = (*arrays, slices.values), slices.indices
        given = *rows, self.hypers, self.flags, 1.0, self.lazy, workspace
        return sparse_call(self.kernel, *given, self.var_scale)


class Steps(NamedTuple):
    """The steps of one update: of whole variables and of rows, which decay or do not."""

    update: Update
    sparse: str  # what a step of rows does to the others, as in RuleOptimizer
    scale: float = 1.0  # of the gradients

    def whole(self, decays: bool) -> Step:
        """Return the step of whole variables."""
        return step_of(self.update.rule, self.update, False, self.scale, decays)

    def of_rows(self, decays: bool) -> Step:
        """Return the step of rows."""
        rule = self.update.rule
        if self.sparse != "catch_up":  # whose result is that of dense steps
            rule = self.update.rows or rule
        return step_of(rule, self.update, self.sparse != "tensorflow", self.scale, decays)


def step_of(
    name: str, update: Update, lazy: bool = False, scale: float = 1.0, decays: bool = True
) -> Step:
    """Return the step of a rule with the hyperparameters of an update.

    The gradient is multiplied by `scale`; weights do not decay unless `decays`.
    """
    kernel = kernels[name]
    rule = kernel.rule
    hypers = tuple(map(update.hypers.__getitem__, rule.hypers))
    flags = 0
    for k, flag in enumerate(rule.flags):
        flags |= update.flags[flag] << k
    keep = update.keep if decays else 1.0
    # rows decay once a step, however often they are named
    duplicates = update.duplicates if keep == 1 else "sum"
    return Step(kernel, hypers, flags, duplicates, lazy, scale, keep)
