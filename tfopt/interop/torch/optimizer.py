"""A torch optimizer whose steps our kernels take, in the memory of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    pointers: list[int]
    operands: tuple[list[np.ndarray], ...]  # the parameters, their first slots, ...
    steps: (
        np.ndarray
    )  # how many they have taken; it shares the memory of a tensor in the state of each
    room: Room | None  # for rows


#: The count of a call's steps, what comes before it, if anything does, and the call.
_Ready = tuple[np.ndarray, Callable[[], object] | None, Call]


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
        self._parts: dict[int, list[_Part]] = {}
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
            number: {**own, "step": own["step"].clone()} for number, own in saved["state"].items()
        }
        return saved

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._parts = {}

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
            steps += 1
        return loss

    # ---- the kernels' side

    def _calls(self, number: int, group: dict[str, Any]) -> list[_Ready]:
        """Check a group's step; return the counts, what comes before, and the calls."""
        parameters = group["params"]
        grads = [parameter.grad for parameter in parameters]
        parts = self._parts.get(number)
        if parts is None or not _fit(parts, parameters, grads):
            parts = self._parts[number] = self._planned(group, parameters, grads)
        made: list[_Ready] = []
        for part in parts:
            update = self._update(group, int(part.steps) + 1)
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
        self, group: dict[str, Any], parameters: list[Any], grads: list[Any]
    ) -> list[_Part]:
        dense: dict[Any, list[int]] = {}
        places = []
        for place, grad in enumerate(grads):
            if grad is None:
                continue
            if grad.is_sparse:
                places.append(([place], Room()))
                continue
            count = float(self.state[parameters[place]].get("step", 0))
            dense.setdefault((parameters[place].dtype, count), []).append(place)
        listed: list[tuple[list[int], Room | None]] = [(own, None) for own in dense.values()]
        return [self._part(group, parameters, *one) for one in [*listed, *places]]

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
        pointers = [target.data_ptr() for target in targets]
        return _Part(places, pointers, tuple(columns), count.numpy(), room)


def _fit(parts: Sequence[_Part], parameters: list[Any], grads: list[Any]) -> bool:
    """Whether parts are those of a step: of the same parameters, in the same memory."""
    missing = sum([grad is None for grad in grads])  # count() would compare tensors
    if sum([len(part.places) for part in parts]) + missing != len(grads):
        return False
    for part in parts:
        sparse = part.room is not None
        for place, pointer in zip(part.places, part.pointers, strict=True):
            grad = grads[place]
            if grad is None or grad.is_sparse is not sparse:
                return False
            if parameters[place].data_ptr() != pointer:
                return False
    return True


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
