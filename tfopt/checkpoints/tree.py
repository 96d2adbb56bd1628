"""Conversion of nested dictionaries to JSON with names in place of arrays, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfopt.checkpoints.entries import is_name
from tfopt.errors import CheckpointError, InvalidArgumentError, InvalidTypeError
from tfopt.imports import imported
from tfopt.variable import Variable

__all__ = ["MOST_DEPTH", "dumps", "pack", "unpack"]

MOST_DEPTH = 100  # nested lists and dictionaries: far below Python's recursion limit

_MARK = "__array__"
_MOST_BITS = 14_000  # of an integer: Python is slow, or refuses, to convert more to decimal
#: Names reserved for the parts of a file.
_TAKEN = ("header", "checksums", "__metadata__")


def pack(tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a JSON tree with names in place of arrays, and the arrays by name.

    Raises
    ------
    InvalidTypeError
        If the tree contains a value of another type.
    InvalidArgumentError
        If it is nested too deeply, or an integer has too many digits.
    """
    arrays: dict[str, np.ndarray] = {}
    return _packed(tree, (), arrays), arrays


def unpack(tree: Any, arrays: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the tree with arrays in place of their names.

    Raises
    ------
    CheckpointError
        If an array is missing, or the tree is nested too deeply.
    """
    if depth > MOST_DEPTH:
        raise CheckpointError(f"the contents are nested more than {MOST_DEPTH} deep")
    if isinstance(tree, dict):
        if tree.keys() == {_MARK}:
            name = tree[_MARK]
            if not isinstance(name, str) or name not in arrays:
                raise CheckpointError(f"the array {name!r} is missing")
            return arrays[name]
        return {key: unpack(branch, arrays, depth + 1) for key, branch in tree.items()}
    if isinstance(tree, list):
        return [unpack(branch, arrays, depth + 1) for branch in tree]
    return tree


def _packed(tree: Any, path: tuple[str, ...], arrays: dict[str, np.ndarray]) -> Any:
    if len(path) > MOST_DEPTH:
        raise InvalidArgumentError(
            f"a checkpoint cannot be nested more than {MOST_DEPTH} deep: {'/'.join(path)[:50]}..."
        )
    if isinstance(tree, Variable):
        tree = tree.numpy()
    if isinstance(tree, imported("numpy.ma").MaskedArray):
        raise InvalidTypeError(
            f"{'/'.join(path)} is a masked array and would lose its mask: store data and mask as "
            "two arrays"
        )
    if isinstance(tree, (np.ndarray, np.generic)):
        name = _unused("/".join(path) or "array", arrays)
        if not is_name(name):
            raise InvalidArgumentError(f"{name[:50]!r} cannot be the name of an array in a file")
        arrays[name] = np.asarray(tree)
        return {_MARK: name}
    if isinstance(tree, Mapping):
        if not all(isinstance(key, str) and key != _MARK for key in tree):
            raise InvalidTypeError(
                f"the keys of {'/'.join(path) or 'a checkpoint'} must be strings"
            )
        return {key: _packed(branch, (*path, key), arrays) for key, branch in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_packed(branch, (*path, str(k)), arrays) for k, branch in enumerate(tree)]
    if isinstance(tree, int) and tree.bit_length() > _MOST_BITS:
        raise InvalidArgumentError(
            f"a checkpoint cannot hold {'/'.join(path)}, an integer of {tree.bit_length()} bits"
        )
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise InvalidTypeError(
        f"a checkpoint cannot hold {'/'.join(path)}, of type {type(tree).__name__}: it holds "
        "arrays, Variables, numbers, strings and None, in dicts, lists and tuples"
    )


def _unused(name: str, arrays: dict[str, np.ndarray]) -> str:
    count, free = 1, name
    while free in arrays or free in _TAKEN:
        count += 1
        free = f"{name}#{count}"
    return free


def dumps(document: Any) -> bytes:
    """Return a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()
