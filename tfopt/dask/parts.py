"""Losses and gradients of blocks, and their sums: pure functions, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.nest import flatten, pack
from tfopt.core.sparse_conversion import as_slices
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.base.gradients import as_gradient
from tfopt.optimizers.base.tree import leaves

__all__ = ["Part", "part_of", "summed", "total"]


@dataclass(frozen=True)
class Kind:
    """What blocks must agree on about a gradient; of rows, the shape is that of one."""

    form: str
    dtype: Any = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.dtype is None:
            return self.form
        return f"{self.form} of {self.dtype} and shape {list(self.shape)}"


class Part(NamedTuple):
    """The sums over some consecutive blocks, of which `block` is the first."""

    block: int
    loss: float
    grads: list[Any]
    structure: Any  # a Kind in each place


def part_of(call: tuple[Callable[..., Any], Any, Sequence[Any]], block: Any, number: int) -> Part:
    """Return what a function of weights, block and arguments gives.

    An error gets a note that names the block.
    """
    loss_and_grad, params, arguments = call
    try:
        loss, grads = loss_and_grad(_read_only(params), _with_aligned(block), *arguments)
        given = [_gradient(grad) for grad in flatten(grads)]
        structure = pack(grads, [_kind(grad) for grad in given])
        return Part(number, float(loss), list(map(_wide, given)), structure)
    except Exception as error:
        error.add_note(f"in block {number}")
        raise


def summed(parts: Sequence[Part]) -> Part:
    """Return the sums of parts, one added after another.

    Raises
    ------
    InvalidArgumentError
        If the gradients of two blocks differ in places, forms, dtypes or shapes.
    """
    first = parts[0]
    for other in parts[1:]:
        _check_same(first, other)
    columns = zip(*(part.grads for part in parts), strict=True)
    loss = sum(part.loss for part in parts)
    return Part(first.block, loss, list(map(_sum, columns)), first.structure)


def total(part: Part, divisor: int) -> tuple[float, Any]:
    """Return loss and gradients of all blocks, divided, in structure and dtypes as they came."""
    kinds = flatten(part.structure)
    ended = [_ended(*each, divisor) for each in zip(part.grads, kinds, strict=True)]
    return part.loss / divisor, pack(part.structure, ended)


def _with_aligned(block: Any) -> Any:
    """Return a block with its arrays where kernels can read them.

    One that comes in a message may lie anywhere in it.
    """
    if type(block) is np.ndarray:
        return _aligned(block)
    if type(block) in (list, tuple):
        return type(block)(map(_with_aligned, block))
    if type(block) is dict:
        return {key: _with_aligned(value) for key, value in block.items()}
    return block


def _read_only(params: Any) -> Any:
    """Return arrays that cannot be written to, for the tasks of a worker have them in common."""
    views = [_aligned(array)[...] for array in flatten(params)]
    for view in views:
        view.flags.writeable = False
    return pack(params, views)


def _gradient(grad: Any) -> Any:
    grad = as_gradient(as_slices(grad))
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(_aligned(grad.values), _aligned(grad.indices), grad.dense_shape)
    return None if grad is None else np.asarray(grad)


def _aligned(array: Any) -> np.ndarray:
    return np.require(array, requirements="A")


def _kind(grad: Any) -> Kind:
    if grad is None:
        return Kind("None")
    if isinstance(grad, IndexedSlices):
        return Kind("IndexedSlices", grad.dtype, grad.values.shape[1:])
    return Kind("an array", grad.dtype, grad.shape)


def _wide(grad: Any) -> Any:
    """Return a gradient as it is added up: rows once each, 16 bits in float32."""
    if grad is None:
        return None
    if isinstance(grad, IndexedSlices):
        return _widened(grad.values, grad).sum_duplicates()
    return _widened(grad, None)


def _widened(values: Any, slices: IndexedSlices | None) -> Any:
    wide = values.astype(np.float32) if values.dtype.itemsize == 2 else values
    return wide if slices is None else IndexedSlices(wide, slices.indices, slices.dense_shape)


def _sum(grads: tuple[Any, ...]) -> Any:
    first = grads[0]
    if first is None or len(grads) == 1:
        return first
    if isinstance(first, IndexedSlices):
        values = np.concatenate([grad.values for grad in grads])
        indices = np.concatenate([grad.indices for grad in grads])
        return IndexedSlices(values, indices, first.dense_shape).sum_duplicates()
    result = np.asarray(first + grads[1])
    for grad in grads[2:]:
        result += grad
    return result


def _ended(grad: Any, kind: Kind, divisor: int) -> Any:
    if grad is None:
        return None
    divided = _gradient(grad / divisor)
    if grad.dtype == kind.dtype:
        return divided
    with np.errstate(over="ignore"):  # what rounds to infinity does so without a word
        if isinstance(divided, IndexedSlices):
            values = divided.values.astype(kind.dtype)
            return IndexedSlices(values, divided.indices, divided.dense_shape)
        return divided.astype(kind.dtype)


def _check_same(first: Part, other: Part) -> None:
    if first.structure == other.structure:
        return
    here, there = dict(leaves(first.structure)), dict(leaves(other.structure))
    for place in [*here, *there]:
        ours, theirs = here.get(place), there.get(place)
        if ours != theirs:
            at = f" at {place}" if place else ""
            raise InvalidArgumentError(
                f"the gradient{at} is {theirs or 'not there'} in block {other.block}, "
                f"but {ours or 'not there'} in block {first.block}"
            )
    raise InvalidArgumentError(
        f"the gradients of blocks {first.block} and {other.block} differ in structure"
    )
