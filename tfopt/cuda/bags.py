"""Bags of rows of a table on a GPU: their sums, and those of the table's gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfopt.bags.on_host import COMPUTED
from tfopt.bags.summed_later import Beside
from tfopt.cuda.calls import MOST_COLUMNS
from tfopt.cuda.device_array import DeviceArray, as_device_array
from tfopt.cuda.library import load
from tfopt.cuda.memory import dtype_of, filled_like, new_like
from tfopt.cuda.norms import TYPES
from tfopt.cuda.streams import in_order
from tfopt.cuda.validation import check_layout, device_of
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.overlaps import overlapping
from tfopt.updates.device_copy import copies_of

if TYPE_CHECKING:
    from tfopt.bags import Bags

__all__ = ["BagsBeside"]

_MOST = 2**31 - 1  # ids, bags and rows: the library counts them in 32 bits
_POOLED = [name for name, computed in COMPUTED.items() if computed.kind == "f"]


class BagsBeside(Beside):
    """Bags, and a table or an array of a row for each of them, with the ids on the same GPU.

    Copies of the ids are kept in the bags, for each library, GPU and stream.
    """

    def lookup(self, out: Any) -> Any:
        """Return the pooled rows of each bag of a table."""
        self._check()
        shape = (len(self.bags), *self.array.shape[1:])
        if out is None:
            out = new_like(self.array, shape)
        else:
            self._check_out(out, shape)
        return self._pool(out, self._bag, self._ids, self._weights, self._divisors)

    @property
    def can_wait(self) -> bool:
        return self.bags._weights is None and not self._rounds_means

    def of_rows(self) -> Any:
        self._check()
        if not self._rounds_means:
            return self.divided().sums()
        wide = copies_of([self.array], self.name, [self._computed])[0]
        sums = self._of(wide).divided().sums()
        return copies_of([sums], self.name, [dtype_of(self.array)])[0]

    def divided(self) -> Self:
        self._check()
        copy = new_like(self.array, tuple(self.array.shape))
        return self._of(self._pool(copy, divisors=self._divisors))

    def _of(self, array: Any) -> Self:
        return type(self)(self.bags, array, self.name)

    def sums(self) -> Any:
        sums = new_like(self.array, (self.bags.rows.size, *self.array.shape[1:]))
        return self._pool(sums, self._place, self._bag, self._weights, in_order_of_places=False)

    # ---- copies of host arrays

    @property
    def rows(self) -> Any:
        return self._copy("rows", lambda bags: bags.rows)

    @property
    def shared(self) -> tuple[Any, Any]:
        return self._bag, self._ids

    @property
    def _ids(self) -> Any:
        return self._copy("ids", lambda bags: bags._ids.astype(np.int32))

    @property
    def _bag(self) -> Any:
        return self._copy("bag", lambda bags: bags._bag.astype(np.int32))

    @property
    def _place(self) -> Any:
        return self._copy("place", lambda bags: bags._distinct()[1].astype(np.int32))

    @property
    def _weights(self) -> Any:
        weights, kind = self.bags._weights, self._computed
        if weights is None:
            return None
        return self._copy(f"weights, {kind}", lambda _: weights.astype(kind))

    @property
    def _divisors(self) -> Any:
        if self.bags.pooling == "sum":
            return None
        kind = self._computed
        return self._copy(f"divisors, {kind}", lambda bags: bags._divisors(kind))

    @property
    def _computed(self) -> np.dtype[Any]:
        return COMPUTED[self._there.dtype]

    @property
    def _rounds_means(self) -> bool:
        """Whether a gradient that is divided has more digits than the array."""
        return self.bags.pooling == "mean" and self._computed.name != self._there.dtype

    def _copy(self, name: str, make: Callable[[Bags], np.ndarray]) -> Any:
        there = self._there
        # another stream would not wait for the copy
        key = name, type(self.array), device_of([(self.name, there)], load()), there.stream
        if key not in self.bags._there:
            self.bags._there[key] = filled_like(self.array, make(self.bags))
        return self.bags._there[key]

    # ---- sums

    @property
    def _there(self) -> DeviceArray:
        return as_device_array(self.array, self.name)

    def _check(self) -> None:
        there, bags = self._there, self.bags
        if there.dtype not in _POOLED:
            raise InvalidTypeError(
                f"{self.name} must be {', '.join(_POOLED[:-1])} or {_POOLED[-1]} on a GPU, not "
                f"{there.dtype}"
            )
        if getattr(self.array, "requires_grad", False):
            raise InvalidTypeError(
                f"{self.name} requires a gradient in torch: pass its detach(), which shares the "
                "memory"
            )
        check_layout(there, self.name, False)
        if max(bags.n_rows, bags._ids.size, len(bags)) > _MOST:
            raise InvalidArgumentError(
                f"on a GPU there can be at most {_MOST} ids, bags, and rows of a table"
            )
        if prod(there.shape[1:]) > MOST_COLUMNS:
            raise InvalidArgumentError(f"on a GPU rows can have at most {MOST_COLUMNS} elements")

    def _check_out(self, out: Any, shape: tuple[int, ...]) -> None:
        table, there = self._there, as_device_array(out, "out", self.name)
        if there.dtype != table.dtype:
            raise InvalidTypeError(
                f"out must be an array of {table.dtype}, as the table, not {there.dtype}"
            )
        if there.shape != shape:
            raise InvalidArgumentError(f"out must have the shape {shape}, not {there.shape}")
        check_layout(there, "out", True)
        spans = [(table.address, table.end, False), (there.address, there.end, True)]
        if any(True for _ in overlapping(spans)):
            raise InvalidArgumentError("table and out overlap in memory: on a GPU they must not")

    def _pool(
        self,
        sums: Any,
        places: Any = None,
        sources: Any = None,
        weights: Any = None,
        divisors: Any = None,
        in_order_of_places: bool = True,
    ) -> Any:
        """Sum rows of the array by place, as the library does, and return the sums."""
        library, given = load(), (sums, self.array, places, sources, weights, divisors)
        arrays = [None if each is None else as_device_array(each, self.name) for each in given]
        there = [array for array in arrays if array is not None]
        into, n = there[0], there[1].shape[0] if sources is None else self.bags._ids.size
        device = device_of([(self.name, array) for array in there], library)
        with in_order(library, device, there) as stream:
            library.check(
                library.call["pool"](
                    device,
                    stream,
                    TYPES[into.dtype],
                    *(None if array is None else array.address for array in arrays),
                    n,
                    into.shape[0],
                    prod(into.shape[1:]),
                    not in_order_of_places,
                )
            )
        return sums
