"""A torch optimizer whose steps our kernels take, in the memory of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.training import run
from tfopt.optimizers.steps import Update, step_of
from tfopt.room import Room

__all__ = ["KernelOptimizer"]


class _Part(NamedTuple):
    """Parameters that have taken equally many steps: all dense, or one with rows."""

    places: list[int]  # in the group
    operands: tuple[list[np.ndarray], ...]  # the parameters, their first slots, ...
    steps: memoryview  # how many they have taken: a tensor's memory, in the state of each
    room: Room | None  # for rows


class _Plan(NamedTuple):
    """What a group's step did, which the next one repeats if it has the same parameters."""

    kinds: list[bool | None]  # of gradients: whether they are sparse, None without one
    pointers: list[int]  # of parameters
    slots: dict[str, float]
    parts: list[_Part]


#: The count of a call's steps, what comes before it, if anything does, and the call.
_Ready = tuple[memoryview, Callable[[], object] | None, Call]


class KernelOptimizer(torch.optim.Optimizer):
    """Base class of torch optimizers over our kernels.

    Parameters and state are torch tensors of the CPU, updated in place: the state has the names and
    meanings of the torch class of the same name, so that ``state_dict()`` of one loads into the
    other. All dense parameters of a group are updated by one call. A sparse gradient updates the
    rows it names and their state alone, as ``torch.optim.SparseAdam`` does; repeated rows are
    summed. A refused step has changed nothing.

    A subclass names its state (`_slots`), its rule (`_update`), and its defaults.

    Parameters
    ----------
    params : iterable
        Of parameters, or of dicts as torch takes them.
    defaults : dict
        Settings of groups that do not have their own.

    Raises
    ------
    InvalidTypeError
        If a parameter is not on the CPU.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self._plans: dict[int, _Plan] = {}
        super().__init__(params, defaults)

    # ---- what a subclass defines

    def _slots(self, group: dict[str, Any]) -> dict[str, float]:
        """Return the names of a parameter's state, in the rule's order, and their first values."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], t: int) -> Update:
        """Return what step number t (the first is 1) of a group does."""
        raise NotImplementedError

    def _check(self, group: dict[str, Any]) -> None:
        """Refuse settings of a group."""

    # ---- torch's side

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own, as torch does."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check(group)
            for parameter in group["params"]:
                if parameter.device.type != "cpu":
                    raise InvalidTypeError(f"parameters are on the CPU, not {parameter.device}")
        except InvalidArgumentError:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state as torch does; each parameter has a step count of its own there."""
        saved: dict[str, Any] = super().state_dict()
        saved["state"] = {
            number: {key: value.clone() if key == "step" else value for key, value in own.items()}
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
            made += self._calls(number, group)
        for steps, prepare, call in made:
            if prepare is not None:
                prepare()
            run(call)
            steps[()] += 1
        return loss

    # ---- the kernels' side

    def _calls(self, number: int, group: dict[str, Any]) -> list[_Ready]:
        """Check a group's step; return the counts, what comes before, and the calls."""
        parameters = group["params"]
        grads = [parameter.grad for parameter in parameters]
        kinds = [None if grad is None else grad.is_sparse for grad in grads]
        pointers = [parameter.data_ptr() for parameter in parameters]
        slots = self._slots(group)
        plan = self._plans.get(number)
        if plan is None or plan[:3] != (kinds, pointers, slots):
            plan = _Plan(kinds, pointers, slots, self._planned(group, parameters, kinds))
            self._plans[number] = plan
        made: list[_Ready] = []
        for part in plan.parts:
            update = self._update(group, int(part.steps[()]) + 1)
            step = step_of(update.rule, update, lazy=True)
            own = [grads[place] for place in part.places]
            if part.room is not None:
                arrays = tuple(column[0] for column in part.operands)
                call = step.rows(arrays, _slices(own[0]), part.room)
                made.append((part.steps, None, call))
                continue
            targets = [parameters[place] for place in part.places]
            own = self._penalized(group, targets, own)
            call = step.dense(part.operands, _arrays(own))
            made.append((part.steps, self._before(group, targets), call))
        return made

    def _penalized(self, group: dict[str, Any], targets: list[Any], grads: list[Any]) -> list[Any]:
        """Return gradients to go down, with what a penalty of the weights' squares adds to them."""
        decay = self._penalty(group)
        if not (decay or group["maximize"]):
            return grads
        with torch.no_grad():
            if group["maximize"]:
                grads = torch._foreach_neg(grads)
            return torch._foreach_add(grads, targets, alpha=decay) if decay else grads

    def _penalty(self, group: dict[str, Any]) -> float:
        """Return the factor of a penalty that joins the gradient."""
        penalty: float = group["weight_decay"]
        return penalty

    def _before(self, group: dict[str, Any], targets: list[Any]) -> Callable[[], object] | None:
        """Return what is to be done to parameters before their step, if anything is."""
        return None

    def _planned(
        self, group: dict[str, Any], parameters: list[Any], kinds: list[bool | None]
    ) -> list[_Part]:
        dense: dict[Any, list[int]] = {}
        for place, sparse in enumerate(kinds):
            if sparse is False:
                count = float(self.state[parameters[place]].get("step", 0))
                dense.setdefault((parameters[place].dtype, count), []).append(place)
        parts = [self._part(group, parameters, places, None) for places in dense.values()]
        rows = [place for place, sparse in enumerate(kinds) if sparse]
        return [*parts, *(self._part(group, parameters, [place], Room()) for place in rows)]

    def _part(
        self, group: dict[str, Any], parameters: list[Any], places: list[int], room: Room | None
    ) -> _Part:
        """Put parameters together; they get the state they lack, and one common count."""
        targets = [parameters[place] for place in places]
        count = torch.tensor(float(self.state[targets[0]].get("step", 0)))
        columns = [[_array(target) for target in targets]]
        for name, value in self._slots(group).items():
            columns.append([])
            for target in targets:
                if self.state[target].get(name) is None:
                    self.state[target][name] = torch.full_like(
                        target, value, memory_format=torch.preserve_format
                    )
                columns[-1].append(_array(self.state[target][name]))
        for target in targets:
            self.state[target]["step"] = count
        return _Part(places, tuple(columns), memoryview(count.numpy()), room)


def _array(tensor: Any) -> np.ndarray:
    """Return a tensor's memory as an array."""
    if tensor.dtype is not torch.bfloat16:
        array: np.ndarray = tensor.detach().numpy()
        return array
    import ml_dtypes

    bits: np.ndarray = tensor.detach().view(torch.int16).numpy()
    return bits.view(ml_dtypes.bfloat16)


def _arrays(grads: list[Any]) -> list[np.ndarray]:
    try:
        return [grad.numpy() for grad in grads]
    except (RuntimeError, TypeError):  # of gradients with a graph of their own, and of bfloat16
        return [_array(grad) for grad in grads]


def _slices(grad: Any) -> IndexedSlices:
    if grad.sparse_dim() != 1:
        raise InvalidArgumentError(
            f"a sparse gradient has one sparse dimension, not {grad.sparse_dim()}"
        )
    return IndexedSlices(_array(grad._values()), grad._indices()[0].numpy())
