"""Checked updates, ready to be launched with or without clipping."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_double, c_int64, c_void_p
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tfopt.cuda.device_array import DeviceArray
from tfopt.cuda.library import Library
from tfopt.cuda.stored import Stored
from tfopt.kernels.update.step_table import Kernel

__all__ = ["COPIES", "PAIRS", "DenseUpdate", "Reading", "RowsUpdate", "Update", "WholeUpdate"]

#: The number of a pair of dtypes, of variable and gradient, in storage.h.
PAIRS = {
    ("float32", "float32"): 0,
    ("float64", "float64"): 1,
    ("float16", "float16"): 2,
    ("bfloat16", "bfloat16"): 3,
    ("float32", "float16"): 4,
    ("float32", "bfloat16"): 5,
}
#: Those of copies.
COPIES = PAIRS | {("float16", "float32"): 6, ("bfloat16", "float32"): 7}
_DUPLICATES = {"sequential": 0, "sum": 1, "error": 2}


class Reading(NamedTuple):
    """How gradients are read: clamped, then multiplied by factors on the GPU."""

    bound: float = math.inf
    factors: int | None = None  # their address; they replace `grad_scale`
    own: bool = False  # whether each gradient has its own factor, or all share the first
    each_row: bool = False  # whether rows are clipped before or after duplicates are summed


class DenseUpdate(NamedTuple):
    """An update of whole variables of one dtype."""

    library: Library
    device: int
    kernel: Kernel
    variables: list[list[DeviceArray]]  # each with the variable, its slots and its gradient
    constants: int
    scalars: tuple[float, ...]
    given: tuple[Any, ...]  # the objects that keep the arrays' memory
    decay: float = 0.0  # cautious
    stored: Stored | None = None  # unless kernels of the dtypes take the step

    @property
    def types(self) -> int:
        """The number of the dtypes of variable and gradient, of kernels that take the step."""
        first = self.variables[0]
        return 0 if self.stored else PAIRS[first[0].dtype, first[-1].dtype]

    @property
    def arrays(self) -> list[DeviceArray]:
        """All arrays, a variable first."""
        return [array for arrays in self.variables for array in arrays]

    @property
    def gradients(self) -> list[DeviceArray]:
        """The gradient of each variable."""
        return [arrays[-1] for arrays in self.variables]

    def launch(self, stream: int, reading: Reading) -> None:
        """Queue the update."""
        n = len(self.variables)
        data = [array.address for arrays in self.variables for array in arrays[:-1]]
        code = self.library.call["dense"](
            self.device,
            stream,
            self.library.rules[self.kernel.name],
            self.types,
            n,
            (c_void_p * len(data))(*data),
            (c_void_p * n)(*(gradient.address for gradient in self.gradients)),
            (c_int64 * n)(*(arrays[0].size for arrays in self.variables)),
            (c_int64 * n)(*map(self._elements_of_a_row, self.variables)),
            (c_double * len(self.scalars))(*self.scalars),
            self.constants,
            reading.bound,
            reading.factors,
            reading.own,
            self.decay,
            self.stored and byref(self.stored.passed()),
        )
        self.library.check(code)

    def _elements_of_a_row(self, arrays: list[DeviceArray]) -> int:
        """Return the number of elements that a slot of rows has one number for, otherwise 0."""
        rows = arrays[-2].size if self.kernel.rule.row_slots else 0
        return arrays[0].size // rows if rows else 0


class RowsUpdate(NamedTuple):
    """An update of some rows of a variable."""

    library: Library
    device: int
    kernel: Kernel
    operands: list[DeviceArray]
    indices: DeviceArray
    constants: int
    scalars: tuple[float, ...]
    duplicates: str
    everywhere: bool  # whether rows without a gradient take a step, too
    check_range: bool
    given: tuple[Any, ...]  # the objects that keep the arrays' memory
    decay: float = 0.0  # cautious
    stored: Stored | None = None  # as of a DenseUpdate

    @property
    def types(self) -> int:
        """The number of the dtypes of variable and gradient, of kernels that take the step."""
        return 0 if self.stored else PAIRS[self.operands[0].dtype, self.operands[-1].dtype]

    @property
    def arrays(self) -> list[DeviceArray]:
        """All arrays, the variable first."""
        return [*self.operands, self.indices]

    @property
    def gradients(self) -> list[DeviceArray]:
        """The gradient's rows."""
        return [self.operands[-1]]

    def check_indices(self, stream: int) -> None:
        """Wait until the indices have been checked."""
        at = c_int64()
        code = self.library.call["outside"](
            self.device,
            stream,
            self.indices.address,
            4 if self.indices.dtype == "int32" else 8,
            self.indices.shape[0],
            self.operands[0].shape[0],
            byref(at),
        )
        self.library.check_rows(code, at.value, self.operands[0].shape[0])

    @contextmanager
    def made_dense(self, stream: int) -> Iterator[int]:
        """Yield the address of the dense gradient that the rows stand for."""
        var, values, at = self.operands[0], self.operands[-1], c_void_p()
        place = self.device, stream
        code = self.library.call["take_whole"](
            *place,
            PAIRS[var.dtype, values.dtype],
            values.address,
            self.indices.address,
            4 if self.indices.dtype == "int32" else 8,
            self.indices.shape[0],
            var.shape[0],
            var.size // var.shape[0],
            byref(at),
        )
        self.library.check(code)
        assert at.value is not None
        try:
            yield at.value
        finally:
            self.library.check(self.library.call["give"](*place, at))

    def launch(self, stream: int, reading: Reading) -> None:
        """Queue the update; if indices are checked, wait for the result of the check."""
        var, n, inner = self.operands[0], self.indices.shape[0], prod(self.operands[0].shape[1:])
        if (var.size == 0 and n == 0) or inner == 0 or (n == 0 and not self.everywhere):
            return
        at = c_int64()
        data = [array.address for array in self.operands[:-1]]
        code = self.library.call["rows"](
            self.device,
            stream,
            self.library.rules[self.kernel.name],
            self.types,
            (c_void_p * len(data))(*data),
            self.operands[-1].address,
            self.indices.address,
            None,
            4 if self.indices.dtype == "int32" else 8,
            n,
            var.shape[0],
            inner,
            (c_double * len(self.scalars))(*self.scalars),
            self.constants,
            reading.bound,
            reading.factors,
            reading.each_row,
            self.decay,
            self.stored and byref(self.stored.passed()),
            _DUPLICATES[self.duplicates],
            not self.everywhere,
            self.check_range,
            byref(at),
        )
        self.library.check_rows(code, at.value, self.operands[0].shape[0])


class WholeUpdate(NamedTuple):
    """An update of a whole variable by the dense gradient that rows stand for."""

    rows: RowsUpdate  # of the gradient's rows, which are checked by it, and not stepped
    dense: DenseUpdate  # of the variable; its gradient has no address yet

    @property
    def library(self) -> Library:
        """The library that both are for."""
        return self.dense.library

    @property
    def device(self) -> int:
        """The device of all arrays."""
        return self.dense.device

    @property
    def arrays(self) -> list[DeviceArray]:
        """All arrays, the variable first."""
        return [*self.dense.arrays[:-1], *self.rows.arrays[1:]]

    @property
    def gradients(self) -> list[DeviceArray]:
        """The gradient's rows."""
        return self.rows.gradients

    def launch(self, stream: int, reading: Reading) -> None:
        """Queue the update; the gradient has been clipped."""
        if not self.rows.operands[0].size:
            return
        ((*arrays, gradient),) = self.dense.variables
        with self.rows.made_dense(stream) as address:
            there = [*arrays, gradient._replace(address=address)]
            self.dense._replace(variables=[there]).launch(stream, Reading())


Update: TypeAlias = DenseUpdate | RowsUpdate | WholeUpdate
