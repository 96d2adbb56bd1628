"""The base class of torch optimizers that run on tfopt's kernels, in place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd.graph import increment_version
from torch.utils.dlpack import to_dlpack

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.imports import bfloat16
from tfopt.indexed_slices import IndexedSlices
from tfopt.interop.torch.device import DevicePart
from tfopt.kernels import kernels
from tfopt.kernels.arrays.coerce import arrays_of
from tfopt.kernels.update.checks import Call, dense_call
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.kernels.update.dense import run
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.pipeline import run_together
from tfopt.updates.rule_steps import RuleStep, RuleUpdate

__all__ = ["KernelOptimizer"]


class _Part(NamedTuple):
    """Parameters with the same step count: dense ones, or a single sparse one."""

    positions: list[int]  # in the group
    operands: tuple[
        list[Any], ...
    ]  # arrays, or tensors on a GPU: the parameters, their first slots, ...
    steps: memoryview  # the step count: memory of the "step" tensor in the state of each
    workspace: Workspace | None  # for a sparse gradient
    device: DevicePart | None  # of parameters on a GPU


class _Plan(NamedTuple):
    """The layout of a group's step, reused by the next step while parameters and state stay."""

    kinds: list[bool | None]  # whether each gradient is sparse; None without a gradient
    pointers: list[int]  # to the parameters
    strides: list[tuple[int, ...]]
    slots: dict[str, float]
    state: list[Any]  # step counts and slots
    parts: list[_Part]


#: The step count of some parameters, launches on a GPU, and what completes their next step.
_Ready = tuple[memoryview, list[Launch], Callable[[], object]]


