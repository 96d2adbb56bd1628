"""Pure functions for the losses and gradients of blocks, and their sums in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.nest import flatten, pack
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.state.tree import leaves
from tfopt.optimizers.step.gradients import as_gradient
from tfopt.sparse_conversion import as_slices

__all__ = ["PartialSum", "block_gradients", "sum_parts", "finish"]


@dataclass(frozen=True)
class GradientSpec:
    """The common properties of all blocks' gradients; for sparse rows, the shape of one."""

    form: str
    dtype: Any = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.dtype is None:
            return self.form
        return f"{self.form} of {self.dtype} and shape {list(self.shape)}"


class PartialSum(NamedTuple):
    """Sums over consecutive blocks; `block` is the first."""

    block: int
    loss: float
    grads: list[Any]
    structure: Any  # a Kind in each place


def block_gradients(
    call: tuple[Callable[..., Any], Any, Sequence[Any]], block: Any, number: int
) -> PartialSum:
    """Call the function of weights, block and arguments.

    A note on an error names the block.
    """
    loss_and_grad, params, arguments = call
    try:
        loss, grads = loss_and_grad(_read_only(params), _aligned_block(block), *arguments)
        gradients = [_gradient(grad) for grad in flatten(grads)]
        structure = pack(grads, [_spec(grad) for grad in gradients])
        return PartialSum(number, float(loss), list(map(_for_summation, gradients)), structure)
    except Exception as error:
        error.add_note(f"in block {number}")
        raise


def sum_parts(parts: Sequence[PartialSum]) -> PartialSum:
    """Add up partial sums in order.

    Raises
    ------
    InvalidArgumentError
        If the gradients of two blocks differ in structure, form, dtype or shape.
    """
    first = parts[0]
    for other in parts[1:]:
        _check_same_specs(first, other)
    columns = zip(*(part.grads for part in parts), strict=True)
    loss = sum(part.loss for part in parts)
    return PartialSum(first.block, loss, list(map(_sum, columns)), first.structure)


def finish(part: PartialSum, divisor: int) -> tuple[float, Any]:
    """Divide the sums over all blocks; restore the structure and dtypes of the gradients."""
    specs = flatten(part.structure)
    finished = [_finished(*each, divisor) for each in zip(part.grads, specs, strict=True)]
    return part.loss / divisor, pack(part.structure, finished)


def _aligned_block(block: Any) -> Any:
    """Return a block with aligned arrays, as kernels need them.

    Arrays from a message may be misaligned.
    """
    if type(block) is np.ndarray:
        return _aligned(block)
    if type(block) in (list, tuple):
        return type(block)(map(_aligned_block, block))
    if type(block) is dict:
        return {key: _aligned_block(value) for key, value in block.items()}
    return block


def _read_only(params: Any) -> Any:
    """Return read-only views: the tasks of a worker share the arrays."""
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


def _spec(grad: Any) -> GradientSpec:
    if grad is None:
        return GradientSpec("None")
    if isinstance(grad, IndexedSlices):
        return GradientSpec("IndexedSlices", grad.dtype, grad.values.shape[1:])
    return GradientSpec("an array", grad.dtype, grad.shape)


def _for_summation(grad: Any) -> Any:
    """Return a gradient in the form for sums: unique rows, float32 instead of 16-bit floats."""
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


def _finished(grad: Any, spec: GradientSpec, divisor: int) -> Any:
    if grad is None:
        return None
    divided = _gradient(grad / divisor)
    if grad.dtype == spec.dtype:
        return divided
    with np.errstate(over="ignore"):  # rounding to infinity is not an error
        if isinstance(divided, IndexedSlices):
            values = divided.values.astype(spec.dtype)
            return IndexedSlices(values, divided.indices, divided.dense_shape)
        return divided.astype(spec.dtype)


def _check_same_specs(first: PartialSum, other: PartialSum) -> None:
    if first.structure == other.structure:
        return
    first_specs, other_specs = dict(leaves(first.structure)), dict(leaves(other.structure))
    for place in [*first_specs, *other_specs]:
        first_spec, other_spec = first_specs.get(place), other_specs.get(place)
        if first_spec != other_spec:
            at = f" at {place}" if place else ""
            raise InvalidArgumentError(
                f"the gradient{at} is {other_spec or 'not there'} in block {other.block}, "
                f"but {first_spec or 'not there'} in block {first.block}"
            )
    raise InvalidArgumentError(
        f"the gradients of blocks {first.block} and {other.block} differ in structure"
    )
