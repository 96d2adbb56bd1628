"""Optimizer steps of variables on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfopt.cuda.blocks import Blocks
from tfopt.cuda.calls import dense_update, rows_update, whole_update
from tfopt.cuda.clipped_updates import bounds_of, run_clipped
from tfopt.cuda.device_array import as_device_array, name_of_dtype
from tfopt.cuda.library import load
from tfopt.cuda.norms import SKIPPED, TYPES, Norms
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import COPIES, DenseUpdate, RowsUpdate, Update, WholeUpdate
from tfopt.cuda.validation import device_of
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.commit import Launch
from tfopt.updates.rule_steps import DenseBucket, RuleStep, SparseUpdate

_NOT, _EACH, _TOGETHER = 0, 1, 2  # the gradients whose norms are limited, as in device_step.h

__all__ = [
    "are_finite",
    "check_gradient",
    "checked_updates",
    "copy_of",
    "launch_of",
    "limits_of",
    "run_clipped",
]


def checked_updates(
    parts: Sequence[DenseBucket | SparseUpdate],
    steps: Sequence[RuleStep],
    grads: Sequence[Any],
) -> list[Update]:
    """Check the updates of the parts of a step and return them.

    If there are indices, this waits until the GPU has checked them.

    Parameters
    ----------
    parts : sequence of DenseBucket and SparseUpdate
    steps : sequence of RuleStep
        Of each part.
    grads : sequence
        The gradients of the step.
    """
    updates: list[Update] = []
    for part, step in zip(parts, steps, strict=True):
        if isinstance(part, DenseBucket):
            updates += _dense(part, [grads[place] for place in part.places], step)
        else:
            updates.append(_rows(part, grads[part.place], step))
    return list(map(_without_outside, updates))


def launch_of(
    parts: Sequence[DenseBucket | SparseUpdate],
    updates: Sequence[Update],
    grads: list[Any],
    limits: tuple[float | None, float | None, float | None],
) -> Launch | None:
    """Return the write that queues checked updates, and that other gradients can be given to.

    It is None for updates of whole variables by gradients of rows, for arrays on several GPUs or
    streams, and for arrays whose address is slow to ask for.

    Parameters
    ----------
    parts : sequence of DenseBucket and SparseUpdate
    updates : sequence of DenseUpdate and RowsUpdate
        As returned by `checked_updates`.
    grads : list
        The gradients of the step.
    limits : tuple
        Of elements, of norms and of the global norm.
    """
    if any(isinstance(update, WholeUpdate) for update in updates):
        return None
    described: list[tuple[Any, ...]] = []
    arrays: list[Any] = []
    places: list[int] = []
    for part, update in zip(parts, updates, strict=True):
        assert not isinstance(update, WholeUpdate)
        columns = part.operands if isinstance(part, DenseBucket) else [[a] for a in part.arrays]
        rule, gradient = update.library.rules[update.kernel.name], update.gradients[0].dtype
        types = update.types, TYPES[gradient]
        stored = update.stored and (update.stored.storage, update.stored.tables or 0)
        others = not update.everywhere if isinstance(update, RowsUpdate) else None
        own = len(part.places), part.decays, others, stored
        described.append((update.kernel, rule, *types, *own))
        places += part.places
        every = (array for variable in zip(*columns, strict=True) for array in variable)
        arrays += [array.array if isinstance(array, Blocks) else array for array in every]
    if len({update.device for update in updates}) > 1:
        return None
    library, device = updates[0].library, updates[0].device
    gradients = {gradient.dtype for update in updates for gradient in update.gradients}
    limited = _limited(limits, 1.0, gradients)
    functions = library.capsules, library.check_rows
    launch = Launch(*functions, device, described, arrays, places, limited, grads)
    return launch if launch.possible else None


def limits_of(
    limits: tuple[float | None, float | None, float | None], scale: float, grads: Sequence[Any]
) -> tuple[float, ...]:
    """Return the limits of gradients before their scaling, as a launch takes them."""
    return _limited(limits, scale, set(map(name_of_dtype, grads)))


def _limited(
    limits: tuple[float | None, float | None, float | None], scale: float, dtypes: set[str]
) -> tuple[float, ...]:
    clipvalue, clipnorm, global_clipnorm = limits
    by_dtype = bounds_of(clipvalue, scale, dtypes)
    bounds = [by_dtype.get(dtype, math.inf) for dtype in list(TYPES)[:4]]
    if global_clipnorm is not None:
        return _TOGETHER, global_clipnorm / scale, *bounds
    return (_NOT, math.inf, *bounds) if clipnorm is None else (_EACH, clipnorm / scale, *bounds)


def copy_of(targets: list[Any], sources: list[Any]) -> Launch | None:
    """Return the write that copies arrays of the same shapes, rounded to the targets' dtypes.

    It is None for arrays on several GPUs or streams, and for those whose address is slow to ask
    for.
    """
    library = load()
    to = [as_device_array(array, "a copy") for array in targets]
    read = [as_device_array(array, "what is copied") for array in sources]
    places: dict[tuple[str, str], list[int]] = {}
    for k, each in enumerate(zip(to, read, strict=True)):
        places.setdefault((each[0].dtype, each[1].dtype), []).append(k)
    rule = kernels["gradient_descent"]
    described = [
        (rule, library.copy, COPIES[types], TYPES[types[1]], len(own), True, None, None)
        for types, own in places.items()
    ]
    order = [k for own in places.values() for k in own]
    device = device_of([("a copy", array) for array in (*to, *read)], library)
    functions = library.capsules, library.check_rows
    arrays = [targets[k] for k in order]
    limited = _limited((None, None, None), 1.0, set())
    launch = Launch(*functions, device, described, arrays, order, limited, sources)
    return launch if launch.possible else None


def check_gradient(var: Any, grad: Any) -> None:
    """Raise if a gradient, an array or IndexedSlices, does not fit a variable on a GPU.

    This waits until the GPU has checked indices.
    """
    simplest, checked = kernels["gradient_descent"], ((0.0,), 0)
    if isinstance(grad, IndexedSlices):
        rows = (var, grad.values), *checked, grad.indices, "sequential", 1.0, True
        _without_outside(rows_update(simplest, *rows))
    else:
        dense_update(simplest, (var, grad), *checked, 1.0)


def are_finite(grads: Sequence[Any]) -> bool:
    """Wait for gradients; return whether all elements are finite."""
    values = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    arrays = [as_device_array(value, "grad") for value in values]
    library = load()
    device = device_of([("grad", array) for array in arrays], library)
    with (
        in_order(library, device, arrays) as stream,
        Norms.for_arrays(library, device, stream, arrays, own=False) as norms,
    ):
        norms.compute(arrays, math.inf, SKIPPED, {})
        return norms.first_nonfinite() is None


def _dense(part: DenseBucket, grads: list[Any], step: RuleStep) -> list[Update]:
    """Return the update of some variables, and those of others, whose gradients are of rows."""
    arguments = step.hypers, step.flags
    updates: list[Update] = []
    given: list[tuple[Any, ...]] = []
    for operands, grad in zip(zip(*part.operands, strict=True), grads, strict=True):
        if isinstance(grad, IndexedSlices):
            rows = grad.indices, grad.values
            updates.append(whole_update(step.kernel, operands, *arguments, *rows, step.var_scale))
        else:
            given.append((*operands, grad))
    columns = tuple(map(list, zip(*given, strict=True)))
    if columns:
        scales = step.grad_scale, step.var_scale
        together = dense_update(
            step.kernel, columns, *arguments, *scales, True, step.decay,
            rounding=step.rounding, places=step.places,
        )  # fmt: skip
        assert together is not None  # there are variables
        updates.insert(0, together)
    return updates


def _rows(part: SparseUpdate, slices: IndexedSlices, step: RuleStep) -> RowsUpdate:
    operands = (*part.arrays, slices.values)
    rows = operands, step.hypers, step.flags, slices.indices, step.duplicates
    scales = step.grad_scale, True, step.var_scale
    others = step.decay, step.rounding, step.places
    return rows_update(step.kernel, *rows, *scales, step.lazy, *others)


def _without_outside(update: Update) -> Update:
    """Wait until indices, if there are any, have been checked; return the update without that."""
    if isinstance(update, DenseUpdate):
        return update
    with in_order(update.library, update.device, update.arrays) as stream:
        if isinstance(update, WholeUpdate):
            update.rows.check_indices(stream)
            return update
        update.check_indices(stream)
    return update._replace(check_range=False)
