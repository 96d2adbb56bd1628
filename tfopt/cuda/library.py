"""The compiled library: it is located, loaded and checked against the table on first use."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError
from tfopt.rules import RULES

__all__ = ["Axes", "Library", "LibraryError", "load"]

ABI = 9  # as in api.cu
_OUTSIDE, _REPEATED = -1, -2
CAPTURED = -3  # what a function that waits returns while a CUDA graph is captured; as in api.h

_ADDRESSES, _COUNTS, _NUMBERS = POINTER(c_void_p), POINTER(c_int64), POINTER(c_double)
_LAUNCH = (c_int, c_void_p, c_int, c_int)  # device, stream, rule, types
_ROWS = (c_void_p, c_void_p, c_int)  # gradient, indices, bytes of an index
_SUMMED = (c_void_p, c_void_p, c_void_p, c_int)  # the same, with which row of it each has
_COUNTED = (_COUNTS, _COUNTS)  # elements of tensors, and of their rows
_SIZES = (c_int64, c_int64, c_int64)  # indices, rows, elements of a row
_CLIPPING = (c_double, c_void_p, c_int)  # a bound, factors, and which gradients they are for
_KEEPING = (c_double, c_void_p)  # cautious decay, and how variables are stored
_INDICES = (c_int, c_int, c_int, _COUNTS)  # duplicates, lazy, whether to check, an invalid one
_NORMS = (c_int, c_void_p, c_void_p)  # device, stream, address of the norms
_ARRAY = (c_int, c_void_p, c_int64)  # type, address, elements of a slice
_LIMITS = (c_int, c_double, c_void_p, c_int)  # whether to take the root, a limit or many, policy
_FACTOR = (c_double, c_int, c_double)  # a limit, policy, what multiplies the factors
_BOUNDS = (c_void_p, c_void_p, c_void_p, c_void_p)  # lower: host, device; upper: host, device


class Axes(ctypes.Structure):
    """Some axes of a contiguous array, innermost first; as in thread_work.h."""

    MOST = 16
    _fields_ = [("n", c_int), ("size", c_int64 * MOST), ("stride", c_int64 * MOST)]


_AXES = POINTER(Axes)

#: The library's functions: result type and argument types, as in api.cu.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi": (c_int, []),
    "rules": (c_int, []),
    "rule": (c_char_p, [c_int, POINTER(c_int), POINTER(c_int)]),
    "devices": (c_int, [POINTER(c_int)]),
    "versions": (c_int, [POINTER(c_int), POINTER(c_int)]),
    "try": (c_int, []),
    "error": (c_char_p, [c_int]),
    "device_of": (c_int, [c_void_p, POINTER(c_int)]),
    "synchronize": (c_int, [c_int]),
    "follow": (c_int, [c_int, c_void_p, c_void_p]),
    "dense": (
        c_int,
        [
            *_LAUNCH,
            c_int64,
            _ADDRESSES,
            _ADDRESSES,
            *_COUNTED,
            _NUMBERS,
            c_int,
            *_CLIPPING,
            *_KEEPING,
        ],
    ),
    "rows": (
        c_int,
        [
            *_LAUNCH,
            _ADDRESSES,
            *_SUMMED,
            *_SIZES,
            _NUMBERS,
            c_int,
            *_CLIPPING,
            *_KEEPING,
            *_INDICES,
        ],
    ),
    "take_whole": (c_int, [c_int, c_void_p, c_int, *_ROWS, *_SIZES, _ADDRESSES]),
    "give": (c_int, [c_int, c_void_p, c_void_p]),
    "pool": (c_int, [c_int, c_void_p, c_int, *[c_void_p] * 6, *_SIZES, c_int]),
    "adafactor": (
        c_int,
        [c_int, c_void_p, c_int, *[c_void_p] * 4, *_SIZES, c_int, _NUMBERS],
    ),
    "outside": (
        c_int,
        [c_int, c_void_p, c_void_p, c_int, c_int64, c_int64, POINTER(c_int64)],
    ),
    "take_norms": (c_int, [c_int, c_void_p, c_int64, c_int64, _ADDRESSES]),
    "bad_norm": (c_int, [*_NORMS, c_int64, _NUMBERS]),
    "norms_of_list": (
        c_int,
        [*_NORMS, c_int, c_int64, POINTER(c_int), _ADDRESSES, _COUNTS, _NUMBERS, *_FACTOR],
    ),
    "norms_of_slices": (c_int, [*_NORMS, c_int64, *_ARRAY, _AXES, _AXES, *_LIMITS]),
    "known_norm": (c_int, [*_NORMS, c_int, c_void_p, c_double, c_double, c_int]),
    "factor_of": (c_int, [*_NORMS, c_int, c_void_p]),
    "write_norm": (c_int, [*_NORMS, c_int, c_void_p, c_int]),
    "scale": (c_int, [*_NORMS, c_int, c_int64, _ADDRESSES, _ADDRESSES, _COUNTS]),
    "scale_slices": (c_int, [*_NORMS, c_int, c_void_p, c_void_p, c_int64, _AXES]),
    "step": (c_int, [c_void_p]),  # of device_step.h
    "finite": (c_int, [c_void_p, POINTER(c_int)]),
    "clamp": (c_int, [c_int, c_void_p, c_int, c_void_p, c_void_p, c_int64, *_BOUNDS]),
}

#: Those that compiled code calls, and the names of their capsules.
_COMPILED = (
    ("step", b"tfopt.queue_step"),
    ("device_of", b"tfopt.find_device"),
    ("finite", b"tfopt.look_at_gradients"),
)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


def capsule_of(function: Any, name: bytes) -> Any:
    """Return a capsule of a C function, which is not kept alive."""
    return _new_capsule(ctypes.cast(function, c_void_p), name, None)


class LibraryError(RuntimeError):
    """Arrays on a GPU cannot be updated, or an update has failed."""


class Library:
    """The loaded library: its functions by name, and the rules' numbers."""

    def __init__(self, path: Path) -> None:
        loaded = ctypes.CDLL(str(path))
        self.call: dict[str, Any] = {}
        for name, (returned, taken) in _FUNCTIONS.items():
            function = getattr(loaded, f"tfopt_cuda_{name}")
            function.restype, function.argtypes = returned, taken
            self.call[name] = function
        #: The functions that compiled code calls.
        self.capsules = tuple(capsule_of(self.call[name], known) for name, known in _COMPILED)
        self.rules: dict[str, int] = {}
        #: The number of the row that copies, behind the rules.
        self.copy = len(RULES)

    def check(self, code: int) -> None:
        """Raise an error if a CUDA call returned one."""
        if code == CAPTURED:
            raise InvalidArgumentError(
                "the host cannot wait for the GPU while a CUDA graph is captured, so nothing can "
                'depend on whether numbers are finite: nonfinite must be "propagate", and there '
                "must be no loss scale"
            )
        if code:
            raise LibraryError(f"CUDA: {self.call['error'](code).decode()} (error {code})")

    def check_rows(self, code: int, at: int, n_rows: int) -> None:
        """Raise an error if a call returned one, or the position of an index that it refuses."""
        if code == _OUTSIDE:
            raise IndexOutOfRangeError(
                f"The index at offset {at} in indices is out of range [0, {n_rows})"
            )
        if code == _REPEATED:
            raise InvalidArgumentError(f"indices contains duplicates, one of them at offset {at}")
        if code == CAPTURED:
            raise InvalidArgumentError(
                "indices cannot be checked while a CUDA graph is captured: pass check_indices=False"
            )
        self.check(code)

    def device_of(self, address: int) -> int:
        """Return the device whose memory contains an address, -1 for host memory."""
        device = c_int(-1)
        self.check(self.call["device_of"](address, device))
        return device.value


