"""Copies of whole arrays on a GPU, bound to them the first time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.updates.device_rule import unbound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["DeviceCopy", "copies_of"]

#: The numbers of a copy are those of this rule, of which only the scale of gradients matters.
_COPIED = RuleUpdate("gradient_descent", {"alpha": 1.0})


class DeviceCopy:
    """Copies of arrays to others of the same shapes on one GPU, rounded to their dtypes.

    Parameters
    ----------
    targets : list of array
    name : str
        That of the first one, in an error.
    """

    def __init__(self, targets: list[Any], name: str) -> None:
        self._targets, self._name = targets, name
        self._backend = backend_of(targets)
        self._launch: Launch | None = None

    def launch(self, sources: list[Any], scale: float = 1.0) -> Launch:
        """Return what copies arrays, multiplied by a scale.

        Raises
        ------
        InvalidTypeError
            If the arrays cannot be bound.
        """
        launch = self._launch
        if launch is None or not launch.takes(sources):
            launch = self._backend.copy_of(self._targets, sources)
            if launch is None or not launch.takes(sources):
                raise unbound(self._name)
            self._launch = launch
        launch.prepare(_COPIED, scale)
        return launch

    def release(self) -> None:
        """Release the arrays that are copied."""
        if self._launch is not None:
            self._launch.release()


def copies_of(
    arrays: list[Any],
    name: str,
    dtypes: Sequence[np.dtype[Any]] | None = None,
    scale: float = 1.0,
) -> list[Any]:
    """Return new arrays with the contents of arrays on a GPU, times a scale.

    Their dtypes are the same, or others that are given.
    """
    backend = backend_of(arrays)
    wanted = repeat(None) if dtypes is None else dtypes
    each = zip(arrays, wanted, strict=False)
    copies = [backend.new_like(array, tuple(array.shape), dtype) for array, dtype in each]
    carry_out([DeviceCopy(copies, name).launch(arrays, scale)])
    return copies
