"""Optimizers whose steps are training ops."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from tfopt_ref import training_ops
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.catch_up import Backlog, check_owed, refuse_catching_up
from tfopt_ref.optimizers.clipping import clipped
from tfopt_ref.optimizers.decaying import DecayingOptimizer
from tfopt_ref.optimizers.optimizer import ApplyState, Commit
from tfopt_ref.optimizers.pairs import as_variable, memory_of, refuse_rows
from tfopt_ref.optimizers.report import StepReport, report_of
from tfopt_ref.optimizers.state_parts import as_damage
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


class RuleOptimizer(DecayingOptimizer):
    """Base class: a subclass gives the slots' first values and the op of a step.

    Where a method that `Optimizer` calls for each variable is overridden, they are called for each:
    then ``apply_state`` holds the op's hyperparameters, which the methods here read from it.

    `sparse` says what a step of some rows does to the others: what it does in TensorFlow, nothing
    ("lazy"), or, when they are next named or read, what dense steps without a gradient would have
    done ("catch_up").
    """

    _catches_up = True

    def __init__(
        self,
        name: str,
        learning_rate: Any,
        *,
        sparse: str = "tensorflow",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.observe = False
        self.last_step: StepReport | None = None
        modes = ("tensorflow", "lazy", *(("catch_up",) if self._catches_up else ()))
        if sparse not in modes:
            raise InvalidArgumentError(
                f"sparse must be one of {', '.join(modes)} for {type(self).__name__}, "
                f"not {sparse!r}"
            )
        self.sparse = sparse
        self._backlogs: dict[Any, Backlog] = {}

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
        lr = self._next_rate()
        op, hypers = self._update(int(self.iterations) + 1, lr)
        if self.weight_decay:
            hypers = {**hypers, "var_scale": 1 - lr * self.weight_decay}
        return op, hypers

    def _hypers_of(self, variable: Variable, hypers: dict[str, Any]) -> dict[str, Any]:
        excluded = variable in self._exclusion
        return {k: v for k, v in hypers.items() if k != "var_scale" or not excluded}

    def _checked_step(self, grads: list[Any], variables: list[Variable], scale: float) -> Commit:
        op, hypers = self._next_update()
        if any(getattr(type(self), hook) is not getattr(RuleOptimizer, hook) for hook in _HOOKS):
            step = super()._checked_step(grads, variables, scale)

            def one_by_one() -> None:
                step()
                self._stepped(hypers)

            return one_by_one
        refuse_rows(grads, variables)
        for grad, variable in zip(grads, variables, strict=True):
            if self.sparse == "catch_up" and isinstance(grad, IndexedSlices):
                refuse_catching_up(variable)
        self._create_slots(variables)
        calls = []
        for grad, variable in zip(grads, variables, strict=True):
            own = self._op_of_rows(op) if isinstance(grad, IndexedSlices) else op
            its = self._hypers_of(variable, hypers)
            calls.append(self._checked(own, its, self._operands(variable), grad))
            if self.observe and calls[-1][1][-1].dtype.kind == "c":
                raise InvalidTypeError(f"a step of {variable.dtype} cannot be observed")
        seen = [operands[-1] for _, operands, _ in calls]
        limits = self.clipvalue, self.clipnorm, self.global_clipnorm
        ops = [called for called, *_ in calls]
        given, clips = clipped([(operands, o) for _, operands, o in calls], self, scale)
        calls = [(called, *each) for called, each in zip(ops, given, strict=True)]

        def commit() -> None:
            observed = variables if self.observe else []
            before = [variable.numpy().astype(np.float64) for variable in observed]
            for (called, operands, options), variable in zip(calls, variables, strict=True):
                variable.before_write()
                own = self._hypers_of(variable, hypers)
                self._call(op, own, variable, called, operands, options)
            if self.observe:
                moved = [v.numpy() - old for v, old in zip(variables, before, strict=True)]
                self.last_step = report_of(seen, moved, limits[0], scale, clips)
            for variable in variables:
                variable.constrain()
            self._stepped(hypers)

        return commit

    def _op_of_rows(self, op: TrainingOp) -> TrainingOp:
        if self.sparse == "catch_up":
            return op.lazy()
        own = self._sparse_op() or op
        return own.lazy() if self.sparse == "lazy" else own

    def _call(
        self,
        op: TrainingOp,
        hypers: dict[str, Any],
        variable: Variable,
        called: TrainingOp,
        operands: Any,
        options: dict[str, Any],
    ) -> None:
        """Call an op; rows that are to be updated have taken all steps before."""
        if self.sparse != "catch_up":
            called(*operands, **options)
            return
        backlog, rows = self._backlog(variable, op), options.get("indices")
        backlog.catch_up(rows)
        called(*operands, **options)
        if rows is not None:
            backlog.remember(hypers, rows)

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
        decays = "var_scale" in hypers  # once a step, however often a row is named
        duplicates = "sum" if decays else self._duplicates()
        rows = {"indices": grad.indices, "duplicates": duplicates}
        op.check(op.bind(*arrays, grad.values, **hypers, **rows))
        return op, (*arrays, grad.values), {**hypers, **rows}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_backlogs": list(self._backlogs.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._backlogs = {memory_of(own.variable): own for own in state["_backlogs"]}

    # ---- rows that catch up

    def _backlog(self, variable: Variable, op: TrainingOp) -> Backlog:
        key = memory_of(variable)
        found = self._backlogs.get(key)
        if found is None or found.op is not op:
            if found is not None:
                found.catch_up()
            found = self._backlogs[key] = Backlog(op, self._operands(variable), variable)
        return found

    def catch_up(self, var: Any, rows: Any) -> None:
        """Let rows of a variable take the steps they have not taken, so that they can be read."""
        variable = as_variable(var)
        key = memory_of(variable)
        if key in self._backlogs:
            variable.before_write()
            self._backlogs[key].catch_up(self._backlogs[key].checked(rows))

    def flush(self) -> None:
        """Let all rows of all variables take the steps they have not taken."""
        for variable in self._owners:
            variable.before_write()
        for backlog in self._backlogs.values():
            backlog.catch_up()

    def _check_move(self, moved: dict[Any, Variable]) -> None:
        super()._check_move(moved)
        for key, backlog in self._backlogs.items():
            if key in moved and backlog.state():
                name = backlog.variable.name
                raise InvalidArgumentError(
                    f"{name} was replaced while rows of it have deferred updates: call "
                    "flush() first"
                )

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._backlogs = {k: own for k, own in self._backlogs.items() if k not in moved}

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, after a `flush`."""
        self.flush()
        return super().get_weights()

    def set_weights(self, weights: Any) -> None:
        """Set the state; steps that rows have not taken are forgotten."""
        super().set_weights(weights)
        for backlog in self._backlogs.values():
            backlog.forget()

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        owed = {}
        for name, variable in names.items():
            backlog = self._backlogs.get(memory_of(variable))
            state = backlog.state() if backlog is not None else {}
            if backlog is not None and state:
                slots = self._slots.get(memory_of(variable), {})
                named = {id(slot.value()): key for key, slot in slots.items()}
                owed[name] = {**state, "slots": [named[id(array)] for array in backlog.arrays[1:]]}
        if len(owed) < sum(bool(backlog.state()) for backlog in self._backlogs.values()):
            raise InvalidArgumentError(
                "rows of a variable that is not in variables have deferred updates"
            )
        return {**super()._state_parts(names), **({"owed": owed} if owed else {})}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        owed = parts.pop("owed", {})
        with as_damage():
            for name, state in owed.items():
                if name not in names or not all((name, slot) in slots for slot in state["slots"]):
                    raise InvalidArgumentError(
                        f"rows of {name} have deferred updates, but it has no slots"
                    )
                check_owed(state, names[name])
        return [*super()._restoring(parts, names, slots), partial(self._owe, owed, names)]

    def _owe(self, owed: dict[str, Any], names: dict[str, Variable]) -> None:
        self._backlogs.clear()
        for name, state in owed.items():
            variable = names[name]
            slots = (self.get_slot(variable, slot).numpy() for slot in state["slots"])
            arrays = [variable.numpy(), *slots]
            backlog = Backlog(getattr(training_ops, state["rule"]), arrays, variable)
            backlog.restore(state)
            self._backlogs[memory_of(variable)] = backlog

    def _known(self) -> list[Variable]:
        return [*super()._known(), *(backlog.variable for backlog in self._backlogs.values())]

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self._slot_values(), variable.shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        own = {} if self.sparse == "tensorflow" else {"sparse": self.sparse}
        return {**super().get_config(), **own}

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
        hypers = self._hypers_of(handle, hypers)
        op, operands = local["op"], (*self._operands(handle), grad)
        self._call(op, hypers, handle, op, operands, hypers)

    def _resource_apply_sparse(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        local = apply_state[handle.device, handle.dtype]
        hypers = {hyper: local[hyper] for hyper in local["hypers"]}
        hypers = self._hypers_of(handle, hypers)
        op, operands = local["op"], (*self._operands(handle), grad)
        duplicates = "sum" if "var_scale" in hypers else self._duplicates()
        options = {**hypers, "indices": indices, "duplicates": duplicates}
        self._call(op, hypers, handle, self._op_of_rows(op), operands, options)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: np.ndarray, handle: Variable, indices: np.ndarray, apply_state: ApplyState
    ) -> None:
        self._resource_apply_sparse(grad, handle, indices, apply_state)  # which sums if it is to
