"""The self-test: compares digests of this machine's results with recorded ones.

`digests` runs the kernels on numbers that are the same everywhere and hashes what they return;
`recorded` has the digests that the package comes with. Where they are equal, so are all bits: for
any number of threads, on every instruction set, wherever arrays begin. The payload and the sign of
a NaN, which are not promised, are left out. Only operations that IEEE 754 defines are compared:
sums, products, quotients, square roots, comparisons and conversions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.locks import ProcessLock
from tfopt.denormals import get_flush_denormals, set_flush_denormals
from tfopt.errors import InvalidArgumentError
from tfopt.selftest import gpu
from tfopt.selftest.cases import CASES, lacking
from tfopt.selftest.inputs import Place

__all__ = ["FILE", "digests", "recorded", "skipped"]

#: The file of the recorded digests, in this package.
FILE = "recorded.json"
#: Held while whether denormals are flushed is not what the user has set.
_FLUSHING = ProcessLock()


def digests(
    names: Iterable[str] | None = None, *, offset: int = 0, device: str = "cpu"
) -> dict[str, str]:
    """Run cases and return the SHA-256 of the results of each.

    Takes about three seconds in all. The number of threads is that of
    :func:`tfopt.threads.set_num_threads`. Whether denormals are flushed is set meanwhile, for all
    threads; of several calls at once, one waits for the other.

    Parameters
    ----------
    names : iterable of str, optional
        Names of rules, of clipping and SDCA ops, and of storage; by default those of `recorded`
        that can be run here.
    offset : int, default 0
        From 0 to 63: how many elements arrays begin behind a line of the cache.
    device : {"cpu", "gpu"}, default "cpu"
        Where to compute. On a GPU the default are the cases that it computes with the host's bits:
        rules and clipping.

    Returns
    -------
    dict
        From names to hexadecimal digests.

    Raises
    ------
    InvalidArgumentError
        If there is no case of a name, it cannot be run here or on a GPU, there is no GPU, or the
        offset or the device is not one of those above.

    Examples
    --------
    >>> from tfopt import selftest
    >>> selftest.digests(["adamax"])["adamax"] == selftest.recorded()["adamax"]
    True
    """
    if not 0 <= offset < 64:
        raise InvalidArgumentError(f"offset must be from 0 to 63, not {offset}")
    if device not in ("cpu", "gpu"):
        raise InvalidArgumentError(f'device must be "cpu" or "gpu", not {device!r}')
    place: Place = offset if device == "cpu" else gpu.to_gpu()
    there = [name for name in CASES if device == "cpu" or name in gpu.CASES]
    chosen = [name for name in there if lacking(name) is None] if names is None else [*names]
    for name in chosen:
        if name not in CASES:
            raise InvalidArgumentError(f"there is no case {name!r} among {', '.join(CASES)}")
        if (why := lacking(name)) is not None:
            raise InvalidArgumentError(f"{name!r} cannot be run: {why}")
        if name not in there:
            raise InvalidArgumentError(f"{name!r} cannot be run on a GPU")
    with _FLUSHING.held():
        before = get_flush_denormals()
        try:
            found = {}
            for name in chosen:
                set_flush_denormals(False)  # also if the last case has failed
                with np.errstate(all="ignore"):
                    found[name] = _digest(CASES[name](place))
            return found
        finally:
            set_flush_denormals(before)


def recorded() -> dict[str, str]:
    """Return the digests that the package comes with, by the names of their cases."""
    found: dict[str, str] = json.loads(files(__name__).joinpath(FILE).read_text("utf-8"))
    return found


def skipped() -> dict[str, str]:
    """Return the cases that cannot be run here, and why."""
    reasons = {name: lacking(name) for name in CASES}
    return {name: why for name, why in reasons.items() if why is not None}


def _digest(arrays: Iterable[Any]) -> str:
    """Return the SHA-256 of dtypes, shapes and elements, in little-endian order."""
    sha = hashlib.sha256()
    for part in _plain(arrays):
        sha.update(f"{part.dtype.name}{part.shape}".encode())
        part = np.array(part, order="C", ndmin=1)
        if part.dtype.kind not in "iu":  # bfloat16 has a kind of its own
            nan = np.isnan(part)
            part[nan] = 0
            sha.update(np.packbits(nan).tobytes())
        bits = part.view(f"u{part.itemsize}")
        sha.update(bits.astype(f"<u{part.itemsize}", copy=False).tobytes())
    return sha.hexdigest()


def _on_host(array: Any) -> np.ndarray:
    if not is_device_array(array):
        return np.asarray(array)
    copy: np.ndarray = backend_of(array).to_host(array)
    return copy


def _plain(arrays: Iterable[Any]) -> Iterator[np.ndarray]:
    """Yield arrays, of blocks of codes their fields."""
    for array in map(_on_host, arrays):
        yield from (
            [array] if array.dtype.names is None else map(array.__getitem__, array.dtype.names)
        )
