"""Files with SDCA models."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tfopt import checkpoints
from tfopt.errors import CheckpointError, InvalidArgumentError

__all__ = ["check_same", "save_model", "saved_model"]

_KIND = "tfopt.sdca_model.SDCAModel"  # identifies the contents of a file


def save_model(path: str | os.PathLike[str], parts: dict[str, Any]) -> None:
    """Write a model's parts to a file."""
    checkpoints.save(path, {"kind": _KIND, **parts})


def saved_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the parts in a file: "config", "fingerprints", "state", "sparse", "dense".

    Raises
    ------
    CheckpointError
        If the file is damaged, has other contents, or its parts are inconsistent.
    """
    saved = checkpoints.load(path)
    if not isinstance(saved, dict) or saved.get("kind") != _KIND:
        raise CheckpointError(f"{os.fspath(path)!r} does not hold an SDCAModel")
    try:
        whole = _is_whole(**{name: part for name, part in saved.items() if name != "kind"})
    except (AttributeError, KeyError, TypeError):
        whole = False
    if not whole:
        raise CheckpointError(f"{os.fspath(path)!r} holds an incomplete SDCAModel")
    return saved


def _is_whole(config: Any, fingerprints: Any, state: Any, sparse: Any, dense: Any) -> bool:
    n = len(fingerprints)
    return (
        fingerprints.dtype == np.int64
        and fingerprints.shape == (n, 2)
        and len(np.unique(fingerprints, axis=0)) == n
        and state.dtype == config["dtype"]
        and state.shape == (n, 4)
        and all(isinstance(weights, np.ndarray) for weights in (*sparse, *dense))
    )


def check_same(kind: str, arrays: list[np.ndarray], saved: list[np.ndarray]) -> None:
    """Raise if the shapes or dtypes of the weights differ from those of a file."""
    ours, theirs = ([f"{w.dtype} {list(w.shape)}" for w in part] for part in (arrays, saved))
    if ours != theirs:
        raise InvalidArgumentError(
            f"the {kind} weights are {', '.join(ours) or 'none'}, but the file has "
            f"{', '.join(theirs) or 'none'}"
        )
