"""Updates on a GPU whose gradients are clipped on their way into them.

What :mod:`tfopt.optimizers.execution.clipping` does on the host: the gradients are read once for
their norms, if there is a limit to these, and then by the updates, which clamp and scale what they
read. The norms stay on the GPU, and nothing waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfopt.cuda.clip_arguments import numpy_dtype
from tfopt.cuda.norms import OWN, SHARED_BY_ALL, Norms
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import Reading, Update
from tfopt.errors import InvalidArgumentError

__all__ = ["run_clipped"]


def run_clipped(
    updates: Sequence[Update],
    clipvalue: float | None = None,
    clipnorm: float | None = None,
    global_clipnorm: float | None = None,
) -> None:
    """Run updates that have been checked, their gradients clipped: to bounds, then by norms.

    Rows are clipped before those of one index are summed. All arrays must be on one GPU; the
    updates run on the stream of the first variable.

    Parameters
    ----------
    updates : sequence of DenseUpdate and RowsUpdate
        Made with a `grad_scale` of 1.
    clipvalue : float, optional
        Every gradient is clipped to this and its negative, first.
    clipnorm : float, optional
        Every gradient is clipped to this norm.
    global_clipnorm : float, optional
        All gradients are clipped to this common norm; not together with `clipnorm`.

    Raises
    ------
    InvalidArgumentError
        If the variables are on several GPUs; nothing has been written.
    IndexOutOfRangeError
        If an index names no row. That is found when its update comes, and changes nothing of its
        own variable; the updates before it have been made.
    """
    if not updates:
        return
    library, device = updates[0].library, updates[0].device
    if any(update.device != device for update in updates):
        raise InvalidArgumentError("the variables are on several GPUs")
    gradients = [gradient for update in updates for gradient in update.gradients]
    bounds = {} if clipvalue is None else {g.dtype: _bound(clipvalue, g.dtype) for g in gradients}
    arrays = [array for update in updates for array in update.arrays]
    with in_order(library, device, arrays) as stream:
        if global_clipnorm is None:
            for update in updates:
                _run_one(update, stream, bounds, clipnorm)
            return
        with Norms.room_for(library, device, stream, gradients, own=False) as norms:
            norms.be_of(gradients, global_clipnorm, SHARED_BY_ALL, bounds)
            for update in updates:
                update.launch(stream, _reading(update, bounds, norms, own=False))


def _run_one(update: Update, stream: int, bounds: dict[str, float], clipnorm: float | None) -> None:
    """Run an update each of whose gradients has its own norm, if there is a limit to them."""
    if clipnorm is None:
        update.launch(stream, _reading(update, bounds, None, own=False))
        return
    those = update.gradients
    with Norms.room_for(update.library, update.device, stream, those, own=True) as norms:
        norms.be_of(those, clipnorm, OWN, bounds, own=True)
        update.launch(stream, _reading(update, bounds, norms, own=True))


def _reading(update: Update, bounds: dict[str, float], norms: Norms | None, own: bool) -> Reading:
    bound = bounds.get(update.gradients[0].dtype, math.inf)
    return Reading(bound, None if norms is None else norms.address, own, each_row=True)


def _bound(clipvalue: float, dtype: str) -> float:
    """Return the bound as a gradient's dtype holds it."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float64(clipvalue).astype(numpy_dtype(dtype)))
