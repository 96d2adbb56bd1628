"""Writable copies of arrays that were unpickled from read-only memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

__all__ = ["writable"]

#: The copies of read-only arrays, by the arrays' addresses as objects.
_copies: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def writable(array: Any) -> Any:
    """Return an array itself or, if it is read-only, its one writable copy.

    Unpickling calls this for an array that will be written, because Ray, joblib and others pass
    read-only buffers. Two objects that shared the array share its copy.

    Parameters
    ----------
    array : ndarray or array on a device
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return array
    of, known = _copies.get(id(array), (lambda: None, lambda: None))
    copy = known() if of() is array else None
    if copy is None:
        copy, key = np.array(array), id(array)
        forget = weakref.ref(array, lambda _: _copies.pop(key, None))
        _copies[key] = forget, weakref.ref(copy)
    return copy
