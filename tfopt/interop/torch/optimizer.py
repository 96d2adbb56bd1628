"""A torch optimizer whose steps our kernels take, in the memory of its parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd.graph import increment_version
from torch.utils.dlpack import to_dlpack

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call, dense_call
from tfopt.kernels.capsules import arrays_of
from tfopt.kernels.groups import many_call
from tfopt.kernels.together import run_together
from tfopt.kernels.training import run
from tfopt.optimizers.execution.rule_steps import Step, Update, step_of

__all__ = ["KernelOptimizer"]


class _Part(NamedTuple):
    """Parameters that have taken equally many steps: all dense, or one with rows."""

    places: list[int]  # in the group
    operands: tuple[list[np.ndarray], ...]  # the parameters, their first slots, ...
    steps: memoryview  # how many they have taken: a tensor's memory, in the state of each
    workspace: Workspace | None  # for rows


class _Plan(NamedTuple):
    """What a group's step did, which the next one repeats if it has the same parameters."""

    kinds: list[bool | None]  # of gradients: whether they are sparse, None without one
    pointers: list[int]  # of parameters
    strides: list[tuple[int, ...]]
    slots: dict[str, float]
    kept: list[Any]  # counts and slots
    parts: list[_Part]


#: The count of some parameters' steps, and the calls that are their next one.
_Ready = tuple[memoryview, list[Call]]


class KernelOptimizer(torch.optim.Optimizer):
    """Base class of torch optimizers over our kernels.

    Parameters and state are torch tensors of the CPU, updated in place: the state has the names and
    meanings of the torch class of the same name, so that ``state_dict()`` of one loads into the
    other. All dense parameters of a group are updated by one call. A sparse gradient updates the
    rows it names and their state alone, as ``torch.optim.SparseAdam`` does; repeated rows are
    summed. A refused step has changed nothing.

    A subclass has torch's class as its second base, which it takes its arguments from, and names
    its state (`_slots`) and its rule (`_update`).

    Raises
    ------
    InvalidTypeError
        If a parameter is not on the CPU.
    InvalidArgumentError
        If a setting has no counterpart.
    """

    # ---- what a subclass defines

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        """Return the names of a parameter's state, in the rule's order, and their first values."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], t: int) -> Update:
        """Return what step number t (the first is 1) of a group does."""
        raise NotImplementedError

    def _penalty(self, group: dict[str, Any]) -> float:
        """Return the factor of a penalty that joins the gradient."""
        penalty: float = group["weight_decay"]
        return penalty

    def _scale(self, group: dict[str, Any], t: int) -> float:
        """Return what gradients are multiplied by as they are read."""
        return -1.0 if group["maximize"] else 1.0

    def _rate(self, group: dict[str, Any]) -> float | None:
        """Return the learning rate if the rule's variable is the first slot.

        Then the parameters go down that; otherwise they are the rule's variables themselves.
        """
        return None

    # ---- torch's side

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own, as torch does."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for setting in ("capturable", "differentiable"):
                if group.get(setting):
                    raise InvalidArgumentError(f"{setting} must be False")
            for parameter in group["params"]:
                if parameter.device.type != "cpu":
                    raise InvalidTypeError(f"parameters are on the CPU, not {parameter.device}")
        except InvalidArgumentError:
            self.param_groups.pop()
            raise
        self._plans: dict[int, _Plan] = {}

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether a gradient scaler leaves the division to the step, as to torch's fused ones."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, on: bool) -> None:
        """Without effect: torch's classes set it if they are to be fused."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as torch does; each parameter has a step count of its own there."""
        saved: dict[str, Any] = super().state_dict()
        saved["state"] = {
            number: {key: value.clone() if key == "step" else value for key, value in own.items()}
            if isinstance(own, dict)
            else own  # which a hook has put there
            for number, own in saved["state"].items()
        }
        return saved

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._plans = {}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step by the parameters' gradients.

        Parameters
        ----------
        closure : callable, optional
            Computes the gradients anew and returns the loss.

        Returns
        -------
        object
            What `closure` returned, or None.

        Raises
        ------
        InvalidArgumentError
            If a gradient does not fit its parameter. No parameter has changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        made: list[_Ready] = []
        for number, group in enumerate(self.param_groups):
            made += self._ready(number, group)
        for steps, calls in made:
            if len(calls) > 1:
                run_together(calls)
            else:
                run(calls[0])
            steps[()] += 1
        # so that autograd tells whoever needs the values before
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
            or not all(map(operator.is_, plan.kept, self._kept(parameters, slots)))
        ):
            parts = self._planned(group, parameters, kinds)
            plan = _Plan(kinds, pointers, strides, slots, self._kept(parameters, slots), parts)
            self._plans[number] = plan
        made: list[_Ready] = []
        for part in plan.parts:
            t = int(part.steps[()]) + 1
            update, scale = self._update(group, t), self._scale(group, t)
            step = step_of(update.rule, update, True, scale, part.workspace is None)
            own = [_resolved(grads[place]) for place in part.places]
            if part.workspace is not None:
                made.append((part.steps, [self._of_rows(group, part, step, own[0])]))
                continue
            decay = self._penalty(group)
            if decay:
                # a gradient to go up is turned after it
                alpha = -decay if group["maximize"] else decay
                targets = [parameters[place] for place in part.places]
                with torch.no_grad():
                    own = torch._foreach_add(own, targets, alpha=alpha)
            made.append((part.steps, _of_all(part, step, _arrays(own), self._rate(group))))
        return made

    def _kept(self, parameters: list[Any], slots: Iterable[str]) -> list[Any]:
        """Return what the state has of parameters, of which a user may have put in another."""
        states = [self.state.get(parameter, {}) for parameter in parameters]
        return [state.get(name) for name in ("step", *slots) for state in states]

    def _of_rows(self, group: dict[str, Any], part: _Part, step: Step, grad: Any) -> Call:
        if self._penalty(group):
            raise InvalidArgumentError("weight_decay cannot be added to a sparse gradient")
        if self._rate(group) is not None:
            raise InvalidArgumentError("momentum does not support sparse gradients")
        arrays = tuple(column[0] for column in part.operands)
        return step.rows(arrays, _slices(grad), part.workspace or Workspace())

    def _planned(
        self, group: dict[str, Any], parameters: list[Any], kinds: list[bool | None]
    ) -> list[_Part]:
        dense: dict[Any, list[int]] = {}
        for place, sparse in enumerate(kinds):
            if sparse is False:
                count = self._count(group, parameters[place])
                dense.setdefault((parameters[place].dtype, count), []).append(place)
        parts = [self._part(group, parameters, places, None) for places in dense.values()]
        rows = [place for place, sparse in enumerate(kinds) if sparse]
        return [*parts, *(self._part(group, parameters, [place], Workspace()) for place in rows)]

    def _count(self, group: dict[str, Any], parameter: Any) -> float:
        """Return how many steps a parameter has taken; torch's SGD leaves but a slot."""
        state = self.state[parameter]
        begun = any(state.get(name) is not None for name in self._slots(group))
        return float(state.get("step", begun))

    def _part(
        self,
        group: dict[str, Any],
        parameters: list[Any],
        places: list[int],
        workspace: Workspace | None,
    ) -> _Part:
        """Put parameters together; they get the state they lack, and one common count."""
        targets = [parameters[place] for place in places]
        count = torch.tensor(self._count(group, targets[0]))
        columns = [[_array(target) for target in targets]]
        for name, value in self._slots(group).items():
            columns.append([])
            for target in targets:
                if self.state[target].get(name) is None:
                    first = complex(value, value) if target.is_complex() else value
                    self.state[target][name] = torch.full_like(
                        target, first, memory_format=torch.preserve_format
                    )
                columns[-1].append(_array(self.state[target][name]))
        for target in targets:
            self.state[target]["step"] = count
        return _Part(places, tuple(columns), memoryview(count.numpy()), workspace)