def path() -> Path:
    """Return the path of the library: TFOPT_CUDA_LIBRARY, or next to this file."""
    named = os.environ.get("TFOPT_CUDA_LIBRARY")
    return Path(named) if named else Path(__file__).with_name("libtfopt_cuda.so.1")


_in_child = False


def _forked() -> None:
    global _in_child
    _in_child = _load.cache_info().currsize > 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def load() -> Library:
    """Return the library.

    Raises
    ------
    LibraryError
        If it is missing or does not match this package, or there is no usable GPU.
    """
    if _in_child:
        raise LibraryError(
            "CUDA does not work in a forked child of a process that has used it; "
            'use the start method "spawn"'
        )
    return _load()


@cache
def _load() -> Library:
    file = path()
    if not file.exists():
        raise LibraryError("tfopt was built without CUDA (set TFOPT_CUDA=1 when it is built)")
    try:
        library = Library(file)
    except (OSError, AttributeError) as error:
        raise LibraryError(f"the CUDA library cannot be loaded: {error}") from None
    _compare(library)
    _find_device(library)
    return library


def _compare(library: Library) -> None:
    """Raise if the library has another ABI or was built from another table."""
    if library.call["abi"]() != ABI:
        raise LibraryError(
            f"the CUDA library has version {library.call['abi']()}, but tfopt needs {ABI}: rebuild"
        )
    arrays, scalars = c_int(), c_int()
    compiled = []
    for i in range(library.call["rules"]()):
        name = library.call["rule"](i, arrays, scalars).decode()
        compiled.append((name, arrays.value, scalars.value))
        library.rules[name] = i
    if compiled != [(rule.name, len(rule.slots) + 1, len(rule.scalars)) for rule in RULES]:
        raise LibraryError("the CUDA library was built from another table of rules: rebuild")


def _find_device(library: Library) -> None:
    """Raise if there is no GPU that the library can use."""
    driver, runtime, n = c_int(), c_int(), c_int()
    library.check(library.call["versions"](driver, runtime))
    if driver.value == 0 and runtime.value:
        raise LibraryError("there is no NVIDIA driver")
    if driver.value // 1000 < runtime.value // 1000:
        raise LibraryError(
            f"the NVIDIA driver supports CUDA {_version(driver.value)}, but the library needs "
            f"{_version(runtime.value)}"
        )
    library.check(library.call["devices"](n))
    if n.value == 0:
        raise LibraryError("there is no CUDA device")
    library.check(library.call["try"]())


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
