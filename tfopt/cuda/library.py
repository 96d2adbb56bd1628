"""The compiled library: found, loaded, compared with the table, all when it is first needed."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from tfopt.rules import RULES

__all__ = ["Axes", "Library", "LibraryError", "load"]

ABI = 3  # as in face.cu

_ADDRESSES, _COUNTS, _NUMBERS = POINTER(c_void_p), POINTER(c_int64), POINTER(c_double)
_LAUNCH = (c_int, c_void_p, c_int, c_int)  # device, stream, rule, types
_ROWS = (c_void_p, c_void_p, c_int)  # gradient, indices, bytes of an index
_SIZES = (c_int64, c_int64, c_int64)  # indices, rows, elements of a row
_CLIPPING = (c_double, c_void_p, c_int)  # a bound, factors, and which gradients they are for
_INDICES = (c_int, c_int, _COUNTS)  # duplicates, whether to refuse indices, and one that is
_NORMS = (c_int, c_void_p, c_void_p)  # device, stream, and where the norms are
_ARRAY = (c_int, c_void_p, c_int64)  # type, address, elements of a slice
_LIMITS = (c_int, c_double, c_void_p, c_int)  # whether to root, a limit or many, policy
_BOUNDS = (c_void_p, c_void_p, c_void_p, c_void_p)  # the lower one, here or there; the upper one


class Axes(ctypes.Structure):
    """Some axes of a contiguous array, innermost first; as in places.h."""

    MOST = 16
    _fields_ = [("n", c_int), ("size", c_int64 * MOST), ("stride", c_int64 * MOST)]


_AXES = POINTER(Axes)

#: The library's functions: what they return, and what they take as in face.cu.
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
        [*_LAUNCH, c_int64, _ADDRESSES, _ADDRESSES, _COUNTS, _NUMBERS, c_int, *_CLIPPING],
    ),
    "rows": (
        c_int,
        [*_LAUNCH, _ADDRESSES, *_ROWS, *_SIZES, _NUMBERS, c_int, *_CLIPPING, *_INDICES],
    ),
    "outside": (
        c_int,
        [c_int, c_void_p, c_void_p, c_int, c_int64, c_int64, POINTER(c_int64)],
    ),
    "take_norms": (c_int, [c_int, c_void_p, c_int64, c_int64, _ADDRESSES]),
    "give_norms": (c_int, [*_NORMS]),
    "bad_norm": (c_int, [*_NORMS, c_int64, _NUMBERS]),
    "norms_of_list": (
        c_int,
        [*_NORMS, c_int, c_int64, POINTER(c_int), _ADDRESSES, _COUNTS, _NUMBERS, c_double, c_int],
    ),
    "norms_of_slices": (c_int, [*_NORMS, c_int64, *_ARRAY, _AXES, _AXES, *_LIMITS]),
    "known_norm": (c_int, [*_NORMS, c_int, c_void_p, c_double, c_double, c_int]),
    "factor_of": (c_int, [*_NORMS, c_int, c_void_p]),
    "write_norm": (c_int, [*_NORMS, c_int, c_void_p, c_int]),
    "scale": (c_int, [*_NORMS, c_int, c_int64, _ADDRESSES, _ADDRESSES, _COUNTS]),
    "scale_slices": (c_int, [*_NORMS, c_int, c_void_p, c_void_p, c_int64, _AXES]),
    "clamp": (c_int, [c_int, c_void_p, c_int, c_void_p, c_void_p, c_int64, *_BOUNDS]),
}


class LibraryError(RuntimeError):
    """Arrays on a GPU cannot be updated, or an update has failed there."""


class Library:
    """The loaded library: its functions by name, and the numbers of the rules."""

    def __init__(self, path: Path) -> None:
        loaded = ctypes.CDLL(str(path))
        self.call: dict[str, Any] = {}
        for name, (returned, taken) in _FUNCTIONS.items():
            function = getattr(loaded, f"tfopt_cuda_{name}")
            function.restype, function.argtypes = returned, taken
            self.call[name] = function
        self.rules: dict[str, int] = {}

    def check(self, code: int) -> None:
        """Raise CUDA's error, if there is one."""
        if code:
            raise LibraryError(f"CUDA: {self.call['error'](code).decode()} (error {code})")

    def device_of(self, address: int) -> int:
        """Return the device whose memory an address is in, -1 for the host's."""
        device = c_int(-1)
        self.check(self.call["device_of"](address, device))
        return device.value


def path() -> Path:
    """Return where the library is: beside this file, or where TFOPT_CUDA_LIBRARY says."""
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
        If there is none, it does not fit this package, or there is no GPU it can use.
    """
    if _in_child:
        raise LibraryError(
            "CUDA does not work in a forked child of a process that has used it; "
            'start processes with the method "spawn"'
        )
    return _load()


@cache
def _load() -> Library:
    file = path()
    if not file.exists():
        raise LibraryError(
            "tfopt was built without CUDA (with TFOPT_CUDA=1 a build says what it misses)"
        )
    try:
        library = Library(file)
    except (OSError, AttributeError) as error:
        raise LibraryError(f"the CUDA library cannot be loaded: {error}") from None
    _compare(library)
    _find_device(library)
    return library


def _compare(library: Library) -> None:
    """Refuse a library that was built from another table, or speaks otherwise."""
    if library.call["abi"]() != ABI:
        raise LibraryError(
            f"the CUDA library is of version {library.call['abi']()}, tfopt needs {ABI}"
        )
    arrays, scalars = c_int(), c_int()
    found = []
    for i in range(library.call["rules"]()):
        name = library.call["rule"](i, arrays, scalars).decode()
        found.append((name, arrays.value, scalars.value))
        library.rules[name] = i
    if found != [(rule.name, len(rule.slots) + 1, len(rule.scalars)) for rule in RULES]:
        raise LibraryError("the CUDA library was built from another table of rules")


def _find_device(library: Library) -> None:
    """Refuse a machine without a GPU that the library can use."""
    driver, runtime, n = c_int(), c_int(), c_int()
    library.check(library.call["versions"](driver, runtime))
    if driver.value == 0 and runtime.value:
        raise LibraryError("there is no NVIDIA driver")
    if driver.value // 1000 < runtime.value // 1000:
        raise LibraryError(
            f"the NVIDIA driver supports CUDA {_version(driver.value)}, "
            f"the library needs {_version(runtime.value)}"
        )
    library.check(library.call["devices"](n))
    if n.value == 0:
        raise LibraryError("there is no CUDA device")
    library.check(library.call["try"]())


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
