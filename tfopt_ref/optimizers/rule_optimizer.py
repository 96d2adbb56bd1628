"""Optimizers whose steps are training ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.clipping import clipped
from tfopt_ref.optimizers.optimizer import ApplyState, Optimizer
from tfopt_ref.optimizers.pairs import refuse_rows
from tfopt_ref.training_op import TrainingOp
from tfopt_ref.variable import Variable

__all__ = ["RuleOptimizer"]

Update = tuple[TrainingOp, dict[str, Any]]

_HOOKS = (
    "_prepare_local",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)


class RuleOptimizer(Optimizer):
    """Base class: a subclass gives the slots' first values and the op of a step.

    Where a method that `Optimizer` calls for each variable is overridden, they are called for each:
    then ``apply_state`` holds the op's hyperparameters, which the methods here read from it.
    """

    def _slot_values(self) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__} does not define its slots")

    def _update(self, t: int, lr: float) -> Update:
        """Return the op of step t (the first is 1) and its hyperparameters."""
        raise NotImplementedError(f"{type(self).__name__} does not define its update")

    def _sparse_op(self) -> TrainingOp | None:
        """Return the op for sparse gradients, if it is another one."""
        return None

    def _duplicates(self) -> str:
        """Return what repeated indices mean, as in training_ops."""
        return "sum"

    def _op_slots(self) -> tuple[str, ...]:
        """Return the names of the slots in the order in which the op takes them."""
        return tuple(self._slot_values())

    def _stepped(self, hypers: dict[str, Any]) -> None:
        """Keep what a step leaves for the next one, beside slots."""

    def _create_slots(self, var_list: list[Variable]) -> None:
        """Make the slots of variables that have none, in the order of `weights`."""
        for slot, value in self._slot_values().items():
            for variable in var_list:
                self.add_slot(variable, slot, value)

    def get_slot_names(self) -> list[str]:
        """Return the names of a variable's slots."""
        return list(self._slot_values())

    def _next_update(self) -> Update:
        return self._update(int(self.iterations) + 1, self._next_rate())

    def _take_step(self, grads: list[Any], variables: list[Variable]) -> None:
        op, hypers = self._next_update()
        if any(getattr(type(self), hook) is not getattr(RuleOptimizer, hook) for hook in _HOOKS):
            super()._take_step(grads, variables)
            self._stepped(hypers)
            return
        refuse_rows(grads, variables)
        self._create_slots(variables)
        calls = []
        for grad, variable in zip(grads, variables, strict=True):
            own = self._sparse_op() if isinstance(grad, IndexedSlices) else None
            calls.append(self._checked(own or op, hypers, self._operands(variable), grad))
        if (self.clipvalue, self.clipnorm, self.global_clipnorm) != (None, None, None):
            ops = [called for called, *_ in calls]
            given = clipped([(operands, options) for _, operands, options in calls], self)
            calls = [(called, *each) for called, each in zip(ops, given, strict=True)]
        for called, operands, options in calls:
            called(*operands, **options)
        for variable in variables:
            variable.constrain()
        self._stepped(hypers)

    def _operands(self, variable: Variable) -> list[np.ndarray]:
        slots = (self.get_slot(variable, slot).numpy() for slot in self._op_slots())
        return [variable.numpy(), *slots]

    def _checked(
        self, op: TrainingOp, hypers: dict[str, Any], arrays: list[np.ndarray], grad: Any
    ) -> Any:
        """Return an op with the arrays and options of a call that can be carried out."""
        if not isinstance(grad, IndexedSlices):
            array = grad if hasattr(grad, "dtype") else np.asarray(grad, arrays[0].dtype)
            op.check(op.bind(*arrays, array, **hypers))
            return op, (*arrays, array), hypers
        rows = {"indices": grad.indices, "duplicates": self._duplicates()}
        op.check(op.bind(*arrays, grad.values, **hypers, **rows))
        return op, (*arrays, grad.values), {**hypers, **rows}

    # ---- one variable after another

    def _prepare_local(
        self, var_device: str, var_dtype: np.dtype[Any], apply_state: ApplyState
    ) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        op, hypers = self._next_update()
        apply_state[var_device, var_dtype].update(hypers, op=op, hypers=list(hypers))

    def _resource_apply_dense(
        self, grad: np.ndarray, handle: Variable, apply_state: ApplyState
    ) -> None:
        local = apply_state[handle.device, handle.dtype]
        hypers = {hyper: local[hyper] for hyper in local["hypers"]}
        local["op"](*self._operands(handle), grad, **hypers)

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        local = apply_state[handle.device, handle.dtype]
        hypers = {hyper: local[hyper] for hyper in local["hypers"]}
        op = self._sparse_op() or local["op"]
        rows = {"indices": indices, "duplicates": self._duplicates()}
        op(*self._operands(handle), grad, **hypers, **rows)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to
