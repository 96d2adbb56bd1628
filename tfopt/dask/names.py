"""The names of features, which are columns of frames, and whether blocks agree on them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["agreed", "names_of", "set_names"]


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, if all are strings; of other data, None."""
    names = tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def agreed(found: dict[tuple[str, ...] | None, int]) -> tuple[str, ...] | None:
    """Return the names that all blocks have.

    Parameters
    ----------
    found : dict
        The names that there are, each with the first block that has them.

    Raises
    ------
    ValueError
        If there are several; it names the blocks, and a feature.
    """
    (first, names), *others = sorted((number, names) for names, number in found.items())
    if not others:
        return names
    other, differing = others[0]
    if names is None or differing is None:
        with_names, without = (other, first) if names is None else (first, other)
        raise ValueError(f"block {with_names} has names of features, but block {without} has not")
    if len(names) != len(differing):
        raise ValueError(
            f"block {other} has {len(differing)} features, but block {first} has {len(names)}"
        )
    place = next(k for k, pair in enumerate(zip(names, differing, strict=True)) if len({*pair}) > 1)
    raise ValueError(
        f"the names of features must be the same, in the same order, in all blocks: number {place} "
        f"is {differing[place]!r} in block {other}, but {names[place]!r} in block {first}"
    )


def set_names(model: Any, names: tuple[str, ...] | None) -> None:
    """Have a fitted model know the names of its features, and no others from before."""
    if names is not None:
        model.feature_names_in_ = np.array(names, object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
