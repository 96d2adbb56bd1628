"""Steps of Adafactor on a GPU: checked updates, as those of a rule are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_double
from typing import Any, NamedTuple

from tfopt.cuda.calls import rows_update
from tfopt.cuda.device_array import DeviceArray
from tfopt.cuda.library import Library, load
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import PAIRS, Reading, RowsUpdate
from tfopt.cuda.validation import check_arrays, check_in_order, check_memory
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels

__all__ = ["AdafactorUpdate", "adafactor_updates"]


class AdafactorUpdate(NamedTuple):
    """An update of one variable."""

    library: Library
    device: int
    var: DeviceArray
    slots: list[DeviceArray]  # r and c, or v
    gradient: DeviceArray
    rows: RowsUpdate | None  # the gradient's, if it has to be made dense; not stepped
    numbers: tuple[float, ...]
    given: tuple[Any, ...]  # the objects that keep the arrays' memory

    @property
    def arrays(self) -> list[DeviceArray]:
        """All arrays, the variable first."""
        indices = [] if self.rows is None else [self.rows.indices]
        return [self.var, *self.slots, self.gradient, *indices]

    @property
    def gradients(self) -> list[DeviceArray]:
        """The gradient, which may be of rows."""
        return [self.gradient]

    @contextmanager
    def _dense(self, stream: int) -> Iterator[int]:
        if self.rows is None:
            yield self.gradient.address
            return
        with self.rows.made_dense(stream) as address:
            yield address

    def launch(self, stream: int, reading: Reading) -> None:
        """Queue the update; the gradient has been clipped."""
        if not self.var.size:
            return
        factored = len(self.slots) == 2
        *outer, last = self.var.shape or (1,)
        rows = outer[-1] if factored else 1
        first, second = self.slots if factored else (self.slots[0], self.slots[0])
        with self._dense(stream) as address:
            code = self.library.call["adafactor"](
                self.device,
                stream,
                PAIRS[self.var.dtype, self.gradient.dtype],
                self.var.address,
                address,
                first.address,
                second.address,
                self.var.size // (rows * last),
                rows,
                last,
                factored,
                (c_double * len(self.numbers))(*self.numbers),
            )
            self.library.check(code)


def adafactor_updates(
    operands: Sequence[tuple[Any, ...]], grads: Sequence[Any], numbers: tuple[float, ...]
) -> list[AdafactorUpdate]:
    """Check updates of variables and return them.

    If there are indices, this waits until the GPU has checked them.

    Parameters
    ----------
    operands : sequence of tuple
        Each variable with its slots: r and c if it has two axes or more, otherwise v.
    grads : sequence of array and IndexedSlices
    numbers : tuple of float
        The decay of variables, the weight of a new mean, the number added to squares, the lower
        bound of a variable's length, the rate, and the upper bound of a step's length.
    """
    updates = [_checked(*each, numbers) for each in zip(operands, grads, strict=True)]
    for update in updates:
        if update.rows is not None:
            with in_order(update.library, update.device, update.arrays) as stream:
                update.rows.check_indices(stream)
    return updates


def _checked(operands: tuple[Any, ...], grad: Any, numbers: tuple[float, ...]) -> AdafactorUpdate:
    simplest = kernels["gradient_descent"]  # only used for its checks
    var, *slots = operands
    rows: RowsUpdate | None = None
    gradient = grad
    if isinstance(grad, IndexedSlices):
        gradient = grad.values
        how = (0.0,), 0, grad.indices, "sum", 1.0, True
        rows = rows_update(simplest, (var, gradient), *how)
        arrays = rows.operands
    else:
        arrays = check_arrays(simplest, (var, gradient))
        check_in_order(simplest, arrays, None, (0.0,), 0)
    library = load()
    means = [check_arrays(simplest, (slot, gradient))[0] for slot in slots]
    names = ("var", "r", "c", "grad") if len(slots) == 2 else ("var", "v", "grad")
    every = [arrays[0], *means, arrays[1]]
    device = check_memory(names, every, None if rows is None else rows.indices, library)
    return AdafactorUpdate(
        library, device, arrays[0], means, arrays[1], rows, numbers, (*operands, grad)
    )