def _of_all(part: _Part, step: Step, grads: list[np.ndarray], rate: float | None) -> list[Call]:
    if rate is None:
        return [_dense(step, part.operands, grads)]
    parameters, *slots = part.operands
    down = many_call(kernels["gradient_descent"], (parameters, slots[0]), (rate,), 0, 1.0)
    return [step.dense(tuple(slots), grads), down]


def _dense(step: Step, operands: tuple[list[np.ndarray], ...], grads: list[np.ndarray]) -> Call:
    if len(grads) > 1:
        return step.dense(operands, grads)
    one = *[column[0] for column in operands], grads[0]  # which takes less time to check
    return dense_call(step.kernel, one, step.hypers, step.flags, *step.scales)


def _array(tensor: Any) -> np.ndarray:
    """Return a tensor's memory as an array: of complex numbers as pairs of real ones.

    So each part has a step of its own, as in torch.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach())
    if tensor.dtype is not torch.bfloat16:
        array: np.ndarray = tensor.detach().numpy()
        return array
    import ml_dtypes

    bits: np.ndarray = tensor.detach().view(torch.int16).numpy()
    return bits.view(ml_dtypes.bfloat16)


def _arrays(grads: list[Any]) -> list[np.ndarray]:
    if grads[0].is_complex():  # and so are all: they are of one dtype
        return [_array(grad) for grad in grads]
    try:
        return arrays_of(list(map(to_dlpack, grads)))
    except InvalidTypeError:  # of bfloat16
        return [_array(grad) for grad in grads]


def _resolved(grad: Any) -> Any:
    """Return a gradient whose memory has its values, not their conjugates or negatives."""
    if grad.is_neg() or grad.is_conj():
        return grad.resolve_conj().resolve_neg()
    return grad


def _slices(grad: Any) -> IndexedSlices:
    if grad.sparse_dim() != 1:
        raise InvalidArgumentError(
            f"a sparse gradient has one sparse dimension, not {grad.sparse_dim()}"
        )
    return IndexedSlices(_array(_resolved(grad._values())), grad._indices()[0].numpy())