class KernelOptimizer(torch.optim.Optimizer):
    """Base class of torch optimizers that run on tfopt's kernels.

    Parameters and their state are on the CPU or on a GPU, and updated in place; step counts are on
    the CPU. The state has the names and meanings of the torch class of the same name, so the
    ``state_dict()`` of either loads into the other. All dense parameters of a group are updated by
    one call. A sparse gradient updates only its rows and their state, as in
    ``torch.optim.SparseAdam``; duplicate rows are summed. A step that raises has changed nothing.

    A subclass has torch's class as its second base, which defines its arguments, and declares its
    state (`_slots`) and its rule (`_update`).

    Raises
    ------
    InvalidTypeError
        If a parameter is on another device than the CPU or a GPU.
    InvalidArgumentError
        If a setting has no counterpart.
    """

    # ---- what a subclass defines

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        """Return the names of a parameter's state, in the rule's order, with initial values."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], t: int) -> RuleUpdate:
        """Return the update of a group's step number t, counting from 1."""
        raise NotImplementedError

    def _penalty(self, group: dict[str, Any]) -> float:
        """Return the weight decay that is added to the gradient."""
        penalty: float = group["weight_decay"]
        return penalty

    def _scale(self, group: dict[str, Any], t: int) -> float:
        """Return the factor by which gradients are multiplied as they are read."""
        return -1.0 if group["maximize"] else 1.0

    def _rate(self, group: dict[str, Any]) -> float | None:
        """Return the learning rate if the rule's variable is the first slot, else None.

        Then the parameters take a gradient descent step along that slot; otherwise they are the
        rule's variables.
        """
        return None

    # ---- torch's side

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own settings, as in torch."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check_settings(group)
            for parameter in group["params"]:
                if parameter.device.type not in ("cpu", "cuda"):
                    raise InvalidTypeError(
                        f"parameters must be on the CPU or on a GPU, not on {parameter.device}"
                    )
                if parameter.device.type == "cuda" and parameter.is_complex():
                    raise InvalidTypeError("complex parameters must be on the CPU, not on a GPU")
        except InvalidArgumentError:
            self.param_groups.pop()
            raise
        self._plans: dict[int, _Plan] = {}

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether a gradient scaler leaves unscaling to the step, as with torch's fused steps."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, on: bool) -> None:
        """Do nothing: torch's classes set it if `fused` is requested."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state in torch's format, with a separate step count for each parameter."""
        saved: dict[str, Any] = super().state_dict()
        saved["state"] = {
            number: {key: value.clone() if key == "step" else value for key, value in state.items()}
            if isinstance(state, dict)
            else state  # added by a hook
            for number, state in saved["state"].items()
        }
        return saved

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            _check_settings(group)
        super().__setstate__(state)
        self._plans = {}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step by the parameters' gradients.

        Parameters
        ----------
        closure : callable, optional
            Recomputes the gradients and returns the loss.

        Returns
        -------
        object
            What `closure` returned, or None.

        Raises
        ------
        InvalidArgumentError
            If a gradient does not match its parameter. No parameter has changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        ready: list[_Ready] = []
        for number, group in enumerate(self.param_groups):
            ready += self._ready(number, group)
        launches: list[Any] = [launch for _, part, _ in ready for launch in part]
        if launches:
            carry_out(launches)
        for steps, _, take in ready:
            take()
            steps[()] += 1
        # so that autograd detects graphs that need the old values
        increment_version([p for g in self.param_groups for p in g["params"] if p.grad is not None])
        return loss

    # ---- the kernels' side

    def _ready(self, number: int, group: dict[str, Any]) -> list[_Ready]:
        """Check a group's step."""
        parameters = group["params"]
        grads = [parameter.grad for parameter in parameters]
        kinds = [None if grad is None else grad.is_sparse for grad in grads]
        pointers = [*map(torch.Tensor.data_ptr, parameters)]
        strides = [*map(torch.Tensor.stride, parameters)]
        slots = self._slots(group)
        plan = self._plans.get(number)
        if (
            plan is None
            or plan[:4] != (kinds, pointers, strides, slots)
            or not all(map(operator.is_, plan.state, self._current_state(parameters, slots)))
        ):
            parts = self._planned(group, parameters, kinds)
            state = self._current_state(parameters, slots)
            plan = _Plan(kinds, pointers, strides, slots, state, parts)
            self._plans[number] = plan
        ready: list[_Ready] = []
        for part in plan.parts:
            t = int(part.steps[()]) + 1
            update, scale = self._update(group, t), self._scale(group, t)
            if part.device is not None and torch.cuda.is_current_stream_capturing():
                self._refuse_count(group, t)
            step = update.step(scale, part.workspace is None, lazy=True)
            gradients = [_resolved(grads[k]) for k in part.positions]
            if part.workspace is not None:
                self._refuse_rows(group)
                slices = _slices(gradients[0], part.device is not None)
                if part.device is not None:
                    ready.append((part.steps, *part.device.rows(update, scale, slices)))
                    continue
                arrays = tuple(column[0] for column in part.operands)
                call = step.rows(arrays, slices, part.workspace)
                ready.append((part.steps, [], partial(run, call)))
                continue
            decay = self._penalty(group)
            if decay:
                # with `maximize` the sum is negated afterwards
                alpha = -decay if group["maximize"] else decay
                targets = [parameters[k] for k in part.positions]
                with torch.no_grad():
                    gradients = list(torch._foreach_add(gradients, targets, alpha=alpha))
            rate = self._rate(group)
            if part.device is not None:
                ready.append((part.steps, *part.device.dense(update, scale, gradients, rate)))
            else:
                ready.append((part.steps, [], _of_all(part, step, _arrays(gradients), rate)))
        return ready

    def _current_state(self, parameters: list[Any], slots: Iterable[str]) -> list[Any]:
        """Return the step counts and slots of parameters, which a user may have replaced."""
        states = [self.state.get(parameter, {}) for parameter in parameters]
        return [state.get(name) for name in ("step", *slots) for state in states]

    def _refuse_count(self, group: dict[str, Any], t: int) -> None:
        """Raise if a group's step number t cannot be captured, as the next one is another."""
        numbers = [(self._update(group, k), self._scale(group, k)) for k in (t, t + 1)]
        if numbers[0] != numbers[1]:
            raise InvalidArgumentError(
                f"a CUDA graph cannot capture a step of {type(self).__name__}: each replay would "
                "repeat the step with the same count; capture the rest, and step outside"
            )

    def _refuse_rows(self, group: dict[str, Any]) -> None:
        """Raise if a group's step is not one of rows."""
        if self._penalty(group):
            raise InvalidArgumentError("weight_decay cannot be added to a sparse gradient")
        if self._rate(group) is not None:
            raise InvalidArgumentError("momentum does not support sparse gradients")

    def _planned(
        self, group: dict[str, Any], parameters: list[Any], kinds: list[bool | None]
    ) -> list[_Part]:
        dense: dict[Any, list[int]] = {}
        for k, sparse in enumerate(kinds):
            if sparse is False:
                count = self._count(group, parameters[k])
                key = parameters[k].dtype, parameters[k].device, count
                dense.setdefault(key, []).append(k)
        parts = [self._part(group, parameters, positions, None) for positions in dense.values()]
        rows = [k for k, sparse in enumerate(kinds) if sparse]
        return [*parts, *(self._part(group, parameters, [k], Workspace()) for k in rows)]

    def _count(self, group: dict[str, Any], parameter: Any) -> float:
        """Return the step count of a parameter; of torch's SGD, 1 if it has a slot, else 0."""
        state = self.state[parameter]
        begun = any(state.get(name) is not None for name in self._slots(group))
        return float(state.get("step", begun))

    def _part(
        self,
        group: dict[str, Any],
        parameters: list[Any],
        positions: list[int],
        workspace: Workspace | None,
    ) -> _Part:
        """Group parameters, create missing state, and give them a common step count."""
        targets = [parameters[k] for k in positions]
        count = torch.tensor(self._count(group, targets[0]))
        on_device = targets[0].device.type == "cuda"
        as_operand: Callable[[Any], Any] = torch.Tensor.detach if on_device else _array
        columns = [[as_operand(target) for target in targets]]
        for name, value in self._slots(group).items():
            columns.append([])
            for target in targets:
                if self.state[target].get(name) is None:
                    first = complex(value, value) if target.is_complex() else value
                    self.state[target][name] = torch.full_like(
                        target, first, memory_format=torch.preserve_format
                    )
                elif on_device and self.state[target][name].stride() != target.stride():
                    laid_out = torch.empty_like(target).copy_(self.state[target][name])
                    self.state[target][name] = laid_out
                columns[-1].append(as_operand(self.state[target][name]))
        for target in targets:
            self.state[target]["step"] = count
        device = DevicePart(tuple(columns)) if on_device else None
        return _Part(positions, tuple(columns), memoryview(count.numpy()), workspace, device)


