"""Norms that are computed on a GPU and stay there, and scaling by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import byref, c_double, c_int, c_int64, c_void_p
from types import TracebackType

from tfopt.cuda.device_array import DeviceArray
from tfopt.cuda.library import Axes, Library
from tfopt.errors import InvalidArgumentError

__all__ = ["TYPES", "Norms", "Slices"]

#: The numbers of dtypes in the library's C functions.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
TYPES |= {"int8": 4, "uint8": 5, "int16": 6, "uint16": 7}
TYPES |= {"int32": 8, "uint32": 9, "int64": 10, "uint64": 11}

SPAN = 65_536  # elements; as in lane_sums.h
_MOST_BLOCKS = 2**31 - 1

#: The treatment of non-finite norms, as in norms.h.
OWN, SHARED_BY_ALL, SKIPPED = 0, 1, 2


def _spans(size: int) -> int:
    return -(-size // SPAN)


class Slices:
    """The division of a contiguous array into slices, which span the reduced axes."""

    def __init__(self, shape: tuple[int, ...], reduced: tuple[int, ...]) -> None:
        self.norms_shape = tuple(1 if axis in reduced else n for axis, n in enumerate(shape))
        self.n = math.prod(self.norms_shape)
        self.size = math.prod(shape[axis] for axis in reduced)  # elements of a slice
        groups: list[tuple[bool, int, int]] = []  # whether reduced, size, stride; innermost first
        stride = 1
        for axis in reversed(range(len(shape))):
            within = axis in reduced
            if shape[axis] != 1 and groups and groups[-1][0] == within:
                groups[-1] = within, groups[-1][1] * shape[axis], groups[-1][2]
            elif shape[axis] != 1:
                groups.append((within, shape[axis], stride))
            stride *= shape[axis]
        if len(groups) > Axes.MOST:
            raise InvalidArgumentError(
                f"reduced and other axes may alternate at most {Axes.MOST} times on a GPU"
            )
        self.inner = _axes([(n, step) for within, n, step in groups if within])
        self.outer = _axes([(n, step) for within, n, step in groups if not within])
        numbers, slices = [], 1
        for within, n, _ in groups:
            numbers.append((n, 0 if within else slices))
            slices *= 1 if within else n
        self.numbers = _axes(numbers)  # strides of the slice number


def _axes(steps: list[tuple[int, int]]) -> Axes:
    axes = Axes(len(steps))
    for k, (n, step) in enumerate(steps):
        axes.size[k], axes.stride[k] = n, step
    return axes


def _host_or_device(number: float | DeviceArray) -> tuple[float, DeviceArray | None]:
    return (0.0, number) if isinstance(number, DeviceArray) else (number, None)


class Norms:
    """Norms and their factors, in memory allocated and freed in stream order.

    A context manager: work queued within the context can use the norms.
    """

    def __init__(
        self, library: Library, device: int, stream: int, n: int = 1, spans: int = 0
    ) -> None:
        self.library, self.device, self.stream = library, device, stream
        self.n, self.spans = n, spans
        self.address: int | None = None

    @classmethod
    def for_arrays(
        cls, library: Library, device: int, stream: int, arrays: list[DeviceArray], own: bool
    ) -> Norms:
        """Return memory for the norm of all arrays, or of each."""
        spans = sum(_spans(array.size) for array in arrays)
        return cls(library, device, stream, len(arrays) if own else 1, spans)

    @classmethod
    def for_slices(cls, library: Library, device: int, stream: int, slices: Slices) -> Norms:
        """Return memory for the norms of slices."""
        spans = slices.n * _spans(slices.size)
        if spans > _MOST_BLOCKS:
            raise InvalidArgumentError(f"on a GPU there can be at most {_MOST_BLOCKS} norms")
        return cls(library, device, stream, slices.n, spans)

    def __enter__(self) -> Norms:
        at = c_void_p()
        self.library.check(
            self.library.call["take_norms"](self.device, self.stream, self.n, self.spans, byref(at))
        )
        self.address = at.value
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call("give")

    def _call(self, name: str, *arguments: object) -> None:
        self.library.check(
            self.library.call[name](self.device, self.stream, self.address, *arguments)
        )

    # ---- computing norms

    def compute(
        self,
        arrays: Sequence[DeviceArray],
        limit: float,
        policy: int,
        bounds: dict[str, float],
        own: bool = False,
        scale: float = 1.0,
    ) -> None:
        """Compute the norm of all arrays, or of each, clamping to the bound of their dtype.

        The factors are multiplied by a scale.
        """
        n = len(arrays)
        self._call(
            "norms_of_list",
            own,
            n,
            (c_int * n)(*(TYPES[array.dtype] for array in arrays)),
            (c_void_p * n)(*(array.address for array in arrays)),
            (c_int64 * n)(*(array.size for array in arrays)),
            (c_double * 4)(*(bounds.get(dtype, math.inf) for dtype in list(TYPES)[:4])),
            limit,
            policy,
            scale,
        )

    def compute_slices(
        self,
        array: DeviceArray,
        slices: Slices,
        limit: float | DeviceArray,
        policy: int,
        rooted: bool = True,
    ) -> None:
        """Compute the norms of slices, or their sums of squares; `limit` may be an array."""
        number, numbers = _host_or_device(limit)
        self._call(
            "norms_of_slices",
            slices.n,
            TYPES[array.dtype],
            array.address,
            slices.size,
            byref(slices.outer),
            byref(slices.inner),
            rooted,
            number,
            None if numbers is None else numbers.address,
            policy,
        )

    def use_known(self, norm: float | DeviceArray, limit: float, policy: int) -> None:
        """Use a known norm."""
        number, array = _host_or_device(norm)
        self._call(
            "known_norm",
            0 if array is None else TYPES[array.dtype],
            None if array is None else array.address,
            number,
            limit,
            policy,
        )

    def use_factor(self, scale: DeviceArray) -> None:
        """Use a number on the GPU as the factor."""
        self._call("factor_of", TYPES[scale.dtype], scale.address)

    # ---- using norms

    def first_nonfinite(self) -> float | None:
        """Wait for the norms, and return the first that is infinite or NaN."""
        root = c_double()
        code = self.library.call["bad_norm"](
            self.device, self.stream, self.address, self.n, byref(root)
        )
        self.library.check(code)
        return None if math.isfinite(root.value) else root.value

    def write(self, out: DeviceArray, power: int = 0) -> None:
        """Write the norm, times a power of two, to an array of one element."""
        self._call("write_norm", TYPES[out.dtype], out.address, power)

    def scale(self, outs: Sequence[DeviceArray], arrays: Sequence[DeviceArray]) -> None:
        """Multiply arrays of one dtype by the first factor."""
        n = len(arrays)
        self._call(
            "scale",
            TYPES[arrays[0].dtype],
            n,
            (c_void_p * n)(*(out.address for out in outs)),
            (c_void_p * n)(*(array.address for array in arrays)),
            (c_int64 * n)(*(array.size for array in arrays)),
        )

    def scale_slices(self, out: DeviceArray, array: DeviceArray, slices: Slices) -> None:
        """Multiply each slice of an array by its factor."""
        self._call(
            "scale_slices",
            TYPES[array.dtype],
            out.address,
            array.address,
            array.size,
            byref(slices.numbers),
        )
