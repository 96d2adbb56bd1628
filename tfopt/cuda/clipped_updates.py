"""Updates on a GPU that clip gradients as they read them.

The counterpart of :mod:`tfopt.optimizers.step.clipping` on the host: the gradients are read
once for their norms, if norms are limited, and then by the updates, which clamp and scale as they
read. The norms stay on the GPU, and nothing waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfopt.cuda.device_array import numpy_dtype
from tfopt.cuda.norms import OWN, SHARED_BY_ALL, Norms
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import Reading, Update
from tfopt.errors import InvalidArgumentError

__all__ = ["bounds_of", "run_clipped"]


def run_clipped(
    updates: Sequence[Update],
    clipvalue: float | None = None,
    clipnorm: float | None = None,
    global_clipnorm: float | None = None,
    scale: float = 1.0,
) -> None:
    """Run checked updates, clipping their gradients by value and then by norm.

    Rows are clipped before rows with the same index are summed. All arrays must be on one GPU; the
    updates run on the stream of the first variable.

    Parameters
    ----------
    updates : sequence of DenseUpdate and RowsUpdate
        With a `grad_scale` of `scale`.
    clipvalue : float, optional
        Clip every element of the gradients to ``[-clipvalue, clipvalue]`` first.
    clipnorm : float, optional
        Clip each gradient to this norm.
    global_clipnorm : float, optional
        Clip all gradients to this common norm; not allowed together with `clipnorm`.
    scale : float
        Multiplies the gradients before they are clipped.

    Raises
    ------
    InvalidArgumentError
        If the variables are on several GPUs; nothing has been written.
    IndexOutOfRangeError
        If an index is out of range. Its variable is then unchanged, but preceding updates have been
        made.
    """
    if not updates:
        return
    library, device = updates[0].library, updates[0].device
    if any(update.device != device for update in updates):
        raise InvalidArgumentError("the variables are on several GPUs")
    gradients = [gradient for update in updates for gradient in update.gradients]
    bounds = bounds_of(clipvalue, scale, {gradient.dtype for gradient in gradients})
    arrays = [array for update in updates for array in update.arrays]
    with in_order(library, device, arrays) as stream:
        if global_clipnorm is None:
            for update in updates:
                _run_one(update, stream, bounds, clipnorm, scale)
            return
        with Norms.for_arrays(library, device, stream, gradients, own=False) as norms:
            limit = global_clipnorm / scale
            norms.compute(gradients, limit, SHARED_BY_ALL, bounds, scale=scale)
            for update in updates:
                update.launch(stream, _reading(update, bounds, norms, own=False))


def _run_one(
    update: Update, stream: int, bounds: dict[str, float], clipnorm: float | None, scale: float
) -> None:
    """Run an update, clipping each of its gradients by its own norm if norms are limited."""
    if clipnorm is None:
        update.launch(stream, _reading(update, bounds, None, own=False))
        return
    gradients = update.gradients
    with Norms.for_arrays(update.library, update.device, stream, gradients, own=True) as norms:
        norms.compute(gradients, clipnorm / scale, OWN, bounds, own=True, scale=scale)
        update.launch(stream, _reading(update, bounds, norms, own=True))


def _reading(update: Update, bounds: dict[str, float], norms: Norms | None, own: bool) -> Reading:
    bound = bounds.get(update.gradients[0].dtype, math.inf)
    clips = norms is not None or bool(bounds)
    return Reading(bound, None if norms is None else norms.address, own, each_row=clips)


def bounds_of(clipvalue: float | None, scale: float, dtypes: set[str]) -> dict[str, float]:
    """Return the bounds of gradients before their scaling, rounded to their dtypes."""
    if clipvalue is None:
        return {}
    bound = np.float64(clipvalue / scale)
    with np.errstate(over="ignore", under="ignore"):
        return {dtype: float(bound.astype(numpy_dtype(dtype))) for dtype in dtypes}