def _check_settings(group: dict[str, Any]) -> None:
    """Raise if a group has a setting that has no counterpart."""
    for setting in ("capturable", "differentiable"):
        if group.get(setting):
            raise InvalidArgumentError(
                f"{setting} must be False, also in the param_groups of a state that is loaded"
            )


def _of_all(
    part: _Part, step: RuleStep, grads: list[np.ndarray], rate: float | None
) -> Callable[[], None]:
    if rate is None:
        return partial(run, _dense(step, part.operands, grads))
    parameters, *slots = part.operands
    down = many_call(kernels["gradient_descent"], (parameters, slots[0]), (rate,), 0, 1.0)
    return partial(run_together, [step.dense(tuple(slots), grads), down])


def _dense(step: RuleStep, operands: tuple[list[np.ndarray], ...], grads: list[np.ndarray]) -> Call:
    if len(grads) > 1:
        return step.dense(operands, grads)
    single = *[column[0] for column in operands], grads[0]  # faster to check than lists
    return dense_call(step.kernel, single, step.hypers, step.flags, step.grad_scale, step.var_scale)


def _array(tensor: Any) -> np.ndarray:
    """Return a tensor's memory as an array, with complex numbers as pairs of real ones.

    So real and imaginary parts are stepped separately, as in torch.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach())
    if tensor.dtype is not torch.bfloat16:
        array: np.ndarray = tensor.detach().numpy()
        return array
    bits: np.ndarray = tensor.detach().view(torch.int16).numpy()
    return bits.view(bfloat16())


def _arrays(grads: list[Any]) -> list[np.ndarray]:
    if grads[0].is_complex():  # then all are, since they have one dtype
        return [_array(grad) for grad in grads]
    try:
        return arrays_of(list(map(to_dlpack, grads)))
    except InvalidTypeError:  # bfloat16
        return [_array(grad) for grad in grads]


def _resolved(grad: Any) -> Any:
    """Resolve lazy conjugation and negation of a gradient."""
    if grad.is_neg() or grad.is_conj():
        return grad.resolve_conj().resolve_neg()
    return grad


def _slices(grad: Any, on_device: bool) -> IndexedSlices:
    if grad.sparse_dim() != 1:
        raise InvalidArgumentError(
            f"a sparse gradient must have one sparse dimension, not {grad.sparse_dim()}"
        )
    values, indices = _resolved(grad._values()), grad._indices()[0]
    if on_device:
        return IndexedSlices(values.detach(), indices)
    return IndexedSlices(_array(values), indices.numpy())
