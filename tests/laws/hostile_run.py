"""The actions of programs of hostile states."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common.step_cases import ARGUMENTS, everything
from common.wrapper_cases import WRAPPERS

import tfopt
from tfopt import IndexedSlices, optimizers

__all__ = ["filled", "leaves_refused_or_used", "np"]


MOST = 15  # places that a program tries


def filled(old: Any, number: Any) -> Any:
    """Return an array like another one, all of whose elements are a number."""
    with np.errstate(all="ignore"):
        return np.full_like(old, number)


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(tree, (dict, list)):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from _places(tree[key], (*path, key))


def _step(opt: Any, params: dict[str, np.ndarray], k: int) -> None:
    rows = np.array([k % 3, 4, k % 3])
    table = IndexedSlices(np.full((3, 2), 0.5), rows)
    opt.step(params, {"t": table, "w": np.full(3, 0.25)})


def leaves_refused_or_used(
    name: str, wrapper: str, sparse: str, loads: str, value: Callable[[Any], Any], seed: int
) -> None:
    """Load the state of an optimizer with another value in some places in turn, and go on."""

    def made() -> Any:
        options = {} if name == "Adafactor" else {"sparse": sparse}
        inner = getattr(optimizers, name)(**{**ARGUMENTS[name], **options})
        return inner if wrapper == "alone" else WRAPPERS[wrapper].busy(inner)

    params = {"t": np.ones((6, 2)), "w": np.ones(3)}
    try:
        first = made()
        if wrapper == "alone" and hasattr(first, "exclude_from_weight_decay"):
            first.exclude_from_weight_decay([params["w"]], ["^never$"])
        for k in range(3):
            _step(first, params, k)
    except tfopt.InvalidArgumentError:  # this optimizer does not catch up, or is not wrapped so
        return
    whole = first.state_dict(params)
    places = [*_places(whole)]
    for k in np.random.default_rng(seed).permutation(len(places))[:MOST]:
        place = places[k]
        state = copy.deepcopy(whole)
        branch = state
        for key in place[:-1]:
            branch = branch[key]
        try:
            branch[place[-1]] = value(branch[place[-1]])
        except (TypeError, ValueError, OverflowError, AttributeError, KeyError, IndexError):
            continue  # there is no such value in this place
        mine, theirs = copy.deepcopy((first if loads == "used" else made(), params))
        before = everything(mine, theirs)
        try:
            mine.load_state_dict(state, theirs)
        except tfopt.InvalidArgumentError:
            assert everything(mine, theirs) == before, place
            continue
        with np.errstate(all="ignore"):
            for k in range(3):
                _step(mine, theirs, k)
            mine.flush()
        mine.state_dict(theirs)
