"""What all update rules have in common, so that a rule is its formula alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand
from tfopt_ref.autodiff.effects import gated
from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.checks import (
    as_scalar,
    check_in_order,
    check_indices,
    check_lists,
    check_many_variables,
    check_memory,
    check_operands,
    check_range,
)
from tfopt_ref.errors import InvalidArgumentError

__all__ = ["TrainingOp", "checks", "limits", "takes_complex"]

Step = Callable[..., tuple[np.ndarray, ...]]
_ADDED = {
    "indices": None,
    "duplicates": "sequential",
    "grad_scale": 1.0,
    "var_scale": 1.0,
    "check_indices": True,
}


def takes_complex(step: Step) -> Step:
    """Say that a step is one for complex numbers, too."""
    step.takes_complex = True  # type: ignore[attr-defined]
    return step


def limits(**limits: str) -> Callable[[Step], Step]:
    """Say what hyperparameters of a step must be."""

    def limit(step: Step) -> Step:
        step.limits = limits  # type: ignore[attr-defined]
        return step

    return limit


def checks(
    dense: str = "hypers slots grad", rows: str = "slots rank hypers indices columns rows"
) -> Callable[[Step], Step]:
    """Say in which order TensorFlow checks a dense call and one for rows."""

    def in_order(step: Step) -> Step:
        step.checks, step.row_checks = dense, rows  # type: ignore[attr-defined]
        return step

    return in_order


class TrainingOp:
    """Makes an op of a step, a function from old values to new ones.

    The step takes the variable, its slots and the gradient, then the hyperparameters by name, and
    returns the new variable and slots. The op takes the same arguments and five more: `indices`,
    the rows to update, `duplicates`, what repeated ones mean, `grad_scale` and `var_scale`, which
    multiply the gradient and the variable, and `check_indices`, which means something on a GPU.
    """

    def __init__(self, step: Step) -> None:
        if not hasattr(step, "checks"):
            step = checks()(step)
        self.dense = self.rows = self.width1 = step
        self.__name__, self.__doc__ = step.__name__, step.__doc__
        self.absent: Step | None = None
        self.__signature__ = self._with_added(step, _ADDED)
        own = inspect.signature(step)
        kinds = [(p.name, p.kind, p.default) for p in own.parameters.values()]
        by_name = inspect.Parameter.KEYWORD_ONLY
        self.operands = [name for name, kind, _ in kinds if kind != by_name]
        self.hypers = [
            name for name, kind, default in kinds if kind == by_name and default is own.empty
        ]
        self.flags = [
            name for name, kind, default in kinds if kind == by_name and default is not own.empty
        ]

    @staticmethod
    def _with_added(step: Step, added: dict[str, Any]) -> inspect.Signature:
        """Return a step's signature with what an op takes beside."""
        own = inspect.signature(step)
        by_name = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(name, by_name, default=v) for name, v in added.items()]
        return own.replace(
            parameters=[*own.parameters.values(), *more],
            return_annotation=inspect.Signature.empty,
        )

    def for_rows(self, step: Step) -> TrainingOp:
        """Take a step for sparse rows whose answers are not the dense step's."""
        self.rows = self.width1 = step
        return self

    def for_width1(self, step: Step) -> TrainingOp:
        """Take a step for sparse rows of one element."""
        self.width1 = step
        return self

    def for_absent(self, step: Step) -> TrainingOp:
        """Take a step, without a gradient, for the rows that a step for rows does not name.

        Such a step is one of all rows, so repeated indices cannot be taken one after another.
        """
        self.absent = step
        self.__signature__ = self._with_added(self.dense, {**_ADDED, "duplicates": "sum"})
        return self

    def lazy(self) -> TrainingOp:
        """Return the op that leaves alone the rows that a step does not name."""
        other = copy(self)
        other.absent = None
        return other

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        given = self.__signature__.bind(*args, **kwargs)
        gated(self, self._checked_and_run, given, self.operands[:-1], None)

    def _checked_and_run(self, *args: Any, **kwargs: Any) -> None:
        given = self.bind(*args, **kwargs)
        if isinstance(given["var"], (list, tuple)) and given["indices"] is None:
            calls = self.check_many(given)
        else:
            calls = [self.check(given)]
        with np.errstate(all="ignore"):
            for call in calls:
                self.run(*call)

    def run(
        self,
        arrays: list[np.ndarray],
        scalars: dict[str, float],
        flags: dict[str, bool],
        indices: np.ndarray | None,
        scales: tuple[float, float],
    ) -> None:
        """Carry out a checked call."""
        *variables, grad = arrays
        if indices is None:
            self._update(self.dense, variables, grad, scalars, flags, scales)
            return
        grad = grad.copy()  # rows of it may be rows of a variable, about to change
        step = self.width1 if math.prod(grad.shape[1:]) == 1 else self.rows
        for i, row in enumerate(indices):
            one = [variable[row : row + 1] for variable in variables]
            self._update(step, one, grad[i : i + 1], scalars, flags, scales)
        if self.absent is not None:
            for row in {*range(len(variables[0]))} - {*indices.tolist()}:
                one = [variable[row : row + 1] for variable in variables]
                self._update(self.absent, one, None, scalars, flags, scales)

    def _update(
        self,
        step: Step,
        variables: list[np.ndarray],
        grad: np.ndarray | None,
        scalars: dict[str, float],
        flags: dict[str, bool],
        scales: tuple[float, float],
    ) -> None:
        stored = variables[0].dtype
        dtype = np.float32 if stored.itemsize == 2 else stored  # rounded once, when stored
        hypers = {name: operand(value, dtype) for name, value in scalars.items()}
        old = [operand(variable, dtype) for variable in variables]
        kept = [_kept(old[0], scales[1]), *old[1:]]
        scaled = [] if grad is None else [operand(grad, dtype) * operand(scales[0], dtype)]
        new = step(*kept, *scaled, **hypers, **flags)
        for variable, before, value in zip(variables, old, new, strict=True):
            if value is not before:
                variable[...] = value

    def order(self, dense: bool) -> list[str]:
        """Return what is checked, in TensorFlow's order; slots and hyperparameters one by one."""
        _, *slots, grad = self.operands
        groups = {"slots": slots, "hypers": self.hypers, "grad": [grad]}
        words = self.dense.checks if dense else self.dense.row_checks  # type: ignore[attr-defined]
        return [name for word in words.split() for name in groups.get(word, [word])]

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments by name, those that were left out too."""
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def check_many(self, given: dict[str, Any]) -> list[Any]:
        """Return one call for each of many variables, given as lists of arrays."""
        lists = [given[name] for name in self.operands]
        check_lists(self.operands, lists)
        calls = []
        for t, arrays in enumerate(zip(*lists, strict=True)):
            try:
                calls.append(self.check({**given, **dict(zip(self.operands, arrays, strict=True))}))
            except InvalidArgumentError as error:
                raise type(error)(f"variable {t}: {error}") from None
        rows = [call[0] for call in calls]
        check_many_variables([row[:-1] for row in rows])
        for row in rows:
            row[-1] = row[-1].copy()  # it may be another variable, about to change
        return calls

    def check(
        self, given: dict[str, Any]
    ) -> tuple[list[np.ndarray], dict[str, float], dict[str, bool], np.ndarray | None, Any]:
        """Return the arguments of a call that can be carried out; raise for others."""
        indices, duplicates = given["indices"], given["duplicates"]
        if duplicates not in ("sequential", "sum", "error"):
            raise InvalidArgumentError(
                f'duplicates must be "sequential", "sum" or "error", not {duplicates!r}'
            )
        if indices is not None and self.absent is not None and duplicates == "sequential":
            raise InvalidArgumentError(f'{self.__name__} takes duplicates="sum" or "error"')
        complex_too = getattr(self.dense, "takes_complex", False)
        arrays = check_operands({name: given[name] for name in self.operands}, complex_too)
        if indices is not None:
            indices = check_indices(indices)
        flags = {name: bool(given[name]) for name in self.flags}
        hypers = {name: given[name] for name in self.hypers}
        limits = getattr(self.dense if indices is None else self.rows, "limits", {})
        order = self.order(dense=indices is None)
        scalars = check_in_order(order, arrays, indices, hypers, limits, flags)
        scales = tuple(as_scalar(given[name], name) for name in ("grad_scale", "var_scale"))
        if indices is not None:
            check_range(indices, len(arrays["var"]))
        check_memory(arrays, indices)
        *variables, grad = arrays.values()
        if indices is not None and duplicates == "error" and len({*indices}) < len(indices):
            raise InvalidArgumentError("indices has duplicates")
        if indices is not None and (duplicates == "sum" or self.absent is not None):
            merged = IndexedSlices(grad, indices).sum_duplicates()
            grad, indices = merged.values, merged.indices
        return [*variables, grad], scalars, flags, indices, scales


def _kept(var: np.ndarray, scale: float) -> np.ndarray:
    """Return a variable times a real number."""
    if scale == 1:
        return var
    if var.dtype.kind == "c":  # of an infinite part a complex product would make NaNs
        parts = np.ascontiguousarray(var).reshape(-1).view(var.real.dtype)
        kept: np.ndarray = (parts * var.real.dtype.type(scale)).view(var.dtype)
        return kept.reshape(var.shape)
    kept = np.multiply(var, operand(scale, var.dtype))
    return kept
